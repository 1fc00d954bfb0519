//! The C ABI of librdmacm: every `rdma_*` function, over [`weft_rdmacm`].
//!
//! Invariant: an id, a channel or an event that an application holds is the head of an object of
//! ours, and lives until the application gives it back. What the application reads from an id
//! changes only inside its own calls: in [`events::rdma_get_cm_event`] as the event says, or in the
//! call that is said to change it.

mod addrinfo;
mod channel;
mod connect;
mod devices;
mod ep;
mod events;
mod group;
mod id;
mod names;
mod object;
mod ports;
mod qp;
mod route;
mod sockaddr;
mod strings;
