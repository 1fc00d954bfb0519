//! libweft.so: the C ABI of libibverbs and librdmacm for unmodified programs.
//!
//! An application that is started with this library in `LD_PRELOAD` finds two devices, the channel
//! adapter `weft0` and the RNIC `weft_iw0`, and uses them through the functions here, whether it
//! links rdma-core, opens it at run time or loads a plugin that does. Exports are unversioned,
//! which the dynamic linker accepts for any version; `tests/rdma_core_names.txt` lists what the
//! newest one has.
//!
//! - `ibv`: libibverbs, and the functions its header calls through a context.
//! - `cma`: librdmacm.
//! - `view`: what the kernel would show of the devices in /sys and /dev.
//! - `dl`: `dlopen`, `dlsym`, `dlvsym`; `real`: the definitions behind ours.
//! - `asked`: what is said of a device that is asked for and not here.
//! - `pass`: faults above the devices of other providers, with `WEFT_PASSTHROUGH=1`.
//! - `signals`: the application's handlers of SIGSEGV and SIGBUS, behind ours, and its masks.
//! - `env`, `log`, `errno`, `exit`, `fd`, `net`: the process and the machine around it.
//!
//! Invariants: nothing happens before the first verb (no thread, no descriptor, no output), nothing
//! is ever written to stdout, and no panic crosses into C: it ends the process. Under `WEFT=off`
//! and `WEFT_PASSTHROUGH=1` every exported function leads to the real one.

#![cfg_attr(
    not(test),
    deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used)
)]

/// Allocations that fail in this library do not abort the application.
#[global_allocator]
static MEMORY: weft_memory::ReserveAllocator = weft_memory::ReserveAllocator;

weft_os::mark_library!(".note.weft.verbs");

mod asked;
mod cma;
mod dl;
mod env;
mod errno;
#[cfg(not(test))]
mod exit;
mod fd;
mod ibv;
mod kept;
mod log;
mod net;
mod pass;
mod rdma;
mod real;
#[cfg(not(test))]
mod signals;
mod view;
