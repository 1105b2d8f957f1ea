//! The endpoint together with the mapping that its tables live in.
//!
//! Invariant: the endpoint is dropped before its region is unmapped, and no reference to the region leaves
//! it.
#![allow(unsafe_code)]

use core::ops::{Deref, DerefMut};

use rerail_core::config::Config;
use rerail_core::endpoint::{Endpoint, StartError};
use rerail_core::rail::RailFacts;
use rerail_core::time::Time;

use super::{Mapping, region_of};

/// An endpoint that owns its memory.
pub(crate) struct Core {
    // Order matters: fields are dropped from the top.
    endpoint: Endpoint<'static>,
    _region: Mapping,
}

impl Core {
    /// `region` has the bytes that `config` names.
    pub(crate) fn new(config: Config, rails: &[RailFacts], region: Mapping, now: Time) -> Result<Self, StartError> {
        // SAFETY: the mapping is as long as the slice, page aligned, and lives in this struct until after
        // the endpoint is dropped; moving the struct does not move the mapping. Nothing else makes a
        // reference to it. The lifetime `'static` never leaves this file's private field: what the endpoint
        // lends is bound to `&self` or `&mut self`.
        let tables = unsafe { &mut *region_of(&region) };
        let endpoint = Endpoint::new(config, rails, tables, now)?;
        Ok(Core { endpoint, _region: region })
    }
}

impl Deref for Core {
    type Target = Endpoint<'static>;

    #[inline]
    fn deref(&self) -> &Self::Target {
        &self.endpoint
    }
}

impl DerefMut for Core {
    #[inline]
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.endpoint
    }
}
