//! Address records, names and set-up datagrams.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| rerail_testkit::names::parse_any(data));
