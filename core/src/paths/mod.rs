//! The rails to each peer as paths: their measurements, the choice of a packet's rail, how a transfer is cut
//! over them, and on which of them registering memory pays.
//!
//! This module owns the state that decisions about rails need, and has no knowledge of connections,
//! operations or queues: the endpoint reports events (a post, a completion, a rail that is ready) and calls
//! for decisions. Policies are in [`rail::sched`](crate::rail::sched), plans in `rail::plan`; this module
//! gives them their input.
//!
//! | file | what |
//! |---|---|
//! | `path` | one rail to one peer: bytes in flight, rate, latency (P-1) |
//! | `measure` | what posts and completions teach, figures for people (P-1, P-2) |
//! | `estimates` | what is estimated where nothing was measured (P-1, P-12) |
//! | `room` | which rails take a packet, and which are to be fed (P-3) |
//! | `policy` | which policy decides for which messages (P-5 to P-7) |
//! | `earliest` | the rail that delivers a packet earliest (P-9, P-11) |
//! | `idle` | the view of rails that newmadeleine's strategies get (P-13) |
//! | `cut`, `balanced`, `rebalance` | parts of a transfer: cut, planned, moved (P-4, P-8, P-10, P-14) |
//! | `sample` | measures latency and rate of rails at start (P-12) |
//! | `registration` | what registering memory costs (P-15) |
//! | `registering` | which rails that pays for (P-15) |
//! | `copying` | read by one processor or copied by two |
//! | `explain` | the same decisions, without side effects |

mod balanced;
mod copying;
mod cut;
mod earliest;
mod estimates;
mod explain;
mod idle;
mod measure;
mod path;
mod policy;
mod rebalance;
mod registering;
mod registration;
mod room;
mod sample;

use crate::api::config::{Config, RAILS_MAX};
use crate::ids::RailId;
use crate::rail::RailFacts;
use crate::rail::plan::groups::Groups;
use crate::rail::plan::split::RailState;
use crate::rail::sched::{Stripe, Turn};
use crate::store::{Arena, ArenaError, Slab};
use crate::time::Nanos;

pub(crate) use copying::Measured;
pub use copying::{CopyBy, TwoMeasures};
pub(crate) use cut::StripeSet;
pub use explain::{Explanation, Route, Share, Verdict};
pub use measure::{Change, RailStats, Sampled};
pub(crate) use measure::{Completed, Part, Stamp};
pub(crate) use path::Path;
pub use path::Why;
pub(crate) use policy::{Choice, Load};
pub use policy::{ClassPolicy, MessageClass};
pub(crate) use rebalance::TakeOver;
pub use registration::{Registration, RegistrationCost};
pub(crate) use room::Rooms;
pub(crate) use sample::{Answered, DEFER, SampleProbe};

use copying::CopyChoices;
use policy::Policies;
use registering::Registering;
use sample::Sampler;

/// All paths of an endpoint.
pub(crate) struct Paths<'m> {
    /// The rails' facts, by rail.
    pub rails: heapless::Vec<RailFacts, RAILS_MAX>,
    pub policies: Policies,
    /// Which rails share what.
    groups: Groups,
    registering: Registering,
    sampler: Sampler,
    settings: PathSettings,
    /// By channel and rail.
    paths: &'m mut [Path],
    /// By channel.
    peers: &'m mut [PeerPaths],
    /// Rails that can lose packets: bit per rail.
    pub lossy: u64,
    /// By rail: with fewer posts a subchannel [is light](room::is_light).
    light: [u16; RAILS_MAX],
    /// By rail.
    pub figures: &'m mut [RailStats],
    /// By rail: what the last message was planned by.
    states: &'m mut [RailState],
    /// Transfers that are cut.
    pub stripe_sets: Slab<'m, StripeSet>,
    /// By set and rail.
    stripes: &'m mut [Stripe],
    /// As many, for their times.
    parts: &'m mut [Part],
    rails_max: usize,
}

/// Settings that decisions go by ([`Config`]).
#[derive(Clone, Copy, Debug)]
struct PathSettings {
    feed_time: Nanos,
    nic_depth: u16,
    packet_cost: Nanos,
    sampling_time_max: Nanos,
    pool_bytes: u64,
}

/// The paths to one peer together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PeerPaths {
    pub rooms: Rooms,
    /// By [`MessageClass`].
    pub turns: [Turn; 3],
    /// Time saved up for trying rails that plans leave out, in nanoseconds (P-11).
    pub exploration_ns: u32,
    /// Receives with senders that write, or send data, and wait for our FIN (P-3).
    pub fins_pending: u32,
    /// Packets that took the earliest rail since one tried another.
    pub since_explored: u16,
    /// Of the rails that are ready the one of the least latency.
    pub lowest_latency: u8,
    /// The last message that was cut by estimates ended without a rail taking over from another (P-10).
    pub is_steady: bool,
    /// How large messages come where there is a choice.
    copy_choices: CopyChoices,
}

impl<'m> Paths<'m> {
    /// Over `rails`, which the configuration has room for.
    pub(crate) fn carve(arena: &mut Arena<'m>, config: &Config, rails: &[RailFacts]) -> Result<Self, ArenaError> {
        let rails_max = usize::from(config.rails_max);
        let stripes = config.bulk_max as usize * rails_max;
        let mut paths = Paths {
            rails: heapless::Vec::from_slice(rails).unwrap_or_default(),
            policies: Policies::new(config, rails.len()),
            groups: groups(rails),
            registering: Registering::default(),
            sampler: Sampler::new(rails.len(), config.sampling_time_max),
            settings: PathSettings {
                feed_time: config.feed_time,
                nic_depth: config.nic_depth,
                packet_cost: config.packet_cost,
                sampling_time_max: config.sampling_time_max,
                pool_bytes: config.pool_bytes().unwrap_or(0),
            },
            paths: arena.take(config.subchannels_max() as usize, Path::default())?,
            light: light(rails),
            lossy: rails.iter().rev().fold(0, |mask, facts| mask << 1 | u64::from(!facts.caps.lossless)),
            peers: arena.take(config.channels_max as usize, PeerPaths::default())?,
            figures: arena.take(rails_max, RailStats::default())?,
            states: arena.take(rails_max, RailState::default())?,
            stripe_sets: Slab::carve(arena, config.bulk_max, StripeSet::default)?,
            stripes: arena.take(stripes, Stripe::default())?,
            parts: arena.take(stripes, Part::default())?,
            rails_max,
        };
        paths.begin_weights();
        Ok(paths)
    }

    // ---- tables

    fn index(&self, channel: u32, rail: RailId) -> usize {
        channel as usize * self.rails_max + rail.index()
    }

    /// The entries of a channel, or of a set, in a table by that and by rail.
    #[inline]
    fn row(&self, of: u32) -> core::ops::Range<usize> {
        let at = of as usize * self.rails_max;
        at..at + self.rails_max
    }

    /// The path of a rail to a channel's peer.
    #[inline]
    pub(crate) fn path(&self, channel: u32, rail: RailId) -> &Path {
        &self.paths[self.index(channel, rail)]
    }

    /// As [`path`](Self::path), to be changed.
    #[inline]
    pub(crate) fn path_mut(&mut self, channel: u32, rail: RailId) -> &mut Path {
        let index = self.index(channel, rail);
        &mut self.paths[index]
    }

    /// The facts of a rail.
    #[inline]
    pub(crate) fn facts(&self, rail: RailId) -> &RailFacts {
        &self.rails[rail.index()]
    }

    /// The paths to a channel's peer.
    #[inline]
    pub(crate) fn peer(&self, channel: u32) -> &PeerPaths {
        &self.peers[channel as usize]
    }

    /// As [`peer`](Self::peer), to be changed.
    #[inline]
    pub(crate) fn peer_mut(&mut self, channel: u32) -> &mut PeerPaths {
        &mut self.peers[channel as usize]
    }

    /// The stripes of a set, by rail.
    pub(crate) fn stripes_of(&self, set: u32) -> &[Stripe] {
        &self.stripes[self.row(set)]
    }

    /// As [`stripes_of`](Self::stripes_of), to be changed.
    pub(crate) fn stripes_of_mut(&mut self, set: u32) -> &mut [Stripe] {
        let row = self.row(set);
        &mut self.stripes[row]
    }

    /// The parts of a set, by rail.
    pub(crate) fn parts_of(&self, set: u32) -> &[Part] {
        &self.parts[self.row(set)]
    }

    /// As [`parts_of`](Self::parts_of), to be changed.
    pub(crate) fn parts_of_mut(&mut self, set: u32) -> &mut [Part] {
        let row = self.row(set);
        &mut self.parts[row]
    }

    // ---- life

    /// A channel begins: there are no estimates of its peer.
    pub(crate) fn begin_peer(&mut self, channel: u32) {
        *self.peer_mut(channel) = PeerPaths::default();
        for rail in 0..self.rails.len() as u8 {
            self.count_shorts(channel, RailId(rail));
        }
        let row = self.row(channel);
        self.paths[row].fill(Path::default());
    }

    /// A connection over a rail has ended: its measurements are dropped.
    pub(crate) fn forget(&mut self, channel: u32, rail: RailId) {
        self.count_shorts(channel, rail);
        *self.path_mut(channel, rail) = Path::default();
    }
}

/// Below how many posts on each rail a subchannel is light.
fn light(rails: &[RailFacts]) -> [u16; RAILS_MAX] {
    let mut light = [0; RAILS_MAX];
    for (light, facts) in light.iter_mut().zip(rails) {
        *light = room::light_below(facts);
    }
    light
}

/// The bottlenecks that the rails share, by their places.
fn groups(rails: &[RailFacts]) -> Groups {
    let places: heapless::Vec<_, RAILS_MAX> = rails.iter().map(|facts| facts.place).collect();
    Groups::new(&places)
}

// What a peer costs beside its channel, and each rail of it.
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<PeerPaths>() == 344 && size_of::<Path>() == 112);
