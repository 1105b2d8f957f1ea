//! What a device offers beside what all have (`ibv_query_device_ex(3)`).

use rdma_core_sys as sys;

/// What a device offers beside what all have. A device that can't be asked offers nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offers {
    /// Requests of reliable connections that can use memory which is registered on demand.
    pub on_demand: OnDemand,
    /// The most that interrupts of completion queues can be put off; `None`: not at all.
    pub moderation: Option<Moderation>,
}

/// What memory registered on demand can be used for: its pages are brought in when the device needs them, and pinned by
/// nobody (`ibv_reg_mr(3)`, `IBV_ACCESS_ON_DEMAND`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OnDemand {
    /// Sends from there.
    pub send: bool,
    /// Receives into there.
    pub receive: bool,
    /// Receives of a shared queue.
    pub shared_receive: bool,
    /// Remote writes, at both ends.
    pub write: bool,
    /// Remote reads, at both ends.
    pub read: bool,
}

impl OnDemand {
    /// Whether it can be used for everything that all registered memory can.
    pub fn is_whole(&self) -> bool {
        self.send && self.receive && self.shared_receive && self.write && self.read
    }
}

/// When a completion queue tells of what is in it: after so many completions, or so long after the first
/// (`ibv_modify_cq(3)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moderation {
    /// Completions.
    pub count: u16,
    /// Microseconds.
    pub period_us: u16,
}

impl Offers {
    pub(crate) fn of(attr: &sys::ibv_device_attr_ex) -> Offers {
        let caps = &attr.odp_caps;
        let can = |bit| caps.general_caps & sys::IBV_ODP_SUPPORT != 0 && caps.per_transport_caps.rc_odp_caps & bit != 0;
        let sys::ibv_cq_moderation_caps { max_cq_count: count, max_cq_period: period_us } = attr.cq_mod_caps;
        Offers {
            on_demand: OnDemand {
                send: can(sys::IBV_ODP_SUPPORT_SEND),
                receive: can(sys::IBV_ODP_SUPPORT_RECV),
                shared_receive: can(sys::IBV_ODP_SUPPORT_SRQ_RECV),
                write: can(sys::IBV_ODP_SUPPORT_WRITE),
                read: can(sys::IBV_ODP_SUPPORT_READ),
            },
            moderation: (count > 0 || period_us > 0).then_some(Moderation { count, period_us }),
        }
    }
}
