//! What checkers found, in words.

use std::fmt;

use super::verdict::{
    CellFacts, Corruption, Crash, Damage, Disorder, Duplicated, Leak, Lost, PeerLoss, RequestFacts, Stuck, Verdict,
};

impl fmt::Display for RequestFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} request {} ({}", self.rank, self.request, self.kind)?;
        if let Some(peer) = self.peer {
            write!(f, ", peer {peer}")?;
        }
        if let Some(name) = self.name {
            write!(f, ", {name}")?;
        }
        write!(f, ", since {} ns)", self.since.0)
    }
}

impl fmt::Display for PeerLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PeerLoss { rank, peer, why, at, requests } = self;
        write!(f, "rank {rank} lost rank {peer} at {} ns ({why:?}; {requests} requests with it)", at.0)
    }
}

impl fmt::Display for CellFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CellFacts { target, cell, expected, found } = self;
        write!(f, "cell {cell} of rank {target}: {found:#x} instead of {expected:#x}")
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Lost::Message { name, sent, completed: None } => write!(f, "{name}, sent at {} ns", sent.0),
            Lost::Message { name, sent, completed: Some(completed) } => {
                write!(f, "{name}, sent at {} ns, complete at {} ns", sent.0, completed.0)
            }
            Lost::Acknowledged { name, completed } => write!(f, "{name}, though acknowledged at {} ns", completed.0),
            Lost::Completion(request) => write!(f, "the completion of {request}"),
            Lost::Counted { rank, counted, done } => write!(f, "rank {rank} counted {counted} of {done} requests"),
            Lost::Atomic(cell) => write!(f, "an atomic was answered and not done: {cell}"),
            Lost::Put { put, target, difference } => write!(f, "{put} is not in rank {target}'s window: {difference}"),
            Lost::Notice { put, target } => write!(f, "rank {target} was not notified of {put}"),
            Lost::Peer(loss) => write!(f, "{loss}, for no reason"),
        }
    }
}

impl fmt::Display for Duplicated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Duplicated::Message { name, first, second, at } => {
                write!(f, "{name} was received by request {first}, and at {} ns by request {second}", at.0)
            }
            Duplicated::Cancelled { name, at } => write!(f, "{name} was taken back and came at {} ns", at.0),
            Duplicated::Completion { rank, request, at } => {
                write!(f, "rank {rank}: completion of request {request}, which is over, at {} ns", at.0)
            }
            Duplicated::Notice { put, target, at } => {
                write!(f, "rank {target} was notified of {put} again at {} ns", at.0)
            }
            Duplicated::Counted { rank, counted, done } => {
                write!(f, "rank {rank} counted {counted} of {done} requests")
            }
            Duplicated::Atomic(cell) => write!(f, "an atomic: {cell}"),
        }
    }
}

impl fmt::Display for Disorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Disorder::NotTaken { receive, name } => write!(f, "receive {receive} does not take {name}"),
            Disorder::Overtaken { receive, name, older } => {
                write!(f, "receive {receive} got {name} before message {}", older.serial())
            }
            Disorder::PassedBy { receive, younger: Some(younger), name } => {
                write!(f, "{name} passed by receive {receive} and went to receive {younger}")
            }
            Disorder::PassedBy { receive, younger: None, name } => {
                write!(f, "{name} passed by receive {receive} and was found by a probe")
            }
            Disorder::Impossible { receive, name } => write!(f, "no order explains that receive {receive} got {name}"),
            Disorder::Index { receive, name, index, expected } => {
                write!(f, "multi-receive {receive}: {name} has number {index} instead of {expected}")
            }
            Disorder::Offset { receive, offset, expected, .. } => {
                write!(f, "multi-receive {receive}: a message at {offset} instead of {expected}")
            }
            Disorder::Differs { receiver, sender, at, with, without } => {
                let named = |serial: Option<u32>| serial.map_or("none".to_owned(), |serial| serial.to_string());
                let (with, without) = (named(*with), named(*without));
                write!(
                    f,
                    "rank {receiver}, message {at} of rank {sender}: {with} with the short way, {without} without"
                )
            }
        }
    }
}

impl fmt::Display for Corruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {}, seen at {} ns: ", self.rank, self.at.0)?;
        match &self.damage {
            Damage::Message { name, receive, difference } => write!(f, "receive {receive}, {name}: {difference}"),
            Damage::UnknownMessage { receive, name: Some(name), peer, bytes } => {
                write!(f, "receive {receive} got {bytes} bytes of rank {peer} as {name}, which was never sent so")
            }
            Damage::UnknownMessage { receive, name: None, peer, bytes } => {
                write!(f, "receive {receive} got {bytes} bytes of rank {peer} that were never sent")
            }
            Damage::Envelope { name, receive, field } => write!(f, "receive {receive}, {name}: wrong {field}"),
            Damage::Behind { receive, difference } => write!(f, "receive {receive}, behind the message: {difference}"),
            Damage::Source { request, difference } => write!(f, "source buffer of request {request}: {difference}"),
            Damage::NotPlaced { name } => write!(f, "{name} is reported as placed and is not in the receiver's buffer"),
            Damage::Got { request, target, slot, at, found } => {
                write!(f, "get {request} of rank {target}'s slot {slot}: byte {at} is {found:#04x}")
            }
            Damage::Window { slot, at, found } => write!(f, "slot {slot} of its window: byte {at} is {found:#04x}"),
            Damage::Notice { peer, bytes, immediate } => {
                write!(
                    f,
                    "notified of a put of {bytes} bytes by rank {peer} with {immediate:#x}, which it did not make"
                )
            }
            Damage::Fence { request, earlier } => {
                write!(f, "request {request} has passed its fence before request {earlier} was complete")
            }
            Damage::Kind { request, kind } => write!(f, "the completion of request {request} is about a {kind:?}"),
            Damage::Protected(difference) => write!(f, "memory that may not be written: {difference}"),
            Damage::Refusal { request, refused: true } => write!(f, "request {request} was refused without reason"),
            Damage::Refusal { request, refused: false } => write!(f, "request {request} should have been refused"),
            Damage::Error { request, error } => write!(f, "request {request} ended in {error:?}"),
            Damage::LateWrite(scar) => write!(f, "{scar}"),
        }
    }
}

impl fmt::Display for Leak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Leak::Table { rank, table, used } => write!(f, "rank {rank}: {used} {table} are left in use"),
            Leak::Objects { what, before, after } => write!(f, "{what}: {after} are left, {before} should be"),
            Leak::Bound { what, reached, bound } => write!(f, "{what}: {reached}, over the bound of {bound}"),
        }
    }
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stuck::Waiting { at, requests, count } => {
                write!(f, "{count} requests are not over at {} ns", at.0)?;
                requests.iter().try_for_each(|request| write!(f, "\n  {request}"))
            }
            Stuck::WaitingTooLong { request, waited_ns, overtaken_by } => {
                write!(f, "{request} waited {waited_ns} ns while {overtaken_by} later ones went through")
            }
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.word())?;
        match self {
            Verdict::Clean => Ok(()),
            Verdict::Impossible(why) => write!(f, ": {why}"),
            Verdict::Crash(Crash { rank: Some(rank), at, message }) => {
                write!(f, ": rank {rank} at {} ns: {message}", at.0)
            }
            Verdict::Crash(Crash { rank: None, at, message }) => write!(f, ": at {} ns: {message}", at.0),
            Verdict::Lost(lost) => write!(f, ": {lost}"),
            Verdict::Duplicated(duplicated) => write!(f, ": {duplicated}"),
            Verdict::Order(disorder) => write!(f, ": {disorder}"),
            Verdict::Corruption(corruption) => write!(f, ": {corruption}"),
            Verdict::Leak(leak) => write!(f, ": {leak}"),
            Verdict::Stuck(stuck) => write!(f, ": {stuck}"),
        }
    }
}
