//! An endpoint fed with whatever a rail may report.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| rerail_testkit::endpoint::run(data));
