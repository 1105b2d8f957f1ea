//! What a message costs over a verbs device, and what of it is the device's: two ranks in one thread that
//! take turns, so that neither waits and nothing is polled for nothing; once with work requests through the
//! shim alone, once through the whole transport. For `conformance/vm/run --count`, where a nanosecond is an
//! instruction, those of the kernel included.
//!
//! ```text
//! verbs_cost DEVICE             all of it; of several devices (rxe0,rxe1) the transport has all, work
//! requests the first verbs_cost DEVICE TURNS       ping-pongs through the transport alone, so many: for a
//! profiler
//! ```
//! Columns: bytes of a message, nanoseconds per message (ping-pong: one way), bytes per microsecond. Streams
//! go through the transport twice: the first time their memory is registered.
#![allow(unsafe_code)]

#[path = "support/two_ranks.rs"]
mod two_ranks;

use std::error::Error;
use std::time::Instant;

use rerail_core::endpoint::{Event, RecvRequest, Selector, SendRequest};
use rerail_core::ids::PeerId;
use rerail_core::mem::{RegionId, Seg};
use rerail_linux::driver::{Options, Transport};
use rerail_linux::settings::Settings;
use rerail_verbs::contract::{
    Access, AddressVector, Completion, CqId, CqInit, Device, GlobalRoute, Mr, Payload, PdId, Qp, QpCaps, QpChange,
    QpInit, QpKind, QpState, RecvWr, Remote, SendOp, SendWr, Sge, Status,
};
use rerail_verbs::{IbDevice, Verbs};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Bytes of each side's memory.
const MEMORY_BYTES: u64 = 16 << 20;
/// Sizes of streamed messages in bytes.
const SIZES: [u32; 3] = [4 << 10, 64 << 10, 1 << 20];
/// Bytes of a stream, and messages of it under way.
const STREAM_BYTES: u64 = 16 << 20;
const WINDOW: u64 = 8;
/// Ping-pongs.
const TURNS: u32 = 500;

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let device = arguments.next().ok_or("usage: verbs_cost DEVICE [TURNS]")?;
    match arguments.next() {
        None => {
            bare(device.split(',').next().unwrap_or_default())?;
            stream(&mut pair(&device)?)
        }
        Some(turns) => ping_pong(&mut pair(&device)?, turns.parse()?),
    }
}

fn print_cost(what: &str, bytes: u64, count: u64, began: Instant) {
    let ns = began.elapsed().as_nanos() as u64;
    println!("{what:<24} {bytes:>8} B {:>10} ns {:>8.2} B/us", ns / count, (bytes * count * 1000) as f64 / ns as f64);
}

// ---- work requests alone

/// One end.
struct End {
    device: IbDevice,
    pd: PdId,
    cq: CqId,
    qp: Qp,
    memory: Vec<u8>,
    mr: Mr,
    base: u64,
    taken: Vec<Completion>,
}

impl End {
    fn open(name: &str) -> Outcome<End> {
        let devices = Verbs::open()?.devices()?;
        let found = devices.find(name).ok_or("no such device")?;
        let mut device = IbDevice::new(found.open()?)?;
        let pd = device.alloc_pd().map_err(|why| why.to_string())?;
        let cq = device.create_cq(&CqInit { depth: 512 }).map_err(|why| why.to_string())?;
        let caps = QpCaps { send_depth: 128, recv_depth: 128, send_sges: 1, recv_sges: 1, inline_bytes: 64 };
        let init = QpInit {
            kind: QpKind::Rc,
            pd: Some(pd),
            send_cq: Some(cq),
            recv_cq: Some(cq),
            srq: None,
            domain: None,
            caps,
            signal_all: false,
        };
        let qp = device.create_qp(&init).map_err(|why| why.to_string())?;
        let mut memory = vec![1; MEMORY_BYTES as usize];
        let base = memory.as_mut_ptr().expose_provenance() as u64;
        // SAFETY: the memory lives as long as the device, which is dropped first, and is not read
        // meanwhile.
        let mr = unsafe { device.register(pd, memory.as_mut_ptr(), MEMORY_BYTES, base, Access::ALL) };
        let mr = mr.map_err(|why| why.to_string())?;
        Ok(End { device, pd, cq, qp, memory, mr, base, taken: Vec::new() })
    }

    fn connect(&mut self, gid_index: u8, to: &End) -> Outcome<()> {
        let dgid = to.device.gid(1, gid_index).map_err(|why| why.to_string())?;
        let global = Some(GlobalRoute { dgid, source_index: gid_index, hop_limit: 64, traffic_class: 0 });
        let address = AddressVector { port: 1, global, ..AddressVector::default() };
        let init =
            QpChange { pkey_index: Some(0), port: Some(1), access: Some(Access::ALL), ..QpChange::to(QpState::Init) };
        let rtr = QpChange {
            address: Some(address),
            path_mtu: Some(1024),
            destination: Some(to.qp.number),
            recv_psn: Some(0),
            reads_served: Some(16),
            rnr_timer: Some(12),
            ..QpChange::to(QpState::Rtr)
        };
        let rts = QpChange {
            timeout: Some(14),
            retry_count: Some(7),
            rnr_retry: Some(7),
            send_psn: Some(0),
            reads_open: Some(16),
            ..QpChange::to(QpState::Rts)
        };
        for change in [init, rtr, rts] {
            self.device.modify_qp(self.qp.id, &change).map_err(|why| why.to_string())?;
        }
        Ok(())
    }

    fn sge(&self, offset: u64, len: u32) -> Sge {
        // SAFETY: the memory is registered until the device is gone, and the callers stay inside.
        unsafe { Sge::new(self.base + offset, len, self.mr.lkey) }
    }

    fn receive(&mut self, offset: u64, len: u32) -> Outcome<()> {
        let sges = [self.sge(offset, len)];
        let request = RecvWr { id: 1, sges: &sges };
        self.device.post_recv(self.qp.id, &[request]).map_err(|why| why.to_string().into())
    }

    fn post(&mut self, op: SendOp, payload: Payload<'_>) -> Outcome<()> {
        self.device.post_send(self.qp.id, &[SendWr::new(2, op, payload)]).map_err(|why| why.to_string().into())
    }

    /// Takes what is there: how many requests, how many receives.
    fn poll(&mut self) -> Outcome<(u64, u64)> {
        self.taken.clear();
        self.device.poll_cq(self.cq, 16, &mut self.taken).map_err(|why| why.to_string())?;
        if let Some(bad) = self.taken.iter().find(|completion| completion.status != Status::Success) {
            return Err(format!("a request ended with {}", bad.status).into());
        }
        let receives = self.taken.iter().filter(|completion| completion.id == 1).count() as u64;
        Ok((self.taken.len() as u64 - receives, receives))
    }
}

fn bare(name: &str) -> Outcome<()> {
    let context = Verbs::open()?.devices()?.find(name).ok_or("no such device")?.open()?;
    let gid_index = context.choose(Some(1), None).map_err(|why| why.to_string())?.gid_index;
    let mut ends = [End::open(name)?, End::open(name)?];
    let [a, b] = &mut ends;
    a.connect(gid_index, b)?;
    b.connect(gid_index, a)?;
    for end in &mut ends {
        (0..64).try_for_each(|_| end.receive(0, 64))?;
    }
    let mut began = Instant::now();
    for turn in 0..2 * TURNS {
        if turn == TURNS {
            began = Instant::now();
        }
        for from in [0, 1] {
            ends[from].post(SendOp::Send { immediate: None }, Payload::Inline(&[&[7; 8]]))?;
            while ends[1 - from].poll()?.1 == 0 {}
            ends[1 - from].receive(0, 64)?;
            while ends[from].poll()?.0 == 0 {}
        }
    }
    print_cost("bare send, ping-pong", 8, u64::from(2 * TURNS), began);
    for size in SIZES {
        let remote = Remote { address: ends[1].base, rkey: ends[1].mr.rkey };
        for (what, op) in [
            ("bare write", SendOp::Write { to: remote, immediate: None }),
            ("bare read", SendOp::Read { from: remote }),
        ] {
            let (count, began) = (STREAM_BYTES / u64::from(size), Instant::now());
            let (mut posted, mut done) = (0, 0);
            while done < count {
                while posted < count && posted - done < WINDOW {
                    let sges = [ends[0].sge(posted * u64::from(size) % MEMORY_BYTES, size)];
                    ends[0].post(op, Payload::Memory(&sges))?;
                    posted += 1;
                }
                done += ends[0].poll()?.0;
            }
            print_cost(what, size.into(), count, began);
        }
    }
    for end in &mut ends {
        end.device.destroy_qp(end.qp.id).map_err(|why| why.to_string())?;
        end.device.deregister(end.mr.id).map_err(|why| why.to_string())?;
        end.device.dealloc_pd(end.pd).err();
        assert_eq!(end.memory.len() as u64, MEMORY_BYTES);
    }
    Ok(())
}

// ---- the whole transport

/// Two ranks and memory of each.
struct Ranks {
    ranks: [Transport; 2],
    memory: [RegionId; 2],
}

fn pair(device: &str) -> Outcome<Ranks> {
    let mut settings = Settings::default();
    settings.set("rails", "verbs")?;
    settings.set("verbs_devices", device)?;
    let options = Options { settings };
    let (mut ranks, memory) = two_ranks::open(&options, MEMORY_BYTES as usize)?;
    for (rank, region) in ranks.iter_mut().zip(memory) {
        rank.bytes_mut(region)?.fill(1);
    }
    Ok(Ranks { ranks, memory })
}

fn ping_pong(Ranks { ranks, memory }: &mut Ranks, turns: u32) -> Outcome<()> {
    let mut began = Instant::now();
    for turn in 0..2 * turns {
        if turn == turns {
            began = Instant::now();
        }
        for from in [0, 1] {
            receive(&mut ranks[1 - from], memory[1 - from], 0, 8)?;
            send(&mut ranks[from], 1 - from, memory[from], 0, 8)?;
            until(ranks, 2)?;
        }
    }
    print_cost("rerail send, ping-pong", 8, u64::from(2 * turns), began);
    let began = Instant::now();
    for _ in 0..turns {
        events(&mut ranks[0])?;
    }
    print_cost("rerail, a look", 0, turns.into(), began);
    let began = Instant::now();
    for _ in 0..turns {
        std::hint::black_box(Instant::now());
    }
    print_cost("the clock", 0, turns.into(), began);
    Ok(())
}

fn stream(pair: &mut Ranks) -> Outcome<()> {
    ping_pong(pair, TURNS)?;
    let Ranks { ranks, memory } = pair;
    // Twice: memory is registered when it is first used.
    for size in SIZES.into_iter().flat_map(|size| [size, size]) {
        let (count, began) = (STREAM_BYTES / u64::from(size), Instant::now());
        let (mut posted, mut done) = (0, 0);
        while done < count {
            while posted < count && posted - done < WINDOW {
                let offset = posted * u64::from(size) % MEMORY_BYTES;
                receive(&mut ranks[1], memory[1], offset, size.into())?;
                send(&mut ranks[0], 1, memory[0], offset, size.into())?;
                posted += 1;
            }
            // Receives.
            done += events(&mut ranks[1])?;
            events(&mut ranks[0])?;
        }
        print_cost("rerail send", size.into(), count, began);
        // What is left over: acknowledgments, the sends' completions.
        for _ in 0..1000 {
            events(&mut ranks[0])?;
            events(&mut ranks[1])?;
        }
    }
    Ok(())
}

fn send(rank: &mut Transport, to: usize, region: RegionId, offset: u64, len: u64) -> Outcome<()> {
    rank.send(&SendRequest::new(PeerId(to as u32), &[Seg::new(region, offset, len)]))?;
    Ok(())
}

fn receive(rank: &mut Transport, region: RegionId, offset: u64, len: u64) -> Outcome<()> {
    rank.recv(&RecvRequest::new(Selector::ANY_UNTAGGED, &[Seg::new(region, offset, len)]))?;
    Ok(())
}

/// One round; how many requests are over.
fn events(rank: &mut Transport) -> Outcome<u64> {
    rank.progress();
    let mut over = 0;
    while let Some(event) = rank.poll_event() {
        if let Event::Completed(completion) = event {
            completion.result.map_err(|why| format!("{why:?}"))?;
            over += 1;
        }
    }
    Ok(over)
}

fn until(ranks: &mut [Transport; 2], mut count: u64) -> Outcome<()> {
    while count > 0 {
        for rank in &mut *ranks {
            count -= events(rank)?;
        }
    }
    Ok(())
}
