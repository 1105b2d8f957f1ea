//! The receive window and the out-of-order queue against their oracles.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| rerail_testkit::seq::run(data));
