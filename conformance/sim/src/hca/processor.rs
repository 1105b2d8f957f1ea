//! What using an HCA costs the processor of the process that uses it: posting, carrying small messages over
//! by programmed I/O, registering memory.
//!
//! A process has one processor, whatever the number of its HCAs, and it does one thing after the other: a
//! request's doorbell rings when its post is done, and a post begins when those before it are done, on
//! whatever HCA. So two small messages over two rails go one behind the other, which is what
//! newmadeleine-2007, 3.2 found: "small messages are transferred from host memory to the NIC using a
//! Programmed I/O (PIO) operation. This technique ... monopolizes the CPU". Larger ones are fetched by the
//! HCA itself (DMA), as many at once as there are HCAs.
//!
//! A model of its own, not the cycles of a real processor:
//! * A packet of a message that goes by programmed I/O is at the HCA when its last byte is; the processor
//!   goes on with the next one meanwhile. The HCA does not read it over the bus; that stores of the processor
//!   take bus time away from others is left out.
//! * Reads and atomics bring no data with them: they cost a post.
//! * Pages are counted by bytes, never by addresses, which differ from run to run.
//! * To end a registration costs nothing.

use std::collections::BTreeMap;

use rerail_core::time::Time;

/// Bytes of a page, of those that registering counts.
const PAGE_BYTES: u64 = 4096;

/// Picoseconds of a nanosecond.
const PS_PER_NS: u64 = 1_000;

/// What an HCA costs processors. By default: nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostCost {
    /// Nanoseconds of every post of a send, read, write or atomic.
    pub post_ns: u64,
    /// Messages up to so many bytes, headers of the layers above included, go by programmed I/O; 0: none
    /// does.
    pub pio_bytes_max: u32,
    /// Bytes per second of programmed I/O; 0: without limit.
    pub pio_bytes_per_second: u64,
    /// Nanoseconds of every registration.
    pub register_ns: u64,
    /// Nanoseconds of every page of 4096 bytes, or part of one, that is registered.
    pub register_page_ns: u64,
}

impl HostCost {
    /// Whether a message that the process gives bytes for goes by programmed I/O.
    pub(super) fn is_pio(&self, bytes: u32) -> bool {
        bytes <= self.pio_bytes_max && self.pio_bytes_max > 0
    }

    /// Picoseconds of a post that has carried over so many bytes by programmed I/O.
    pub(super) fn post_ps(&self, pio_bytes: u32) -> u64 {
        let carried = u128::from(pio_bytes) * u128::from(PS_PER_NS * 1_000_000_000);
        let carried = carried.checked_div(self.pio_bytes_per_second.into()).unwrap_or(0);
        self.post_ns.saturating_mul(PS_PER_NS).saturating_add(u64::try_from(carried).unwrap_or(u64::MAX))
    }

    /// When so many bytes of a post that begins at `from_ps` are at the HCA.
    pub(super) fn carried_at(&self, from_ps: u64, pio_bytes: u32) -> Time {
        Time(from_ps.saturating_add(self.post_ps(pio_bytes)).div_ceil(PS_PER_NS))
    }

    /// Picoseconds of a registration of so many bytes.
    pub(super) fn register_ps(&self, bytes: u64) -> u64 {
        let pages = bytes.div_ceil(PAGE_BYTES).saturating_mul(self.register_page_ns);
        self.register_ns.saturating_add(pages).saturating_mul(PS_PER_NS)
    }
}

/// The processors of all processes, as far as HCAs keep them busy.
#[derive(Debug, Default)]
pub(super) struct Processors(BTreeMap<u32, Processor>);

/// One process's.
#[derive(Debug, Default)]
struct Processor {
    /// In picoseconds since the origin: what comes next begins no earlier.
    free_ps: u64,
    /// Picoseconds that were not taken yet.
    spent_ps: u64,
}

impl Processors {
    /// A process does something that takes so many picoseconds, behind all that it did before: when it
    /// begins, in picoseconds.
    pub fn spend(&mut self, owner: u32, now: Time, span_ps: u64) -> u64 {
        let now_ps = now.0.saturating_mul(PS_PER_NS);
        if span_ps == 0 && !self.0.contains_key(&owner) {
            return now_ps;
        }
        let processor = self.0.entry(owner).or_default();
        let from_ps = processor.free_ps.max(now_ps);
        processor.free_ps = from_ps.saturating_add(span_ps);
        processor.spent_ps = processor.spent_ps.saturating_add(span_ps);
        from_ps
    }

    /// Nanoseconds that a process has spent since it was last taken, rounded up.
    pub fn take_spent_ns(&mut self, owner: u32) -> u64 {
        self.0.get_mut(&owner).map_or(0, |processor| std::mem::take(&mut processor.spent_ps).div_ceil(PS_PER_NS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COST: HostCost = HostCost {
        post_ns: 100,
        pio_bytes_max: 64,
        pio_bytes_per_second: 3_000_000_000,
        register_ns: 1_000,
        register_page_ns: 10,
    };

    #[test]
    fn host_costs_follow_the_cost_model() {
        assert_eq!((COST.post_ps(0), COST.post_ps(1), COST.post_ps(9)), (100_000, 100_333, 103_000));
        assert_eq!(
            (COST.register_ps(1), COST.register_ps(4096), COST.register_ps(4097)),
            (1_010_000, 1_010_000, 1_020_000)
        );
        assert_eq!([0, 1, 9].map(|bytes| COST.carried_at(1_500, bytes)), [102, 102, 105].map(Time));
        assert_eq!([0, 64, 65].map(|bytes| COST.is_pio(bytes)), [true, true, false]);
        let free = HostCost::default();
        assert_eq!((free.post_ps(5), free.register_ps(1 << 40), free.is_pio(0)), (0, 0, false));
    }

    #[test]
    fn a_processor_does_one_thing_after_the_other() {
        let mut processors = Processors::default();
        assert_eq!(processors.spend(1, Time(7), 0), 7_000);
        assert_eq!(processors.spend(1, Time(10), 1_500), 10_000);
        assert_eq!(processors.spend(1, Time(10), 1_500), 11_500, "fractions are kept");
        assert_eq!(processors.spend(1, Time(10), 0), 13_000, "what costs nothing waits for its turn too");
        assert_eq!(processors.spend(2, Time(10), 1_000), 10_000, "processes have a processor each");
        assert_eq!(processors.spend(1, Time(20), 1_000), 20_000);
        assert_eq!((processors.take_spent_ns(1), processors.take_spent_ns(1), processors.take_spent_ns(9)), (4, 0, 0));
    }
}
