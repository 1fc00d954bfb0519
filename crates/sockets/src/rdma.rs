//! The host of this process, as RDMA sees it: the one static of this library that knows RDMA.

use std::sync::Arc;

use weft_host::Host;

/// The host, made by what the environment says when it is first needed.
pub fn host() -> &'static Arc<Host> {
    Host::get()
}
