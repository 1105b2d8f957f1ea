//! Sequencing of one virtual channel: PSN and ESN (multirail-2004, 5.2), the receive window, the out-of-order queue,
//! the sent window.
