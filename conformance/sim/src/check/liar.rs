//! Simulations with a liar: what honest ranks do among each other is judged as ever, and what is between them and the liar
//! is not, but for three things. Its requests end, and end once; nothing is written beside their buffers; and nothing of
//! them is left behind.

use rerail_core::endpoint::{Completion, OpError};
use rerail_core::time::Time;

use super::ledger::{Ask, Book, Ledger, Request};
use super::verdict::{Corruption, Verdict};

impl Ledger {
    /// One rank lies: see [`LiarSpec`](crate::scenario::LiarSpec).
    pub fn set_liar(&mut self, rank: u32) {
        self.liar = Some(rank);
    }

    /// Whether any rank lies.
    pub fn has_liar(&self) -> bool {
        self.liar.is_some()
    }

    /// Whether a rank is the liar.
    pub fn is_liar(&self, rank: u32) -> bool {
        self.liar == Some(rank)
    }

    /// Whether a completion is the liar's, or of a request at it.
    pub(super) fn is_of_liar(&self, rank: u32, entry: &Request, completion: &Completion) -> bool {
        let Some(liar) = self.liar else { return false };
        let from = match (completion.result, &entry.ask) {
            (Ok(done), Ask::Receive { .. } | Ask::Multi { .. }) => Some(done.peer.0),
            (Err(OpError::Truncated { peer, .. } | OpError::PeerLost { peer, .. }), _) => Some(peer.0),
            (Err(OpError::PeerClosed { peer } | OpError::Refused { peer, .. }), _) => Some(peer.0),
            _ => None,
        };
        rank == liar || entry.ask.peer().or(from) == Some(liar) && from.is_none_or(|from| from == liar)
    }

    /// Whether a finding is about the liar's own memory, where the answers to its lies lie.
    pub(super) fn is_about_liar(&self, finding: &Verdict) -> bool {
        matches!(finding, Verdict::Corruption(Corruption { rank, .. }) if self.is_liar(*rank))
    }

    /// What the honest ranks have among each other: the liar's book is that of a process that was never there, its messages
    /// are none, and requests at it are requests of another sort that were taken back.
    pub(super) fn without(&self, liar: u32) -> Ledger {
        let mut honest = self.clone();
        honest.messages.retain(|(source, destination), _| *source != liar && *destination != liar);
        honest.slots.forget(|target, slot| target == liar || slot == liar + 1);
        honest.cells.forget(liar);
        for book in &mut honest.books {
            book.losses.retain(|loss| loss.peer != liar);
            book.requests.iter_mut().filter(|entry| entry.ask.peer() == Some(liar)).for_each(|entry| {
                entry.ask = Ask::Flush { target: liar };
                entry.parts.clear();
                if let Some((_, result @ Err(_))) = &mut entry.ended {
                    *result = Err(OpError::Cancelled);
                }
            });
        }
        if let Some(book) = honest.books.get_mut(liar as usize) {
            *book = Book { killed: Some(Time(0)), ..Book::default() };
        }
        honest.liar = None;
        honest
    }
}
