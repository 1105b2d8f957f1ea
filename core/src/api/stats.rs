//! Counters of an endpoint.

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Packets handed to rails, unsequenced ones included.
    pub packets_sent: u64,
    /// Packets whose header arrived, including dropped ones.
    pub packets_received: u64,
    /// Those among them that have a sequence number and arrived for the first time: they bring requests
    /// nearer to completion. Acknowledgments, probes and connection frames are not among them.
    pub sequenced_received: u64,
    /// Packets that had arrived before.
    pub duplicates_dropped: u64,
    /// Packets that did not parse or violated a rule.
    pub malformed_dropped: u64,
    /// Packets, completions and answers for an object that no longer exists.
    pub stale_dropped: u64,
    /// Ordered packets that arrived before their turn.
    pub out_of_order: u64,
    /// Messages that arrived before their receive.
    pub unexpected: u64,
    /// Explicit acknowledgments sent.
    pub acks_explicit: u64,
    /// Payload bytes copied on the way (retained copies and unexpected messages).
    pub bytes_copied: u64,
    /// Ends of transfer parts that another rail took over (P-10).
    pub rebalances: u64,
    /// Messages sent by the express path; among [`packets_sent`](Self::packets_sent).
    pub short_sent: u64,
    /// Messages received directly into their buffers by the express path; among
    /// [`packets_received`](Self::packets_received).
    pub short_received: u64,
    /// Packets and reads that were replayed after their connection had died (F-5).
    pub replayed: u64,
    /// Channels that were parked (K-3).
    pub parked: u64,
    /// Parked channels that were opened again (K-5).
    pub resumed: u64,
}
