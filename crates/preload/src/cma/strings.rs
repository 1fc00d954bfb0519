//! Names of events.

use std::ffi::{CStr, c_char};

use crate::real::pass_when_off;

const NAMES: [&CStr; 20] = [
    c"RDMA_CM_EVENT_ADDR_RESOLVED",
    c"RDMA_CM_EVENT_ADDR_ERROR",
    c"RDMA_CM_EVENT_ROUTE_RESOLVED",
    c"RDMA_CM_EVENT_ROUTE_ERROR",
    c"RDMA_CM_EVENT_CONNECT_REQUEST",
    c"RDMA_CM_EVENT_CONNECT_RESPONSE",
    c"RDMA_CM_EVENT_CONNECT_ERROR",
    c"RDMA_CM_EVENT_UNREACHABLE",
    c"RDMA_CM_EVENT_REJECTED",
    c"RDMA_CM_EVENT_ESTABLISHED",
    c"RDMA_CM_EVENT_DISCONNECTED",
    c"RDMA_CM_EVENT_DEVICE_REMOVAL",
    c"RDMA_CM_EVENT_MULTICAST_JOIN",
    c"RDMA_CM_EVENT_MULTICAST_ERROR",
    c"RDMA_CM_EVENT_ADDR_CHANGE",
    c"RDMA_CM_EVENT_TIMEWAIT_EXIT",
    c"RDMA_CM_EVENT_ADDRINFO_RESOLVED",
    c"RDMA_CM_EVENT_ADDRINFO_ERROR",
    c"RDMA_CM_EVENT_USER",
    c"RDMA_CM_EVENT_INTERNAL",
];

/// `rdma_event_str`: the name of an event, never NULL.
#[unsafe(no_mangle)]
pub extern "C" fn rdma_event_str(event: u32) -> *const c_char {
    pass_when_off!(rdma_event_str(event));
    NAMES.get(event as usize).unwrap_or(&c"UNKNOWN EVENT").as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_a_name() {
        let name = |event| {
            // SAFETY: names are NUL-terminated and live for ever.
            unsafe { CStr::from_ptr(rdma_event_str(event)) }
        };
        assert_eq!(name(8), c"RDMA_CM_EVENT_REJECTED");
        assert_eq!(name(15), c"RDMA_CM_EVENT_TIMEWAIT_EXIT");
        assert_eq!(name(18), c"RDMA_CM_EVENT_USER");
        assert_eq!(name(20), c"UNKNOWN EVENT");
        assert_eq!(name(u32::MAX), c"UNKNOWN EVENT");
    }
}
