//! Processes, as the fabric knows them: what one has on an HCA, and its end.

use rerail_verbs::contract::QpKind;

use super::fabric::Fabric;
use crate::net::HcaId;

impl Fabric {
    /// A process is killed: its devices close as the kernel closes them, while the handles stay with whoever holds them
    /// and say that the device is gone.
    pub fn kill_owner(&mut self, owner: u32) {
        for hca in 0..self.hca_count() {
            self.on_hca(HcaId(hca), |hca, _| {
                for context in hca.contexts.names(|context| context.owner == owner) {
                    hca.close(context);
                }
            });
        }
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
}
