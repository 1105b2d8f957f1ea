//! The matcher against its oracle.

mod support;

use proptest::prelude::*;

use rerail_testkit::tag;

proptest! {
    #![proptest_config(support::proptest_config())]

    /// M-1 to M-4
    #[test]
    fn matching_agrees_with_the_two_vector_oracle(data in proptest::collection::vec(any::<u8>(), 0..360)) {
        tag::run(&data);
    }
}
