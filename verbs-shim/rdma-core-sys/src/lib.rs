//! The part of libibverbs that rerail uses: its C types, its constants, and its functions resolved at run
//! time.
//!
//! Nothing is linked: [`Functions::load`] opens `libibverbs.so.1` with `dlopen`, so that a program starts
//! where the library is not installed. C enums are plain integers with constants, because a provider newer
//! than these declarations may return values missing here. Functions that the C header has inline are in
//! [`inline`]. Layouts and constants are compared with the C headers by `check-layout.sh`. Source:
//! `infiniband/verbs.h` of rdma-core.
//!
//! Types keep their C names, so that the manual pages (`ibv_query_port(3)`) are their documentation.
#![allow(non_camel_case_types)]

pub mod constants;
pub mod functions;
pub mod inline;
pub mod objects;
pub mod offers;
pub mod types;
pub mod work;

pub use constants::*;
pub use functions::{Functions, LIBRARY, LoadError};
pub use inline::*;
pub use objects::*;
pub use offers::*;
pub use types::*;
pub use work::*;
