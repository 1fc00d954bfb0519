//! Memory that is there, that is gone, and threads and registers beside it.

use super::*;

const PAGE: usize = 4096;

/// Two pages, of which the second is unmapped again.
fn half_gone() -> *mut u8 {
    let both = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping, at an address that the kernel chooses.
    let pages = unsafe { libc::mmap(ptr::null_mut(), 2 * PAGE, both, flags, -1, 0) };
    assert_ne!(pages, libc::MAP_FAILED);
    let pages = pages.cast::<u8>();
    // SAFETY: the second page is that of the mapping above.
    let gone = unsafe { pages.add(PAGE) };
    // SAFETY: nothing refers to it.
    assert_eq!(unsafe { libc::munmap(gone.cast(), PAGE) }, 0);
    pages
}

fn copy_in(to: *mut u8, bytes: &[u8]) -> bool {
    // SAFETY: a mapping of this test's, or what is left of it.
    unsafe { write(to as u64, bytes) }
}

#[test]
fn what_is_there_is_accessed_and_what_is_gone_is_told() {
    install();
    let pages = half_gone();
    for len in (0..130).chain([300, PAGE]) {
        let bytes: Vec<u8> = (0..len).map(|i| i as u8 ^ 0x5a).collect();
        for short in [0, 1, len / 2, len] {
            // SAFETY: within the two pages, of which the second is gone.
            let to = unsafe { pages.add(PAGE - len + short) };
            let is_whole = short == 0 || len == 0;
            assert_eq!(copy_in(to, &bytes), is_whole, "{len} bytes, {short} of them gone");
            let mut back = vec![0; len];
            // SAFETY: the same memory, and as much room.
            let read = unsafe { read(to as u64, back.as_mut_ptr(), len) };
            assert_eq!((read, !is_whole || back == bytes), (is_whole, true), "{len} bytes");
        }
    }
    let addr = pages as u64;
    assert!(is_readable(addr, PAGE as u64) && is_readable(addr, 0));
    assert!(!is_readable(addr, PAGE as u64 + 1) && !is_readable(addr + PAGE as u64, 1));
    assert!(!is_readable(u64::MAX, 2));
}

#[test]
fn registers_survive_a_fault() {
    install();
    let pages = half_gone();
    let mut sums = [0_u64; 8];
    for round in 0..1000_u64 {
        for (i, sum) in sums.iter_mut().enumerate() {
            // SAFETY: the page that is gone.
            let faults = !copy_in(unsafe { pages.add(PAGE + i) }, &[1]);
            *sum += round * u64::from(faults) * (i as u64 + 1);
        }
    }
    for (i, sum) in sums.iter().enumerate() {
        assert_eq!(*sum, 499_500 * (i as u64 + 1));
    }
}

#[test]
fn each_thread_has_its_own_faults() {
    install();
    let pages = half_gone() as usize;
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(move || {
                for _ in 0..1000 {
                    assert!(!copy_in((pages + PAGE) as *mut u8, &[1; 64]));
                    assert!(copy_in(&mut [0_u8; 64][0], &[1]));
                }
            });
        }
    });
}

#[test]
fn a_thread_that_blocks_the_signals_is_no_exception() {
    install();
    let pages = half_gone() as usize;
    let blocked = std::thread::spawn(move || {
        // SAFETY: an all-zero set is a valid place for sigfillset to fill.
        let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: `set` is a live local.
        unsafe { libc::sigfillset(&mut set) };
        // SAFETY: `set` is initialised, and the old mask is not asked for.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &set, ptr::null_mut()) };
        copy_in((pages + PAGE) as *mut u8, &[1])
    });
    assert!(!blocked.join().unwrap());
}
