//! Faults above the devices of other providers: `WEFT_PASSTHROUGH=1`.
//!
//! The application uses the machine's own libibverbs and librdmacm and the devices that these find;
//! every exported function of this library passes to theirs, as under `WEFT=off`. What a plan of
//! faults needs stands in between: functions that the header calls through an open device are
//! replaced in its `ibv_context` ([`open`]), exported ones call the function here with the real
//! one as the first argument. librdmacm opens devices by the exported function too, so its contexts
//! are served alike. Without a fault for a device nothing of its context is replaced.
//!
//! - [`work`]: what a plan does to the requests of a queue pair, without input and output.
//! - [`open`]: devices that are opened; [`context`]: what is known of them.
//! - [`qp`], [`builder`], [`cq`], [`cq_ex`]: posting and polling.
//! - [`channel`], [`events`]: what is waited for; [`wait`]: descriptors that are readable on time.
//! - [`calls`]: verbs that fail; [`mr`]: regions that become invalid; [`query`]: what a device says
//!   of its port; [`table`]: objects by their addresses.
//!
//! No thread is started: what is due at a time is done by whoever calls next, and descriptors that
//! the application waits on become readable then.
//!
//! Only the outermost copy of this library passes through: one that is loaded behind it is the
//! device. Lock order: completion queue, then queue pair; effects are applied with neither held.

mod builder;
pub mod calls;
pub mod channel;
pub mod context;
pub mod cq;
mod cq_ex;
pub mod events;
pub mod mr;
pub mod open;
pub mod qp;
pub mod query;
mod table;
mod wait;
mod work;

use std::ffi::CStr;
use std::sync::{Arc, OnceLock};

use weft_fault::FaultPlan;
use weft_host::Faults;

use crate::dl::real;
use crate::env;

/// The plan of this process for devices of other providers, if it passes through to them.
pub fn faults() -> Option<&'static Arc<Faults>> {
    static FAULTS: OnceLock<Option<Arc<Faults>>> = OnceLock::new();
    if !env::settings().passthrough {
        return None;
    }
    let made = FAULTS.get_or_init(|| {
        let plan = FaultPlan::parse(&std::env::var("WEFT_FAULT").ok()?).ok()?;
        // The warning about the variable says why.
        let can_be_made = plan.beyond_passthrough().is_none();
        can_be_made.then(|| Arc::new(Faults::for_other_devices(plan)))
    });
    made.as_ref()
}

/// Whether `WEFT_PASSTHROUGH=1` is set now and this is the copy of the library that it is for.
pub fn is_wanted_now() -> bool {
    // SAFETY: the name is NUL-terminated.
    let value = unsafe { libc::getenv(c"WEFT_PASSTHROUGH".as_ptr()) };
    // SAFETY: getenv gives a NUL-terminated string that lives in the environment.
    !value.is_null() && unsafe { CStr::from_ptr(value) } == c"1" && is_outermost()
}

/// Whether the application finds this copy of the library first.
pub fn is_outermost() -> bool {
    static OUTERMOST: OnceLock<bool> = OnceLock::new();
    *OUTERMOST.get_or_init(|| {
        let name = c"ibv_open_device";
        // SAFETY: the name is NUL-terminated.
        let first = unsafe { real::dlsym()(libc::RTLD_DEFAULT, name.as_ptr()) };
        // A program that is linked with the library, as its tests are, has no other.
        first.is_null() || real::own(name).is_none_or(|own| own == first)
    })
}
