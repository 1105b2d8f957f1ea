//! One rail between the two ends: connections that come and go, and what is on its way over them.
//!
//! A connection delivers in order, up to some point; what was sent on it may still arrive after its sender's
//! end has died, and never arrives after its receiver's end has. An RDMA write is one more thing on its way:
//! it lands in the receiver's memory when its turn comes, without a request.

use heapless::Vec;

/// The side that sends the put, the atomic and the messages.
pub const X: usize = 0;
/// The side that receives them.
pub const Y: usize = 1;

/// What one end makes of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Side {
    /// The other end has made it; this one was not notified yet, and may never be.
    Pending,
    /// It stands, as far as this end has detected: what comes is taken, what is written here lands.
    Alive,
    /// It is over: nothing comes or lands any more.
    Dead,
}

/// The content of a sequenced packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Body {
    /// The ordered message of this number, with a payload that is placed.
    Message(u8),
    /// Applied when it comes.
    Atomic,
    /// All that the put has written in `epoch` over the connection is in front of this.
    Fin {
        /// The round.
        epoch: u8,
        /// How many such there are in the round.
        count: u8,
    },
    /// The put must start over in this round.
    Resume(u8),
    /// The put may start over in this round.
    Cts(u8),
    /// The put is complete, its buffer is its owner's again.
    Done,
}

/// What is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Packet {
    /// The first each way: the sender's number of the connection.
    Connect(u8),
    /// The sender's end of a connection of `rail` is dead.
    Fence {
        /// The rail of that connection.
        rail: u8,
        /// The sender's number.
        mine: u8,
        /// The receiver's number.
        yours: u8,
        /// It answers one, and requests no answer.
        answer: bool,
    },
    /// A numbered packet, retained until it is acknowledged.
    Sequenced {
        /// Its number.
        psn: u8,
        /// Its content.
        body: Body,
    },
    /// A part of the put.
    Write(u8),
}

/// What is on its way to one end over one connection, the next to arrive first.
pub type Queue = Vec<Packet, 10, u8>;

/// One connection. Index: the end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Conn {
    /// What each end makes of it.
    pub sides: [Side; 2],
    /// Each end's number of it; 0: none yet.
    pub numbers: [u8; 2],
    /// What is on its way to each end.
    pub to: [Queue; 2],
}

/// The connections of one rail that matter still: at most one on which X lives, one on which Y lives, and for
/// each end one that the other made, left, and may yet be reported.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rail {
    /// Ordered by [`Conn::sides`], which differ.
    pub conns: Vec<Conn, 4, u8>,
}

impl Rail {
    /// The connection that lives at `end`.
    pub fn alive(&self, end: usize) -> Option<&Conn> {
        self.conns.iter().find(|conn| conn.sides[end] == Side::Alive)
    }

    /// The same, to change.
    pub fn alive_mut(&mut self, end: usize) -> Option<&mut Conn> {
        self.conns.iter_mut().find(|conn| conn.sides[end] == Side::Alive)
    }

    /// A connection that `end` was not notified of, and that stands (or not: `other`) at the other end.
    pub fn pending(&self, end: usize, other: Side) -> Option<usize> {
        self.conns.iter().position(|conn| conn.sides[end] == Side::Pending && conn.sides[1 - end] == other)
    }

    /// The connection of `end` is over.
    pub fn kill(&mut self, end: usize) {
        if let Some(conn) = self.alive_mut(end) {
            conn.sides[end] = Side::Dead;
            conn.to[end].clear();
        }
    }

    /// `end` makes a connection.
    pub fn open(&mut self, end: usize, number: u8) {
        let mut conn = Conn { sides: [Side::Pending; 2], numbers: [0; 2], to: Default::default() };
        conn.sides[end] = Side::Alive;
        conn.numbers[end] = number;
        put(&mut conn.to[1 - end], Packet::Connect(number));
        self.conns.push(conn).expect("few connections matter at a time");
    }

    /// `end` is notified of the connection at `index`.
    pub fn join(&mut self, index: usize, end: usize, number: u8) {
        let conn = &mut self.conns[index];
        conn.sides[end] = Side::Alive;
        conn.numbers[end] = number;
        if conn.sides[1 - end] != Side::Dead {
            put(&mut conn.to[1 - end], Packet::Connect(number));
        }
    }

    /// Forgets connections that can't matter any more. `late`: an end may still be notified of one that is
    /// over.
    pub fn drop_late(&mut self, late: bool) {
        let mut seen = [false; 2];
        let mut index = self.conns.len();
        while index > 0 {
            index -= 1;
            let sides = self.conns[index].sides;
            let forget = match sides {
                [Side::Dead, Side::Dead] => true,
                [Side::Dead, Side::Pending] => !late || core::mem::replace(&mut seen[Y], true),
                [Side::Pending, Side::Dead] => !late || core::mem::replace(&mut seen[X], true),
                _ => false,
            };
            if forget {
                self.conns.remove(index);
            }
        }
        self.conns.sort_unstable_by_key(|conn| conn.sides);
    }
}

/// Sends.
pub fn put(queue: &mut Queue, packet: Packet) {
    queue.push(packet).expect("few packets are on their way at a time");
}
