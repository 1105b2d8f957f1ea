//! Every size and setting of an endpoint, and the exact memory that follows from them.

mod policy;

use core::fmt;

pub use policy::Policy;

use crate::ids::PeerId;
use crate::time::Nanos;

/// Most rails of an endpoint.
pub const RAILS_MAX: usize = 64;

/// `alpha` of equation 4 that follows the last message alone.
pub const ALPHA_ONE: u16 = 256;

/// Sizes and settings. All memory follows from it before anything starts:
/// [`memory_bytes`](Self::memory_bytes) for the core's state, [`pool_bytes`](Self::pool_bytes) for payloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// This process's rank.
    pub rank: PeerId,
    /// What packets name as their source. `None`: the rank, which is the same for all processes. `Some`: each
    /// process numbers its peers itself, and a peer's number is that of its first CONNECT (S-11); any value
    /// but `u32::MAX`, different for different processes.
    pub number: Option<u32>,
    /// The numbers that this endpoint gives to packets and connections begin here, towards each peer (S-1,
    /// F-1); any value. A host draws it at random for each process, so that no packet of an earlier process
    /// of the same rank is taken for one of this process, as with initial sequence numbers of TCP (RFC 9293,
    /// 3.4.1).
    pub first_number: u32,
    /// Processes in the job, this one included.
    pub peers_max: u32,
    /// Peers that may be connected at once; 2 to `peers_max` (1 where that is 1), and no more than 2^20. This
    /// process is one of them: once it has sent to itself, it has one channel fewer for the others.
    pub channels_max: u32,
    /// Rails of this endpoint; 1 to 64.
    pub rails_max: u8,
    /// Operations that may be pending at once, those not yet acknowledged included.
    pub operations_max: u32,
    /// Pieces that one operation's memory may have; 1 to 255.
    pub segments_max: u8,
    /// Packets that may be unacknowledged at once, over all peers.
    pub packets_max: u32,
    /// Packets of one lane of one peer that may be unacknowledged at once: a power of two, 64 to 32,768.
    pub window: u32,
    /// Messages of one peer that may wait unmatched or out of order; 1 to 16,384. A peer that has used them
    /// up waits.
    pub unexpected_per_peer: u16,
    /// Blocks for payloads of such messages, for each peer; 1 to 16,384. A peer that has used them up sends
    /// by rendezvous.
    pub blocks_per_peer: u16,
    /// Bytes of one such block; a multiple of 64, 64 to 2^20.
    pub block_bytes: u32,
    /// Largest eager payload in bytes; a rail may have a lower limit. At most `blocks_per_peer *
    /// block_bytes`.
    pub eager_bytes_max: u32,
    /// Copies of eager payloads that may be held until acknowledged, `eager_bytes_max` each.
    pub retained_max: u32,
    /// Gets and atomics of one peer that are served at once.
    pub requests_per_peer: u16,
    /// Large transfers that may be cut at once. Also sets of keys: each large message that was announced with
    /// keys has one at both ends, each that is written too. A message without a free set uses another
    /// protocol. Where only some of them are read, one side may move the bytes of both directions, at
    /// half the rate: windows of n messages that are read, both ways at once, take 2n, over all peers. One
    /// more costs about 900 bytes with 8 rails.
    pub bulk_max: u32,
    /// Windows that may be exposed.
    pub windows_max: u32,
    /// Completion counters.
    pub counters_max: u16,
    /// Hash buckets of the tag matcher: a power of two.
    pub match_buckets: u32,
    /// An explicit acknowledgment is sent after this many packets without one.
    pub ack_packets: u16,
    /// An explicit acknowledgment is sent after this many payload bytes without one.
    pub ack_bytes: u32,
    /// An explicit acknowledgment is sent after this time without one.
    pub ack_delay: Nanos,
    /// A peer that is not connected by then is lost; above 0. The default is long: a process makes no
    /// progress until its first call. A process that is gone is lost at once where its rails report that
    /// (F-9).
    pub connect_timeout: Nanos,
    /// A probe is sent to a peer that has packets to acknowledge and is silent for this long. `Nanos(0)`:
    /// never.
    pub probe_after: Nanos,
    /// A peer that has packets to acknowledge, or a probe to answer, and is silent for this long is lost.
    /// `Nanos(0)`: never (the rails' own detection of dead processes and hosts remains).
    pub silence_max: Nanos,
    /// Whether a failed connection is reopened and its unacknowledged packets are sent again (section F of
    /// the protocol). Without recovery the first failure ends the peer.
    pub recovery: bool,
    /// Whether small messages take the express path: over shared memory (`core/src/fast`), and over rails
    /// that can lose (`core/src/endpoint/at_once.rs`). Off to find faults.
    pub express: bool,
    /// A peer with no usable path for this long is lost. `Nanos(0)`: never (a process that is known to be
    /// gone is lost at once).
    pub recovery_timeout: Nanos,
    /// A failed connection is opened again: at once where it had been up for `redial_max`, else after a pause
    /// that starts at this value and doubles; above 0.
    pub redial_min: Nanos,
    /// The longest such pause; above 0.
    pub redial_max: Nanos,
    /// A rail with work pending from which nothing was received for at least this long is probed. It is given
    /// up where the answer shows that it lost packets, or where it gives no answer while other rails do.
    /// `Nanos(0)`: never.
    pub stall_min: Nanos,
    /// Upper limit of that time for a rail that has many bytes to move.
    pub stall_max: Nanos,
    /// After this time a rail that has not answered is given up and reopened, even if no other rail delivers
    /// anything. `Nanos(0)`, the default: never, as a peer that computes answers nowhere, and a rail whose
    /// peer died reports that itself. With another value such a peer is lost after this time plus
    /// `recovery_timeout` if an acknowledgment of it is pending.
    pub stall_lone: Nanos,
    /// A peer from which nothing was received for this long is probed on each of its rails, even if no
    /// acknowledgment is pending on either side (F-13). This detects dead peers when nothing is in flight. As
    /// with keep-alive of TCP (RFC 9293, 3.8.4) or UCX (`UCX_KEEPALIVE_INTERVAL`, 20 s), the rail answers for
    /// the peer's host and process: a rail that can't deliver the probe fails;
    /// a process that receives the probe and computes is not lost. A peer with a rail that is lossless while
    /// the peer lives is not probed. `Nanos(0)`: never. However short the interval, a process sends at most
    /// 10,000 probes a second on average, one for each rail of each peer: with 1,000 silent peers on two
    /// rails, each is probed every 200 ms at best.
    pub keepalive: Nanos,
    /// A rail is given payload of large transfers for about so long, by the rate that it was measured at;
    /// what lies further ahead is decided later. Two posts it may always have.
    pub feed_time: Nanos,
    /// Where several rails lead to a peer, the endpoint measures latency and rate of each rail once, which
    /// may take this long. `Nanos(0)`: no sampling; rates come from what is sent.
    pub sampling_time_max: Nanos,
    /// Rail choice for what is not cut: messages, requests, announcements (multirail-2004, 4.4); of all
    /// classes, until [`set_policy`](crate::endpoint::Endpoint::set_policy) changes it. One of
    /// [`Policy::RAIL_CHOICES`]; all but binding skip a rail that has no room.
    pub multiplex: Policy,
    /// Cutting of large messages (multirail-2004, 4.4); of all classes, until
    /// [`set_policy`](crate::endpoint::Endpoint::set_policy) changes it. One of [`Policy::STRIPINGS`].
    pub striping: Policy,
    /// Rails that may carry messages, bit per rail; where none of them is up, all may (P-6).
    pub rails_eligible: u64,
    /// How many of these carry messages at most; 1 to 64 (P-6).
    pub rails_used: u8,
    /// Where binding binds: to the first rail from this one on that may carry the message, in a circle.
    pub bind: u8,
    /// Weight by rail, relative to each other; a rail of weight 0 carries nothing while another rail has a
    /// weight.
    pub weights: [u16; RAILS_MAX],
    /// Equation 4's alpha in parts of [`ALPHA_ONE`]: what the newest message's times count against the
    /// weights before.
    pub alpha: u16,
    /// Messages that a rail gets before the next one has its turn, by window round robin.
    pub window_messages: u16,
    /// The strategies regard a rail as idle while it has fewer posts to the peer than this, 1 or more. With 1
    /// an idle rail has no work, as in newmadeleine-2007; with 2 it stays busy while the strategy decides.
    pub nic_depth: u16,
    /// Payload of a packet of several messages at most, the 32 bytes in front of each included; never more
    /// than `eager_bytes_max`. newmadeleine-2007, 3.1: 16 KiB.
    pub aggregate_bytes_max: u32,
    /// The cost of one more packet on both sides. Aggregation weighs it against copies.
    pub packet_cost: Nanos,
    /// The copy rate of a processor. Aggregation weighs it against packets; 0: copies cost nothing.
    pub copy_bytes_per_second: u64,
}

impl Config {
    /// A configuration for rank `rank` of `size`, with defaults for up to 64 connected peers.
    pub const fn new(rank: PeerId, size: u32) -> Self {
        Config {
            rank,
            number: None,
            first_number: 0,
            peers_max: size,
            channels_max: if size < 64 { size } else { 64 },
            rails_max: 8,
            operations_max: 4096,
            segments_max: 4,
            packets_max: 2048,
            window: 256,
            unexpected_per_peer: 256,
            blocks_per_peer: 256,
            block_bytes: 1024,
            eager_bytes_max: 8192,
            retained_max: 512,
            requests_per_peer: 16,
            bulk_max: 128,
            windows_max: 64,
            counters_max: 64,
            match_buckets: 1024,
            ack_packets: 32,
            ack_bytes: 256 * 1024,
            ack_delay: Nanos::from_millis(1),
            connect_timeout: Nanos::from_millis(600_000),
            probe_after: Nanos(0),
            silence_max: Nanos(0),
            recovery: true,
            express: true,
            recovery_timeout: Nanos::from_millis(600_000),
            redial_min: Nanos::from_millis(1),
            redial_max: Nanos::from_millis(1_000),
            stall_min: Nanos::from_millis(100),
            stall_max: Nanos::from_millis(10_000),
            stall_lone: Nanos(0),
            keepalive: Nanos::from_millis(10_000),
            feed_time: Nanos::from_micros(250),
            sampling_time_max: Nanos::from_millis(5),
            multiplex: Policy::DEFAULT,
            striping: Policy::DEFAULT,
            rails_eligible: u64::MAX,
            rails_used: RAILS_MAX as u8,
            bind: 0,
            weights: [1; RAILS_MAX],
            alpha: ALPHA_ONE / 2,
            window_messages: 16,
            nic_depth: 2,
            aggregate_bytes_max: 16 * 1024,
            packet_cost: Nanos(1_000),
            copy_bytes_per_second: 4_000_000_000,
        }
    }
}

/// Which value of a [`Config`] is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The field.
    pub field: &'static str,
    /// Its value.
    pub value: u64,
    /// The least value allowed.
    pub min: u64,
    /// The greatest value allowed.
    pub max: u64,
    /// A further requirement ("a power of two"); empty: none.
    pub also: &'static str,
    /// The fields that `field` is made of where it is made of several ("channels_max * rails_max"); else
    /// none.
    pub made_of: &'static [&'static str],
    /// The values of these.
    pub made_of_values: [u32; 3],
    /// The policy that `field` is, where it must be one that does something else; `value` is its place in
    /// [`Policy::ALL`] then.
    pub policy: Option<Policy>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ConfigError { field, value, min, max, also, .. } = self;
        if let Some(policy) = self.policy {
            return write!(f, "{field} is {}; it must be {also}", policy.name());
        }
        write!(f, "{field} is {value}")?;
        for (at, (part, value)) in self.parts().enumerate() {
            write!(f, "{}{part} is {value}", if at == 0 { " (" } else { ", " })?;
        }
        if self.parts().next().is_some() {
            f.write_str(")")?;
        }
        write!(f, ", allowed are {min} to {max}")?;
        if also.is_empty() { Ok(()) } else { write!(f, "; it must be {also}") }
    }
}

impl core::error::Error for ConfigError {}

impl ConfigError {
    /// Of a field that is made of no others.
    pub(crate) const fn of(field: &'static str, value: u64, min: u64, max: u64, also: &'static str) -> ConfigError {
        ConfigError { field, value, min, max, also, made_of: &[], made_of_values: [0; 3], policy: None }
    }

    /// The fields that `field` is made of, and their values, where it is made of several.
    pub fn parts(&self) -> impl Iterator<Item = (&'static str, u32)> {
        self.made_of.iter().copied().zip(self.made_of_values)
    }
}

impl Config {
    /// Checks every value against its range, and the sizes of tables that several values make together: no
    /// table has more than 2^28 entries (pieces of memory and parts of stripes, several for each entry, not
    /// counted: 64-bit targets have room).
    pub const fn validate(&self) -> Result<(), ConfigError> {
        const fn within(field: &'static str, value: u64, min: u64, max: u64) -> Result<(), ConfigError> {
            if value < min || value > max {
                return Err(ConfigError::of(field, value, min, max, ""));
            }
            Ok(())
        }
        const fn power_of_two(field: &'static str, value: u64, min: u64, max: u64) -> Result<(), ConfigError> {
            if value < min || value > max || !value.is_power_of_two() {
                return Err(ConfigError::of(field, value, min, max, "a power of two"));
            }
            Ok(())
        }
        const fn multiple(field: &'static str, value: u64, min: u64, max: u64) -> Result<(), ConfigError> {
            if value < min || value > max || !value.is_multiple_of(min) {
                return Err(ConfigError::of(field, value, min, max, "a multiple of 64"));
            }
            Ok(())
        }
        const fn policy(field: &'static str, value: Policy, does: bool, also: &'static str) -> Result<(), ConfigError> {
            if !does {
                let wrong = ConfigError::of(field, value as u64, 0, Policy::ALL.len() as u64 - 1, also);
                return Err(ConfigError { policy: Some(value), ..wrong });
            }
            Ok(())
        }
        // Sums and products of values in their ranges, far below what 64 bits hold.
        const fn table(
            field: &'static str,
            value: u64,
            made_of: &'static [&'static str],
            made_of_values: [u32; 3],
        ) -> Result<(), ConfigError> {
            if value > TABLE_MAX {
                let wrong = ConfigError::of(field, value, 1, TABLE_MAX, "");
                return Err(ConfigError { made_of, made_of_values, ..wrong });
            }
            Ok(())
        }
        macro_rules! check {
            ($($check:expr),* $(,)?) => { $( if let Err(error) = $check { return Err(error); } )* };
        }
        // Table indices are 32 bits with a few values reserved, and no sensible size comes near this.
        const TABLE_MAX: u64 = 1 << 28;
        const CHANNELS_MAX: u64 = 1 << 20;
        let peers = self.peers_max as u64;
        let eager_room = self.blocks_per_peer as u64 * self.block_bytes as u64;
        check!(
            within("peers_max", self.peers_max as u64, 1, TABLE_MAX),
            within("rank", self.rank.0 as u64, 0, peers.saturating_sub(1)),
            match self.number {
                Some(number) => within("number", number as u64, 0, u32::MAX as u64 - 1),
                None => Ok(()),
            },
            within(
                "channels_max",
                self.channels_max as u64,
                // One for the endpoint itself, and one for its peer: with a single one the first of the two
                // would block the other for ever.
                if peers > 1 { 2 } else { 1 },
                if peers < CHANNELS_MAX { peers } else { CHANNELS_MAX }
            ),
            within("rails_max", self.rails_max as u64, 1, 64),
            within("operations_max", self.operations_max as u64, 1, TABLE_MAX),
            within("segments_max", self.segments_max as u64, 1, 255),
            within("packets_max", self.packets_max as u64, 2, TABLE_MAX),
            power_of_two("window", self.window as u64, 64, 32_768),
            within("unexpected_per_peer", self.unexpected_per_peer as u64, 1, 16_384),
            within("blocks_per_peer", self.blocks_per_peer as u64, 1, 16_384),
            multiple("block_bytes", self.block_bytes as u64, 64, 1 << 20),
            within("eager_bytes_max", self.eager_bytes_max as u64, 0, eager_room),
            within("retained_max", self.retained_max as u64, 0, TABLE_MAX),
            within("requests_per_peer", self.requests_per_peer as u64, 1, 1024),
            within("bulk_max", self.bulk_max as u64, 1, TABLE_MAX),
            within("windows_max", self.windows_max as u64, 0, TABLE_MAX),
            power_of_two("match_buckets", self.match_buckets as u64, 1, TABLE_MAX),
            within("ack_packets", self.ack_packets as u64, 1, self.window as u64 / 2),
            policy("multiplex", self.multiplex, self.multiplex.chooses_rails(), "a policy that chooses rails"),
            policy("striping", self.striping, self.striping.cuts(), "a policy that cuts messages"),
            within("rails_used", self.rails_used as u64, 1, RAILS_MAX as u64),
            within("bind", self.bind as u64, 0, RAILS_MAX as u64 - 1),
            within("alpha", self.alpha as u64, 0, ALPHA_ONE as u64),
            within("window_messages", self.window_messages as u64, 1, u16::MAX as u64),
            within("nic_depth", self.nic_depth as u64, 1, u16::MAX as u64),
            within("ack_bytes", self.ack_bytes as u64, 1, u32::MAX as u64),
            within("connect_timeout", self.connect_timeout.0, 1, u64::MAX),
            within("redial_min", self.redial_min.0, 1, u64::MAX),
            within("redial_max", self.redial_max.0, 1, u64::MAX),
        );
        let (channels, rails, window) = (self.channels_max, self.rails_max as u32, self.window);
        let (messages, blocks) = (self.unexpected_per_peer as u32, self.blocks_per_peer as u32);
        let (operations, requests) = (self.operations_max, self.requests_per_peer as u32);
        macro_rules! per_channel {
            ($field:literal, $part:literal, $value:ident) => {
                table($field, channels as u64 * $value as u64, &["channels_max", $part], [channels, $value, 0])
            };
        }
        check!(
            per_channel!("channels_max * rails_max", "rails_max", rails),
            per_channel!("channels_max * window", "window", window),
            per_channel!("channels_max * unexpected_per_peer", "unexpected_per_peer", messages),
            per_channel!("channels_max * blocks_per_peer", "blocks_per_peer", blocks),
            table(
                "operations_max + 3 * channels_max * requests_per_peer",
                operations as u64 + 3 * channels as u64 * requests as u64,
                &["operations_max", "channels_max", "requests_per_peer"],
                [operations, channels, requests],
            ),
        );
        Ok(())
    }

    /// Bytes of payload pool that the shim provides as [`RegionId::POOL`](crate::mem::RegionId::POOL): first
    /// the blocks for unexpected payloads, then the copies retained until acknowledged.
    pub fn pool_bytes(&self) -> Result<u64, ConfigError> {
        self.validate()?;
        Ok(self.retained_base() + u64::from(self.retained_max) * self.retained_stride())
    }

    /// Sets what a policy decides: rail choice, striping, or both. What it does not decide stays.
    pub const fn set_policy(&mut self, policy: Policy) {
        if policy.chooses_rails() {
            self.multiplex = policy;
        }
        if policy.cuts() {
            self.striping = policy;
        }
    }

    pub(crate) const fn blocks_max(&self) -> u32 {
        self.channels_max * self.blocks_per_peer as u32
    }

    pub(crate) const fn messages_max(&self) -> u32 {
        self.channels_max * self.unexpected_per_peer as u32
    }

    /// The caller's operations, parts of multi-receives included: one more than requests, so that a part that
    /// waits for a slot gets one whatever else waits.
    pub(crate) const fn parts_max(&self) -> u32 {
        self.operations_max + 1
    }

    /// Slots for operations: the caller's; as many for peers as a peer may have open; as many for answers
    /// that are still with a rail, so that a peer's request always finds one (C-5); and those for refusals of
    /// puts.
    pub(crate) const fn operation_slots(&self) -> u32 {
        self.parts_max() + 2 * self.channels_max * self.requests_per_peer as u32 + self.refusals_max()
    }

    /// Refusals of puts pending at once, over all peers.
    pub(crate) const fn refusals_max(&self) -> u32 {
        self.channels_max * self.requests_per_peer as u32
    }

    pub(crate) const fn subchannels_max(&self) -> u32 {
        self.channels_max * self.rails_max as u32
    }

    pub(crate) const fn retained_base(&self) -> u64 {
        self.blocks_max() as u64 * self.block_bytes as u64
    }

    pub(crate) const fn retained_stride(&self) -> u64 {
        (self.eager_bytes_max as u64).next_multiple_of(64)
    }
}
