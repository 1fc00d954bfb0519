//! libibverbs: the functions it exports and those that its header calls through a context.
//!
//! Objects are C structures with a private tail ([`object`]); events find theirs through
//! [`registry`]. What the rdma-cm half of this library uses: [`context::weft_context`] for
//! `id->verbs`, [`qp::tail`] for the queue pair behind an `ibv_qp`, [`qp::refresh`] after
//! a change of its state, [`pd_mr::pd_tail`], [`cq::tail`] and [`srq::tail`], the exported
//! functions themselves for objects that rdma-cm makes on an application's behalf, and
//! [`gid::gid_of`] for addresses.

pub mod absent;
pub mod ah;
pub mod buf;
pub mod channel;
pub mod context;
pub mod cq;
pub mod cq_ex;
pub mod device;
pub mod dm;
pub mod event;
pub mod gid;
pub mod group;
pub mod import;
pub mod misc;
pub mod mr_ex;
pub mod mw;
pub mod object;
pub mod pd_mr;
pub mod post;
pub mod qp;
pub mod qp_attr;
pub mod qp_ex;
pub mod query;
pub mod rate;
pub mod registry;
pub mod srq;
pub mod xrcd;
