//! Matching of messages to receives.
