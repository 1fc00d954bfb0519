//! `ibv_reg_mr_ex`: one call for all kinds of regions.

use super::{buf, pd_mr};
use crate::errno;
use crate::real::pass_when_off;
use weft_verbs_abi::*;

/// All but memory of other devices, hints to a PCI bus, and what is not known yet.
const OFFERED: u64 = IBV_REG_MR_MASK_IOVA | IBV_REG_MR_MASK_ADDR | IBV_REG_MR_MASK_BUF;

/// `ibv_reg_mr_ex`: memory of the process, at `iova` or under its own address, in a buffer or not.
/// DMA-bufs and DMA handles are `EOPNOTSUPP`, as is whatever newer versions know.
///
/// # Safety
/// `pd` is alive; `attr` is readable, with a live `buf` if its mask says so.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_mr_ex(
    pd: *mut ibv_pd,
    attr: *mut ibv_mr_init_attr,
) -> *mut ibv_mr {
    pass_when_off!(ibv_reg_mr_ex(pd, attr));
    // SAFETY: readable by contract.
    let wanted = unsafe { *attr };
    let has = |bit| wanted.comp_mask & bit != 0;
    if has(IBV_REG_MR_MASK_BUF) && has(IBV_REG_MR_MASK_FD | IBV_REG_MR_MASK_FD_OFFSET) {
        return errno::null(libc::EINVAL);
    }
    if has(!OFFERED) {
        return errno::null(libc::EOPNOTSUPP);
    }
    if !has(IBV_REG_MR_MASK_ADDR) {
        return errno::null(libc::EINVAL);
    }
    let ibv_mr_init_attr { addr, length, access, .. } = wanted;
    if has(IBV_REG_MR_MASK_BUF) {
        // SAFETY: the mask says that it is there.
        let buf = unsafe { (*attr.cast::<ibv_mr_init_attr_buf>()).buf };
        // SAFETY: alive by contract.
        if let Err(code) = unsafe { buf::check(buf, pd, addr, length) } {
            return errno::null(code);
        }
    }
    let iova = if has(IBV_REG_MR_MASK_IOVA) { wanted.iova } else { addr as u64 };
    // SAFETY: alive by contract.
    unsafe { pd_mr::register(pd, addr, length, iova, access as u32) }
}

/// Offsets by the C ABIs of x86-64 and aarch64; no header that Debian has shows these fields.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
const _: () = {
    use std::mem::{offset_of, size_of};
    assert!(offset_of!(ibv_mr_init_attr, comp_mask) == 16);
    assert!(offset_of!(ibv_mr_init_attr, addr) == 32);
    assert!(size_of::<ibv_mr_init_attr>() == 64);
    assert!(offset_of!(ibv_mr_init_attr_buf, buf) == 64);
};
