//! libweft_sockets.so: TCP sockets of unmodified programs over SDP.
//!
//! A program that is started with this library in `LD_PRELOAD` reaches peers that have it too by
//! SDP over Shuttle (or iWARP), and all others by TCP as before. docs/sockets.md says what a
//! program sees of that.
//!
//! - `hooks`, `sends`: the functions of the C library that are ours; `real`: those behind them;
//!   `guard` keeps our own calls out.
//! - `connect`: connecting; `listener`: listening and accepting; `handoff`: accepting in other
//!   processes.
//! - `conn`: a connection, of `app_socket`, the application's end, and `stream`, the far one;
//!   `conn::pump` moves bytes between them; `abandoned`: connects that were given up.
//! - `registry`: what the process has; `watches`: the epoll instances that watch sockets which are
//!   being connected.
//! - `settings`, `rules`, `report`: what the user asks for, and is told; `strict`: where TCP does
//!   not take the place of SDP.
//! - `address`, `names`, `sys`: addresses, how sockets are named by them, and system calls.
//!
//! Invariants: nothing happens before the first TCP socket connects or listens, nothing is ever
//! written to stdout, and whatever cannot be carried is left to the kernel as it was.

#![cfg_attr(
    not(test),
    deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used)
)]

mod abandoned;
mod address;
mod app_socket;
mod conn;
mod connect;
mod guard;
mod handoff;
pub mod hooks;
mod listener;
mod memory;
mod names;
mod real;
mod registry;
mod report;
mod rules;
pub mod sends;
mod settings;
mod stream;
mod strict;
mod sys;
mod watches;

use std::ffi::CStr;
use std::net::SocketAddr;

use crate::rules::Role;
use crate::settings::Settings;

/// What fails in this library ends no program.
#[global_allocator]
static MEMORY: weft_memory::Memory = weft_memory::Memory;

unsafe extern "C" {
    /// The last part of the path that the program was started by.
    static program_invocation_short_name: *const libc::c_char;
}

fn program() -> String {
    // SAFETY: the C library sets it before any program begins.
    let name = unsafe { program_invocation_short_name };
    if name.is_null() {
        return String::new();
    }
    // SAFETY: it is a string that lives as long as the process.
    unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
}

/// Whether a listener at `at` may be reached by SDP.
fn permits_server(at: SocketAddr) -> bool {
    Settings::get().rules.permit(Role::Server, at, &program())
}

/// Whether a peer at `remote` may be reached by SDP.
fn permits_client(remote: SocketAddr) -> bool {
    Settings::get().rules.permit(Role::Client, remote, &program())
}
