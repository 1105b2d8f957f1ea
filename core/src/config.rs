//! Every size and knob of an endpoint, and the exact memory that follows from them.

mod policy;

use core::fmt;

pub use policy::Policy;

use crate::ids::PeerId;
use crate::time::Nanos;

/// Most rails of an endpoint.
pub const RAILS_MAX: usize = 64;

/// `alpha` of equation 4 that follows the last message alone.
pub const ALPHA_ONE: u16 = 256;

/// Sizes and knobs. All memory follows from it before anything starts:
/// [`memory_bytes`](Self::memory_bytes) for the core's state, [`pool_bytes`](Self::pool_bytes) for payloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// This process's rank.
    pub rank: PeerId,
    /// The numbers that this endpoint gives to packets and connections begin here, towards each peer (S-1,
    /// F-1); any value. A host draws it at random for each process, so that nothing which an earlier process
    /// of the same rank left on the way is taken for something of this one, as with initial sequence numbers
    /// of TCP (RFC 9293, 3.4.1).
    pub first_number: u32,
    /// Processes in the job, this one included.
    pub peers_max: u32,
    /// Peers that may be connected at once; 2 to `peers_max` (1 where that is 1), and no more than 2^20. This
    /// process is one of them: once it has sent to itself, it has one channel fewer for the others.
    pub channels_max: u32,
    /// Rails of this endpoint; 1 to 64.
    pub rails_max: u8,
    /// Operations that may be under way at once, those not yet acknowledged included.
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
    /// keys has one at both ends, each that is written too. One that finds no set goes another way,
    /// and where some are read and some can't be, one side may come to move both directions, at half the
    /// rate: windows of n messages that are read, both ways at once, take 2n, over all peers. One more costs
    /// about 900 bytes with 8 rails.
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
    /// A peer that is not connected by then is lost; above 0. Long, since who computes before its first call
    /// answers nobody; a process that is gone is lost at once where its rails tell (F-9).
    pub connect_timeout: Nanos,
    /// A probe goes out when a peer that owes an acknowledgment is silent for this long. `Nanos(0)`: never.
    pub probe_after: Nanos,
    /// A peer that owes an acknowledgment or an answer to a probe and is silent for this long is lost.
    /// `Nanos(0)`: never (the rails' own detection of dead processes and hosts remains).
    pub silence_max: Nanos,
    /// Whether a connection that fails is made anew and what was under way on it goes out again (section F of
    /// the protocol). Without, the first that fails ends the peer.
    pub recovery: bool,
    /// Whether small messages over shared memory take the short way (`core/src/fast`). Off to find faults.
    pub express: bool,
    /// A peer to which no rail leads for so long is lost. `Nanos(0)`: never (a process that is known to be
    /// gone is lost at once).
    pub recovery_timeout: Nanos,
    /// A connection that fails is opened again: at once where it had stood for `redial_max`, else after a
    /// pause that begins with this and doubles; above 0.
    pub redial_min: Nanos,
    /// The longest such pause; above 0.
    pub redial_max: Nanos,
    /// A rail that has something to do and of which nothing was heard for so long at least is asked by a
    /// probe, and given up where the answer, or none while others answer, says that it has lost something.
    /// `Nanos(0)`: never.
    pub stall_min: Nanos,
    /// Where it has much to move, it has more time: so much at most.
    pub stall_max: Nanos,
    /// After so long a rail is given up that has not answered, though no other one brings anything either,
    /// and opened anew. A peer that only computes, and owes an acknowledgment meanwhile, has so long and
    /// `recovery_timeout` for it. `Nanos(0)`: never.
    pub stall_lone: Nanos,
    /// A peer of which nothing was heard for so long is asked for a sign of life on every rail that leads to
    /// it, though nothing is owed by either side (F-13): so who only waits for it hears that it is gone. As
    /// with keep-alive of TCP (RFC 9293, 3.8.4) or UCX (`UCX_KEEPALIVE_INTERVAL`, 20 s), the rail answers for
    /// the peer's host and process: one that can't get the question through fails, or is judged as
    /// `stall_lone` says; a process that gets it and computes is not lost. Not asked are peers to which a
    /// rail leads that loses nothing while they live. `Nanos(0)`: never. However short it is, a process asks
    /// no more than 10,000 questions a second on average, one for each rail of each peer: with 1,000 silent
    /// peers on two rails, each is asked every 200 ms at best.
    pub keepalive: Nanos,
    /// A rail is given payload of large transfers for about so long, by the rate that it was measured at;
    /// what lies further ahead is decided later. Two posts it may always have.
    pub feed_time: Nanos,
    /// Where several rails lead to a peer, each rail is asked once how near and how fast it is, which may
    /// take so long. `Nanos(0)`: nobody is asked, rates come from what is sent.
    pub sampling_time_max: Nanos,
    /// Rail choice for what is not cut: messages, requests, announcements (multirail-2004, 4.4); of all
    /// classes, until [`set_policy`](crate::endpoint::Endpoint::set_policy) says otherwise. One of
    /// [`Policy::RAIL_CHOICES`]; all but binding pass over a rail that takes nothing at the moment.
    pub multiplex: Policy,
    /// Cutting of large messages (multirail-2004, 4.4); of all classes, until
    /// [`set_policy`](crate::endpoint::Endpoint::set_policy) says otherwise. One of [`Policy::STRIPINGS`].
    pub striping: Policy,
    /// Rails that may carry messages, bit per rail; where none of them stands, all may (P-6).
    pub rails_eligible: u64,
    /// How many of these carry messages at most; 1 to 64 (P-6).
    pub rails_used: u8,
    /// Where binding binds: to the first rail from this one on that may carry the message, in a circle.
    pub bind: u8,
    /// Weight by rail, relative to each other; a rail of weight 0 gets nothing while another has one.
    pub weights: [u16; RAILS_MAX],
    /// Equation 4's alpha in parts of [`ALPHA_ONE`]: what the newest message's times count against the
    /// weights before.
    pub alpha: u16,
    /// Messages that a rail gets before the next one has its turn, by window round robin.
    pub window_messages: u16,
    /// To strategies a rail is idle while fewer posts to the peer are with it, 1 or more. With 1 it has
    /// nothing to do when they are asked, as in newmadeleine-2007; with 2 it goes on meanwhile.
    pub nic_depth: u16,
    /// Payload of a packet of several messages at most, the 32 bytes in front of each included; never more
    /// than `eager_bytes_max`. newmadeleine-2007, 3.1: 16 KiB.
    pub aggregate_bytes_max: u32,
    /// What a packet more costs both sides, to be weighed against copies by those who put messages together.
    pub packet_cost: Nanos,
    /// How fast a processor copies, to be weighed against packets; 0: copies cost nothing.
    pub copy_bytes_per_second: u64,
}

impl Config {
    /// A configuration for rank `rank` of `size`, with defaults for up to 64 connected peers.
    pub const fn new(rank: PeerId, size: u32) -> Self {
        Config {
            rank,
            first_number: 0,
            peers_max: size,
            channels_max: if size < 64 { size } else { 64 },
            rails_max: 8,
            operations_max: 4096,
            segments_max: 4,
            packets_max: 2048,
            window: 256,
            unexpected_per_peer: 256,
            blocks_per_peer: 128,
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
            stall_lone: Nanos::from_millis(30_000),
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
    /// What else is demanded ("a power of two"); empty: nothing.
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
        // Table indices are 32 bits with a few values reserved; nothing sensible comes near this.
        const TABLE_MAX: u64 = 1 << 28;
        const CHANNELS_MAX: u64 = 1 << 20;
        let peers = self.peers_max as u64;
        let eager_room = self.blocks_per_peer as u64 * self.block_bytes as u64;
        check!(
            within("peers_max", self.peers_max as u64, 1, TABLE_MAX),
            within("rank", self.rank.0 as u64, 0, peers.saturating_sub(1)),
            within(
                "channels_max",
                self.channels_max as u64,
                // One for itself, and one for whoever it talks to: with a single one the first of the two
                // would keep the other out for ever.
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

    /// Sets what a policy decides: rail choice, striping, or both. What it says nothing about stays.
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

    /// Slots for operations: the caller's, and those that serve peers: as many as a peer may have open, and
    /// as many whose answers a rail still has, so that a peer's request always finds one (C-5); and refusals
    /// of puts.
    pub(crate) const fn operation_slots(&self) -> u32 {
        self.operations_max + 2 * self.channels_max * self.requests_per_peer as u32 + self.refusals_max()
    }

    /// Refusals of puts under way at once, over all peers.
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
