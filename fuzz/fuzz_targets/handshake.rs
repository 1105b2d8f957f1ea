//! Handshakes in which a message is changed or a side is false.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| rerail_testkit::handshake::run(data));
