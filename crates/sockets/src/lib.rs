//! libweft_sockets.so: TCP sockets of unmodified applications over SDP.
//!
//! An application that is started with this library in `LD_PRELOAD` reaches peers that have it too
//! by SDP over Shuttle (or iWARP), and all others by TCP as before. docs/sockets.md says what an
//! application sees of that.
//!
//! From the hooks down; imports go down only:
//!
//! - `hooks`, `closes`, `options`, `receives`, `sends`: interposed functions of the C library;
//!   `real`: those behind them; `guard` keeps the library's own calls out.
//! - `connect`, `accept`: what the hooks of the same names do.
//! - `registry`: the connections and listeners of the process.
//! - `listener`: a listener that is served by SDP too; `grants`: what it has granted and is not
//!   accepted; `handoff`: other processes that accept from it.
//! - `conn`: a connection of `app_socket`, the application's end, and `stream`, the far one, with
//!   its `shadow_tcp`; `conn::state` has the phases, `conn::pump` moves bytes.
//! - `pair`: connections between applications of one host, which leave this library at once.
//! - `env`: what all connections use; `cm_events`, `watches`, `tcp_options`, `report`, `settings`,
//!   `rules`.
//! - `strict`: where TCP does not take the place of SDP; `near`: where it does although there is
//!   SDP; `fabric`: the transport below SDP; `abandoned`: connects that were given up;
//!   `generations`: one registry per process; `filters`: what applications forbid themselves.
//! - `address`, `names`, `memory`, `process_lock`, `socket_diag`, `stdio`, `sys`: addresses, the
//!   names of sockets, memory, a lock among processes, the kernel's table of sockets, standard
//!   streams, system calls.
//!
//! Invariants: nothing happens before the first TCP socket connects, listens or is watched, nothing
//! is ever written to stdout, and what cannot be carried is left to the kernel as it was.

#![cfg_attr(
    not(test),
    deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used)
)]

mod abandoned;
mod accept;
mod address;
mod app_socket;
pub mod closes;
mod cm_events;
mod conn;
mod connect;
mod env;
mod fabric;
mod filters;
mod generations;
mod grants;
mod guard;
mod handoff;
pub mod hooks;
mod late_writes;
mod listener;
mod memory;
mod names;
mod near;
pub mod options;
mod pair;
mod process_lock;
mod rdma;
mod real;
pub mod receives;
mod registry;
mod report;
mod rules;
pub mod sends;
mod settings;
mod shadow_tcp;
mod socket_diag;
mod stdio;
mod stream;
mod strict;
mod sys;
mod tcp_options;
mod watched_fd;
mod watches;

/// Serves from a reserve what the C library refuses, so that no allocation ends an application.
#[global_allocator]
static MEMORY: weft_memory::ReserveAllocator = weft_memory::ReserveAllocator;

weft_os::mark_library!(".note.weft.sockets");
