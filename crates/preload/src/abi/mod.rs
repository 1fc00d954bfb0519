//! The C structures of `<infiniband/verbs.h>` as programs compiled against rdma-core see them.
//!
//! Names are those of the header, so that both can be read side by side. The one invariant: sizes
//! and offsets equal the header's ([`layout`] asserts them at compile time and its test compares
//! them with the header installed on this machine). A structure is whole even where this crate
//! does not use all of it.

#![allow(non_camel_case_types, dead_code, reason = "layouts follow the C header")]

pub mod attrs;
pub mod consts;
pub mod device;
pub mod layout;
pub mod objects;
pub mod wr;

pub use attrs::*;
pub use consts::*;
pub use device::*;
pub use objects::*;
pub use wr::*;

/// A slot that no program compiled against a current header calls, or that Weft leaves empty.
pub type UnusedSlot = *mut core::ffi::c_void;
