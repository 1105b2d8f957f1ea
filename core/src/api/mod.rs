//! What callers and drivers of an endpoint see: settings, requests, events, errors, actions. Data only.

pub mod action;
pub mod config;
pub mod error;
pub mod event;
pub mod feed;
pub mod request;
pub mod stats;
