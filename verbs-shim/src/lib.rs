//! InfiniBand verbs devices as safe types.
