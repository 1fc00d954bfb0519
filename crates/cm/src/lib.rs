//! The rdma-cm state machines.
