//! Whole transports, several in one thread, stepped in turn: every kind of request on every fabric, then
//! cases special to one fabric, to waiting, to leaving and to losing a peer.

mod boot;
mod cluster;
mod direct;
mod first_contact;
mod hostile;
mod leave;
mod loss;
mod mapped;
mod messages;
mod named;
mod onesided;
mod parked;
mod process;
mod queues;
mod registration;
mod reopened;
mod rounds;
mod sleep;
mod striping;
