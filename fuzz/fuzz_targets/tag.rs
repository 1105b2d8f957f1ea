//! The tag matcher against the plain rule.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| rerail_testkit::tag::run(data));
