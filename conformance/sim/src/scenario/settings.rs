//! The core's settings by name, as a scenario sets them: any field of [`Config`] but what the simulation
//! itself decides (rank, size, rails).

use std::marker::PhantomData;

use rerail_core::config::{Config, ConfigError, Policy};
use rerail_core::endpoint::MessageClass;
use rerail_core::time::Nanos;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Span;
use crate::rng::Rng;

/// Policies that a key of a scenario may have, by their names.
trait Choice {
    /// What one is called in errors.
    const SORT: &str;

    /// All there are.
    const ALL: &[Policy];
}

/// Those that choose rails.
struct RailChoice;

impl Choice for RailChoice {
    const SORT: &str = "rail choice";
    const ALL: &[Policy] = &Policy::RAIL_CHOICES;
}

/// Those that cut messages.
struct Striping;

impl Choice for Striping {
    const SORT: &str = "striping";
    const ALL: &[Policy] = &Policy::STRIPINGS;
}

/// All of them.
struct Any;

impl Choice for Any {
    const SORT: &str = "policy";
    const ALL: &[Policy] = &Policy::ALL;
}

/// Values in a file by their names.
struct ByName<C>(PhantomData<C>);

impl<C: Choice> ByName<C> {
    fn serialize<S: Serializer>(value: &Option<Policy>, serializer: S) -> Result<S::Ok, S::Error> {
        value.map(Policy::name).serialize(serializer)
    }

    fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Policy>, D::Error> {
        let Some(name) = Option::<String>::deserialize(deserializer)? else { return Ok(None) };
        let found = Policy::named(&name).filter(|policy| C::ALL.contains(policy));
        found.map(Some).ok_or_else(|| {
            let known: Vec<&str> = C::ALL.iter().map(|policy| policy.name()).collect();
            D::Error::custom(format!("no {} \"{name}\"; there are {}", C::SORT, known.join(", ")))
        })
    }
}

macro_rules! core_settings {
    ($($name:ident: $type:ty,)* ; spans: $($span:ident,)*) => {
        /// What a scenario sets; `None`: as the simulator's default is.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct CoreSettings {
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
            #[serde(skip_serializing_if = "Option::is_none", with = "ByName::<RailChoice>")]
            pub multiplex: Option<Policy>,
            /// `Config::striping`.
            #[serde(skip_serializing_if = "Option::is_none", with = "ByName::<Striping>")]
            pub striping: Option<Policy>,
            /// Both of these or one of them, before their values.
            #[serde(skip_serializing_if = "Option::is_none", with = "ByName::<Any>")]
            pub policy: Option<Policy>,
            /// The same for small messages alone, before the value for all.
            #[serde(skip_serializing_if = "Option::is_none", with = "ByName::<Any>")]
            pub policy_small: Option<Policy>,
            /// The same for large messages alone.
            #[serde(skip_serializing_if = "Option::is_none", with = "ByName::<Any>")]
            pub policy_large: Option<Policy>,
            /// The same for one-sided operations alone.
            #[serde(skip_serializing_if = "Option::is_none", with = "ByName::<Any>")]
            pub policy_one_sided: Option<Policy>,
            /// Before `bind`: the processes of a host are bound in turn to the rails that are not shared
            /// memory (multirail-2004, figures 9 and 10).
            #[serde(skip_serializing_if = "Option::is_none")]
            pub bind_by_local_rank: Option<bool>,
            /// `Config::weights`, from rail 0 on; rails beyond weigh nothing.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub weights: Option<Vec<u16>>,
        }

        impl CoreSettings {
            /// Sets what is set.
            pub fn apply(&self, config: &mut Config) {
                $( if let Some(value) = self.$name { config.$name = value; } )*
                $( if let Some(value) = self.$span { config.$span = value.nanos(); } )*
                config.multiplex = self.multiplex.unwrap_or(config.multiplex);
                if let Some(weights) = &self.weights {
                    config.weights = std::array::from_fn(|rail| weights.get(rail).copied().unwrap_or(0));
                }
                config.striping = self.striping.unwrap_or(config.striping);
                if let Some(policy) = self.policy {
                    config.set_policy(policy);
                }
            }

            /// The policies of single classes, which are set at endpoints once they exist.
            pub fn class_policies(&self) -> impl Iterator<Item = (MessageClass, Policy)> {
                let classes = [
                    (MessageClass::Small, self.policy_small),
                    (MessageClass::Large, self.policy_large),
                    (MessageClass::OneSided, self.policy_one_sided),
                ];
                classes.into_iter().filter_map(|(class, policy)| Some((class, policy?)))
            }
        }
    };
}

core_settings! {
    first_number: u32,
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
    recovery: bool,
    express: bool,
    ;
    spans:
    ack_delay,
    connect_timeout,
    probe_after,
    silence_max,
    feed_time,
    sampling_time_max,
    packet_cost,
    recovery_timeout,
    redial_min,
    redial_max,
    stall_min,
    stall_max,
    stall_lone,
    keepalive,
}

/// Tables so small that everything runs full, drawn by the simulation's seed: a resource limit as a fault.
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

/// Settings of one rank at the edges of what is legal, each as likely as not left as it was; numbers that
/// wrap before long.
pub fn uneven(config: &mut Config, rng: &mut Rng) {
    let near = rng.below(70) as u32;
    config.first_number = *rng
        .pick(&[0, near.wrapping_neg(), (1 << 31) - near, (1 << 16) - near, rng.clone().draw() as u32])
        .unwrap_or(&0);
    macro_rules! edges {
        ($($field:ident: $values:expr,)*) => {
            $( if rng.one_in(3) && let Some(value) = rng.pick(&$values) { config.$field = *value; } )*
        };
    }
    edges! {
        operations_max: [24, 29, 257],
        packets_max: [2, 3, 5, 7, 61, 257],
        segments_max: [1, 2, 255],
        window: [64, 128, 1024],
        unexpected_per_peer: [1, 2, 3, 31],
        blocks_per_peer: [1, 2, 3, 31],
        block_bytes: [64, 128, 192, 4096],
        retained_max: [0, 1, 2, 63],
        requests_per_peer: [1, 2, 3, 17],
        bulk_max: [1, 2, 3],
        windows_max: [4, 5, 64],
        counters_max: [0, 1, 2, 8],
        match_buckets: [1, 2],
        ack_packets: [1, 2, 31],
        ack_bytes: [1, 61, u32::MAX],
        ack_delay: [Nanos(0), Nanos(1), Nanos::from_micros(50), Nanos::from_millis(50)],
        probe_after: [Nanos(0), Nanos::from_micros(20), Nanos::from_millis(5)],
        feed_time: [Nanos(0), Nanos(1), Nanos::from_millis(10)],
        sampling_time_max: [Nanos(0), Nanos(1), Nanos::from_millis(5)],
        alpha: [0, 1, 256],
        window_messages: [1, u16::MAX],
        nic_depth: [1, 2, u16::MAX],
        aggregate_bytes_max: [0, 1, 33, 101, 1031],
        packet_cost: [Nanos(0), Nanos(1), Nanos::from_millis(1)],
        copy_bytes_per_second: [0, 1, u64::MAX],
    }
    let room = u32::from(config.blocks_per_peer) * config.block_bytes;
    let eager = [0, 1, room, room.saturating_sub(1), 61, config.eager_bytes_max];
    config.eager_bytes_max = (*rng.pick(&eager).unwrap_or(&0)).min(room).min(8192);
    config.ack_packets = config.ack_packets.min((config.window / 2) as u16);
}

/// The fields of a [`ConfigError`] as people read them.
pub fn describe(error: &ConfigError) -> String {
    let ConfigError { field, value, min, max, also, .. } = error;
    if error.policy.is_some() {
        return format!("config.{error}");
    }
    let also = if also.is_empty() { String::new() } else { format!(", {also}") };
    format!("config.{field} = {value} is out of range: {min} to {max}{also}")
}
