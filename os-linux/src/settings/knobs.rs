//! The table of all settings: one row each.
//!
//! A row that is missing here does not exist for users; a test checks that every row can be set, shown and
//! read back.

use std::collections::BTreeMap;

use rerail_core::config::{ALPHA_ONE, Policy, RAILS_MAX};
use rerail_core::time::Nanos;

use super::value::{Also, Kind, Order, Value, parse_bytes};
use super::{OnDemandUse, SRQ_SIZE_MAX, Source, Xrc};

/// A row of the table.
#[derive(Debug)]
pub(super) struct Knob {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) doc: &'static str,
    pub(super) get: fn(&Settings) -> Value,
    pub(super) set: fn(&mut Settings, Value),
}

/// Names of policies that choose rails.
const RAIL_CHOICES: &[&str] = &settings(Policy::RAIL_CHOICES);

/// Names of policies that cut messages.
const STRIPINGS: &[&str] = &settings(Policy::STRIPINGS);

/// Names of all policies, and of none, in the order of [`POLICY`].
const POLICY_NAMES: &[&str] = &{
    let mut all = ["unset"; 1 + Policy::ALL.len()];
    let (_, names) = all.split_at_mut(1);
    names.copy_from_slice(&settings(Policy::ALL));
    all
};
const POLICY: [Option<Policy>; 1 + Policy::ALL.len()] = {
    let mut all = [None; 1 + Policy::ALL.len()];
    let mut at = 0;
    while at < Policy::ALL.len() {
        all[at + 1] = Some(Policy::ALL[at]);
        at += 1;
    }
    all
};

/// The names of policies in settings.
const fn settings<const COUNT: usize>(policies: [Policy; COUNT]) -> [&'static str; COUNT] {
    let mut names = [""; COUNT];
    let mut at = 0;
    while at < COUNT {
        names[at] = policies[at].setting();
        at += 1;
    }
    names
}

/// Names of [`Xrc`], in the order of [`XRC`].
const XRC_NAMES: &[&str] = &["off", "on", "auto"];
const XRC: [Xrc; 3] = [Xrc::Off, Xrc::On, Xrc::Auto];

/// Names of [`OnDemandUse`], in the order of [`ON_DEMAND`].
const ON_DEMAND_NAMES: &[&str] = &["off", "on", "auto"];
const ON_DEMAND: [OnDemandUse; 3] = [OnDemandUse::Never, OnDemandUse::Always, OnDemandUse::WhereOffered];

/// The kinds of rails that can be named.
pub(super) const RAIL_KINDS: &[&str] = &["shm", "verbs", "tcp"];

const TABLE_MAX: u64 = 1 << 28;
const SECOND: u64 = 1_000_000_000;
const DAY: u64 = 24 * 3600 * SECOND;

const fn count(min: u64, max: u64) -> Kind {
    Kind::Count { min, max, also: Also::Nothing }
}

const fn power_of_two(min: u64, max: u64) -> Kind {
    Kind::Count { min, max, also: Also::PowerOfTwo }
}

const fn bytes(min: u64, max: u64) -> Kind {
    Kind::Bytes { min, max, also: Also::Nothing }
}

/// Rows for fields of [`Settings`] of the same name. The setters' casts are exact: `kind` keeps values in
/// range, and a test sets every row to its ends.
macro_rules! knob {
    ($field:ident: number $type:ty, $kind:expr, $doc:expr) => {
        Knob {
            name: stringify!($field),
            kind: $kind,
            doc: $doc,
            get: |settings| Value::Number(settings.$field as u64),
            set: |settings, value| settings.$field = value.number() as $type,
        }
    };
    ($field:ident: time $kind:expr, $doc:expr) => {
        Knob {
            name: stringify!($field),
            kind: $kind,
            doc: $doc,
            get: |settings| Value::Number(settings.$field.0),
            set: |settings, value| settings.$field = Nanos(value.number()),
        }
    };
    ($field:ident: switch, $doc:expr) => {
        Knob {
            name: stringify!($field),
            kind: Kind::Switch,
            doc: $doc,
            get: |settings| Value::Number(settings.$field.into()),
            set: |settings, value| settings.$field = value.number() != 0,
        }
    };
    ($field:ident: choice $names:expr, $values:expr, $doc:expr) => {
        Knob {
            name: stringify!($field),
            kind: Kind::Choice($names),
            doc: $doc,
            get: |settings| {
                let place = $values.iter().position(|value| *value == settings.$field);
                Value::Number(place.unwrap_or(0) as u64)
            },
            set: |settings, value| settings.$field = $values[value.number() as usize],
        }
    };
    ($field:ident: list $kind:expr, $doc:expr) => {
        Knob {
            name: stringify!($field),
            kind: $kind,
            doc: $doc,
            get: |settings| Value::List(settings.$field.clone()),
            set: |settings, value| settings.$field = value.list(),
        }
    };
    ($field:ident: row { $kind:expr } { $get:expr } { $set:expr }, $doc:expr) => {
        Knob { name: stringify!($field), kind: $kind, doc: $doc, get: $get, set: $set }
    };
    ($field:ident: word $kind:expr, $doc:expr) => {
        Knob {
            name: stringify!($field),
            kind: $kind,
            doc: $doc,
            get: |settings| Value::Word(settings.$field.clone()),
            set: |settings, value| settings.$field = value.word(),
        }
    };
}

/// All settings, in the order in which they are shown: the struct, with each row's text as its field's
/// documentation, and the table.
macro_rules! settings {
    ($($field:ident: $type:ty, { $($how:tt)* }, $doc:literal;)*) => {
        /// All settings. Load them with [`from_env`](Self::from_env); [`describe`](Self::describe) has each
        /// one's default, unit and range.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Settings {
            $(#[doc = $doc] pub $field: $type,)*
            /// The sources of values that are not defaults.
            pub(super) sources: BTreeMap<&'static str, Source>,
        }

        pub(super) static KNOBS: &[Knob] = &[$(knob!($field: $($how)*, $doc)),*];
    };
}

settings! {
    rails: Vec<String>, { list
        Kind::List { repeats: false, what: "shm, verbs, tcp", empty: "no rail to other processes", fits: |word| RAIL_KINDS.contains(&word), order: Order::Any } },
        "Kinds of rails to open, in the order of their numbers, from 1 on; number 0 is the process itself. Verbs that was not asked for is passed over where it can't be used.";
    tcp_interfaces: Vec<String>, { list
        Kind::List { repeats: false, what: "addresses or names of interfaces", empty: "all that are up but loopback", fits: is_interface, order: Order::Any } },
        "Interfaces for TCP: one rail each. The k-th of one process meets the k-th of another.";
    tcp_beside_shm: bool, { switch },
        "Whether processes that share memory open TCP rails to each other too.";
    tcp_port: u16, { number u16, count(0, 65_535) },
        "Port of the first TCP rail to listen on, the next rails take the next ports; 0: the system chooses.";
    tcp_segment: u32, { number u32, bytes(1024, 16 << 20) },
        "Largest payload of one packet on a TCP rail.";
    tcp_posts: u16, { number u16, count(2, 4096) },
        "Packets that may be handed to a TCP rail and not yet sent, for each peer.";
    tcp_user_timeout: Nanos, { time Kind::Span { min: 0, max: DAY } },
        "A TCP connection whose other side acknowledges nothing for this long is given up (in whole ms); 0: the system's default.";
    tcp_unsent: u32, { number u32, bytes(0, 1 << 30) },
        "A TCP connection takes no more while so many bytes wait in the kernel for the wire; 0: whatever the send buffer takes.";
    tcp_sndbuf: u32, { number u32, bytes(0, 1 << 30) },
        "Send buffer of a TCP connection; 0: the system adapts it.";
    tcp_rcvbuf: u32, { number u32, bytes(0, 1 << 30) },
        "Receive buffer of a TCP connection; 0: the system adapts it.";
    verbs_devices: Vec<String>, { list
        Kind::List { repeats: false, what: "devices, as DEVICE, DEVICE/PORT or DEVICE/PORT/GID-INDEX", empty: "every active port", fits: is_device, order: Order::Any } },
        "Verbs devices: one rail each. The k-th of one process meets the k-th of another.";
    verbs_segment: u32, { number u32, bytes(1024, 16 << 20) },
        "Largest packet, write and read on a verbs rail; the same in all processes.";
    verbs_posts: u16, { number u16, count(2, 4096) },
        "Packets, writes and reads that may be handed to a verbs rail and not yet be acknowledged, for each peer.";
    verbs_sends: u16, { number u16, count(1, 16_384) },
        "Those over all peers; each has a buffer of the size of a packet.";
    verbs_receives: u16, { number u16, count(1, 16_384) },
        "Buffers of a verbs rail's shared receive queue, over all peers; the memory of several (verbs_srq_sizes).";
    verbs_srq_sizes: Vec<String>, { list
        Kind::List { repeats: false, what: "sizes in bytes, ascending, of which the last is max (the longest packet's)", empty: "by XRC 256 to 8K by powers of two, and max; by RC max alone", fits: is_srq_size, order: Order::Ascending { last: SRQ_SIZE_MAX } } },
        "Sizes of the buffers of verbs_receives, headers included: by XRC a shared receive queue for each, all of equally many buffers, in the memory that verbs_receives buffers of the longest packet's size take. Max alone: one queue. Processes need not agree on it.";
    verbs_inline: u16, { number u16, count(0, 512) },
        "Bytes up to which a verbs rail hands a packet over inside of its request, as far as the device takes them.";
    verbs_write: bool, { switch },
        "Whether large messages may go by remote writes.";
    verbs_read: bool, { switch },
        "Whether large messages may go by remote reads.";
    verbs_registrations: u32, { number u32, count(0, 1 << 20) },
        "Pieces of payload memory that a verbs rail has registered at once; 0: none, payload goes through buffers.";
    verbs_pkey: Option<String>, { word
        Kind::Word {
            what: "a partition key, as 0x8001 or 32769, of which the top bit does not matter and the others are not all 0",
            empty: "the first of which the port is a full member",
            fits: is_pkey,
        } },
        "InfiniBand partition of verbs rails; the same in all processes.";
    verbs_service_level: u8, { number u8, count(0, 15) },
        "Service level of all that verbs rails send; on Ethernet the priority, 0 to 7.";
    verbs_traffic_class: u8, { number u8, count(0, 255) },
        "Traffic class of all that verbs rails send with a global route, as on Ethernet always: there four times the DSCP, and the ECN bits.";
    verbs_ack_timeout: u8, { number u8, count(1, 31) },
        "Time that a verbs device waits for an acknowledgment: 4.096 us times 2 to the power of this. Unless it is set, one more than the device says that its own acknowledgments may take, where that is more, up to 18.";
    verbs_retries: u8, { number u8, count(0, 7) },
        "How often a verbs device sends again what was not acknowledged.";
    verbs_relaxed_ordering: bool, { switch },
        "Whether a verbs device's writes to memory may pass each other on the bus, where it knows that.";
    verbs_fork: bool, { switch },
        "Whether libibverbs is told that this process may fork (ibv_fork_init): of the process, for good. Where the kernel copies pinned pages at a fork (5.12) nothing is done; elsewhere children lack registered pages, and huge pages need RDMAV_HUGEPAGES_SAFE.";
    verbs_on_demand: OnDemandUse, { choice ON_DEMAND_NAMES, ON_DEMAND },
        "Whether a verbs rail registers payload memory on demand: not pinned, its pages brought in as the device needs them. On: a device that does not offer what the rail does with it is an error. Auto: with such devices memory is pinned.";
    verbs_moderation_count: u16, { number u16, count(0, 65_535) },
        "Completions after which a verbs device interrupts who sleeps, as far as it offers that; 0: at once, and then verbs_moderation_period is 0 too.";
    verbs_moderation_period: Nanos, { time Kind::Span { min: 0, max: 65_535_000 } },
        "... or so long after the first of them, in whole us.";
    verbs_xrc: Xrc, { choice XRC_NAMES, XRC },
        "Whether verbs rails connect by XRC, by which the processes of a node share what leads to another node; the same in all processes. On: a device that has none is an error. Auto: over such devices, and where /dev/shm can't be used, rails connect by RC; the devices of all processes must be alike.";
    shm_cells: u32, { number u32, power_of_two(2, 65_536) },
        "Messages that fit the shared-memory ring of each peer and direction; of 192 bytes each.";
    shm_slots: u32, { number u32, count(2, 65_536) },
        "Those of them that may be longer than 168 bytes, and then take one slot each; a ring has at most 1 GiB.";
    shm_slot_bytes: u32, { number u32, Kind::Bytes { min: 1024, max: 4 << 20, also: Also::MultipleOf(64) } },
        "Largest payload that fits one slot of a shared-memory ring; the same in all processes of a host.";
    shm_posts: u16, { number u16, count(2, 4096) },
        "Packets that may wait for room in a shared-memory ring, for each peer.";
    shm_single_copy: bool, { switch },
        "Whether large messages are copied once, out of the sender's memory (process_vm_readv), where the system allows it; else twice, through the ring.";
    shm_mapped: u64, { number u64, bytes(0, 1 << 47) },
        "Most bytes of one peer's memory that this process maps, of what the peer has allocated for that (alloc_shared); 0: none.";
    host_id: Option<String>, { word
        Kind::Word {
            what: "1 to 80 printable characters but space , ; = /",
            empty: "asked from the kernel",
            fits: is_host_id,
        } },
        "Name of the host. Processes that say the same share memory; several names on one machine make several hosts of it.";
    boot_timeout: Nanos, { time Kind::Span { min: 0, max: DAY } },
        "A launcher that does not answer within this time is an error, at the start and at the end; the wait for all ranks to start is part of it; 0: as long as it takes.";
    handshake_timeout: Nanos, { time Kind::Span { min: 1_000_000, max: DAY } },
        "A connection that has not proved within this time that it belongs to the job is closed.";
    spin_polls: u32, { number u32, count(0, 1 << 30) },
        "Polls in a row that find nothing before the processor is yielded with each further one.";
    channels: u32, { number u32, count(1, 1 << 20) },
        "Peers that may be connected at once, this process included: at least 2, unless it is alone; never more than the job has.";
    operations: u32, { number u32, count(1, TABLE_MAX) },
        "Operations that may be under way at once, those not yet acknowledged included.";
    segments: u8, { number u8, count(1, 255) },
        "Pieces of memory that one operation may have.";
    packets: u32, { number u32, count(2, TABLE_MAX) },
        "Packets that may be unacknowledged at once, over all peers.";
    window: u32, { number u32, power_of_two(64, 32_768) },
        "Packets of one lane of one peer that may be unacknowledged at once.";
    unexpected: u16, { number u16, count(1, 16_384) },
        "Messages of one peer that may wait unmatched or out of order.";
    blocks: u16, { number u16, count(1, 16_384) },
        "Blocks for payloads of such messages, for each peer.";
    block_bytes: u32, { number u32, Kind::Bytes { min: 64, max: 1 << 20, also: Also::MultipleOf(64) } },
        "Size of one such block.";
    eager_max: u32, { number u32, bytes(0, 1 << 30) },
        "Largest message that is sent at once, without asking the receiver; at most blocks times block_bytes.";
    retained: u32, { number u32, count(0, TABLE_MAX) },
        "Copies of such messages that may be held until acknowledged; eager_max each.";
    requests: u16, { number u16, count(1, 1024) },
        "Gets and atomics of one peer that are served at once.";
    bulk: u32, { number u32, count(1, TABLE_MAX) },
        "Large transfers that may be cut over rails at once, and sets of keys for messages that are read or written remotely: windows of n such messages both ways want 2n.";
    windows: u32, { number u32, count(0, TABLE_MAX) },
        "Windows that may be exposed to one-sided access at once.";
    counters: u16, { number u16, count(0, 65_535) },
        "Completion counters.";
    match_buckets: u32, { number u32, power_of_two(1, TABLE_MAX) },
        "Hash buckets of the tag matcher.";
    ack_packets: u16, { number u16, count(1, 16_384) },
        "An acknowledgment of its own is sent after so many packets without one; at most half the window.";
    ack_bytes: u32, { number u32, bytes(1, u32::MAX as u64) },
        "An acknowledgment of its own is sent after so many bytes without one.";
    ack_delay: Nanos, { time Kind::Span { min: 0, max: 10 * SECOND } },
        "An acknowledgment of its own is sent after this time without one.";
    connect_timeout: Nanos, { time Kind::Span { min: 1_000_000, max: DAY } },
        "A peer that is not connected after this time is lost (one whose process is known to be gone at once).";
    probe_after: Nanos, { time Kind::Span { min: 0, max: DAY } },
        "A peer that owes an acknowledgment is asked for a sign of life after this time of silence; 0: never.";
    silence_max: Nanos, { time Kind::Span { min: 0, max: DAY } },
        "A peer that owes an answer is lost after this time of silence; 0: never (a dead process or host is still noticed).";
    recovery: bool, { switch },
        "Whether a connection that fails is made anew and what was under way on it goes out again; off: the first that fails ends the peer.";
    recovery_timeout: Nanos, { time Kind::Span { min: 0, max: DAY } },
        "A peer to which no rail leads for so long is lost; 0: never (a process that is known to be gone is lost at once).";
    redial_min: Nanos, { time Kind::Span { min: 1_000, max: 3600 * SECOND } },
        "A connection that fails again soon after it was made is opened anew after a pause, which begins with this and doubles.";
    redial_max: Nanos, { time Kind::Span { min: 1_000, max: 3600 * SECOND } },
        "The longest such pause; a connection that has stood for so long is opened anew at once.";
    stall_min: Nanos, { time Kind::Span { min: 0, max: 3600 * SECOND } },
        "A rail that has something to do and brings nothing for so long at least is asked whether it works, and opened anew if it does not; 0: never.";
    stall_max: Nanos, { time Kind::Span { min: 0, max: 3600 * SECOND } },
        "A rail that has much to move has more time before it is asked: so much at most.";
    stall_lone: Nanos, { time Kind::Span { min: 0, max: DAY } },
        "A rail that has not answered for so long is opened anew though no other one brings anything either; 0: never.";
    keepalive: Nanos, { time Kind::Span { min: 0, max: DAY } },
        "A peer of which nothing was heard for so long is asked for a sign of life, though nothing is owed: a dead process or host is noticed; 0: never. However short, at most 10,000 questions a second go out.";
    multiplex: Policy, { choice RAIL_CHOICES, Policy::RAIL_CHOICES },
        "Rail of a small message: always the same, or in turn, one message each, by weight, or a window of messages each; or by a strategy of newmadeleine-2007.";
    striping: Policy, { choice STRIPINGS, Policy::STRIPINGS },
        "Cutting of a large message: not at all, in equal parts over all rails, by weight, by what rails are seen to do, or by a strategy of newmadeleine-2007.";
    policy: Option<Policy>, { choice POLICY_NAMES, POLICY },
        "One word for multiplex, striping or both; it goes before these.";
    policy_small: Option<Policy>, { choice POLICY_NAMES, POLICY },
        "The same for small messages alone, before what is said of all; changeable at run time, as the next two.";
    policy_large: Option<Policy>, { choice POLICY_NAMES, POLICY },
        "The same for large messages alone.";
    policy_one_sided: Option<Policy>, { choice POLICY_NAMES, POLICY },
        "The same for puts, gets and atomics alone.";
    rails_eligible: u64, { row { Kind::List {
            repeats: false,
            what: "numbers of rails",
            empty: "all of them",
            fits: is_rail,
            order: Order::Any,
        } } { |settings| {
            let listed = (0..RAILS_MAX as u32).filter(|rail| settings.rails_eligible >> rail & 1 == 1);
            let all = settings.rails_eligible == u64::MAX;
            Value::List(listed.filter(|_| !all).map(|rail| rail.to_string()).collect())
        } } { |settings, value| {
            let rails = value.list();
            let mask = rails.iter().filter_map(|rail| rail.parse::<u32>().ok()).fold(0, |mask, rail| mask | 1 << rail);
            settings.rails_eligible = if rails.is_empty() { u64::MAX } else { mask };
        } } },
        "Rails that may carry messages to other processes, by number; peers that none of them reaches take any.";
    rails_used: u8, { number u8, count(1, RAILS_MAX as u64) },
        "How many of these rails carry messages at most: the fastest.";
    bind: u8, { number u8, count(0, RAILS_MAX as u64 - 1) },
        "Where binding binds: to the first rail from this number on, in a circle.";
    weights: Vec<u16>, { row { Kind::List {
            repeats: true,
            what: "numbers up to 65535",
            empty: "all rails weigh the same",
            fits: is_weight,
            order: Order::Any,
        } } { |settings| Value::List(settings.weights.iter().map(u16::to_string).collect()) } { |settings, value| {
            settings.weights = value.list().iter().filter_map(|weight| weight.parse().ok()).collect();
        } } },
        "Weights of the rails from number 1 on, relative to each other; those that are not named weigh nothing.";
    alpha: u16, { number u16, count(0, ALPHA_ONE as u64) },
        "What the newest message's times count in adaptive weights against the weights before, of 256 parts.";
    window_messages: u16, { number u16, count(1, u16::MAX as u64) },
        "Messages that a rail gets before the next one has its turn, by window_round_robin.";
    feed_time: Nanos, { time Kind::Span { min: 0, max: 10 * SECOND } },
        "A rail is given parts of large messages for about so long ahead; later parts go where there is room by then.";
    sampling_time_max: Nanos, { time Kind::Span { min: 0, max: 10 * SECOND } },
        "Where several rails lead to a peer, each is asked once how near and how fast it is, for so long; 0: nobody is.";
    nic_depth: u16, { number u16, count(1, u16::MAX as u64) },
        "To strategies, and to balanced for packing, a rail is idle while fewer posts to the peer are with it.";
    aggregate_bytes_max: u32, { number u32, bytes(0, 1 << 30) },
        "Small messages go together in packets of at most so many bytes, and of no more than eager_max.";
    packet_cost: Nanos, { time Kind::Span { min: 0, max: SECOND } },
        "What one packet more costs both sides, to be weighed against the copies that packing costs.";
    copy_bytes_per_second: u64, { number u64, bytes(0, 1 << 40) },
        "How fast a processor copies, to be weighed against packets; 0: copies cost nothing.";
}

fn is_rail(word: &str) -> bool {
    word.parse::<usize>().is_ok_and(|rail| rail < RAILS_MAX && rail.to_string() == word)
}

fn is_weight(word: &str) -> bool {
    word.parse::<u16>().is_ok_and(|weight| weight.to_string() == word)
}

fn is_interface(word: &str) -> bool {
    // The names that the kernel takes. Addresses with a zone are meaningless to peers.
    let name = |b: u8| b.is_ascii_graphic() && !b"/:;,=%".contains(&b);
    word.parse::<std::net::IpAddr>().is_ok() || ((1..16).contains(&word.len()) && word.bytes().all(name))
}

/// Eight of them at most: the driver looks, for more is wrong by XRC alone.
fn is_srq_size(word: &str) -> bool {
    word == SRQ_SIZE_MAX || parse_bytes(word).is_ok_and(|bytes| (256..=16 << 20).contains(&bytes))
}

/// A partition key as people write it, without its top bit.
pub(crate) fn parse_pkey(word: &str) -> Option<u16> {
    let hex = word.strip_prefix("0x").or(word.strip_prefix("0X"));
    let key = hex.map_or_else(|| word.parse(), |digits| u16::from_str_radix(digits, 16)).ok()?;
    Some(key & 0x7fff).filter(|key| *key != 0 && !word.contains('+'))
}

fn is_pkey(word: &str) -> bool {
    parse_pkey(word).is_some()
}

fn is_device(word: &str) -> bool {
    // The kernel's names are file names of up to 63 bytes.
    let name = |b: u8| b.is_ascii_graphic() && !b"/:;,=".contains(&b);
    let mut parts = word.split('/');
    let device = parts.next().is_some_and(|name_| (1..64).contains(&name_.len()) && name_.bytes().all(name));
    let port = parts.next().is_none_or(|port| port.parse::<u8>().is_ok_and(|port| port > 0));
    let gid_index = parts.next().is_none_or(|index| index.parse::<u8>().is_ok());
    device && port && gid_index && parts.next().is_none()
}

fn is_host_id(word: &str) -> bool {
    (1..=80).contains(&word.len()) && word.bytes().all(|b| b.is_ascii_graphic() && !b" ,;=/".contains(&b))
}
