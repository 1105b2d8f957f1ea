//! What must hold, whatever the implementation is.
