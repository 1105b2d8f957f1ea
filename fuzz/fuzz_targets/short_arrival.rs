//! Any header into the arrival of a short message.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| rerail_core::endpoint::harness::run_shorts(data));
