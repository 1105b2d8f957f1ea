//! What all ranks do together: a barrier, and bringing texts to one rank. Both go on without ranks that are
//! lost.

use rerail_core::endpoint::{RecvRequest, Selector, SendRequest, TagMatch};
use rerail_core::ids::PeerId;
use rerail_core::mem::{RegionId, Seg};

use super::{Session, SessionError, Ticket};

/// Tags with this bit are the session's own; the tool's subcommands use tags without it.
const CONTROL: u64 = 1 << 63;
/// Of a barrier; the low bits count barriers.
const BARRIER: u64 = CONTROL | 1 << 56;
/// Of a text.
const TEXT: u64 = CONTROL | 2 << 56;
/// Longest text that is received, in bytes.
const TEXT_BYTES_MAX: u64 = 1 << 20;

fn from(rank: u32, tag: u64) -> Selector {
    Selector { source: Some(PeerId(rank)), tag: TagMatch::Tagged { tag, ignore: 0 } }
}

impl Session {
    /// Waits until every living rank is here. Messages that a rank sent before are there after it, received
    /// or not, because a token travels behind them. Each rank sends the others a number; the numbers received
    /// are returned by rank.
    ///
    /// Tokens go between all pairs: that needs no agreement on the living ranks, as a tree would.
    pub fn barrier(&mut self, value: u64) -> Result<Vec<Option<u64>>, SessionError> {
        let tag = BARRIER | self.barriers;
        self.barriers += 1;
        let living = self.living();
        let mut contributions = vec![None; self.size() as usize];
        let mut sends = Vec::with_capacity(living.len());
        let mut receives = Vec::with_capacity(living.len());
        // To itself too: what a rank sends to itself also takes its way.
        for &rank in &living {
            receives.push((rank, self.recv(RecvRequest::new(from(rank, tag), &[]))?));
        }
        for &rank in &living {
            let token = SendRequest { tag: Some(tag), immediate: Some(value), ..SendRequest::new(PeerId(rank), &[]) };
            sends.push(self.inject(token, &[])?);
        }
        for (rank, receive) in receives {
            if let Ok(done) = self.wait(receive)? {
                contributions[rank as usize] = done.immediate;
            }
        }
        for send in sends {
            // An error here is the loss of a peer, which the session has stored.
            let _ = self.wait(send)?;
        }
        Ok(contributions)
    }

    /// Brings every living rank's text to `root`, which gets them by rank; the others get nothing. All ranks
    /// stay until it is complete.
    pub fn collect(&mut self, root: u32, text: &[u8]) -> Result<Vec<Option<Vec<u8>>>, SessionError> {
        let me = self.rank();
        let mut texts = vec![None; self.size() as usize];
        if me == root {
            for rank in self.living() {
                texts[rank as usize] = if rank == me { Some(text.to_vec()) } else { self.receive_text(rank)? };
            }
        } else {
            self.send_text(root, text)?;
        }
        self.barrier(0)?;
        Ok(texts)
    }

    /// Sends a text to one rank, which must [`receive_text`](Self::receive_text) it.
    pub fn send_text(&mut self, rank: u32, text: &[u8]) -> Result<(), SessionError> {
        let region = self.alloc(text.len() as u64)?;
        let seg = Seg::new(region, 0, text.len() as u64);
        self.bytes_mut(seg).copy_from_slice(text);
        let send = SendRequest { tag: Some(TEXT), segments: &[seg], ..SendRequest::new(PeerId(rank), &[]) };
        let ticket = self.send(send)?;
        match self.wait(ticket)? {
            Ok(_) => self.free(region),
            // Leftovers of the connection may still name the region: only the end of the process frees it.
            Err(_) => Ok(()),
        }
    }

    /// Waits for the next text from a rank; `None`: the rank is gone, or the text is too long.
    pub fn receive_text(&mut self, rank: u32) -> Result<Option<Vec<u8>>, SessionError> {
        let pending = self.listen(rank)?;
        self.receive_text_now(pending)
    }

    /// Starts to listen for a text, without waiting. The buffer exists before the text can come, so that a
    /// rank may send and leave at once.
    pub fn listen(&mut self, rank: u32) -> Result<PendingText, SessionError> {
        let region = self.alloc(TEXT_BYTES_MAX)?;
        let seg = Seg::new(region, 0, TEXT_BYTES_MAX);
        let ticket = self.recv(RecvRequest::new(from(rank, TEXT), &[seg]))?;
        Ok(PendingText { region, ticket })
    }

    /// Whether a text is here, or will never be.
    pub fn received(&self, pending: &PendingText) -> bool {
        self.is_over(&pending.ticket)
    }

    /// As [`receive_text`](Self::receive_text), of a text with an open receive.
    pub fn receive_text_now(&mut self, pending: PendingText) -> Result<Option<Vec<u8>>, SessionError> {
        let PendingText { region, ticket } = pending;
        let Ok(done) = self.wait(ticket)? else { return Ok(None) };
        let text = self.bytes(Seg::new(region, 0, done.bytes)).to_vec();
        self.free(region)?;
        Ok(Some(text))
    }
}

/// A text that is listened for.
#[derive(Clone, Copy, Debug)]
pub struct PendingText {
    region: RegionId,
    ticket: Ticket,
}
