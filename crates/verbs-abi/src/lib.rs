//! The C structures of `<infiniband/verbs.h>` as programs compiled against rdma-core see them.
//!
//! Names are those of the header, so that both can be read side by side. The one invariant: sizes
//! and offsets equal the header's ([`layout`] asserts them at compile time and its test compares
//! them with the header installed on this machine). A structure is whole even where Weft
//! does not use all of it. [`cma`] has those of `<rdma/rdma_cma.h>`.

#![allow(non_camel_case_types, missing_docs, reason = "names and meanings are the C header's")]
#![cfg_attr(
    not(test),
    deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used)
)]

mod attrs;
pub mod cma;
mod consts;
mod device;
pub mod layout;
mod objects;
mod storage;
mod wr;

pub use attrs::*;
pub use consts::*;
pub use device::*;
pub use objects::*;
pub use wr::*;

/// A slot that no program compiled against a current header calls, or that Weft leaves empty.
pub type UnusedSlot = *mut core::ffi::c_void;
