//! The functions of libibverbs and librdmacm, opened at run time.
//!
//! So `weft` can be built and used without rdma-core, and measures whatever stands behind these
//! names: `libweft.so`, where it is preloaded, or the machine's adapters.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

use anyhow::{Result, anyhow, bail};
use weft_verbs_abi::cma::*;
use weft_verbs_abi::*;

macro_rules! functions {
    (
        [$($handle:ident = $file:literal),*]
        $($library:ident $name:ident($($argument:ty),*) $(-> $result:ty)?;)*
    ) => {
        /// What is called, by its name in C.
        pub struct Library {
            $(pub $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Library {
            fn open() -> Result<Self> {
                $(let $handle = Handle::open($file)?;)*
                Ok(Self {
                    $($name: {
                        let name = concat!(stringify!($name), "\0");
                        let found = $library.find(name)?;
                        // SAFETY: the function of this name has had this type since rdma-core's
                        // first stable ABI.
                        unsafe {
                            std::mem::transmute::<
                                *mut c_void,
                                unsafe extern "C" fn($($argument),*) $(-> $result)?,
                            >(found)
                        }
                    },)*
                })
            }
        }
    };
}

functions! {
    [ibverbs = c"libibverbs.so.1", rdmacm = c"librdmacm.so.1"]
    ibverbs ibv_get_device_list(*mut c_int) -> *mut *mut ibv_device;
    ibverbs ibv_free_device_list(*mut *mut ibv_device);
    ibverbs ibv_get_device_name(*mut ibv_device) -> *const c_char;
    ibverbs ibv_query_device(*mut ibv_context, *mut ibv_device_attr) -> c_int;
    ibverbs ibv_alloc_pd(*mut ibv_context) -> *mut ibv_pd;
    ibverbs ibv_dealloc_pd(*mut ibv_pd) -> c_int;
    ibverbs ibv_reg_mr(*mut ibv_pd, *mut c_void, usize, c_int) -> *mut ibv_mr;
    ibverbs ibv_dereg_mr(*mut ibv_mr) -> c_int;
    ibverbs ibv_create_comp_channel(*mut ibv_context) -> *mut ibv_comp_channel;
    ibverbs ibv_destroy_comp_channel(*mut ibv_comp_channel) -> c_int;
    ibverbs ibv_create_cq(
        *mut ibv_context, c_int, *mut c_void, *mut ibv_comp_channel, c_int
    ) -> *mut ibv_cq;
    ibverbs ibv_destroy_cq(*mut ibv_cq) -> c_int;
    ibverbs ibv_get_cq_event(
        *mut ibv_comp_channel, *mut *mut ibv_cq, *mut *mut c_void
    ) -> c_int;
    ibverbs ibv_ack_cq_events(*mut ibv_cq, u32);
    ibverbs ibv_wc_status_str(u32) -> *const c_char;
    rdmacm rdma_create_event_channel() -> *mut rdma_event_channel;
    rdmacm rdma_destroy_event_channel(*mut rdma_event_channel);
    rdmacm rdma_create_id(
        *mut rdma_event_channel, *mut *mut rdma_cm_id, *mut c_void, c_int
    ) -> c_int;
    rdmacm rdma_destroy_id(*mut rdma_cm_id) -> c_int;
    rdmacm rdma_bind_addr(*mut rdma_cm_id, *mut libc::sockaddr) -> c_int;
    rdmacm rdma_listen(*mut rdma_cm_id, c_int) -> c_int;
    rdmacm rdma_get_src_port(*mut rdma_cm_id) -> u16;
    rdmacm rdma_resolve_addr(
        *mut rdma_cm_id, *mut libc::sockaddr, *mut libc::sockaddr, c_int
    ) -> c_int;
    rdmacm rdma_resolve_route(*mut rdma_cm_id, c_int) -> c_int;
    rdmacm rdma_create_qp(*mut rdma_cm_id, *mut ibv_pd, *mut ibv_qp_init_attr) -> c_int;
    rdmacm rdma_destroy_qp(*mut rdma_cm_id);
    rdmacm rdma_connect(*mut rdma_cm_id, *mut rdma_conn_param) -> c_int;
    rdmacm rdma_accept(*mut rdma_cm_id, *mut rdma_conn_param) -> c_int;
    rdmacm rdma_reject(*mut rdma_cm_id, *const c_void, u8) -> c_int;
    rdmacm rdma_disconnect(*mut rdma_cm_id) -> c_int;
    rdmacm rdma_get_cm_event(*mut rdma_event_channel, *mut *mut rdma_cm_event) -> c_int;
    rdmacm rdma_ack_cm_event(*mut rdma_cm_event) -> c_int;
    rdmacm rdma_event_str(u32) -> *const c_char;
}

/// The functions; they are looked for once.
///
/// # Errors
/// A library is not there, or lacks a function.
pub fn library() -> Result<&'static Library> {
    static LIBRARY: OnceLock<std::result::Result<Library, String>> = OnceLock::new();
    let found = LIBRARY.get_or_init(|| Library::open().map_err(|error| format!("{error:#}")));
    found.as_ref().map_err(|error| anyhow!("{error}"))
}

/// A library that stays open.
struct Handle(*mut c_void);

impl Handle {
    fn open(name: &CStr) -> Result<Self> {
        // SAFETY: the name is NUL-terminated; rdma-core's constructors may run at any time.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        if handle.is_null() {
            bail!(
                "{} cannot be opened: install rdma-core's libraries (libibverbs1 and librdmacm1 in \
                 Debian), or leave out -d to use Weft's devices",
                name.to_string_lossy()
            );
        }
        Ok(Self(handle))
    }

    /// A function by its name, which ends in NUL.
    fn find(&self, name: &str) -> Result<*mut c_void> {
        // SAFETY: the handle is open and the name is NUL-terminated.
        let found = unsafe { libc::dlsym(self.0, name.as_ptr().cast()) };
        if found.is_null() {
            bail!("rdma-core here has no {}", name.trim_end_matches('\0'));
        }
        Ok(found)
    }
}
