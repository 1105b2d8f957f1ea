//! Progress detection: distinguishes a slow job from one that hangs.
//!
//! Rails are never silent for long: they probe peers, answer probes, dial again. None of that completes a
//! request, so none of it counts. Events count (the session reports them), packets that a peer had to do work
//! for, and payload that a rail completed.

use std::time::{Duration, Instant};

use rerail_linux::driver::Transport;

/// What has got through so far. Numbers for comparing: one that is another than before means that something
/// did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Through {
    /// Packets with a sequence number that came and were new.
    packets: u64,
    /// Bytes of payload that rails were given and have completed.
    bytes: u64,
}

impl Through {
    /// What has got through a transport.
    pub fn of(transport: &Transport) -> Through {
        Through {
            packets: transport.stats().sequenced_received,
            bytes: transport.rails().map(|rail| rail.stats.bytes.wrapping_sub(rail.stats.backlog)).sum(),
        }
    }
}

/// Reports a stall when there was no progress for too long.
///
/// A process that itself lacks a descriptor or memory for a connection reports after half of the time. Its
/// peers have no reason to give and wait for the whole of it, so the job ends with the reason.
#[derive(Debug)]
pub struct Watchdog {
    limit: Duration,
    /// What had got through when that was last something else, how often a connection had failed for a
    /// shortage by then, and when it was looked at.
    seen: Option<(Through, u64, Instant)>,
}

/// There was no progress for too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// How long.
    pub silence: Duration,
    /// Meanwhile this process had too little of something for another connection.
    pub is_short: bool,
}

impl Watchdog {
    /// One that gives a transport so long.
    pub fn new(limit: Duration) -> Watchdog {
        Watchdog { limit, seen: None }
    }

    /// The caller has made progress that only it can see, or has just submitted a request.
    pub fn start_anew(&mut self) {
        self.seen = None;
    }

    /// Looks; `shortages`: connections that failed for a shortage, so far.
    pub fn check(&mut self, now: Instant, through: Through, shortages: u64) -> Option<Stall> {
        match self.seen {
            Some((seen, before, since)) if seen == through => {
                let (silence, is_short) = (now - since, shortages > before);
                let limit = if is_short { self.limit / 2 } else { self.limit };
                (silence > limit).then_some(Stall { silence, is_short })
            }
            _ => {
                self.seen = Some((through, shortages, now));
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use rerail_core::endpoint::{RecvRequest, Selector, SendRequest, TagMatch};
    use rerail_core::ids::PeerId;
    use rerail_linux::bootstrap::pair::{PairKey, PairListener};
    use rerail_linux::settings::Settings;

    use super::*;
    use crate::session::{Session, SessionError, dial, start};

    #[test]
    fn watchdog_is_reset_only_by_new_packets_or_completed_bytes() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut dog = Watchdog::new(Duration::from_secs(10));
        let (none, packet, byte) =
            (Through::default(), Through { packets: 1, bytes: 0 }, Through { packets: 1, bytes: 1 });
        let stall = |seconds, is_short| Some(Stall { silence: Duration::from_secs(seconds), is_short });
        assert_eq!(dog.check(at(0), none, 0), None);
        assert_eq!(dog.check(at(10), none, 0), None);
        assert_eq!(dog.check(at(11), packet, 0), None);
        assert_eq!(dog.check(at(21), packet, 0), None);
        assert_eq!(dog.check(at(22), packet, 0), stall(11, false));
        assert_eq!(dog.check(at(23), byte, 0), None);
        dog.start_anew();
        assert_eq!(dog.check(at(40), byte, 0), None);
        assert_eq!(dog.check(at(51), byte, 0), stall(11, false));
    }

    /// Its peers wait twice as long. A shortage that is over when the silence begins is no reason.
    #[test]
    fn process_short_of_resources_reports_a_stall_first() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut dog = Watchdog::new(Duration::from_secs(10));
        let none = Through::default();
        assert_eq!(dog.check(at(0), none, 3), None);
        assert_eq!(dog.check(at(6), none, 3), None);
        assert_eq!(dog.check(at(7), none, 4), Some(Stall { silence: Duration::from_secs(7), is_short: true }));
        dog.start_anew();
        assert_eq!(dog.check(at(8), none, 4), None);
        assert_eq!(dog.check(at(13), none, 5), None);
        assert_eq!(dog.check(at(18), none, 4), None);
        assert_eq!(dog.check(at(19), none, 4), Some(Stall { silence: Duration::from_secs(11), is_short: false }));
    }

    /// Rails between two processes without pending work probe each other all the time.
    fn settings(host: &str) -> Settings {
        let pairs =
            [("rails", "tcp"), ("tcp_interfaces", "127.0.0.1"), ("host_id", host), ("keepalive", "10ms")].into_iter();
        let mut settings = Settings::default();
        pairs.for_each(|(name, value)| settings.set(name, value).expect("a setting"));
        settings
    }

    const RECV: Selector = Selector { source: Some(PeerId(1)), tag: TagMatch::Tagged { tag: 7, ignore: 0 } };

    #[test]
    fn packets_without_progress_do_not_prevent_the_stall_error() {
        let listener = PairListener::bind("127.0.0.1:0").unwrap();
        let (to, key) = (listener.local_addr().unwrap().to_string(), PairKey::generate().unwrap());
        let (over, is_over) = mpsc::channel::<()>();
        let peer = thread::spawn({
            let (to, key) = (to.clone(), PairKey::from_hex(&key.to_hex()).unwrap());
            move || {
                let pair = Box::new(dial(&to, &key).unwrap());
                let mut session = start(settings("b"), pair, Duration::from_secs(60)).unwrap();
                session.barrier(0).unwrap();
                let before = session.transport().stats().packets_received;
                // So many signs of life are many times the watchdog's time-out; then it has failed, and the
                // test ends.
                while session.transport().stats().packets_received < before + 1000 && is_over.try_recv().is_err() {
                    session.poll();
                }
                let send = SendRequest { tag: Some(7), ..SendRequest::new(PeerId(0), &[]) };
                let _ = session.send(send).and_then(|ticket| session.wait(ticket));
            }
        });
        let pair = Box::new(listener.accept(&key, Duration::from_secs(60)).unwrap());
        let mut session: Session = start(settings("a"), pair, Duration::from_millis(300)).unwrap();
        session.barrier(0).unwrap();
        let ticket = session.recv(RecvRequest::new(RECV, &[])).unwrap();
        let waited = session.wait(ticket);
        assert!(matches!(waited, Err(SessionError::Stalled { open: 1, .. })), "{waited:?}");
        over.send(()).unwrap();
        drop(session);
        peer.join().unwrap();
    }
}
