//! Memory for an endpoint's state.

use std::mem::MaybeUninit;

use rerail_core::config::Config;
use rerail_core::store::arena::REGION_ALIGN;

/// Room for an endpoint's state.
pub struct Region(Vec<MaybeUninit<u8>>);

impl Region {
    /// Room for `config`, which must be valid.
    pub fn of(config: &Config) -> Self {
        let bytes = config.memory_bytes().expect("a valid configuration");
        Region(vec![MaybeUninit::uninit(); bytes + REGION_ALIGN])
    }

    /// What an endpoint of `config`, for which this is, takes.
    pub fn take(&mut self, config: &Config) -> &mut [MaybeUninit<u8>] {
        let bytes = config.memory_bytes().expect("a valid configuration");
        let start = self.0.as_ptr().addr().wrapping_neg() % REGION_ALIGN;
        &mut self.0[start..start + bytes]
    }
}
