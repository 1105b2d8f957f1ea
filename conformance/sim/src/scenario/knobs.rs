//! The core's knobs by name, as a scenario sets them: any field of [`Config`] but what the world itself decides (rank,
//! size, rails).

use rerail_core::config::{Config, ConfigError, Multiplex, Strategy, Striping};
use rerail_core::endpoint::{MessageClass, Policy};
use serde::{Deserialize, Serialize};

use super::Span;
use crate::rng::Rng;

/// Rail choice for small messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MultiplexWord {
    /// [`Multiplex::Binding`].
    Binding,
    /// [`Multiplex::RoundRobin`].
    RoundRobin,
    /// [`Multiplex::WeightedRoundRobin`].
    WeightedRoundRobin,
    /// [`Multiplex::WindowRoundRobin`].
    WindowRoundRobin,
    /// [`Multiplex::Balanced`].
    Balanced,
    /// [`Strategy::Greedy`].
    Greedy,
    /// [`Strategy::Aggregate`].
    Aggregate,
    /// [`Strategy::Split`].
    Split,
    /// [`Strategy::NewMadeleine`].
    #[serde(rename = "newmadeleine")]
    NewMadeleine,
}

/// Cutting of large messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StripingWord {
    /// [`Striping::Binding`].
    Binding,
    /// [`Striping::Even`].
    Even,
    /// [`Striping::Weighted`].
    Weighted,
    /// [`Striping::Adaptive`].
    Adaptive,
    /// [`Striping::Balanced`].
    Balanced,
    /// [`Strategy::Greedy`].
    Greedy,
    /// [`Strategy::Aggregate`].
    Aggregate,
    /// [`Strategy::Split`].
    Split,
    /// [`Strategy::NewMadeleine`].
    #[serde(rename = "newmadeleine")]
    NewMadeleine,
}

/// A policy by its name, as in [`Policy::named`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "&'static str")]
pub struct PolicyWord(pub Policy);

impl TryFrom<String> for PolicyWord {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        let known = || Policy::ALL.map(Policy::name).join(", ");
        Policy::named(&name).map(PolicyWord).ok_or_else(|| format!("no policy \"{name}\"; there are {}", known()))
    }
}

impl From<PolicyWord> for &'static str {
    fn from(word: PolicyWord) -> Self {
        word.0.name()
    }
}

macro_rules! knobs {
    ($($name:ident: $type:ty,)* ; spans: $($span:ident,)*) => {
        /// What a scenario sets; `None`: as the simulator's default is.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct Knobs {
            $(
                /// `Config` field of the same name.
                #[serde(skip_serializing_if = "Option::is_none")]
                pub $name: Option<$type>,
            )*
            $(
                /// `Config` field of the same name, with its unit.
                #[serde(skip_serializing_if = "Option::is_none")]
                pub $span: Option<Span>,
            )*
            /// `Config::multiplex`.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub multiplex: Option<MultiplexWord>,
            /// `Config::striping`.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub striping: Option<StripingWord>,
            /// Both of these or one of them, before what they say.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub policy: Option<PolicyWord>,
            /// The same for small messages alone, before what is said of all.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub policy_small: Option<PolicyWord>,
            /// The same for large messages alone.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub policy_large: Option<PolicyWord>,
            /// The same for one-sided operations alone.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub policy_one_sided: Option<PolicyWord>,
            /// Before `bind`: the processes of a host are bound in turn to the rails that are not shared memory
            /// (multirail-2004, figures 9 and 10).
            #[serde(skip_serializing_if = "Option::is_none")]
            pub bind_by_local_rank: Option<bool>,
            /// `Config::weights`, from rail 0 on; rails beyond weigh nothing.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub weights: Option<Vec<u16>>,
        }

        impl Knobs {
            /// Sets what is set.
            pub fn apply(&self, config: &mut Config) {
                $( if let Some(value) = self.$name { config.$name = value; } )*
                $( if let Some(value) = self.$span { config.$span = value.nanos(); } )*
                match self.multiplex {
                    Some(MultiplexWord::Binding) => config.multiplex = Multiplex::Binding,
                    Some(MultiplexWord::RoundRobin) => config.multiplex = Multiplex::RoundRobin,
                    Some(MultiplexWord::WeightedRoundRobin) => config.multiplex = Multiplex::WeightedRoundRobin,
                    Some(MultiplexWord::WindowRoundRobin) => config.multiplex = Multiplex::WindowRoundRobin,
                    Some(MultiplexWord::Balanced) => config.multiplex = Multiplex::Balanced,
                    Some(MultiplexWord::Greedy) => config.multiplex = Multiplex::Strategy(Strategy::Greedy),
                    Some(MultiplexWord::Aggregate) => config.multiplex = Multiplex::Strategy(Strategy::Aggregate),
                    Some(MultiplexWord::Split) => config.multiplex = Multiplex::Strategy(Strategy::Split),
                    Some(MultiplexWord::NewMadeleine) => config.multiplex = Multiplex::Strategy(Strategy::NewMadeleine),
                    None => {}
                }
                if let Some(weights) = &self.weights {
                    config.weights = std::array::from_fn(|rail| weights.get(rail).copied().unwrap_or(0));
                }
                match self.striping {
                    Some(StripingWord::Binding) => config.striping = Striping::Binding,
                    Some(StripingWord::Even) => config.striping = Striping::Even,
                    Some(StripingWord::Weighted) => config.striping = Striping::Weighted,
                    Some(StripingWord::Adaptive) => config.striping = Striping::Adaptive,
                    Some(StripingWord::Balanced) => config.striping = Striping::Balanced,
                    Some(StripingWord::Greedy) => config.striping = Striping::Strategy(Strategy::Greedy),
                    Some(StripingWord::Aggregate) => config.striping = Striping::Strategy(Strategy::Aggregate),
                    Some(StripingWord::Split) => config.striping = Striping::Strategy(Strategy::Split),
                    Some(StripingWord::NewMadeleine) => config.striping = Striping::Strategy(Strategy::NewMadeleine),
                    None => {}
                }
                if let Some(PolicyWord(policy)) = self.policy {
                    config.multiplex = policy.multiplex().unwrap_or(config.multiplex);
                    config.striping = policy.striping().unwrap_or(config.striping);
                }
            }

            /// The policies of single classes, of which endpoints are told when they stand.
            pub fn class_policies(&self) -> impl Iterator<Item = (MessageClass, Policy)> {
                let classes = [
                    (MessageClass::Small, self.policy_small),
                    (MessageClass::Large, self.policy_large),
                    (MessageClass::OneSided, self.policy_one_sided),
                ];
                classes.into_iter().filter_map(|(class, word)| Some((class, word?.0)))
            }
        }
    };
}

knobs! {
    channels_max: u32,
    operations_max: u32,
    segments_max: u8,
    packets_max: u32,
    window: u32,
    unexpected_per_peer: u16,
    blocks_per_peer: u16,
    block_bytes: u32,
    eager_bytes_max: u32,
    retained_max: u32,
    requests_per_peer: u16,
    bulk_max: u32,
    windows_max: u32,
    counters_max: u16,
    match_buckets: u32,
    ack_packets: u16,
    ack_bytes: u32,
    rails_eligible: u64,
    rails_used: u8,
    bind: u8,
    alpha: u16,
    window_messages: u16,
    nic_depth: u16,
    aggregate_bytes_max: u32,
    copy_bytes_per_second: u64,
    ;
    spans:
    ack_delay,
    connect_timeout,
    probe_after,
    silence_max,
    feed_time,
    sampling_time_max,
    packet_cost,
}

/// Tables so small that everything runs full, drawn by the world's seed: a resource limit as a fault.
pub fn squeeze(config: &mut Config, rng: &mut Rng) {
    config.packets_max = 1 << rng.within(2, 6);
    config.operations_max = rng.within(24, 64) as u32;
    config.window = 64;
    config.ack_packets = rng.within(1, 8) as u16;
    config.unexpected_per_peer = rng.within(1, 8) as u16;
    config.block_bytes = 64 << rng.below(3);
    config.blocks_per_peer = rng.within(1, 16) as u16;
    config.eager_bytes_max = config.eager_bytes_max.min(u32::from(config.blocks_per_peer) * config.block_bytes);
    config.retained_max = rng.below(4) as u32;
    config.requests_per_peer = rng.within(1, 3) as u16;
    config.bulk_max = rng.within(1, 3) as u32;
    config.match_buckets = 1 << rng.below(4);
}

/// The fields of a [`ConfigError`] as people read them.
pub fn describe(error: &ConfigError) -> String {
    let ConfigError { field, value, min, max, also } = error;
    let also = if also.is_empty() { String::new() } else { format!(", {also}") };
    format!("config.{field} = {value} is out of range: {min} to {max}{also}")
}
