//! Logs what the core logs, as a stream of defmt frames on standard output. `tests/decode.rs` reads it.

use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use rerail_core::endpoint::{LossReason, ProtocolError, RailFault};
use rerail_core::ids::{PeerId, RailId};
use rerail_core::wire::WireError;

/// The frame under construction.
static FRAME: Mutex<(defmt::Encoder, Vec<u8>)> = Mutex::new((defmt::Encoder::new(), Vec::new()));

#[defmt::global_logger]
struct Stdout;

/// One step of the encoder on the frame.
fn encode(step: impl FnOnce(&mut defmt::Encoder, &mut Vec<u8>)) {
    let (encoder, frame) = &mut *FRAME.lock().expect("no logging call panics");
    step(encoder, frame);
}

// SAFETY: this program has one thread, so that one frame is acquired, written and released after the other.
unsafe impl defmt::Logger for Stdout {
    fn acquire() {
        encode(|encoder, frame| encoder.start_frame(|bytes| frame.extend_from_slice(bytes)));
    }

    unsafe fn flush() {}

    unsafe fn release() {
        encode(|encoder, frame| encoder.end_frame(|bytes| frame.extend_from_slice(bytes)));
        let frame = std::mem::take(&mut FRAME.lock().expect("no logging call panics").1);
        std::io::stdout().write_all(&frame).expect("standard output takes the log");
    }

    unsafe fn write(bytes: &[u8]) {
        encode(|encoder, frame| encoder.write(bytes, |bytes| frame.extend_from_slice(bytes)));
    }
}

/// The time of the embedder: here one microsecond a line.
static NOW_US: AtomicU64 = AtomicU64::new(0);
defmt::timestamp!("{=u64:us}", NOW_US.fetch_add(1, Ordering::Relaxed));

fn main() {
    let peer = PeerId(3);
    let fault = RailFault::Device { code: 110 };
    defmt::debug!("peer {} lost: {}", peer, LossReason::RailFailed { rail: RailId(1), fault });
    let broken = ProtocolError::Wire(WireError { field: "version", value: 9 });
    defmt::warn!("peer {} lost: {}", peer, LossReason::Protocol(broken));
    defmt::trace!("done");
}
