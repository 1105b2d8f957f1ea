//! Two transports that send one message back and forth; each sleeps in an event loop of its owner's until the
//! next one comes. The loops differ, the play is here.

use std::time::Duration;

use rerail_linux::{
    Cookie, Event, Name, Notify, Options, PeerId, RecvRequest, RegionId, Seg, Selector, SendRequest, Settings,
    Transport,
};

/// Messages, both ways together.
const MESSAGES: u64 = 300;
/// Bytes of the longest one.
const BYTES_MAX: u64 = 100_000;
/// Before each of the first messages the sender computes, so that the other one sleeps.
const SLOW: (u64, Duration) = (20, Duration::from_millis(2));

/// One side.
pub struct Player {
    /// To be driven by the event loop.
    pub transport: Transport,
    memory: RegionId,
    peer: PeerId,
    /// The message that comes or goes next.
    next: u64,
}

/// Two sides that have inserted each other's names, over one kind of rail.
pub fn pair(rail: &str) -> [Player; 2] {
    let mut settings = Settings::default();
    settings.rails = vec![rail.to_owned()];
    settings.tcp_interfaces = vec!["127.0.0.1".to_owned()];
    let open = || Transport::open_named(&Options { settings: settings.clone() }).expect("rails of this machine");
    let mut transports = [open(), open()];
    let names: Vec<Name> = transports.iter().map(|transport| transport.name().expect("opened by name")).collect();
    let peers = [transports[0].insert(&names[1]), transports[1].insert(&names[0])];
    let mut peers = peers.into_iter().map(|peer| peer.expect("a new name"));
    transports.map(|mut transport| {
        let memory = transport.alloc(2 * BYTES_MAX as usize).expect("memory");
        Player { transport, memory, peer: peers.next().expect("two"), next: 0 }
    })
}

fn bytes_of(message: u64) -> u64 {
    8 + message * 7919 % (BYTES_MAX - 8)
}

impl Player {
    /// Begins: the first side sends, the second receives.
    pub fn begin(&mut self, is_first: bool) {
        if is_first {
            self.send();
        }
        self.receive();
    }

    fn send(&mut self) {
        let bytes = bytes_of(self.next);
        let segments = [Seg::new(self.memory, 0, bytes)];
        for offset in [0, bytes - 8] {
            self.transport.write(Seg::new(self.memory, offset, 8).at, &self.next.to_le_bytes()).expect("the region");
        }
        let send = SendRequest::new(self.peer, &segments);
        // The other side's answer reports that it is placed.
        self.transport.send(&SendRequest { tag: Some(self.next), notify: Notify::Silent, ..send }).expect("a peer");
        self.next += 1;
    }

    fn receive(&mut self) {
        let into = [Seg::new(self.memory, BYTES_MAX, BYTES_MAX)];
        let receive = RecvRequest { cookie: Cookie(self.next), ..RecvRequest::new(Selector::tagged(self.next), &into) };
        self.transport.recv(&receive).expect("room for a receive");
    }

    /// Takes an event; `true`: all messages have come and gone.
    pub fn take(&mut self, event: Event) -> bool {
        let Event::Completed(completion) = event else {
            assert!(matches!(event, Event::PeerUp { .. } | Event::PeerClosed { .. }), "{event:?}");
            return self.next >= MESSAGES;
        };
        let (done, message) = (completion.result.expect("a message"), completion.cookie.0);
        assert_eq!((message, done.bytes), (self.next, bytes_of(self.next)));
        for offset in [0, done.bytes - 8] {
            let mut bytes = [0; 8];
            self.transport.read(Seg::new(self.memory, BYTES_MAX + offset, 8).at, &mut bytes).expect("the region");
            assert_eq!(u64::from_le_bytes(bytes), message);
        }
        self.next += 1;
        if self.next < MESSAGES {
            if message < SLOW.0 {
                std::thread::sleep(SLOW.1);
            }
            self.send();
            if self.next < MESSAGES {
                self.receive();
            }
        }
        self.next >= MESSAGES
    }

    /// Leaves in good order.
    pub fn end(self) {
        self.transport.finish(Some(Duration::from_secs(10))).expect("the peer is there");
    }
}
