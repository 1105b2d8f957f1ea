//! The sequencing structures against their oracles.

mod support;

use proptest::prelude::*;

use rerail_testkit::seq;

proptest! {
    #![proptest_config(support::proptest_config())]

    /// S-4 to S-8, A-6, A-7
    #[test]
    fn sequence_structures_match_their_oracles(data in proptest::collection::vec(any::<u8>(), 0..600)) {
        seq::run(&data);
    }
}
