//! Acknowledgment and retention.
