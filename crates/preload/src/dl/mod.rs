//! Applications that open libibverbs at run time get Weft too.
//!
//! `LD_PRELOAD` serves every reference by name, but not `dlopen("libibverbs.so.1")` followed by
//! `dlsym` or `dlvsym` on that handle, which several libraries do. So [`hooks`] interposes these
//! three. Rule: an answer changes only where the name is one that this library exports *and* the
//! real answer would come from rdma-core, or would if that were newer; everything else continues in
//! the real function with the caller's own return address, on which `RTLD_NEXT` and `RUNPATH`
//! depend. Without rdma-core on the machine, opening libibverbs or librdmacm gives a handle of this
//! library.
//!
//! Limits: `RTLD_DEEPBIND` libraries, `dlmopen` namespaces, static and set-user-id programs are
//! beyond the reach of a preload. The hooks exist on x86-64 and aarch64; elsewhere only linked
//! programs are served.

mod elf;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod hooks;
pub mod real;

/// Whether the process has loaded MPICH, or an MPI with its ABI.
#[cfg_attr(test, expect(dead_code, reason = "for the view, which tests do without"))]
pub fn has_mpich() -> bool {
    elf::find(c"libmpi.so.12", c"MPI_Init").is_some()
}
