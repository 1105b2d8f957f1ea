//! Any header into the arrival of a short message.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| rerail_testkit::endpoint::run_shorts(data));
