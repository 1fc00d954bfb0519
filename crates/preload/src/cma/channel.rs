//! Event channels.

use super::object::ChannelObject;
use crate::errno;
use crate::real::pass_when_off;
use weft_verbs_abi::cma::rdma_event_channel;

/// `rdma_create_event_channel`.
#[unsafe(no_mangle)]
pub extern "C" fn rdma_create_event_channel() -> *mut rdma_event_channel {
    pass_when_off!(rdma_create_event_channel());
    ChannelObject::create().unwrap_or_else(errno::null)
}

/// `rdma_destroy_event_channel`. A thread that sleeps in the channel stays asleep, as one that
/// reads from a closed device file would: applications rely on it when they end.
///
/// # Safety
/// `channel` came from [`rdma_create_event_channel`], and no id uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_destroy_event_channel(channel: *mut rdma_event_channel) {
    pass_when_off!(rdma_destroy_event_channel(channel));
    ChannelObject::destroy(channel);
}
