//! Everything that is parsed from a peer's bytes.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| rerail_testkit::wire::parse_any(data));
