//! Ports of one job in one thread.
