//! Registered memory. It is made of atomic words, since peers may write it at any time.

use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use weft_verbs::Access;

use super::domain::{HostDomain, refused};

/// Bytes of a word.
const WORD: usize = size_of::<u64>();

/// A region and its memory.
pub struct HostRegion {
    domain: Rc<HostDomain>,
    words: Vec<AtomicU64>,
    len: usize,
    key: u32,
}

impl HostRegion {
    /// Bytes of zero, which peers may read and write, and use atomics on if `atomics` says so.
    ///
    /// # Errors
    /// There is not as much memory, or the device refuses.
    pub fn new(domain: &Rc<HostDomain>, bytes: usize, atomics: bool) -> Result<Self> {
        let len = bytes.max(1);
        let mut words = Vec::new();
        let room = words.try_reserve_exact(len.div_ceil(WORD));
        room.with_context(|| format!("there is no memory for a region of {len} bytes"))?;
        words.resize_with(len.div_ceil(WORD), AtomicU64::default);
        let mut access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        if atomics {
            access |= Access::REMOTE_ATOMIC;
        }
        let at = words.as_ptr() as u64;
        let key = domain.context.reg_mr(&domain.pd, at, len as u64, at, access);
        let key = key.map_err(refused("registering memory"))?;
        Ok(Self { domain: domain.clone(), words, len, key })
    }

    /// Address of the first byte.
    pub fn address(&self) -> u64 {
        self.words.as_ptr() as u64
    }

    /// Local key (`lkey`).
    pub fn local_key(&self) -> u32 {
        self.key
    }

    /// Remote key (`rkey`): the same.
    pub fn remote_key(&self) -> u32 {
        self.key
    }

    /// The byte at `at`, as it is now.
    ///
    /// # Panics
    /// It is outside.
    pub fn byte(&self, at: usize) -> u8 {
        let mut byte = [0];
        self.read(at, &mut byte);
        byte[0]
    }

    /// Changes a byte.
    ///
    /// # Panics
    /// It is outside.
    pub fn set_byte(&self, at: usize, value: u8) {
        self.write(at, &[value]);
    }

    /// Writes bytes from `at` on.
    ///
    /// # Panics
    /// They do not fit.
    pub fn write(&self, at: usize, bytes: &[u8]) {
        self.each_word(at, bytes.len(), |word, within, from| {
            let part = &bytes[from..from + within.len()];
            put(word, within, part);
        });
    }

    /// Reads bytes from `at` on.
    ///
    /// # Panics
    /// There are not as many.
    pub fn read(&self, at: usize, bytes: &mut [u8]) {
        self.each_word(at, bytes.len(), |word, within, to| {
            let all = word.load(Ordering::Acquire).to_ne_bytes();
            bytes[to..to + within.len()].copy_from_slice(&all[within]);
        });
    }

    /// Calls `act` for each word that has some of the bytes, with which of its own they are and
    /// how many came before.
    fn each_word(
        &self,
        at: usize,
        len: usize,
        mut act: impl FnMut(&AtomicU64, Range<usize>, usize),
    ) {
        assert!(at.checked_add(len).is_some_and(|end| end <= self.len));
        let mut done = 0;
        while done < len {
            let start = (at + done) % WORD;
            let count = (WORD - start).min(len - done);
            act(&self.words[(at + done) / WORD], start..start + count, done);
            done += count;
        }
    }
}

/// Changes some bytes of a word. Others may change the rest of it meanwhile.
fn put(word: &AtomicU64, within: Range<usize>, bytes: &[u8]) {
    let with = |old: u64| {
        let mut all = old.to_ne_bytes();
        all[within.clone()].copy_from_slice(bytes);
        u64::from_ne_bytes(all)
    };
    if within.len() == WORD {
        return word.store(with(0), Ordering::Release);
    }
    let mut old = word.load(Ordering::Relaxed);
    while let Err(now) =
        word.compare_exchange_weak(old, with(old), Ordering::AcqRel, Ordering::Relaxed)
    {
        old = now;
    }
}

impl Drop for HostRegion {
    fn drop(&mut self) {
        if self.domain.context.dereg_mr(self.key).is_err() {
            // A peer might still write it, so that it is never freed.
            std::mem::forget(std::mem::take(&mut self.words));
        }
    }
}
