//! The whole driver over verbs rails: eager messages, rendezvous by get and by put, one-sided requests,
//! BYE.

use rerail_core::config::Config;
use rerail_core::endpoint::{
    Access, Event, GetRequest, PutRequest, RecvRequest, Remote, Selector, SendRequest, Window,
};
use rerail_core::ids::PeerId;
use rerail_core::mem::{MemRef, RegionId, Seg};
use rerail_core::time::{Nanos, Time};
use rerail_linux::auth::{Credentials, Secret};
use rerail_linux::driver::{MemoryError, Opening, Transport, VirtualTime};
use rerail_linux::rail::Rail;
use rerail_linux::rail::loopback::Loopback;
use rerail_linux::rail::verbs::{Identity, VerbsOptions, VerbsRail};
use rerail_sim::hca::{Fabric, HcaOptions, SharedFabric, SimDevice};
use rerail_sim::net::{BusModel, HcaModel, LinkModel, PlaneModel, SubnetModel};
use rerail_sim::trace::Trace;

use crate::cluster::{JOB, options, payload};

struct Job {
    fabric: SharedFabric,
    engines: Vec<Transport<VirtualTime>>,
    events: Vec<Vec<Event>>,
    now: Time,
}

impl Job {
    fn new(size: u32, options: &VerbsOptions) -> Self {
        let mut fabric = Fabric::new(1, Trace::off());
        let plane = PlaneModel { latency_ns: 0, bytes_per_second: 0 };
        let subnet = fabric.add_subnet(&SubnetModel { latency_ns: 200, planes: vec![plane] });
        let mut hcas = Vec::new();
        for rank in 0..size {
            let host = fabric.add_host();
            let bus = fabric.add_bus(host, BusModel { bytes_per_second: 1_000_000_000, ..BusModel::default() });
            let hca = fabric.add_hca(bus, HcaModel::default(), HcaOptions::default());
            fabric.add_port(hca, subnet, LinkModel::default(), 16 + rank as u16, 0);
            hcas.push(hca);
        }
        let fabric = fabric.shared();
        let mut openings: Vec<Opening<VirtualTime>> = (0..size)
            .map(|rank| {
                let me = PeerId(rank);
                let device = SimDevice::open(&fabric, hcas[rank as usize], rank).unwrap();
                let secret = Secret::new([rank as u8 + 1; 32]);
                let credentials = Credentials::new([rank as u8 + 1; 32], Secret::new([0x42; 32]));
                let identity = Identity { credentials, job: JOB, me, secret };
                let rail = VerbsRail::open(device, 1, options.clone(), identity).unwrap();
                let rails: Vec<Box<dyn Rail>> = vec![Box::new(Loopback::new(me)), Box::new(rail)];
                let config = Config { rails_max: 2, ..Config::new(me, size) };
                Opening::with_clock(config, format!("host{rank}"), rails, VirtualTime(Time(0))).unwrap()
            })
            .collect();
        let address_records: Vec<String> = openings.iter().map(|opening| opening.address_record().to_owned()).collect();
        for opening in &mut openings {
            for (rank, address_record) in address_records.iter().enumerate() {
                opening.learn(PeerId(rank as u32), address_record).unwrap();
            }
        }
        let engines: Vec<Transport<VirtualTime>> =
            openings.into_iter().map(|opening| opening.join().unwrap()).collect();
        let events = engines.iter().map(|_| Vec::new()).collect();
        Job { fabric, engines, events, now: Time(1) }
    }

    fn run(&mut self, done: impl Fn(&Job) -> bool) {
        for _ in 0..200_000 {
            let mut happened = 0;
            self.engines.iter_mut().for_each(|engine| engine.set_time(self.now));
            for (engine, events) in self.engines.iter_mut().zip(&mut self.events) {
                happened += engine.round();
                events.extend(std::iter::from_fn(|| engine.poll_event()));
            }
            if done(self) {
                return;
            }
            if happened > 0 {
                continue;
            }
            let timers = self.engines.iter().filter_map(Transport::next_timeout);
            let next = timers.chain(self.fabric.borrow().next_event()).min();
            self.now = self.now.max(next.expect("something will happen"));
            self.fabric.borrow_mut().advance(self.now);
        }
        panic!("not done: {:?} {:#?}", self.events, self.engines[0]);
    }

    fn completions(&self, rank: usize) -> usize {
        let mut count = 0;
        for event in &self.events[rank] {
            match event {
                Event::Completed(completion) => {
                    assert!(completion.result.is_ok(), "{completion:?}");
                    count += 1;
                }
                Event::PeerLost { .. } => panic!("{event:?}"),
                _ => {}
            }
        }
        count
    }

    fn region(&mut self, rank: usize, bytes: &[u8]) -> RegionId {
        let region = self.engines[rank].alloc(bytes.len()).unwrap();
        self.engines[rank].bytes_mut(region).unwrap().copy_from_slice(bytes);
        region
    }
}

/// Messages of all sizes, numbered from 1.
fn exchange(write: bool, read: bool) {
    let options = VerbsOptions { write, read, ..options(2) };
    let mut job = Job::new(2, &options);
    for (number, bytes) in [(1, 10), (2, 1024), (3, 1025), (4, 100_000), (5, 300_001)] {
        let data = payload(number, bytes);
        let (source, target) = (job.region(0, &data), job.region(1, &vec![0; bytes]));
        job.engines[1].recv(&RecvRequest::new(Selector::ANY_UNTAGGED, &[Seg::new(target, 0, bytes as u64)])).unwrap();
        let send = SendRequest { segments: &[Seg::new(source, 0, bytes as u64)], ..SendRequest::new(PeerId(1), &[]) };
        job.engines[0].send(&send).unwrap();
        // One completion per message, on either side.
        let count = number as usize;
        job.run(|job| job.completions(0) == count && job.completions(1) == count);
        assert!(job.engines[1].bytes(target).unwrap() == data, "{bytes} bytes, write {write}, read {read}");
        job.engines[0].free(source).unwrap();
        job.engines[1].free(target).unwrap();
    }
}

#[test]
fn eager_and_rendezvous_by_get() {
    exchange(false, true);
}

#[test]
fn eager_and_rendezvous_by_put() {
    exchange(true, false);
}

#[test]
fn rendezvous_with_either_and_with_neither() {
    exchange(true, true);
    exchange(false, false);
}

/// F-2: a peer's device writes to the memory of a receive while no transport is driven. Safe code gets no
/// reference to it, nor one to write to what a send still reads.
#[test]
fn memory_that_a_device_may_write_is_not_lent() {
    const BYTES: u64 = 1 << 20;
    let mut job = Job::new(2, &VerbsOptions { write: true, read: false, ..options(2) });
    let data = payload(1, BYTES as usize);
    let (source, target) = (job.region(0, &data), job.region(1, &vec![0; 2 * BYTES as usize]));
    let (part, beside) = (Seg::new(target, 0, BYTES), Seg::new(target, BYTES, BYTES));
    job.engines[1].recv(&RecvRequest::new(Selector::ANY_UNTAGGED, &[part])).unwrap();
    assert_eq!(job.engines[1].part(&part), Err(MemoryError::InUse(target)), "posted");
    let message = [Seg::new(source, 0, BYTES)];
    job.engines[0].send(&SendRequest::new(PeerId(1), &message)).unwrap();
    let arrived = |job: &Job| {
        let mut bytes = vec![0; BYTES as usize];
        job.engines[1].read(part.at, &mut bytes).unwrap();
        bytes.iter().zip(&data).filter(|(have, sent)| have == sent).count()
    };
    let at_first = arrived(&job);
    job.run(|job| arrived(job) > at_first);
    let (before, later) = (arrived(&job), job.fabric.borrow().next_event().unwrap());
    job.fabric.borrow_mut().advance(later + Nanos(200_000));
    assert!(arrived(&job) > before, "the device alone");
    assert_eq!(job.completions(1), 0);

    let [sender, receiver] = &mut job.engines[..] else { unreachable!() };
    assert_eq!(receiver.part(&part), Err(MemoryError::InUse(target)));
    assert_eq!(receiver.bytes(target), Err(MemoryError::InUse(target)));
    assert_eq!(receiver.part_mut(&part), Err(MemoryError::InUse(target)));
    assert!(receiver.part(&beside).is_ok() && receiver.part_mut(&beside).is_ok());
    assert_eq!(sender.bytes(source), Ok(&data[..]), "it is only read");
    assert_eq!(sender.bytes_mut(source), Err(MemoryError::InUse(source)));
    job.run(|job| job.completions(0) == 1 && job.completions(1) == 1);
    assert!(job.engines[1].part(&part).unwrap() == data && job.engines[1].bytes_mut(target).is_ok());
    assert!(job.engines[0].bytes_mut(source).is_ok());
}

#[test]
fn puts_and_gets() {
    let mut job = Job::new(2, &options(2));
    let data = payload(3, 50_000);
    let (window, source) = (job.region(1, &vec![0; 50_000]), job.region(0, &data));
    let target = job.region(0, &vec![0; 50_000]);
    let access = Access { read: true, write: true, atomic: false };
    let at = MemRef { region: window, offset: 0 };
    job.engines[1].expose(&Window::new(at, 50_000, access, 0x5eed)).unwrap();
    let there = Remote { peer: PeerId(1), window: 0x5eed, offset: 0 };
    let put = PutRequest { segments: &[Seg::new(source, 0, 50_000)], ..PutRequest::new(there, &[]) };
    job.engines[0].put(&put).unwrap();
    job.run(|job| job.completions(0) == 1);
    let get = GetRequest { segments: &[Seg::new(target, 0, 50_000)], ..GetRequest::new(there, &[]) };
    job.engines[0].get(&get).unwrap();
    job.run(|job| job.completions(0) == 2);
    assert!(job.engines[0].bytes(target).unwrap() == data);
}

/// A run has one history: counts, times and all. What the verbs rails of both ranks counted after so many
/// large messages from one buffer to another: registrations made and found.
fn repeated(messages: usize, options: &VerbsOptions) -> [(u64, u64); 2] {
    let bytes = 1 << 20;
    let mut job = Job::new(2, options);
    let (source, target) = (job.region(0, &payload(1, bytes)), job.region(1, &vec![0; bytes]));
    for count in 1..=messages {
        job.engines[1].recv(&RecvRequest::new(Selector::ANY_UNTAGGED, &[Seg::new(target, 0, bytes as u64)])).unwrap();
        let send = SendRequest { segments: &[Seg::new(source, 0, bytes as u64)], ..SendRequest::new(PeerId(1), &[]) };
        job.engines[0].send(&send).unwrap();
        job.run(|job| job.completions(0) == count && job.completions(1) == count);
    }
    let counted = [0, 1].map(|rank: usize| {
        let counters = job.engines[rank].rails().nth(1).unwrap().counters;
        assert_eq!(counters.registered_bytes, bytes as u64, "once, and kept");
        (counters.registrations, counters.registration_hits)
    });
    // Mapped anew, as far as the rail can detect.
    for (rank, region) in [(0, source), (1, target)] {
        job.engines[rank].invalidate(&Seg::new(region, bytes as u64 / 2, 1)).unwrap();
        assert_eq!(job.engines[rank].rails().nth(1).unwrap().counters.registered_bytes, 0);
        assert!(job.engines[rank].invalidate(&Seg::new(region, bytes as u64, 1)).is_err());
    }
    counted
}

/// However many segments a message has, and however many messages come from one buffer: its memory is
/// registered once.
#[test]
fn repeated_messages_find_their_registrations() {
    let segments = (1u64 << 20) / u64::from(options(2).segment_bytes);
    let get = VerbsOptions { write: false, ..options(2) };
    assert_eq!(repeated(1, &get), [(1, 0), (1, segments - 1)]);
    assert_eq!(repeated(10, &get), [(1, 9), (1, 10 * segments - 1)]);
    let kept = VerbsOptions { read: false, registrations_writable: true, ..options(2) };
    assert_eq!(repeated(10, &kept), [(1, 10 * segments - 1), (1, 9)]);
}

#[test]
fn equal_runs_are_equal() {
    let run = || {
        let mut job = Job::new(3, &options(3));
        for from in 0..3u32 {
            for to in (0..3u32).filter(|to| *to != from) {
                let bytes = 12_000;
                let (source, target) =
                    (job.region(from as usize, &payload(1, bytes)), job.region(to as usize, &vec![0; bytes]));
                let recv = RecvRequest {
                    segments: &[Seg::new(target, 0, bytes as u64)],
                    ..RecvRequest::new(Selector::ANY_UNTAGGED, &[])
                };
                job.engines[to as usize].recv(&recv).unwrap();
                let send =
                    SendRequest { segments: &[Seg::new(source, 0, bytes as u64)], ..SendRequest::new(PeerId(to), &[]) };
                job.engines[from as usize].send(&send).unwrap();
            }
        }
        job.run(|job| (0..3).all(|rank| job.completions(rank) == 4));
        (job.now, format!("{:?}", job.events))
    };
    assert_eq!(run(), run());
}
