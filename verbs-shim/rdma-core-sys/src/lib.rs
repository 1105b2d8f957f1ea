//! Declarations of the part of libibverbs that rerail uses.
