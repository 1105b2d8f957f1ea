//! The consumer of a shared-memory ring whose producer writes garbage.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| rerail_testkit::shm::run(data));
