//! Chooses the rail of an uncut packet by path estimates: the rail that delivers it earliest (P-9), and at
//! times one from which nothing was received for a while (P-11). The policy is in `rail/sched/balanced`.

use super::estimates::LATENCY_NS;
use super::policy::Choice;
use super::{MessageClass, Path, Paths};
use crate::ids::RailId;
use crate::rail::rails_of;
use crate::rail::sched::Candidates;
use crate::rail::sched::balanced::{NEAR_BYTES_MAX, earliest, explore};
use crate::time::Time;

impl Paths<'_> {
    /// The result of [`multiplex`](Self::multiplex) for nearly all small messages where there are several
    /// rails, at less cost: the lowest-latency rail, if it is idle and no exploration is due. `None`: call
    /// `multiplex`.
    #[inline(always)]
    pub(crate) fn lowest_latency_idle(
        &mut self,
        channel: u32,
        class: MessageClass,
        bytes: u64,
        Candidates { up, room }: Candidates,
    ) -> Option<RailId> {
        let slot = self.peer(channel);
        let (rail, since_explored) = (RailId(slot.lowest_latency), slot.since_explored.wrapping_add(1));
        let may_take = (up & room) >> rail.0 & 1 == 1 && self.policies.class(class).is_open_to_all(up);
        if !may_take || explore::is_turn(since_explored) || !is_near_and_idle(self.path(channel, rail), bytes) {
            return None;
        }
        self.peer_mut(channel).since_explored = since_explored;
        Some(rail)
    }

    /// The same of a small message that all of the channel's rails may carry, exploration included. `None`:
    /// the rail is not idle, or the size matters.
    #[inline(always)]
    pub(crate) fn lowest_latency_if_idle(&mut self, now: Time, channel: u32, bytes: u64) -> Option<RailId> {
        let Paths { peers, paths, rails_max, .. } = self;
        let slot = peers.get_mut(channel as usize)?;
        let rail = RailId(slot.lowest_latency);
        let path = paths.get(channel as usize * *rails_max + rail.index())?;
        if !is_near_and_idle(path, bytes) {
            return None;
        }
        slot.since_explored = slot.since_explored.wrapping_add(1);
        if explore::is_turn(slot.since_explored) {
            return Some(self.explore_beside(now, channel, bytes, rail));
        }
        Some(rail)
    }

    #[cold]
    fn explore_beside(&mut self, now: Time, channel: u32, bytes: u64, rail: RailId) -> RailId {
        let rails = self.candidates(channel);
        self.explore_another(&Choice { now, channel, class: MessageClass::Small, bytes, rails }, rail)
    }

    /// The rail that delivers a packet earliest (P-9); `None`: wait for room.
    pub(crate) fn earliest(&self, choice: &Choice) -> Option<RailId> {
        earliest(choice.rails, || self.lowest_latency_of(choice), |rail| self.delivers_at(choice, rail))
    }

    /// The lowest-latency rail, where no other delivers sooner.
    #[inline(always)]
    pub(crate) fn lowest_latency_of(&self, choice: &Choice) -> Option<RailId> {
        let &Choice { channel, bytes, rails, .. } = choice;
        let lowest_latency = RailId(self.peer(channel).lowest_latency);
        let may_take = (rails.up & rails.room) >> lowest_latency.0 & 1 == 1;
        (may_take && is_near_and_idle(self.path(channel, lowest_latency), bytes)).then_some(lowest_latency)
    }

    /// When a rail is predicted to deliver a packet that it gets now, in nanoseconds from now. Called for
    /// each small packet and rail: it uses values that [`Paths::learn_latency`] has computed in advance,
    /// without a division.
    pub(crate) fn delivers_at(&self, choice: &Choice, rail: RailId) -> u64 {
        let &Choice { now, channel, class, bytes, .. } = choice;
        let path = self.path(channel, rail);
        // What is cut and not posted yet goes before other payload, and behind small messages.
        let planned = if class == MessageClass::Small { 0 } else { path.planned };
        let mut ahead = 0;
        if path.in_flight > 0 {
            // It has worked on this since something was last received over it.
            ahead = path.transfer_ns(path.backlog).saturating_sub((now - path.last_received()).0);
            if ahead > 0 {
                ahead += u64::from(path.in_flight) * u64::from(path.post_ns);
            }
        }
        // The latency of a rail is unknown until a packet has used it.
        let planning_latency =
            if path.planning_latency == 0 && path.in_flight > 0 { LATENCY_NS } else { path.planning_latency };
        ahead + path.transfer_ns(planned + bytes) + u64::from(planning_latency)
    }

    /// At times a packet may take another rail than the earliest, `rail`: one from which nothing was received
    /// for a while, where the exploration budget covers the cost (P-11).
    #[inline]
    pub(crate) fn maybe_explore(&mut self, choice: &Choice, rail: RailId) -> RailId {
        let slot = self.peer_mut(choice.channel);
        slot.since_explored = slot.since_explored.wrapping_add(1);
        if explore::is_turn(slot.since_explored) { self.explore_another(choice, rail) } else { rail }
    }

    #[cold]
    fn explore_another(&mut self, choice: &Choice, rail: RailId) -> RailId {
        let &Choice { now, channel, rails, .. } = choice;
        let ends = self.delivers_at(choice, rail);
        let credit = self.save_for_exploration(channel, ends.saturating_mul(explore::EXPLORE_EVERY.into()));
        let others = rails.up & rails.room & !(1 << rail.0);
        let Some(other) = self.longest_silence(now, channel, others) else { return rail };
        let cost = self.delivers_at(choice, other).saturating_sub(ends);
        if cost > credit {
            return rail;
        }
        self.peer_mut(channel).exploration_ns -= cost as u32;
        other
    }

    /// Saves up the part of `time_ns` that tries may cost; what there is now, in nanoseconds (P-11).
    pub(crate) fn save_for_exploration(&mut self, channel: u32, time_ns: u64) -> u64 {
        let slot = self.peer_mut(channel);
        slot.exploration_ns = explore::save(slot.exploration_ns, time_ns);
        slot.exploration_ns.into()
    }

    /// Of the rails of a mask that are idle and silent for a while, the one that is silent longest.
    pub(crate) fn longest_silence(&self, now: Time, channel: u32, mask: u64) -> Option<RailId> {
        let path = |rail: RailId| self.path(channel, rail);
        let is_stale = |rail: &RailId| {
            let path = path(*rail);
            path.in_flight == 0 && path.planned == 0 && explore::is_stale(now, path.last)
        };
        rails_of(mask).filter(is_stale).min_by_key(|rail| (path(*rail).last, rail.0))
    }
}

/// Whether the lowest-latency rail, by its path, is idle and the size does not matter: no other delivers
/// sooner.
#[inline(always)]
const fn is_near_and_idle(lowest_latency: &Path, bytes: u64) -> bool {
    bytes <= NEAR_BYTES_MAX && lowest_latency.in_flight == 0
}
