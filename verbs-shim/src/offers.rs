//! Optional features of a device (`ibv_query_device_ex(3)`).

use rdma_core_sys as sys;

use crate::contract::ModifyError;

/// Optional features of a device. If the query fails, there are none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offers {
    /// Requests of reliable connections (RC) that can use memory which is registered on demand.
    pub on_demand: OnDemand,
    /// The same of XRC.
    pub on_demand_xrc: OnDemand,
    /// The most that interrupts of completion queues can be put off; `None`: not at all.
    pub moderation: Option<Moderation>,
}

/// Operations possible on memory registered on demand: its pages are brought in when the device needs them,
/// and are not pinned (`ibv_reg_mr(3)`, `IBV_ACCESS_ON_DEMAND`).
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
    /// For everything that all registered memory can be used for.
    pub const WHOLE: OnDemand = OnDemand { send: true, receive: true, shared_receive: true, write: true, read: true };

    /// The missing parts of `wanted`, by name.
    pub fn missing_features(&self, wanted: &OnDemand) -> impl Iterator<Item = &'static str> {
        [
            ("sends", self.send, wanted.send),
            ("receives", self.receive, wanted.receive),
            ("receives of shared queues", self.shared_receive, wanted.shared_receive),
            ("remote writes", self.write, wanted.write),
            ("remote reads", self.read, wanted.read),
        ]
        .into_iter()
        .filter_map(|(name, has, wants)| (wants && !has).then_some(name))
    }

    fn of(caps: u32) -> OnDemand {
        let can = |bit| caps & bit != 0;
        OnDemand {
            send: can(sys::IBV_ODP_SUPPORT_SEND),
            receive: can(sys::IBV_ODP_SUPPORT_RECV),
            shared_receive: can(sys::IBV_ODP_SUPPORT_SRQ_RECV),
            write: can(sys::IBV_ODP_SUPPORT_WRITE),
            read: can(sys::IBV_ODP_SUPPORT_READ),
        }
    }
}

/// When a completion queue reports its completions: after so many, or so long after the first, whichever is
/// sooner (`ibv_modify_cq(3)`). Both 0: at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moderation {
    /// Completions.
    pub count: u16,
    /// Microseconds.
    pub period_us: u16,
}

impl Moderation {
    /// Nothing is put off.
    pub const NONE: Moderation = Moderation { count: 0, period_us: 0 };

    /// Whether it is no more than `most`, which is [`Offers::moderation`].
    ///
    /// # Errors
    /// [`ModifyError::OutOfRange`] names the field, and the greatest value allowed: 0 where nothing is
    /// offered.
    pub fn check(self, most: Option<Moderation>) -> Result<(), ModifyError> {
        let most = most.unwrap_or(Moderation::NONE);
        for (field, value, max) in [("count", self.count, most.count), ("period_us", self.period_us, most.period_us)] {
            if value > max {
                return Err(ModifyError::OutOfRange { field, value: value.into(), min: 0, max: max.into() });
            }
        }
        Ok(())
    }
}

impl Offers {
    /// Everything, for devices that are made up; moderation as of mlx5.
    pub const WHOLE: Offers = Offers {
        on_demand: OnDemand::WHOLE,
        on_demand_xrc: OnDemand::WHOLE,
        moderation: Some(Moderation { count: u16::MAX, period_us: 4095 }),
    };

    /// Whether memory can be registered on demand at all.
    pub fn has_on_demand(&self) -> bool {
        self.on_demand != OnDemand::default() || self.on_demand_xrc != OnDemand::default()
    }

    pub(crate) fn of(attr: &sys::ibv_device_attr_ex) -> Offers {
        let caps = &attr.odp_caps;
        let of = |caps_of| {
            if caps.general_caps & sys::IBV_ODP_SUPPORT != 0 { OnDemand::of(caps_of) } else { OnDemand::default() }
        };
        let sys::ibv_cq_moderation_caps { max_cq_count: count, max_cq_period: period_us } = attr.cq_mod_caps;
        Offers {
            on_demand: of(caps.per_transport_caps.rc_odp_caps),
            on_demand_xrc: of(attr.xrc_odp_caps),
            moderation: (count > 0 || period_us > 0).then_some(Moderation { count, period_us }),
        }
    }
}
