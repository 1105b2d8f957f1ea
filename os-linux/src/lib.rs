//! Linux driver of the rerail message transport: rails, memory, clock and bootstrap around `rerail-core`.
//!
//! An embedder needs a [`Transport`] and one of [`bootstrap`]'s ways into a job; its parameters are
//! [`settings`]. Every type that their functions name is here. A program with its own rails implements
//! [`rail::Rail`] and hands them to [`driver::Opening`]. This crate starts no thread, installs no signal
//! handler and keeps no global state.
//!
//! ```
//! use rerail_linux::{Options, PeerId, RecvRequest, Seg, Selector, SendRequest};
//! use rerail_linux::{Settings, Transport, bootstrap};
//!
//! // Alone; under a launcher, `bootstrap::from_env()?` joins the job.
//! let options = Options { settings: Settings::default() };
//! let mut transport = Transport::start(options, Box::new(bootstrap::single::Single::new()))?;
//! let memory = transport.alloc(4096)?;
//! transport.bytes_mut(memory).expect("just made")[..5].copy_from_slice(b"hello");
//! let receive = transport.recv(&RecvRequest::new(Selector::tagged(7), &[Seg::new(memory, 64, 64)]))?;
//! let message = [Seg::new(memory, 0, 5)];
//! transport.send(&SendRequest { tag: Some(7), ..SendRequest::new(PeerId(0), &message) })?;
//! let done = transport.wait_for(receive, None)?.result.expect("a message of 5 bytes");
//! assert_eq!((done.bytes, &transport.bytes(memory).expect("still there")[64..69]), (5, &b"hello"[..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod auth;
pub mod bootstrap;
pub mod driver;
mod memory;
pub mod place;
pub mod rail;
mod random;
pub mod settings;

pub use auth::Fingerprint;
pub use bootstrap::{BootError, Bootstrap, JobKey};
pub use driver::{
    AddressRecord, AddressRecordError, Clock, Contacts, FinishError, InsertError, JobShape, MemoryError, MemoryItem,
    MemoryNeed, Name, NextEvent, NextEventError, NotAName, Opening, Options, OverBudget, QueueError, QueueId, RailInfo,
    RemoveError, RequestError, Shortage, Shutdown, StartError, Transport, WaitError, WaitForError, WindowError, Woken,
};
pub use rail::Rail;
pub use rerail_core::config::{Config, Policy};
pub use rerail_core::endpoint::{
    Access, AtomicRequest, CancelError, Completion, DeregisterError, Done, Endpoint, Event, Explanation, FlushRequest,
    Found, Full, GetRequest, Level, Loss, LossReason, MessageClass, Notify, OpError, PeerError, PutRequest, RailFault,
    RecvRequest, Remote, RequestKind, Selector, SendRequest, ShortCompletion, Stats, SubmitError, TagMatch, Window,
};
pub use rerail_core::ids::{Cookie, CounterId, MessageId, OpId, PeerId, RailId, WindowId};
pub use rerail_core::mem::{MemRef, RegionId, Seg};
pub use rerail_core::time::{Nanos, Time};
pub use rerail_core::wire::{AtomicKind, AtomicType, Refusal};
pub use settings::{Progress, Settings, SettingsError};

/// The examples of the README are compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
