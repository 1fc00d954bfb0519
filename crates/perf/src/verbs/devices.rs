//! The devices that are here.

use std::ffi::CStr;

use anyhow::{Result, bail};

use super::library::library;

/// Weft's devices, where no other names were chosen.
const OWN_DEVICES: [&str; 2] = ["weft0", "weft_iw0"];

/// The names of all devices.
///
/// # Errors
/// The libraries cannot be opened.
fn device_names() -> Result<Vec<String>> {
    let library = library()?;
    let mut count = 0;
    // SAFETY: `count` lives through the call.
    let list = unsafe { (library.ibv_get_device_list)(&raw mut count) };
    if list.is_null() {
        // So it is where the kernel has no RDMA.
        return Ok(Vec::new());
    }
    let name = |at| {
        // SAFETY: the list has `count` devices.
        let device = unsafe { list.wrapping_add(at).read() };
        // SAFETY: the device is of the list, which is not freed yet.
        let name = unsafe { (library.ibv_get_device_name)(device) };
        // SAFETY: a device's name ends in NUL.
        unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
    };
    let names = (0..count.max(0) as usize).map(name).collect();
    // SAFETY: it came from the library, and no device of it is used any more.
    unsafe { (library.ibv_free_device_list)(list) };
    Ok(names)
}

/// Checks that there is a device of this name.
///
/// # Errors
/// There is none; the message names those that there are.
pub fn check_device(name: &str) -> Result<()> {
    let mut names = device_names()?;
    if names.iter().any(|known| known == name) {
        return Ok(());
    }
    // They are not shown to who asks for an adapter of the machine.
    names.extend(OWN_DEVICES.map(String::from));
    names.dedup();
    bail!("there is no device {name} here; there are {}", names.join(", "))
}
