//! What can go wrong, each at the moment of [`Fabric::inject`]. The menu is complete enough for every failure
//! that the design handles (resilient-2010, III and IV): lost acknowledgments, silent requests, broken queue
//! pairs, links, paths, switches, ports without events, new addresses, dead devices, exhausted resources.

use rerail_core::time::{Nanos, Time};
use rerail_verbs::Gid;
use rerail_verbs::contract::{AddressVector, AsyncEvent, Limits, Status};

use super::body::{Alarm, Body, Timer};
use super::core::{Cx, Hca};
use super::fabric::Fabric;
use crate::net::{Direction, HcaId, PortId, SubnetId};
use crate::trace::Subject;

/// A fault, or its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The next acknowledgments that a queue pair sends are lost; what they acknowledge was delivered.
    LoseAcks {
        /// The device.
        hca: HcaId,
        /// The number of the queue pair that sends them.
        qp: u32,
        /// How many.
        count: u32,
    },
    /// The next acknowledgments that a port sends are lost.
    LosePortAcks {
        /// The port.
        port: PortId,
        /// How many.
        count: u32,
    },
    /// Work requests that are not begun yet vanish: they are not carried out and never complete. Those behind
    /// them go on.
    Swallow {
        /// The device.
        hca: HcaId,
        /// The number of the queue pair.
        qp: u32,
        /// Those with this identifier alone.
        id: Option<u64>,
        /// How many.
        count: u32,
    },
    /// Work requests are carried out, and their completions vanish.
    LoseCompletions {
        /// The device.
        hca: HcaId,
        /// The number of the queue pair.
        qp: u32,
        /// Those with this identifier alone.
        id: Option<u64>,
        /// How many.
        count: u32,
    },
    /// The oldest request that is open, or else the next one, fails at once: as if all retries had been made.
    ExceedRetries {
        /// The device.
        hca: HcaId,
        /// The number of the queue pair.
        qp: u32,
    },
    /// A queue pair goes to the error state at one end; the peer receives nothing.
    BreakQp {
        /// The device.
        hca: HcaId,
        /// The number of the queue pair.
        qp: u32,
    },
    /// A link goes down or comes up, one way or both.
    Link {
        /// The port.
        port: PortId,
        /// Which way.
        direction: Direction,
        /// Up.
        up: bool,
        /// When the port notices; `None`: never.
        noticed_after: Option<Nanos>,
    },
    /// A path (plane) of a subnet goes down or comes up: the LIDs that lead over it.
    Path {
        /// The subnet.
        subnet: SubnetId,
        /// The plane.
        plane: usize,
        /// Up.
        up: bool,
    },
    /// All switches of a subnet go down or come up.
    Switch {
        /// The subnet.
        subnet: SubnetId,
        /// Up.
        up: bool,
    },
    /// From now on, what a port notices about its link is reported as an event so much later; `None`: never.
    PortEvents {
        /// The port.
        port: PortId,
        /// The delay.
        delay: Option<Nanos>,
    },
    /// The port gets other addresses: at once, or if its link is down, when it has come up. Events report
    /// that; the old LIDs lead nowhere.
    Readdress {
        /// The port.
        port: PortId,
        /// Its base LID; `None`: as it is.
        lid: Option<u16>,
        /// The first entry of its table of GIDs; `None`: as it is.
        gid: Option<Gid>,
    },
    /// There is no answer when a device looks for the way to a port, as on Ethernet where the host is dead: a
    /// handle is not made and a queue pair not changed, and the process has waited for that.
    Unanswered {
        /// The device that looks.
        hca: HcaId,
        /// LID of the port.
        lid: u16,
        /// How long it looks; `None`: it is found again.
        took: Option<Nanos>,
    },
    /// The port has another table of partition keys, which is not empty; an event reports it.
    Pkeys {
        /// The port.
        port: PortId,
        /// Its table: 15 bits of the partition each, and the top bit of full members.
        table: Vec<u16>,
    },
    /// The device breaks: everything in it is gone, every verb reports it, peers receive nothing.
    Kill {
        /// The device.
        hca: HcaId,
        /// It can be opened again after so long; `None`: never.
        reload_after: Option<Nanos>,
    },
    /// The next registrations are refused.
    RefuseRegistrations {
        /// The device.
        hca: HcaId,
        /// How many.
        count: u32,
    },
    /// Other limits from now on, never more than the device was made with. What is there stays.
    Limit {
        /// The device.
        hca: HcaId,
        /// Queue pairs; `None`: as it is. So with the others.
        qps: Option<u32>,
        /// Registrations.
        mrs: Option<u32>,
        /// Completion queues.
        cqs: Option<u32>,
        /// Bytes registered in all.
        registered_bytes: Option<u64>,
    },
    /// Completion queues overflow at so many entries, whatever depth they were granted; `None`: at their
    /// depth again.
    ClampCqs {
        /// The device.
        hca: HcaId,
        /// Entries.
        depth: Option<u32>,
    },
    /// The next packets of a port arrive with wrong bytes: datagrams are dropped for it, the rest is sent
    /// again.
    Corrupt {
        /// The port that sends them.
        port: PortId,
        /// How many.
        packets: u32,
    },
    /// The next packets of a port are lost.
    Lose {
        /// The port that sends them.
        port: PortId,
        /// How many.
        packets: u32,
    },
    /// Packets for a port stay in the switch until then, and come all the same: a write of a queue pair that
    /// is long dead lands late.
    Hold {
        /// The port.
        port: PortId,
        /// Until when.
        until: Time,
    },
    /// Packets of a port take up to so much longer.
    Slow {
        /// The port that sends them.
        port: PortId,
        /// At most.
        extra: Nanos,
    },
}

/// `errno` of a neighbour that does not answer.
const ETIMEDOUT: i32 = 110;

/// The faults of an HCA, and the state that they need.
#[derive(Debug, Default)]
pub(super) struct HcaFaults {
    /// It is broken and can't be opened.
    pub down: bool,
    /// Counts failures: a reload belongs to one.
    pub failures: u32,
    pub refuse_registrations: u32,
    /// Ports to which no way is found, and how long each search takes.
    pub unanswered: Vec<(u16, Nanos)>,
    pub pinned_bytes: u64,
    pub pinned_max: Option<u64>,
    pub cq_depth_max: Option<u32>,
    /// The limits that it was made with, once a fault has lowered some.
    pub limits_made: Option<Limits>,
}

/// The faults of a port.
#[derive(Debug)]
pub(super) struct PortFaults {
    pub lose_acks: u32,
    /// How long after it has noticed; `None`: never.
    pub event_delay: Option<Nanos>,
    /// Addresses for when the link comes up.
    pub next_address: Option<(Option<u16>, Option<Gid>)>,
}

impl Default for PortFaults {
    fn default() -> Self {
        PortFaults { lose_acks: 0, event_delay: Some(Nanos(0)), next_address: None }
    }
}

impl super::qp::QpFaults {
    /// Whether a request that is about to begin is to vanish.
    pub fn swallows(&self, id: u64) -> bool {
        self.swallow.iter().any(|(which, left)| *left > 0 && which.is_none_or(|which| which == id))
    }

    /// One has vanished.
    pub fn take_swallowed(&mut self, id: u64) {
        take(&mut self.swallow, id);
    }

    /// Whether the completion of a request is to vanish; counts it.
    pub fn take_lost_completion(&mut self, id: u64) -> bool {
        take(&mut self.lose_completion, id)
    }
}

fn take(list: &mut Vec<(Option<u64>, u32)>, id: u64) -> bool {
    let found = list.iter().position(|(which, left)| *left > 0 && which.is_none_or(|which| which == id));
    let Some(found) = found else { return false };
    list[found].1 -= 1;
    if list[found].1 == 0 {
        list.remove(found);
    }
    true
}

impl Fabric {
    /// Lets something go wrong, or well again, now. What names a queue pair that doesn't exist changes
    /// nothing.
    pub fn inject(&mut self, fault: &Fault) {
        let trace = self.trace.clone();
        trace.note(self.now(), Subject::Cluster, format_args!("fault {fault:?}"));
        let now = self.now();
        match *fault {
            Fault::LoseAcks { hca, qp, count } => self.on_qp(hca, qp, |hca, _, qp| {
                if let Some(qp) = hca.qps.get_mut(qp) {
                    qp.faults.lose_acks += count;
                }
            }),
            Fault::LosePortAcks { port, count } => self.on_port(port, |hca, _, number| {
                hca.ports[usize::from(number) - 1].faults.lose_acks += count;
            }),
            Fault::Swallow { hca, qp, id, count } => self.on_qp(hca, qp, |hca, _, qp| {
                if let Some(qp) = hca.qps.get_mut(qp) {
                    qp.faults.swallow.push((id, count));
                }
            }),
            Fault::LoseCompletions { hca, qp, id, count } => self.on_qp(hca, qp, |hca, _, qp| {
                if let Some(qp) = hca.qps.get_mut(qp) {
                    qp.faults.lose_completion.push((id, count));
                }
            }),
            Fault::ExceedRetries { hca, qp } => self.on_qp(hca, qp, |hca, cx, qp| hca.exceed_retries(cx, qp)),
            Fault::BreakQp { hca, qp } => self.on_qp(hca, qp, |hca, cx, qp| {
                if hca.enter_error(cx, qp) {
                    hca.qp_event(cx, qp, AsyncEvent::QpFatal);
                }
            }),
            Fault::Link { port, direction, up, noticed_after } => {
                self.net_mut().set_link(now, port, direction, up, noticed_after);
            }
            Fault::Path { subnet, plane, up } => self.net_mut().set_plane(subnet, plane, up),
            Fault::Switch { subnet, up } => self.net_mut().set_switch(subnet, up),
            Fault::PortEvents { port, delay } => self.on_port(port, |hca, _, number| {
                hca.ports[usize::from(number) - 1].faults.event_delay = delay;
            }),
            Fault::Readdress { port, lid, gid } => self.on_port(port, |hca, cx, number| {
                let place = &mut hca.ports[usize::from(number) - 1];
                place.faults.next_address = Some((lid, gid));
                if place.active {
                    hca.readdress(cx, number);
                }
            }),
            Fault::Unanswered { hca, lid, took } => self.on_hca(hca, |hca, _| {
                hca.faults.unanswered.retain(|(of, _)| *of != lid);
                hca.faults.unanswered.extend(took.map(|took| (lid, took)));
            }),
            Fault::Pkeys { port, ref table } => self.on_port(port, |hca, cx, number| {
                hca.ports[usize::from(number) - 1].pkeys.clone_from(table);
                hca.event_to_all(cx, AsyncEvent::PkeyChange(number));
            }),
            Fault::Kill { hca, reload_after } => self.on_hca(hca, |hca, cx| hca.kill(cx, reload_after)),
            Fault::RefuseRegistrations { hca, count } => {
                self.on_hca(hca, |hca, _| hca.faults.refuse_registrations += count);
            }
            Fault::Limit { hca, qps, mrs, cqs, registered_bytes } => self.on_hca(hca, |hca, _| {
                let made = *hca.faults.limits_made.get_or_insert(hca.limits);
                hca.limits.qps = qps.unwrap_or(hca.limits.qps).min(made.qps);
                hca.limits.mrs = mrs.unwrap_or(hca.limits.mrs).min(made.mrs);
                hca.limits.cqs = cqs.unwrap_or(hca.limits.cqs).min(made.cqs);
                hca.faults.pinned_max = registered_bytes.or(hca.faults.pinned_max);
            }),
            Fault::ClampCqs { hca, depth } => self.on_hca(hca, |hca, _| hca.faults.cq_depth_max = depth),
            Fault::Corrupt { port, packets } => self.net_mut().corrupt_next(port, packets),
            Fault::Lose { port, packets } => self.net_mut().lose_next(port, packets),
            Fault::Hold { port, until } => self.net_mut().hold(port, until),
            Fault::Slow { port, extra } => self.net_mut().set_jitter(port, extra),
        }
    }
}

impl Hca {
    fn exceed_retries(&mut self, cx: &mut Cx<'_>, name: u32) {
        let Some(qp) = self.qps.get_mut(name) else { return };
        let open = qp.requester.oldest_open();
        match open {
            Some((position, _)) => self.fail_send(cx, name, position, Status::RetryExceeded),
            None => {
                qp.faults.fail_next = Some(Status::RetryExceeded);
                self.ring(name);
            }
        }
    }

    /// Looks for a way, for a process that waits meanwhile; the error's number where there is no answer.
    pub fn search(&mut self, cx: &mut Cx<'_>, context: u32, address: &AddressVector) -> Result<(), i32> {
        self.searches += 1;
        let found = self.faults.unanswered.iter().find(|(lid, _)| *lid == address.dlid).map(|(_, took)| *took);
        self.address_ns = found.map_or(0, |took| took.0);
        let Some(took) = found else { return Ok(()) };
        if let Some(context) = self.contexts.get(context) {
            cx.processors.spend(context.owner, cx.now, took.0.saturating_mul(1_000));
        }
        Err(ETIMEDOUT)
    }

    /// The device breaks.
    fn kill(&mut self, cx: &mut Cx<'_>, reload_after: Option<Nanos>) {
        self.faults.down = true;
        self.faults.failures += 1;
        self.event_to_all(cx, AsyncEvent::DeviceFatal);
        for context in self.contexts.names(|_| true) {
            self.clear(context);
            if let Some(context) = self.contexts.get_mut(context) {
                context.gone = true;
                context.cq_events.clear();
            }
        }
        for port in &mut self.ports {
            port.ring.clear();
            port.stalled = None;
        }
        if let Some(delay) = reload_after {
            let what = Alarm::Reload { failure: self.faults.failures };
            cx.net.at(cx.now + delay, Body::Timer(Timer { hca: self.id.0, what }));
        }
    }

    /// The device is back: a process that opens it now finds it empty.
    pub fn reload(&mut self, failure: u32) {
        if self.faults.failures == failure {
            self.faults.down = false;
        }
    }

    /// A port has noticed that its link is up or down.
    pub fn link_state(&mut self, cx: &mut Cx<'_>, port: u8, up: bool) {
        let Some(place) = self.ports.get_mut(usize::from(port).wrapping_sub(1)) else { return };
        if std::mem::replace(&mut place.active, up) == up {
            return;
        }
        let delay = place.faults.event_delay;
        if up {
            self.readdress(cx, port);
        }
        match delay {
            None => {}
            Some(Nanos(0)) => self.port_event(cx, port, up),
            Some(delay) => {
                let what = Alarm::PortEvent { port, up };
                cx.net.at(cx.now + delay, Body::Timer(Timer { hca: self.id.0, what }));
            }
        }
    }

    /// All processes are notified of a port's link.
    pub fn port_event(&mut self, cx: &mut Cx<'_>, port: u8, up: bool) {
        self.event_to_all(cx, if up { AsyncEvent::PortActive(port) } else { AsyncEvent::PortError(port) });
    }

    /// The addresses that wait for a port.
    fn readdress(&mut self, cx: &mut Cx<'_>, port: u8) {
        let Some(place) = self.ports.get_mut(usize::from(port).wrapping_sub(1)) else { return };
        let Some((lid, gid)) = place.faults.next_address.take() else { return };
        if let Some(gid) = gid {
            place.gids[0] = gid;
        }
        if let Some(lid) = lid {
            cx.net.set_lid(place.id, lid);
            self.event_to_all(cx, AsyncEvent::LidChange(port));
        }
        if gid.is_some() {
            self.event_to_all(cx, AsyncEvent::GidChange(port));
        }
    }
}
