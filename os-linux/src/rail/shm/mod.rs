//! The shared-memory rail: rings between the processes of one host (shiba-2005, section 2).
//!
//! - Addresses (2.1): an address names the host by the kernel's boot id and network namespace, never by a
//!   host name, and a local socket under an abstract name. No shared table of processes is needed, and
//!   nothing is left behind.
//! - Connections (2.2): made at the core's first request; each side gives the other the memory of the ring
//!   from which it will receive. Of two that cross, both sides keep the one that the lower rank dialled.
//! - Large messages: the receiver copies out of the sender's memory, once, where the system allows that
//!   (`copy`), or without the system's help where that memory was allocated to be mapped (`offers`).
//! - Traffic (2.3): a post is copied into the ring at once, or waits in a bounded queue while the ring is
//!   full. A packet is copied from the ring straight to the place that the core names. No system call, but
//!   for doorbells to sleepers.
//! - Polling costs one cache line per connected peer and nothing per idle one; sockets are looked at in every
//!   `polls_per_check`-th poll, after sleeping, and while a connection is pending.
//!
//! `segment`, `socket`, `barrier` and `copy` wrap the system; `reach` determines whether a peer's memory can
//! be read; `ring_reads` holds policies for packets of large messages; `connect` is a pending connection,
//! `link` a connected peer, `access` its windows; `setup` leads from one to the other; this file is the
//! [`Rail`].

mod access;
mod barrier;
mod connect;
mod copy;
mod gate;
mod joint;
mod link;
mod look;
mod memory;
mod offers;
mod options;
mod reach;
mod ring_reads;
mod segment;
mod setup;
mod socket;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rerail_core::endpoint::{Access, PostKind, PostStatus, RailFault};
use rerail_core::ids::{PeerId, PostId};
use rerail_core::rail::{Caps, RailFacts, RailKind};
use rerail_core::time::Time;
use rerail_core::wire::Short;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

pub use options::{ShmError, ShmOptions};
pub use reach::{Denied, single_copy};
pub use ring_reads::{RingReader, RingReads};
pub use setup::host_id;

use self::access::Windows;
use self::connect::Opening;
pub(crate) use self::link::Link;
pub(crate) use self::look::Front;
use self::look::{OTHERS, SLOW};
use self::offers::Offers;
pub(crate) use self::segment::copy_short;
use self::setup::{Dial, Peer};
use super::{AddressError, DirectAccess, Outgoing, Piece, Rail, RailCounters, RailUsage, ShortPlace, Sink};
use crate::auth::{Credentials, Fingerprint, PeerKey, PublicKey};
use crate::place::NUMA_LOCAL;
use crate::random::random;

/// The listener's name in the epoll set.
const LISTENER: u64 = 0;
/// No link.
const NONE: u32 = u32::MAX;
/// Bytes of one read: longer reads are split.
const READ_BYTES_MAX: u32 = 1 << 30;
/// Events taken in one look at the sockets.
const EVENTS_MAX: usize = 64;

/// Rings to the other processes of this host.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct ShmRail {
    // What each message and each idle round reads comes first, in one cache line.
    links: Vec<Link>,
    /// Place in `links` of each rank's link, or [`NONE`].
    link_of: Vec<u32>,
    /// Places there of the link that had the last message, and of the last one looked at in turn.
    recent: u32,
    next: u32,
    /// Polls until the sockets are looked at.
    until_check: u32,
    /// What there is beside the ring of the link that had the last message: [`SLOW`], [`OTHERS`].
    beside: u8,
    /// Look at the sockets in the next poll, regardless of its number.
    check_sockets: bool,
    /// The link that the next poll serves first.
    first: usize,
    options: ShmOptions,
    name: String,
    credentials: Credentials,
    job: u64,
    me: PeerId,
    host_id: String,
    socket_name: String,
    listener: OwnedFd,
    /// The listener is not listened to until then: the system had no descriptor for one more.
    listener_paused_until: Option<Time>,
    epoll: OwnedFd,
    /// The next free name in the epoll set; never used twice.
    next_token: u64,
    peers: BTreeMap<PeerId, Peer>,
    /// The peers by their keys.
    callers: BTreeMap<Fingerprint, PeerId>,
    /// The newest dial to any peer.
    attempts: u32,
    openings: BTreeMap<u64, Opening>,
    /// Our memory that peers may map, and our windows in it.
    offers: Offers,
    windows: Box<Windows>,
    /// Disconnected links whose queue is not empty yet, with the time when that ends (set at the next poll).
    closing: Vec<(Link, Option<Time>)>,
    /// Posts that were sent and not reported yet.
    done: VecDeque<(PeerId, PostId, PostStatus)>,
    /// Connections that failed and were not reported yet.
    failed: VecDeque<(PeerId, RailFault)>,
    pieces: Vec<Piece>,
    counters: RailCounters,
}

const _: () = assert!(std::mem::offset_of!(ShmRail, check_sockets) < 64);

impl ShmRail {
    /// Sets this process's rank and job, where they were not known when the rail was opened; to be called
    /// before the first dial and the first poll. Peers that dialled meanwhile wait in the kernel's queue.
    pub fn identify(&mut self, credentials: Credentials, job: u64, me: PeerId, peers_max: u32) {
        debug_assert!(self.peers.is_empty() && self.openings.is_empty(), "a rail that has met peers has an identity");
        self.options.peers_max = peers_max;
        (self.credentials, self.job, self.me) = (credentials, job, me);
    }

    /// Opens the rail of rank `me` in job `job`, with these `credentials`.
    pub fn open(options: ShmOptions, credentials: Credentials, job: u64, me: PeerId) -> Result<Self, ShmError> {
        options.check()?;
        let failed = |what| move |errno| ShmError::System { what, errno };
        let host_id = match &options.host_id {
            Some(id) => id.clone(),
            None => setup::host_id().map_err(failed("identify the host"))?,
        };
        // It may take some milliseconds, better now than in a round.
        barrier::is_registered();
        let suffix = random().map_err(failed("draw a random number"))?;
        let socket_name = setup::socket_name(job, me, options.index, u128::from_ne_bytes(suffix));
        let listener = socket::listen(&socket_name).map_err(failed("listen on a local socket"))?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed("create an epoll set"))?;
        epoll::add(&epoll, &listener, epoll::EventData::new_u64(LISTENER), epoll::EventFlags::IN)
            .map_err(failed("watch the listener"))?;
        Ok(ShmRail {
            name: if options.index == 0 { "shm".into() } else { format!("shm{}", options.index) },
            until_check: options.polls_per_check,
            options,
            credentials,
            job,
            me,
            host_id,
            socket_name,
            listener,
            listener_paused_until: None,
            epoll,
            next_token: LISTENER + 1,
            peers: BTreeMap::new(),
            callers: BTreeMap::new(),
            attempts: 0,
            openings: BTreeMap::new(),
            offers: Offers::default(),
            windows: Box::default(),
            links: Vec::new(),
            recent: 0,
            next: 0,
            link_of: Vec::new(),
            closing: Vec::new(),
            done: VecDeque::new(),
            failed: VecDeque::new(),
            first: 0,
            beside: SLOW,
            check_sockets: true,
            pieces: Vec::new(),
            counters: RailCounters::default(),
        })
    }

    /// Bytes of ring memory that this process has made: its receiving side.
    pub fn ring_bytes(&self) -> usize {
        self.links.iter().map(Link::ring_bytes).sum()
    }

    #[inline(always)]
    fn link_index(&self, peer: PeerId) -> Option<usize> {
        self.link_of.get(peer.0 as usize).filter(|&&index| index != NONE).map(|&index| index as usize)
    }

    fn insert_link(&mut self, mut link: Link) {
        link.offer(self.offers.number());
        self.begin_windows(&mut link);
        let rank = link.peer.0 as usize;
        if self.link_of.len() <= rank {
            self.link_of.resize(rank + 1, NONE);
        }
        self.link_of[rank] = self.links.len() as u32;
        self.links.push(link);
        if self.links.len() > 1 {
            self.beside |= OTHERS;
        }
        // Posts sent at once are reported at the next poll.
        self.done.reserve(self.links.len() * usize::from(self.options.posts_max));
    }

    fn remove_link(&mut self, index: usize) -> Link {
        (self.recent, self.next) = (0, 0);
        let mut link = self.links.swap_remove(index);
        if self.links.len() < 2 {
            self.beside &= !OTHERS;
        }
        self.end_windows(&mut link);
        core::mem::take(&mut link.counted).add_to(&mut self.counters);
        self.link_of[link.peer.0 as usize] = NONE;
        if let Some(moved) = self.links.get(index) {
            self.link_of[moved.peer.0 as usize] = index as u32;
        }
        link
    }

    /// Ends a link and reports it.
    fn down(&mut self, index: usize, fault: RailFault, sink: &mut dyn Sink) {
        // The rings are unmapped and the socket is closed before the report (F-2).
        let Link { peer, .. } = self.remove_link(index);
        if fault == RailFault::Corrupt {
            self.counters.corrupt += 1;
        }
        tracing::debug!(rail = %self.name, peer = peer.0, ?fault, "subchannel down");
        sink.down(peer, fault);
    }

    fn report(&mut self, sink: &mut dyn Sink) -> usize {
        if self.done.is_empty() && self.failed.is_empty() {
            return 0;
        }
        let mut count = self.report_posts(sink);
        while let Some((peer, fault)) = self.failed.pop_front() {
            sink.down(peer, fault);
            count += 1;
        }
        count
    }

    /// Whether a poll would find nothing to do but a look at the sockets.
    #[inline(always)]
    fn is_quiet(&mut self) -> bool {
        let Self { done, failed, openings, closing, links, counters, beside, .. } = self;
        let is_quiet = !self.check_sockets
            && done.is_empty()
            && failed.is_empty()
            && openings.is_empty()
            && closing.is_empty()
            && links.iter_mut().all(|link| link.is_quiet(counters));
        if is_quiet {
            *beside &= !SLOW;
        }
        is_quiet
    }

    #[inline(never)]
    fn poll_all(&mut self, now: Time, sink: &mut dyn Sink) -> usize {
        self.beside &= !SLOW;
        let mut count = self.report(sink);
        let due = self.until_check == 0;
        if due {
            self.until_check = self.options.polls_per_check;
        }
        if std::mem::take(&mut self.check_sockets) || due || !self.openings.is_empty() || !self.closing.is_empty() {
            count += self.poll_sockets(now, sink);
            count += self.answer_held(sink);
            count += self.retry_dials(now);
            count += self.expire(now, sink);
        }
        count += self.serve_links(sink);
        if !self.closing.is_empty() {
            count += self.serve_closing(now);
        }
        count += self.report(sink);
        let has_more = self.check_sockets || !self.openings.is_empty() || !self.closing.is_empty();
        if has_more || self.links.iter().any(Link::has_slow_work) {
            self.beside |= SLOW;
        }
        count
    }

    /// Queries the kernel for sockets with events, and handles these.
    fn poll_sockets(&mut self, now: Time, sink: &mut dyn Sink) -> usize {
        let mut room = [MaybeUninit::<epoll::Event>::uninit(); EVENTS_MAX];
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        self.counters.system_calls += 1;
        let Ok((events, _)) = epoll::wait(&self.epoll, &mut room, Some(&zero)) else { return 0 };
        let mut count = 0;
        for event in events.iter() {
            match event.data.u64() {
                LISTENER => count += self.accept(now),
                token if self.openings.contains_key(&token) => count += self.advance(token, sink),
                token => {
                    let links = self.links.iter_mut().chain(self.closing.iter_mut().map(|(link, _)| link));
                    let Some(link) = links.into_iter().find(|link| link.token == token) else { continue };
                    match link.service(self.options.cells, &mut self.counters) {
                        // The next piece may be here soon.
                        Ok(answers) => {
                            self.check_sockets |= answers > 0;
                            count += answers;
                        }
                        Err(fault) => link.fail(fault),
                    }
                }
            }
        }
        let Self { links, offers, counters, .. } = self;
        count += links.iter_mut().map(|link| link.tend_offers(offers, counters)).sum::<usize>();
        count
    }

    /// Moves packets, both ways, of every link.
    fn serve_links(&mut self, sink: &mut dyn Sink) -> usize {
        let (mut count, mut has_fault) = (0, false);
        let mut to_read = copy::BYTES_PER_POLL;
        let links = self.links.len();
        let mut next = if self.first < links { self.first } else { 0 };
        self.first = next + 1;
        for _ in 0..links {
            let link = &mut self.links[next];
            next = if next + 1 < links { next + 1 } else { 0 };
            if link.is_quiet(&mut self.counters) {
                continue;
            }
            if link.fault().is_some() {
                has_fault = true;
                continue;
            }
            let received = link.receive(self.options.burst, sink, &mut self.pieces, &mut self.counters);
            let moved = received.and_then(|mut received| {
                if to_read > 0 && link.reads().is_some() {
                    received += link.read(&mut to_read, sink, &mut self.counters)?;
                    self.check_sockets |= link.reads().is_none();
                }
                if to_read > 0 && link.is_assisting() {
                    received += link.assist(&mut to_read, &mut self.counters);
                }
                if link.is_waiting() {
                    let pumped = link.pump(&mut self.counters, |id| sink.completed(id, PostStatus::Done))?;
                    return Ok(received + pumped);
                }
                Ok(received)
            });
            match moved {
                Ok(moved) => count += moved,
                Err(fault) => {
                    link.fail(fault);
                    has_fault = true;
                }
            }
        }
        if !has_fault {
            return count;
        }
        let mut index = 0;
        while let Some(link) = self.links.get(index) {
            match link.fault() {
                // The last payload is in its place.
                Some(fault) => {
                    self.down(index, fault, sink);
                    count += 1;
                }
                None => index += 1,
            }
        }
        count
    }

    /// Sends the earlier posts of disconnected links (L-14).
    fn serve_closing(&mut self, now: Time) -> usize {
        let mut count = 0;
        let Self { closing, counters, options, .. } = self;
        closing.retain_mut(|(link, until)| {
            let until = *until.get_or_insert(now + options.flush_timeout);
            // Both sides may be leaving with full rings: discarding incoming data makes room.
            let discarded = link.discard(options.burst);
            let pumped = link.pump(counters, |_| ());
            count += discarded.unwrap_or(0) + *pumped.as_ref().unwrap_or(&0);
            discarded.is_ok() && pumped.is_ok() && link.is_waiting() && !link.is_gone() && now < until
        });
        count
    }

    /// Announces to all peers that this process sleeps, by one fence for all rings; `false`: there is work.
    fn sleep(&mut self) -> bool {
        let Self { links, closing, counters, .. } = self;
        let mut barrier = false;
        for link in links.iter_mut().chain(closing.iter_mut().map(|(link, _)| link)) {
            link.raise();
            barrier |= link.barrier;
        }
        // The barrier is a fence of this thread too, for the links whose other side makes its own (L-13).
        counters.system_calls += u64::from(barrier);
        let seen = if barrier { barrier::heavy_fence() } else { barrier::full_fence() };
        let mut all = links.iter_mut().chain(closing.iter_mut().map(|(link, _)| link));
        seen && all.all(|link| link.is_idle(counters))
    }

    /// Whether the next [`poll`](Rail::poll) has more to do than to look for messages.
    #[inline(always)]
    pub(crate) fn has_slow_work(&self) -> bool {
        self.beside & SLOW != 0
    }

    /// Whether there is more to do than to take the messages of the first ring that has some.
    #[inline(always)]
    pub(crate) fn has_more(&self) -> bool {
        self.has_slow_work() || (self.links.len() > 1 && self.links.iter().any(Link::has_message))
    }

    /// The link to a peer, if a short message whose payload fits into its cell can be sent there now; checks
    /// only what needs no call.
    #[inline(always)]
    pub(crate) fn inline_link(&mut self, peer: PeerId) -> Option<&mut Link> {
        let link = self.links.get_mut(*self.link_of.get(peer.0 as usize)? as usize)?;
        if link.has_cell() { Some(link) } else { None }
    }

    /// The link to a peer, if a short message of `len` bytes can go there now, with or without immediate
    /// data.
    #[inline(always)]
    pub(crate) fn short_link(&mut self, peer: PeerId, len: u64, immediate: bool) -> Option<&mut Link> {
        let link = self.links.get_mut(*self.link_of.get(peer.0 as usize)? as usize)?;
        if link.has_room(len, immediate) { Some(link) } else { None }
    }

    /// Takes short messages out of each ring, as many as a burst has, as long as `place` has a place for them
    /// at once; returns how many. Where it has none there is slow-path work.
    pub(crate) fn take_burst(&mut self, mut place: impl FnMut(PeerId, &Short) -> ShortPlace) -> usize {
        let Self { links, options, beside, .. } = self;
        let mut count = 0;
        for link in links.iter_mut() {
            let mut left = options.burst;
            while let Some(front_word) = link.front_word() {
                if !link.take_quick(front_word, &mut place) {
                    *beside |= SLOW;
                    break;
                }
                count += 1;
                left -= 1;
                if left == 0 {
                    break;
                }
            }
        }
        count
    }

    /// The list of offers has changed: its number goes into the rings.
    fn renumber_offers(&mut self) {
        let number = self.offers.number();
        self.links.iter_mut().for_each(|link| link.offer(number));
    }

    fn disarm_all(&mut self) {
        self.links.iter_mut().chain(self.closing.iter_mut().map(|(link, _)| link)).for_each(Link::disarm);
    }
}

impl Rail for ShmRail {
    fn name(&self) -> &str {
        &self.name
    }

    fn facts(&self) -> RailFacts {
        RailFacts {
            kind: RailKind::Shm,
            caps: Caps { write: false, read: self.options.single_copy, registration: false, lossless: true },
            eager_bytes_max: self.options.eager_bytes_max,
            segment_bytes_max: self.options.segment_bytes,
            short_bytes_max: self.options.segment_bytes.min(u16::MAX.into()),
            transfer_bytes_max: READ_BYTES_MAX,
            posts_max: self.options.posts_max,
            bytes_per_second: 0,
            numa_distance: NUMA_LOCAL,
            ..RailFacts::UNKNOWN
        }
    }

    fn address(&self) -> String {
        format!("{}/{}", self.host_id, self.socket_name)
    }

    fn add_peer(&mut self, peer: PeerId, address: &str) -> Result<bool, AddressError> {
        let (host, name) = setup::split_address(address)?;
        if peer.0 >= self.options.peers_max {
            return Err(AddressError { address: address.into(), why: "the rank is not below peers_max" });
        }
        if host != self.host_id || peer == self.me {
            return Ok(false);
        }
        self.peers.entry(peer).or_default().socket_name = Some(name.into());
        Ok(true)
    }

    fn trust(&mut self, peer: PeerId, key: &PeerKey) {
        if let Some(known) = self.peers.get_mut(&peer) {
            let key = key.fingerprint();
            known.key = Some(key);
            self.callers.insert(key, peer);
            // It may have called before (H-11).
            self.check_sockets = true;
            self.beside |= SLOW;
        }
    }

    fn refuse(&mut self, key: &Fingerprint) {
        self.refuse_held(key);
    }

    fn forget_peer(&mut self, peer: PeerId) {
        self.abort(peer);
        if let Some(key) = self.peers.remove(&peer).and_then(|known| known.key) {
            self.callers.remove(&key);
        }
    }

    fn public_key(&self) -> Option<PublicKey> {
        Some(self.credentials.public())
    }

    fn connect(&mut self, now: Time, peer: PeerId) {
        if self.link_index(peer).is_some() || self.peers.get(&peer).is_some_and(|known| known.dial.is_some()) {
            return;
        }
        self.check_sockets = true;
        let deadline = now + self.options.handshake_timeout;
        // Its dial may be pending here already, authenticated but without its ring.
        let coming = self.openings.iter().find(|(_, opening)| opening.peer == Some(peer)).map(|(&token, _)| token);
        match self.peers.get_mut(&peer) {
            Some(known) if known.socket_name.is_some() || coming.is_some() => {
                known.dial = Some((deadline, coming.map_or(Dial::Retry(now), Dial::Under)));
                if coming.is_none() {
                    self.dial(now, peer);
                }
            }
            _ => self.failed.push_back((peer, RailFault::Refused)),
        }
    }

    fn disconnect(&mut self, peer: PeerId) {
        if let Some(known) = self.peers.get_mut(&peer)
            && let Some((_, Dial::Under(token))) = known.dial.take()
        {
            self.openings.remove(&token);
        }
        self.failed.retain(|(failed, _)| *failed != peer);
        self.done.retain(|(of, ..)| *of != peer);
        let Some(index) = self.link_index(peer) else { return };
        let mut link = self.remove_link(index);
        // Into the ring, as far as there is room; a copy of the rest, for its memory goes back to the caller.
        let pumped = link.pump(&mut self.counters, |_| ());
        if pumped.is_ok() && link.is_waiting() && !link.is_gone() && link.fault().is_none() {
            link.own_queue();
            self.closing.push((link, None));
        }
    }

    // L-15
    fn abort(&mut self, peer: PeerId) {
        if let Some(known) = self.peers.get_mut(&peer) {
            known.dial = None;
        }
        self.openings.retain(|_, opening| opening.peer != Some(peer));
        self.closing.retain(|(link, _)| link.peer != peer);
        if let Some(index) = self.link_index(peer) {
            // The rings are unmapped as they are; the socket's end notifies the peer.
            self.remove_link(index);
        }
        self.failed.retain(|(failed, _)| *failed != peer);
        self.done.retain(|(of, ..)| *of != peer);
    }

    unsafe fn post(&mut self, outgoing: Outgoing<'_>) {
        // To a link that is down or has a fault: dropped; the subchannel's end reports it.
        let Some(index) = self.link_index(outgoing.peer) else { return };
        // Its completion is to be reported, it waits for room, or it is to be read.
        self.beside |= SLOW;
        if outgoing.kind != PostKind::Send {
            let memory = self.links[index].memory.as_mut();
            if !memory.is_some_and(|(_, reads)| reads.post(&outgoing)) {
                debug_assert!(false, "the rail has no write");
                self.links[index].fail(RailFault::Device { code: Errno::OPNOTSUPP.raw_os_error() });
                self.done.push_back((outgoing.peer, outgoing.id, PostStatus::Failed));
            }
            return;
        }
        if self.links[index].post(&outgoing, &mut self.counters) {
            self.done.push_back((outgoing.peer, outgoing.id, PostStatus::Done));
        }
    }

    unsafe fn post_short(&mut self, peer: PeerId, short: &Short, payload: *const u8) -> bool {
        let immediate = short.flags & Short::IMMEDIATE != 0;
        let Some(link) = self.short_link(peer, short.len.into(), immediate) else { return false };
        // SAFETY: the caller's promise is the same, and there is room.
        unsafe { link.post_short(short, payload) };
        true
    }

    fn offer(&mut self, memory: Piece, file: BorrowedFd<'_>, is_writable: bool) {
        // Without a descriptor for it peers read it as they do other memory.
        if let Ok(file) = file.try_clone_to_owned()
            && self.offers.add(memory, file, is_writable)
        {
            self.renumber_offers();
        }
    }

    fn forget(&mut self, memory: Piece) {
        if self.offers.withdraw(memory) {
            self.renumber_offers();
        }
    }

    fn expose(&mut self, key: u64, memory: Piece, access: Access) {
        self.list_window(key, memory, access);
    }

    fn withdraw(&mut self, key: u64) -> bool {
        self.unlist_window(key)
    }

    unsafe fn access(&mut self, access: &DirectAccess<'_>) -> bool {
        // SAFETY: the caller's promise is the same.
        unsafe { self.access_now(access) }
    }

    fn poll(&mut self, now: Time, sink: &mut dyn Sink) -> usize {
        self.until_check = self.until_check.wrapping_sub(1);
        // Most polls find nothing.
        if self.until_check != 0 && self.is_quiet() { 0 } else { self.poll_all(now, sink) }
    }

    fn next_timeout(&self) -> Option<Time> {
        let openings = self.openings.values().map(|opening| opening.deadline);
        let dials = self.peers.values().filter_map(|peer| match peer.dial? {
            (deadline, Dial::Retry(at)) => Some(deadline.min(at)),
            (deadline, _) => Some(deadline),
        });
        // A link that was disconnected since the last poll gets its deadline in the next one.
        let closing = self.closing.iter().map(|(_, until)| until.unwrap_or(Time(0)));
        openings.chain(dials).chain(closing).chain(self.listener_paused_until).min()
    }

    fn is_closing(&self) -> bool {
        !self.closing.is_empty()
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.epoll.as_fd())
    }

    fn arm(&mut self) -> bool {
        // Whatever the cause of the wake-up, look at the sockets.
        self.check_sockets = true;
        // A caller that has become a peer is answered by a poll (H-11).
        let is_answered = !self.has_held_peer();
        if is_answered && self.done.is_empty() && self.failed.is_empty() && self.sleep() {
            return true;
        }
        self.disarm_all();
        false
    }

    fn disarm(&mut self) {
        self.disarm_all();
    }

    fn counters(&self) -> RailCounters {
        let mut counters = self.counters;
        self.links.iter().for_each(|link| link.counted.add_to(&mut counters));
        counters
    }

    fn usage(&self) -> RailUsage {
        RailUsage::default()
    }
}
