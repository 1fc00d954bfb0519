//! A call that a signal handler can end.
//!
//! The call keeps the registers that belong to the caller on the stack and the place of the stack
//! in a slot. Ending it is to set the stack pointer back to that place and go on at [`end`], as
//! `longjmp` does, but without a `setjmp` that returns twice into Rust. That costs some 10 ns;
//! short copies, which take less than that, have a function that a handler can end anywhere.

use std::ffi::c_void;

/// What a guarded call runs.
pub(crate) type GuardedBody = unsafe extern "C" fn(*mut c_void);

/// Calls `body` with `data`, with the stack in `slot` meanwhile; 0 if it returned and 1 if it was
/// ended.
///
/// # Safety
/// `slot` is valid until the call returns, and `body` as [`crate::attempt`] has it.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn guarded(
    slot: *mut *mut c_void,
    body: GuardedBody,
    data: *mut c_void,
) -> u32 {
    std::arch::naked_asm!(
        ".cfi_startproc",
        "push rbp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "push rdi",
        ".cfi_adjust_cfa_offset 56",
        "mov [rdi], rsp",
        "mov rdi, rdx",
        "call rsi",
        "xor eax, eax",
        "jmp {end}",
        ".cfi_endproc",
        end = sym end,
    )
}

/// The end of [`guarded`], with what it returns in `eax` and its stack restored.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn end() {
    std::arch::naked_asm!(
        ".cfi_startproc",
        ".cfi_def_cfa_offset 64",
        "pop rdi",
        "mov qword ptr [rdi], 0",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
        ".cfi_endproc",
    )
}

/// The longest copy for [`copy_small`]; none is if that is 0.
#[cfg(target_arch = "x86_64")]
pub(crate) const SMALL_MAX: usize = 64;
#[cfg(not(target_arch = "x86_64"))]
pub(crate) const SMALL_MAX: usize = 0;

/// Copies up to [`SMALL_MAX`] bytes; 0 if all were, else 1. It keeps nothing on the stack, so that
/// it can end at any instruction.
///
/// # Safety
/// One of `to` and `from` is memory that may be gone, the other is live; both for `len` bytes.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn copy_small(to: *mut u8, from: *const u8, len: usize) -> u32 {
    std::arch::naked_asm!(
        ".cfi_startproc",
        "cmp rdx, 16",
        "jb 3f",
        "cmp rdx, 32",
        "ja 2f",
        // 16 to 32 bytes: both ends, which may overlap.
        "movups xmm0, [rsi]",
        "movups xmm1, [rsi + rdx - 16]",
        "movups [rdi], xmm0",
        "movups [rdi + rdx - 16], xmm1",
        "xor eax, eax",
        "ret",
        // 33 to 64 bytes.
        "2:",
        "movups xmm0, [rsi]",
        "movups xmm1, [rsi + 16]",
        "movups xmm2, [rsi + rdx - 32]",
        "movups xmm3, [rsi + rdx - 16]",
        "movups [rdi], xmm0",
        "movups [rdi + 16], xmm1",
        "movups [rdi + rdx - 32], xmm2",
        "movups [rdi + rdx - 16], xmm3",
        "xor eax, eax",
        "ret",
        "3:",
        "cmp rdx, 8",
        "jb 4f",
        "mov rax, [rsi]",
        "mov rcx, [rsi + rdx - 8]",
        "mov [rdi], rax",
        "mov [rdi + rdx - 8], rcx",
        "xor eax, eax",
        "ret",
        "4:",
        "test rdx, rdx",
        "jz 6f",
        "5:",
        "mov al, [rsi + rdx - 1]",
        "mov [rdi + rdx - 1], al",
        "dec rdx",
        "jnz 5b",
        "6:",
        "xor eax, eax",
        "ret",
        ".globl weft_guard_copy_small_end",
        ".hidden weft_guard_copy_small_end",
        "weft_guard_copy_small_end:",
        ".cfi_endproc",
    )
}

#[cfg(target_arch = "x86_64")]
unsafe extern "C" {
    static weft_guard_copy_small_end: u8;
}

/// There is no such copy here.
///
/// # Safety
/// None.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) unsafe fn copy_small(_to: *mut u8, _from: *const u8, _len: usize) -> u32 {
    0
}

/// [`guarded`] for the registers of AArch64.
///
/// # Safety
/// As above.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn guarded(
    slot: *mut *mut c_void,
    body: GuardedBody,
    data: *mut c_void,
) -> u32 {
    std::arch::naked_asm!(
        ".cfi_startproc",
        "sub sp, sp, #176",
        ".cfi_adjust_cfa_offset 176",
        "stp x29, x30, [sp]",
        "stp x19, x20, [sp, #16]",
        "stp x21, x22, [sp, #32]",
        "stp x23, x24, [sp, #48]",
        "stp x25, x26, [sp, #64]",
        "stp x27, x28, [sp, #80]",
        "stp d8, d9, [sp, #96]",
        "stp d10, d11, [sp, #112]",
        "stp d12, d13, [sp, #128]",
        "stp d14, d15, [sp, #144]",
        "str x0, [sp, #160]",
        "mov x3, sp",
        "str x3, [x0]",
        "mov x0, x2",
        "blr x1",
        "mov x0, #0",
        "b {end}",
        ".cfi_endproc",
        end = sym end,
    )
}

/// The end of [`guarded`], with what it returns in `x0` and its stack restored.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
unsafe extern "C" fn end() {
    std::arch::naked_asm!(
        ".cfi_startproc",
        ".cfi_def_cfa_offset 176",
        "ldr x1, [sp, #160]",
        "str xzr, [x1]",
        "ldp d14, d15, [sp, #144]",
        "ldp d12, d13, [sp, #128]",
        "ldp d10, d11, [sp, #112]",
        "ldp d8, d9, [sp, #96]",
        "ldp x27, x28, [sp, #80]",
        "ldp x25, x26, [sp, #64]",
        "ldp x23, x24, [sp, #48]",
        "ldp x21, x22, [sp, #32]",
        "ldp x19, x20, [sp, #16]",
        "ldp x29, x30, [sp]",
        "add sp, sp, #176",
        "ret",
        ".cfi_endproc",
    )
}

/// The same without a guard.
///
/// # Safety
/// `body` is good for `data`.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) unsafe fn guarded(_slot: *mut *mut c_void, body: GuardedBody, data: *mut c_void) -> u32 {
    // SAFETY: as the caller vouches.
    unsafe { body(data) };
    0
}

/// If the interrupted thread is in [`copy_small`], has that return 1; whether it is.
#[cfg(target_arch = "x86_64")]
pub(crate) fn end_copy(context: &mut libc::ucontext_t) -> bool {
    let registers = &mut context.uc_mcontext.gregs;
    let at = registers[libc::REG_RIP as usize] as usize;
    let last = &raw const weft_guard_copy_small_end as usize;
    if !(copy_small as *const () as usize..last).contains(&at) {
        return false;
    }
    let stack = registers[libc::REG_RSP as usize];
    // SAFETY: the function keeps nothing on the stack, so what lies there is where it returns to.
    registers[libc::REG_RIP as usize] = unsafe { *(stack as *const i64) };
    registers[libc::REG_RSP as usize] = stack + 8;
    registers[libc::REG_RAX as usize] = 1;
    true
}

/// There is no such copy here.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn end_copy(_context: &mut libc::ucontext_t) -> bool {
    false
}

/// Has the interrupted thread go on at the end of the call whose stack is at `stack`, which then
/// returns 1.
#[cfg(target_arch = "x86_64")]
pub(crate) fn end_call(context: &mut libc::ucontext_t, stack: *mut c_void) {
    /// String instructions that run downwards.
    const DIRECTION: i64 = 1 << 10;
    let registers = &mut context.uc_mcontext.gregs;
    registers[libc::REG_RSP as usize] = stack as i64;
    registers[libc::REG_RIP as usize] = end as *const () as i64;
    registers[libc::REG_RAX as usize] = 1;
    registers[libc::REG_EFL as usize] &= !DIRECTION;
}

/// The same on AArch64.
#[cfg(target_arch = "aarch64")]
pub(crate) fn end_call(context: &mut libc::ucontext_t, stack: *mut c_void) {
    context.uc_mcontext.sp = stack as u64;
    context.uc_mcontext.pc = end as *const () as u64;
    context.uc_mcontext.regs[0] = 1;
}

/// No call has a guard here.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) fn end_call(_context: &mut libc::ucontext_t, _stack: *mut c_void) {}
