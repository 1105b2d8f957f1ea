//! What single parts of the core cost: tag matching, the wire format, the ring in shared memory.
//! `cargo bench -p rerail-testkit --bench structures`.

use core::mem::MaybeUninit;
use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};

use rerail_core::endpoint::{Selector, TagMatch};
use rerail_core::ids::PeerId;
use rerail_core::shm::RingConfig;
use rerail_core::store::Arena;
use rerail_core::store::arena::REGION_ALIGN;
use rerail_core::tag::{MatchConfig, Matcher};
use rerail_core::wire::{Body, Common, MessageHead, Repr};
use rerail_testkit::shm::Both;

/// A message matches one of so many receives with other tags, and the receive is posted again. The last row
/// is the worst order for a list: the newest receive matches.
fn matching(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("tag/match_and_repost");
    let source = PeerId(3);
    let selector = |tag| Selector { source: Some(source), tag: TagMatch::Tagged { tag, ignore: 0 } };
    for posted in [1, 100, 4096] {
        let config = MatchConfig { posted_max: 4096, unexpected_max: 64, buckets: 1024 };
        let bytes = Arena::bytes_of(|arena| Matcher::carve(arena, &config)).expect("a small configuration");
        let mut region = vec![MaybeUninit::uninit(); bytes + REGION_ALIGN];
        let skip = region.as_ptr().align_offset(REGION_ALIGN);
        let mut arena = Arena::new(&mut region[skip..skip + bytes]).expect("aligned");
        let mut matcher = Matcher::carve(&mut arena, &config).expect("the region has the size of the layout");
        for tag in 0..posted {
            matcher.posted.post(&selector(tag), tag as u32).expect("there is room");
        }
        group.bench_function(posted.to_string(), |bench| {
            bench.iter(|| {
                let tag = black_box(posted - 1);
                let (key, recv) = matcher.posted.find(source, Some(tag)).expect("it is posted");
                matcher.posted.unpost(key);
                matcher.posted.post(&selector(tag), recv).expect("one was taken out")
            });
        });
    }
    group.finish();
}

/// The header of an eager message, written and read.
fn wire(criterion: &mut Criterion) {
    let common =
        Common { source: 1, psn: 77, ack_ordered: 70, message_limit: 300, payload_bytes: 8, ..Common::default() };
    let repr = Repr { common, body: Body::Eager(MessageHead { tag: Some(7), operation: 5, ..MessageHead::default() }) };
    let header = repr.emit_vec().expect("a good header");
    criterion.bench_function("wire/eager/emit", |bench| bench.iter(|| black_box(&repr).emit_vec()));
    criterion.bench_function("wire/eager/parse", |bench| bench.iter(|| Repr::parse(black_box(&header))));
}

/// A packet through a ring, both ends on one processor: the copies and the bookkeeping, without another
/// cache's part.
fn ring(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("shm/push_and_pop");
    let mut both = Both::new(RingConfig { cells: 256, slots: 64, slot_bytes: 8192 + 256 });
    let mut into = vec![0; 8192];
    for bytes in [8, 1024, 8192] {
        let payload = vec![1; bytes];
        group.bench_function(bytes.to_string(), |bench| {
            bench.iter(|| {
                assert!(both.push(&[7; 56], black_box(&payload)));
                both.pop(&mut into)
            });
        });
    }
    group.finish();
}

criterion_group!(benches, matching, wire, ring);
criterion_main!(benches);
