//! Hosts, ranks and the event loop.
