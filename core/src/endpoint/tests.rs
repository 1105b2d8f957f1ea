//! Two endpoints and what may pass between them.
