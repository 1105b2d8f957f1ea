//! Processes, as the fabric represents them: what one has on an HCA, and its end.

use rerail_verbs::contract::QpKind;

use super::fabric::{Fabric, Objects};
use crate::net::HcaId;

/// A shared receive queue, to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedQueueState {
    /// Receives that are posted and wait for a message.
    pub posted: u32,
    /// Receives that messages have taken since it was made.
    pub taken: u64,
}

impl Fabric {
    /// A process is killed: its devices close as the kernel closes them, while the handles stay with their
    /// holders and report that the device is gone.
    pub fn kill_owner(&mut self, owner: u32) {
        for hca in 0..self.hca_count() {
            self.on_hca(HcaId(hca), |hca, _| {
                for context in hca.contexts.names(|context| context.owner == owner) {
                    hca.close(context);
                }
            });
        }
    }

    /// What a process has on all HCAs together. Of devices only those that work: a broken one has nothing,
    /// and its handle stays open until the process lets go of it.
    pub fn objects_of(&self, owner: u32) -> Objects {
        let mut all = Objects::default();
        for hca in (0..self.hca_count()).map(|hca| self.hca(HcaId(hca))) {
            let owned = |context: u32| hca.contexts.get(context).is_some_and(|context| context.owner == owner);
            let mrs = || hca.mrs.iter().filter(|(_, mr)| owned(mr.context));
            all.contexts += hca.contexts.iter().filter(|(_, it)| it.owner == owner && !it.gone).count() as u32;
            all.pds += hca.pds.iter().filter(|(_, it)| owned(it.context)).count() as u32;
            all.mrs += mrs().count() as u32;
            all.cqs += hca.cqs.iter().filter(|(_, it)| owned(it.context)).count() as u32;
            all.qps += hca.qp_names.iter().filter(|(_, it)| owned(it.context)).count() as u32;
            all.srqs += hca.srqs.iter().filter(|(_, it)| owned(it.context)).count() as u32;
            all.ahs += hca.handles.iter().filter(|(_, it)| owned(it.context)).count() as u32;
            all.xrcds += hca.domain_names.iter().filter(|(_, it)| owned(it.context)).count() as u32;
            all.registered_bytes += mrs().map(|(_, mr)| mr.pins).sum::<u64>();
        }
        all
    }

    /// Numbers of the connected queue pairs that a process has on an HCA, in the order of their numbers.
    pub fn queue_pairs_of(&self, hca: HcaId, owner: u32) -> Vec<u32> {
        let hca = self.hca(hca);
        let owned = |context: u32| hca.contexts.get(context).is_some_and(|context| context.owner == owner);
        let names = hca.qp_names.iter().filter(|(_, name)| owned(name.context));
        let pairs = names.filter_map(|(_, name)| hca.qps.get(name.qp));
        let mut numbers: Vec<u32> = pairs.filter(|qp| qp.kind != QpKind::Ud).map(|qp| qp.number).collect();
        numbers.sort_unstable();
        numbers
    }

    /// The shared receive queues of a process on an HCA, in the order in which they were made.
    pub fn shared_queues_of(&self, hca: HcaId, owner: u32) -> Vec<SharedQueueState> {
        let hca = self.hca(hca);
        let owned = |context: u32| hca.contexts.get(context).is_some_and(|context| context.owner == owner);
        let queues = hca.srqs.iter().filter(|(_, it)| owned(it.context));
        queues.map(|(_, it)| SharedQueueState { posted: it.queue.len() as u32, taken: it.taken }).collect()
    }
}
