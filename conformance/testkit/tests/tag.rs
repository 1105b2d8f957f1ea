//! The matcher against its oracle.

mod support;

use proptest::prelude::*;

use rerail_testkit::tag;

proptest! {
    #![proptest_config(support::proptest_config())]

    /// M-1 to M-4
    #[test]
    fn matching_does_what_two_vectors_do(data in proptest::collection::vec(any::<u8>(), 0..360)) {
        tag::run(&data);
    }
}
