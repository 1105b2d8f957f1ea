//! Puts with immediate data: each is reported once at its target, after its bytes and before its completion,
//! and one that is refused or taken back never. And fences: what is behind one is not complete before what is
//! before it.

use rerail_core::endpoint::{Notify, RequestKind, Written};
use rerail_core::ids::Cookie;
use rerail_core::time::Time;

use super::ledger::{Due, Ledger, Request};
use super::verdict::{Damage, Duplicated, Lost, Verdict};

/// The cookie of windows whose puts count, see [`Ledger::count_notices`].
pub const COUNTED: Cookie = Cookie(1);

/// What a put's target is notified of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Notice {
    /// The origin, and its request.
    by: (u32, u32),
    target: u32,
    bytes: u64,
    is_reported: bool,
}

impl Ledger {
    pub(super) fn announce(&mut self, immediate: u64, by: (u32, u32), target: u32, bytes: u64) {
        self.notices.insert(immediate, Notice { by, target, bytes, is_reported: false });
    }

    /// The bytes of a put that were copied at once, and have no memory.
    pub fn copied(&mut self, immediate: u64, bytes: u64) {
        if let Some(notice) = self.notices.get_mut(&immediate) {
            notice.bytes = bytes;
        }
    }

    /// The put is taken back.
    pub(super) fn renounce(&mut self, immediate: u64) {
        self.notices.remove(&immediate);
    }

    /// Puts into the window of the rank with the cookie [`COUNTED`] count on a counter beside their events.
    pub fn count_notices(&mut self, rank: u32, counter: u16) {
        self.books[rank as usize].notices = Some((counter, 0));
    }

    /// Enters that a rank was notified of a put into its window.
    pub fn written(&mut self, rank: u32, at: Time, written: &Written) {
        let Written { peer, bytes, immediate, cookie, .. } = *written;
        if let Some((_, count)) = self.books[rank as usize].notices.as_mut().filter(|_| cookie == COUNTED) {
            *count += 1;
        }
        if self.is_liar(peer.0) {
            return;
        }
        match self.notices.get_mut(&immediate) {
            Some(notice) if (notice.by.0, notice.target, notice.bytes) == (peer.0, rank, bytes) => {
                let (request, was_reported) = (notice.by.1, notice.is_reported);
                notice.is_reported = true;
                if was_reported {
                    let put = self.facts(peer.0, request);
                    self.find(Verdict::Duplicated(Duplicated::Notice { put, target: rank, at }));
                }
                self.due.push(Due::Put { rank: peer.0, request });
            }
            _ => self.corrupt(rank, at, Damage::Notice { peer: peer.0, bytes, immediate }),
        }
    }

    /// A put is complete: its target must have been notified.
    pub(super) fn check_notice(&mut self, immediate: u64) {
        let Some(&Notice { by: (rank, request), target, is_reported, .. }) = self.notices.get(&immediate) else {
            return;
        };
        if !is_reported {
            let put = self.facts(rank, request);
            self.find(Verdict::Lost(Lost::Notice { put, target }));
        }
    }

    /// The rank's newest request waits for its earlier ones to its target.
    pub fn fence(&mut self, rank: u32, request: u32) {
        self.fences.insert((rank, request));
    }

    /// A request is complete: so must be all before it that are reported by events, where it has a fence.
    pub(super) fn check_fence(&mut self, rank: u32, at: Time, request: u32) {
        if !self.fences.contains(&(rank, request)) {
            return;
        }
        let requests = &self.books[rank as usize].requests;
        let target = requests[request as usize].submission.peer();
        let is_earlier = |entry: &Request| {
            let kind = entry.submission.kind();
            matches!(kind, Some(RequestKind::Put | RequestKind::Get | RequestKind::Atomic))
                && entry.submission.peer() == target
                && entry.notify == Notify::Event
                && entry.ended.is_none()
        };
        if let Some(earlier) = requests[..request as usize].iter().position(is_earlier) {
            self.corrupt(rank, at, Damage::Fence { request, earlier: earlier as u32 });
        }
    }
}
