//! The table of all settings: one row each.
//!
//! A row that is missing here does not exist for users; a test checks that every row can be set, shown and
//! read back.

use std::collections::BTreeMap;

use rerail_core::config::{Config, Policy, RAILS_MAX};
use rerail_core::ids::PeerId;
use rerail_core::time::Nanos;

use super::value::{Kind, Order, Value, parse_bytes};
use super::{Callers, OnDemandUse, Preset, Progress, SRQ_SIZE_MAX, Source, Xrc};
use crate::bootstrap::ANSWER_MAX;
use crate::rail::shm::RingReads;

/// A row of the table.
#[derive(Debug)]
pub(super) struct SettingRow {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) doc: &'static str,
    pub(super) get: fn(&Settings) -> Value,
    pub(super) set: fn(&mut Settings, Value),
}

/// Names of all policies, and of none, in the order of [`POLICY`].
const POLICY_NAMES: &[&str] = &{
    let mut names = ["unset"; 1 + Policy::ALL.len()];
    let mut at = 0;
    while at < Policy::ALL.len() {
        names[at + 1] = Policy::ALL[at].name();
        at += 1;
    }
    names
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

/// The kinds of rails that can be named.
pub(super) const RAIL_KINDS: &[&str] = &["shm", "verbs", "tcp"];

const TABLE_MAX: u64 = 1 << 28;
const SECOND: u64 = 1_000_000_000;
const DAY: u64 = 24 * 3600 * SECOND;

const fn count(min: u64, max: u64) -> Kind {
    Kind::Count { min, max }
}

const fn bytes(min: u64, max: u64) -> Kind {
    Kind::Bytes { min, max }
}

/// A row of the name `$name` for `settings.$field...`. The setters' casts are exact: `kind` keeps values in
/// range, and a test sets every row to its ends.
macro_rules! setting_row {
    ($name:ident, $($field:ident).+, number $type:ty, $kind:expr, $doc:expr) => {
        setting_row!($name, { $kind } { |settings| Value::Number(settings.$($field).+ as u64) } {
            |settings, value| settings.$($field).+ = value.number() as $type
        }, $doc)
    };
    ($name:ident, $($field:ident).+, time $kind:expr, $doc:expr) => {
        setting_row!($name, { $kind } { |settings| Value::Number(settings.$($field).+.0) } {
            |settings, value| settings.$($field).+ = Nanos(value.number())
        }, $doc)
    };
    ($name:ident, $($field:ident).+, switch, $doc:expr) => {
        setting_row!($name, { Kind::Switch } { |settings| Value::Number(settings.$($field).+.into()) } {
            |settings, value| settings.$($field).+ = value.number() != 0
        }, $doc)
    };
    ($name:ident, $($field:ident).+, choice $names:expr, $values:expr, $doc:expr) => {
        setting_row!($name, { Kind::Choice($names) } { |settings| {
            let place = $values.iter().position(|value| *value == settings.$($field).+);
            Value::Number(place.unwrap_or(0) as u64)
        } } { |settings, value| settings.$($field).+ = $values[value.number() as usize] }, $doc)
    };
    ($name:ident, $($field:ident).+, list $kind:expr, $doc:expr) => {
        setting_row!($name, { $kind } { |settings| Value::List(settings.$($field).+.clone()) } {
            |settings, value| settings.$($field).+ = value.list()
        }, $doc)
    };
    ($name:ident, $($field:ident).+, word $kind:expr, $doc:expr) => {
        setting_row!($name, { $kind } { |settings| Value::Word(settings.$($field).+.clone()) } {
            |settings, value| settings.$($field).+ = value.word()
        }, $doc)
    };
    ($name:ident, $($field:ident).+, row { $kind:expr } { $get:expr } { $set:expr }, $doc:expr) => {
        setting_row!($name, { $kind } { $get } { $set }, $doc)
    };
    ($name:ident, { $kind:expr } { $get:expr } { $set:expr }, $doc:expr) => {
        SettingRow { name: stringify!($name), kind: $kind, doc: $doc, get: $get, set: $set }
    };
}

/// All settings, in the order in which they are shown: the struct, with each row's text as its field's
/// documentation, its default, and the table. Those of the core are fields of its configuration.
macro_rules! settings {
    (
        own { $($field:ident: $type:ty = $default:expr, { $($how:tt)* }, $doc:literal;)* }
        core { $($name:ident = $of_core:ident, { $($core_how:tt)* }, $core_doc:literal;)* }
    ) => {
        /// All settings. Load them with [`from_env`](Self::from_env); [`describe`](Self::describe) has each
        /// one's default, unit and range.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Settings {
            $(#[doc = $doc] pub $field: $type,)*
            /// Sizes and settings of the core: those that have a setting, and others. Rank and size of the
            /// job, and how many rails there are, are put in at the start.
            pub core: Config,
            /// The sources of values that are not defaults.
            pub(super) sources: BTreeMap<&'static str, Source>,
        }

        impl Default for Settings {
            /// The core's defaults, for as many peers as it connects by default, and those of the rails.
            fn default() -> Self {
                Settings { $($field: $default,)* core: Config::new(PeerId(0), u32::MAX), sources: BTreeMap::new() }
            }
        }

        pub(super) static SETTING_ROWS: &[SettingRow] = &[
            $(setting_row!($field, $field, $($how)*, $doc),)*
            $(setting_row!($name, core.$of_core, $($core_how)*, $core_doc),)*
        ];

        /// The fields of the core's configuration that have a setting, and its name.
        pub(super) static OF_CORE: &[(&str, &str)] = &[$((stringify!($of_core), stringify!($name))),*];
    };
}

settings! {
own {
    preset: Preset = Preset::Standard, { choice Preset::NAMES, Preset::ALL },
        "Values for what is not set by itself: compact and lean connect 256 peers in less memory than the defaults take, with smaller buffers; the same in all processes. Set it for jobs of thousands of processes; rerail explain --memory lists what is taken.";
    posts: u16 = 64, { number u16, count(4, 64) },
        "Packets, writes and reads that a rail may have under way to each peer; of TCP and verbs rails never more than 32. Lower it to save memory.";
    rails: Vec<String> = RAIL_KINDS.iter().map(|kind| kind.to_string()).collect(), { list
        Kind::List { repeats: false, what: "shm, verbs, tcp", empty: "no rail to other processes", fits: |word| RAIL_KINDS.contains(&word), order: Order::Any } },
        "Kinds of rails to open, in the order of their numbers, from 1 on; number 0 is the process itself. Set it to leave a kind out. Verbs that was not named is passed over where it can't be used.";
    tcp_interfaces: Vec<String> = Vec::new(), { list
        Kind::List { repeats: false, what: "addresses or names of interfaces", empty: "all that are up but loopback", fits: is_interface, order: Order::Any } },
        "Interfaces for TCP: one rail each. The k-th of one process meets the k-th of another. Set it to keep traffic off an interface, or where hosts list theirs in different orders.";
    tcp_beside_shm: bool = false, { switch },
        "Whether processes that share memory open TCP rails to each other too. Set it to survive the failure of shared memory, at the price of the express path.";
    tcp_port: u16 = 0, { number u16, count(0, 65_535) },
        "Port of the first TCP rail to listen on, the next rails take the next ports; 0: the system chooses. Set it for a firewall.";
    tcp_user_timeout: Nanos = Nanos::from_millis(5_000), { time Kind::Span { min: 0, max: DAY } },
        "A TCP connection whose other side's kernel answers nothing for this long is given up (in whole ms; a process that computes is no reason); 0: the system's default. Lower it to detect failed links sooner, raise it for links with long outages.";
    tcp_sndbuf: u32 = 0, { number u32, bytes(0, 1 << 30) },
        "Send buffer of a TCP connection; 0: the system adapts it. Set it where bandwidth times latency exceeds what the system allows itself (net.ipv4.tcp_wmem).";
    tcp_rcvbuf: u32 = 0, { number u32, bytes(0, 1 << 30) },
        "Receive buffer of a TCP connection; 0: the system adapts it. Set it where bandwidth times latency exceeds what the system allows itself (net.ipv4.tcp_rmem).";
    verbs_devices: Vec<String> = Vec::new(), { list
        Kind::List { repeats: false, what: "devices, as DEVICE, DEVICE/PORT or DEVICE/PORT/GID-INDEX", empty: "every active port", fits: is_device, order: Order::Any } },
        "Verbs devices: one rail each. The k-th of one process meets the k-th of another. Set it to choose ports or GIDs, or where hosts list theirs in different orders.";
    verbs_segment: u32 = 64 * 1024, { number u32, bytes(1024, 16 << 20) },
        "Largest packet, write and read on a verbs rail; the same in all processes. Lower it where little memory may be locked: every send and receive buffer has this size.";
    verbs_sends: u16 = 64, { number u16, count(1, 16_384) },
        "Packets, writes and reads of a verbs rail that are not yet acknowledged, over all peers; each has a buffer. Raise it for many peers that poll rarely.";
    verbs_inline: u16 = 256, { number u16, bytes(0, 512) },
        "Messages up to so many bytes, headers included, are handed to a verbs device with the request itself, as far as it takes them. Lower it to save memory: every request in the queue of every peer has room for so much.";
    verbs_receives: u16 = 128, { number u16, count(1, 16_384) },
        "Buffers of a verbs rail's shared receive queue, over all peers. Raise it for many peers that send at once, lower it where little memory may be locked.";
    verbs_srq_sizes: Vec<String> = Vec::new(), { list
        Kind::List { repeats: false, what: "sizes in bytes, ascending, of which the last is max (the longest packet's)", empty: "by XRC 256 to 8K by powers of two, and max; by RC max alone", fits: is_srq_size, order: Order::Ascending { last: SRQ_SIZE_MAX } } },
        "Sizes of the buffers of verbs_receives, headers included: by XRC a shared receive queue for each, all of equally many buffers, in the memory that verbs_receives buffers of the longest packet's size take. Max alone: one queue. Set it to the sizes that the program sends; processes need not agree on it.";
    verbs_write: bool = true, { switch },
        "Whether large messages may go by remote writes. Switch it off for devices that do these badly.";
    verbs_read: bool = true, { switch },
        "Whether large messages may go by remote reads. Switch it off for devices that do these badly.";
    verbs_registrations: u32 = 1024, { number u32, count(0, 1 << 20) },
        "Pieces of payload memory that a verbs rail has registered at once; 0: none, payload goes through buffers. Raise it for programs that send from more buffers, lower it where little memory may be locked.";
    verbs_keep_adopted: bool = false, { switch },
        "Whether a verbs rail keeps registrations of adopted memory after the request, for the next one from there. Set it where the program, or a monitor of its mappings, calls invalidate before such memory is unmapped. Memory on demand is kept anyway.";
    verbs_pkey: Option<String> = None, { word
        Kind::Word {
            what: "a partition key, as 0x8001 or 32769, of which the top bit does not matter and the others are not all 0",
            empty: "the first of which the port is a full member",
            fits: is_pkey,
        } },
        "InfiniBand partition of verbs rails; the same in all processes. Set it where the administrator names one.";
    verbs_service_level: u8 = 0, { number u8, count(0, 15) },
        "Service level of all that verbs rails send; on Ethernet the priority, 0 to 7. Set it where the administrator names one.";
    verbs_traffic_class: u8 = 0, { number u8, count(0, 255) },
        "Traffic class of all that verbs rails send with a global route, as on Ethernet always: there four times the DSCP, and the ECN bits. Set it where the administrator names one.";
    verbs_ack_timeout: u8 = 14, { number u8, count(1, 31) },
        "Time that a verbs device waits for an acknowledgment, eight times in all: 4.096 us times 2 to the power of this. Unless it is set, one more than the device reports for its own acknowledgments, where that is more, up to 18. Lower it to detect dead links sooner.";
    verbs_relaxed_ordering: bool = true, { switch },
        "Whether a verbs device's writes to memory may pass each other on the bus, where it supports that. Switch it off to rule it out as the cause of wrong data.";
    verbs_fork: bool = true, { switch },
        "Whether libibverbs is notified that this process may fork (ibv_fork_init): of the process, for good. Where the kernel copies pinned pages at a fork (5.12) nothing is done; elsewhere children lack registered pages, and huge pages need RDMAV_HUGEPAGES_SAFE. Switch it off for a program that never forks.";
    verbs_on_demand: OnDemandUse = OnDemandUse::Never, { choice &["off", "on", "auto"], [OnDemandUse::Never, OnDemandUse::Always, OnDemandUse::WhereOffered] },
        "Whether a verbs rail registers payload memory on demand: not pinned, its pages brought in as the device needs them. Set it where little memory may be locked. On: a device that does not offer what the rail does with it is an error. Auto: with such devices memory is pinned.";
    verbs_moderation: u16 = 0, { number u16, count(0, 65_535) },
        "Completions after which a verbs device interrupts a sleeping process, or 16 us after the first of them, as far as it offers that; 0: at once. Set it where interrupts take too much processor time.";
    verbs_xrc: Xrc = Xrc::Off, { choice &["off", "on", "auto"], [Xrc::Off, Xrc::On, Xrc::Auto] },
        "Whether verbs rails connect by XRC, by which the processes of a node share what leads to another node; the same in all processes. Set it for many processes on each node. On: a device that has none is an error. Auto: over such devices, and where /dev/shm can't be used, rails connect by RC; the devices of all processes must be alike.";
    verbs_eager: u32 = 1 << 30, { number u32, bytes(0, 1 << 30) },
        "Largest message that is sent at once over verbs rails, of those up to eager_max. Lower it where eager_max is raised for shared memory: shiba-2005 (2.3.3) has 8 KiB here and 256 KiB there.";
    shm_slots: u32 = 64, { number u32, count(2, 65_536) },
        "Messages longer than 168 bytes that fit the shared-memory ring of each peer and direction; shm_segment each. Lower it where many processes on a host take too much memory, raise it for bursts.";
    shm_segment: u32 = 8 * 1024, { number u32, bytes(256, 4 << 20) },
        "Largest packet in shared memory, a multiple of 16; the same in all processes of a host. Raise it, with eager_max and blocks, where longer messages are to be sent at once: 256 KiB in shiba-2005.";
    shm_single_copy: bool = true, { switch },
        "Whether large messages are copied once, out of the sender's memory (process_vm_readv), where the system allows it; else twice, through the ring. Switch it off where that system call is slow or watched.";
    memory_budget: u64 = 0, { number u64, bytes(0, 1 << 50) },
        "A transport that would take more memory, rings and the kernel's and devices' buffers included, does not start; 0: no limit. The error has the largest item and its setting; rerail explain --memory lists all. Set it where memory is short.";
    shm_ring_reads: RingReads = RingReads::Burst, { choice &RingReads::NAMES, RingReads::ALL },
        "Which packets of a large message one poll takes out of a peer's shared-memory ring. Burst: those that are there. Single, contiguous, post and immediate are those of shiba-2005 (3 to 3.3). Set it to compare them.";
    peers: u32 = 1024, { number u32, count(2, TABLE_MAX) },
        "Processes that a transport without ranks can have names of at once, itself included; 96 bytes each. Raise it where inserting a name fails for it.";
    callers: Callers = Callers::Hold, { choice &["refuse", "hold", "accept"], [Callers::Refuse, Callers::Hold, Callers::Accept] },
        "A process that calls before its name is inserted is refused, waits for the host's answer, or is inserted. Any process that has this one's name can call.";
    host_id: Option<String> = None, { word
        Kind::Word {
            what: "1 to 80 printable characters but space , ; = /",
            empty: "read from the kernel",
            fits: is_host_id,
        } },
        "Name of the host: processes of the same name share memory. Set it to make several hosts of one machine, for tests.";
    boot_timeout: Nanos = Nanos(ANSWER_MAX.as_nanos() as u64), { time Kind::Span { min: 0, max: DAY } },
        "A launcher that does not answer within this time is an error, at the start and at the end; the wait for all ranks to start is part of it; 0: as long as it takes. Raise it for jobs that start slowly.";
    progress: Progress = Progress::Timed, { choice &["timed", "adaptive", "toggle"], [Progress::Timed, Progress::Adaptive, Progress::Toggle] },
        "How rails take turns in being polled. Timed: shared memory all the time, all rails 8 us after the last time or while one of them has work. Adaptive and toggle are those of shiba-2005 (2.3.1, 2.3.2). Set it to compare them.";
    spin_polls: u32 = 1000, { number u32, count(0, 1 << 30) },
        "Polls in a row that find nothing before the processor is yielded with each further one. Lower it where there are more processes than processors.";
    policy: Option<Policy> = None, { choice POLICY_NAMES, POLICY },
        "How messages find their rails: the choice of a rail for small messages, the cutting of large ones, or both; what it does not decide is done by balanced. Set it where another policy is faster.";
    policy_small: Option<Policy> = None, { choice POLICY_NAMES, POLICY },
        "The same for small messages alone, before policy: as policy = even and policy_small = round-robin, the two designs of multirail-2004.";
    weights: Vec<u16> = Vec::new(), { row { Kind::List {
            repeats: true,
            what: "numbers up to 65535",
            empty: "all rails weigh the same",
            fits: is_weight,
            order: Order::Any,
        } } { |settings| Value::List(settings.weights.iter().map(u16::to_string).collect()) } { |settings, value| {
            settings.weights = value.list().iter().filter_map(|weight| weight.parse().ok()).collect();
        } } },
        "Weights of the rails from number 1 on, relative to each other; those that are not named weigh nothing. Set them for the policies by weight, where rails differ.";
}
core {
    rails_eligible = rails_eligible, { row { Kind::List {
            repeats: false,
            what: "numbers of rails",
            empty: "all of them",
            fits: is_rail,
            order: Order::Any,
        } } { |settings| {
            let listed = (0..RAILS_MAX as u32).filter(|rail| settings.core.rails_eligible >> rail & 1 == 1);
            let all = settings.core.rails_eligible == u64::MAX;
            Value::List(listed.filter(|_| !all).map(|rail| rail.to_string()).collect())
        } } { |settings, value| {
            let rails = value.list();
            let mask = rails.iter().filter_map(|rail| rail.parse::<u32>().ok()).fold(0, |mask, rail| mask | 1 << rail);
            settings.core.rails_eligible = if rails.is_empty() { u64::MAX } else { mask };
        } } },
        "Rails that may carry messages to other processes, by number; peers that none of them reaches take any. Set it to leave rails to other programs.";
    aggregate_bytes_max = aggregate_bytes_max, { number u32, bytes(0, 1 << 30) },
        "Small messages go together in packets of at most so many bytes, and of no more than eager_max. Set it to 0 where none is to wait for another one to be read.";
    channels = channels_max, { number u32, count(1, 1 << 20) },
        "Peers that may be connected at once, this process included: at least 2, unless it is alone; never more than the job has. Raise it for programs that talk to more peers; each takes memory.";
    operations = operations_max, { number u32, count(1, TABLE_MAX) },
        "Operations that may be under way at once, those not yet acknowledged included. Raise it for programs that submit more requests at once.";
    segments = segments_max, { number u8, count(1, 255) },
        "Pieces of memory that one operation may have. Raise it for programs with more.";
    unexpected = unexpected_per_peer, { number u16, count(1, 16_384) },
        "Messages of one peer that may wait unmatched or out of order. Raise it for programs that post receives late, lower it to save memory.";
    blocks = blocks_per_peer, { number u16, count(1, 16_384) },
        "Blocks of 1 KiB for payloads of such messages, for each peer. Raise it for bursts of small messages that come before their receives, lower it to save memory.";
    eager_max = eager_bytes_max, { number u32, bytes(0, 1 << 30) },
        "Largest message that is sent at once, without asking the receiver; at most blocks KiB. Raise it where latency counts more than copies.";
    retained = retained_max, { number u32, count(0, TABLE_MAX) },
        "Copies of injected messages that may be held until acknowledged; eager_max each. Raise it for programs that inject more at once.";
    requests = requests_per_peer, { number u16, count(1, 1024) },
        "Gets and atomics of one peer that are served at once. Raise it where many are under way between two processes.";
    bulk = bulk_max, { number u32, count(1, TABLE_MAX) },
        "Large transfers that may be cut over rails at once, and sets of keys for messages that are read or written remotely. Raise it for long windows of these: n both ways need 2n.";
    windows = windows_max, { number u32, count(0, TABLE_MAX) },
        "Windows that may be exposed to one-sided access at once. Raise it for programs that expose more.";
    counters = counters_max, { number u16, count(0, 65_535) },
        "Completion counters. Raise it for programs that use more.";
    connect_timeout = connect_timeout, { time Kind::Span { min: 1_000_000, max: DAY } },
        "A peer that is not connected after this time is lost (one whose process is known to be gone at once). Raise it for peers that make their first call late.";
    recovery = recovery, { switch },
        "Whether a connection that fails is made anew and what was under way on it goes out again. Switch it off where the first failure is to end the peer.";
    express = express, { switch },
        "Whether small messages take the express path, past the tables of the checked one. Switch it off to find out whether a fault is in it; messages then take several times the instructions.";
    recovery_timeout = recovery_timeout, { time Kind::Span { min: 0, max: DAY } },
        "A peer to which no rail leads for so long is lost; 0: never (a process that is known to be gone is lost at once). Lower it to learn sooner of dead peers, raise it for long outages.";
    stall_min = stall_min, { time Kind::Span { min: 0, max: 3600 * SECOND } },
        "A rail that has something to do and brings nothing for so long at least is probed, and opened anew if no answer comes; 0: never. Lower it to detect stalled rails sooner.";
    keepalive = keepalive, { time Kind::Span { min: 0, max: DAY } },
        "A peer from which nothing has come for so long is probed, though nothing is due from it, so that a dead process or host is noticed; 0: never. However short, at most 10,000 probes a second are sent. Lower it to learn sooner of dead peers.";
    silence_max = silence_max, { time Kind::Span { min: 0, max: DAY } },
        "A peer with an answer due is lost after this time of silence; 0: never (a dead process or host is still noticed). Set it where a stopped or endlessly computing process is to count as lost.";
}
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
