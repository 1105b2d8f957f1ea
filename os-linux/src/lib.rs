//! Linux driver of the rerail message transport.
