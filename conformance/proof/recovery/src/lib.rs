//! The two-ended recovery protocol in every interleaving of small cases: see `README.md`.

pub mod end;
pub mod model;
pub mod net;
pub mod state;
pub mod sweep;
pub mod transfer;
