//! Memory that peers may reach.
//!
//! A region is made of atomic words: whoever reads or writes it copies, so that a peer may write
//! it at the same time. Peers address its first byte as 0, and learn no address of this process.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weft_verbs::{Access, Misuse, Sge};
use zerocopy::FromZeros;

use crate::device::ProtectionDomain;
use crate::{Error, Result};

/// Bytes of a word of a region.
const WORD: usize = size_of::<u64>();

/// Rights that mean something for memory that the region owns.
const OFFERED: Access = Access::REMOTE.union(Access::LOCAL_WRITE);

/// Registered memory; it is deregistered when the last handle, slice or posted request that names
/// it is gone.
struct Registered {
    domain: ProtectionDomain,
    words: Vec<AtomicU64>,
    len: usize,
    key: u32,
}

impl Drop for Registered {
    fn drop(&mut self) {
        if self.domain.context().dereg_mr(self.key).is_err() {
            // Somebody might still write it, so it is never freed.
            std::mem::forget(std::mem::take(&mut self.words));
        }
    }
}

/// A memory region: memory with a key, of which [`RegionSlice`]s go into requests.
///
/// A peer that is connected in its protection domain, knows its key and has any remote right to it
/// may invalidate the key, by a Send with Invalidate. [`Completion::invalidated`] of the receive
/// tells of it. From then on requests of either side that name the region fail;
/// [`Region::read_at`] and the like go on. The region is of use in requests again only by
/// registering another one.
///
/// [`Completion::invalidated`]: crate::Completion::invalidated
#[derive(Clone)]
pub struct Region {
    inner: Arc<Registered>,
}

impl Region {
    fn new(domain: &ProtectionDomain, len: usize, access: Access) -> Result<Self> {
        let during = "registering a region";
        if !OFFERED.contains(access) {
            return Err(Error::invalid(during, "the region owns its memory: no such right"));
        }
        // The system gives zeroes: they are not written here one by one.
        let words = AtomicU64::new_vec_zeroed(len.div_ceil(WORD));
        let words = words.map_err(|_| Error::of(during)(Misuse::NoMemory))?;
        let addr = words.as_ptr() as u64;
        let access = access | Access::LOCAL_WRITE;
        let registered = domain.context().reg_mr(domain.pd(), addr, len as u64, 0, access);
        let key = registered.map_err(Error::of(during))?;
        Ok(Self { inner: Arc::new(Registered { domain: domain.clone(), words, len, key }) })
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.inner.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.inner.len == 0
    }

    /// Copies bytes from `offset` on to `out`. What a peer writes meanwhile may be there in part.
    ///
    /// # Errors
    /// [`Error::Range`] beyond the end.
    pub fn read_at(&self, offset: usize, out: &mut [u8]) -> Result<()> {
        self.check("reading a region", offset, out.len())?;
        let (words, start) = self.words_from(offset);
        let (first, rest) = out.split_at_mut((WORD - start).min(out.len()));
        let (whole, last) = rest.as_chunks_mut::<WORD>();
        let mut words = words.iter();
        words.by_ref().take(1).for_each(|word| get(word, start, first));
        for (bytes, word) in whole.iter_mut().zip(words.by_ref()) {
            *bytes = word.load(Ordering::Relaxed).to_ne_bytes();
        }
        words.take(1).for_each(|word| get(word, 0, last));
        Ok(())
    }

    /// The bytes of `range`, copied.
    ///
    /// # Errors
    /// [`Error::Range`] beyond the end, [`Error::Invalid`] for a range that ends before it begins.
    pub fn read(&self, range: Range<usize>) -> Result<Vec<u8>> {
        let during = "reading a region";
        check_order(during, &range)?;
        self.check(during, range.start, range.len())?;
        let mut out = vec![0; range.len()];
        self.read_at(range.start, &mut out)?;
        Ok(out)
    }

    /// Copies `bytes` to `offset`. What a peer writes next to them stays.
    ///
    /// If they are those of a request that is not complete, the peer may get old bytes, new ones or
    /// some of both. A Send or Write of 1 KiB or more on
    /// [`DeviceKind::Iwarp`](crate::DeviceKind::Iwarp) reads them twice, for the checksum and for
    /// the network: if they change in between, the peer finds a wrong checksum, and may end the
    /// connection. So leave the bytes of a request alone until its completion was taken.
    ///
    /// # Errors
    /// [`Error::Range`] beyond the end.
    pub fn write_at(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        self.check("writing a region", offset, bytes.len())?;
        let (words, start) = self.words_from(offset);
        let (first, rest) = bytes.split_at((WORD - start).min(bytes.len()));
        let (whole, last) = rest.as_chunks::<WORD>();
        let mut words = words.iter();
        words.by_ref().take(1).for_each(|word| put(word, start, first));
        for (bytes, word) in whole.iter().zip(words.by_ref()) {
            word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
        }
        words.take(1).for_each(|word| put(word, 0, last));
        Ok(())
    }

    /// The word at `offset`, a multiple of 8 bytes, to poll for what a peer writes there. If it
    /// comes by a Write of exactly these 8 bytes on a reliable connection, it appears as a whole,
    /// and all that the peer wrote before on that connection is there too. Of a longer Write only
    /// the last byte appears after all others: a word at its end may be seen in part, and with its
    /// lowest byte, on a little-endian machine, before the bytes of the Write that are in front of
    /// it.
    ///
    /// # Errors
    /// [`Error::Range`] beyond the end, [`Error::Invalid`] for other offsets.
    pub fn load(&self, offset: usize) -> Result<u64> {
        Ok(self.word("loading a word", offset)?.load(Ordering::Acquire))
    }

    /// Sets the word at `offset`, a multiple of 8 bytes: whoever reads it finds all that was
    /// written here before. What [`Region::write_at`] says of requests that are not complete holds
    /// here too.
    ///
    /// # Errors
    /// As [`Region::load`].
    pub fn store(&self, offset: usize, value: u64) -> Result<()> {
        self.word("storing a word", offset)?.store(value, Ordering::Release);
        Ok(())
    }

    /// The bytes of `range`, for a request.
    ///
    /// # Errors
    /// [`Error::Range`] beyond the end, or for 4 GiB or more; [`Error::Invalid`] for a range that
    /// ends before it begins.
    pub fn slice(&self, range: Range<usize>) -> Result<RegionSlice> {
        let (during, len) = ("slicing a region", range.len());
        check_order(during, &range)?;
        self.check(during, range.start, len)?;
        let Ok(len) = u32::try_from(len) else {
            return Err(self.beyond(during, range.start, len));
        };
        Ok(RegionSlice { region: self.clone(), offset: range.start as u64, len })
    }

    /// All of it, for a request.
    ///
    /// # Errors
    /// [`Error::Range`] if it has 4 GiB or more.
    pub fn whole(&self) -> Result<RegionSlice> {
        self.slice(0..self.len())
    }

    /// What a peer needs to reach it by [`QueuePair::write`](crate::QueuePair::write) and the
    /// like.
    pub fn remote_key(&self) -> RemoteKey {
        RemoteKey { addr: 0, len: self.len() as u64, rkey: self.inner.key }
    }

    pub(crate) fn is_in(&self, domain: &ProtectionDomain) -> bool {
        self.inner.domain.is(domain)
    }

    /// The words from the one of `offset` on, and where in it that is.
    fn words_from(&self, offset: usize) -> (&[AtomicU64], usize) {
        (self.inner.words.get(offset / WORD..).unwrap_or_default(), offset % WORD)
    }

    fn word(&self, during: &'static str, offset: usize) -> Result<&AtomicU64> {
        self.check(during, offset, WORD)?;
        if !offset.is_multiple_of(WORD) {
            return Err(Error::invalid(during, "the offset is no multiple of 8"));
        }
        self.inner.words.get(offset / WORD).ok_or_else(|| self.beyond(during, offset, WORD))
    }

    fn check(&self, during: &'static str, offset: usize, len: usize) -> Result<()> {
        let end = offset.checked_add(len);
        if end.is_some_and(|end| end <= self.len()) {
            return Ok(());
        }
        Err(self.beyond(during, offset, len))
    }

    fn beyond(&self, during: &'static str, offset: usize, len: usize) -> Error {
        let (offset, len, size) = (offset as u64, len as u64, self.len() as u64);
        Error::Range { during, offset, len, size }
    }
}

fn check_order<T: PartialOrd>(during: &'static str, range: &Range<T>) -> Result<()> {
    if range.start <= range.end {
        return Ok(());
    }
    Err(Error::invalid(during, "the range ends before it begins"))
}

/// Copies bytes of a word, from `start` on, to `out`.
fn get(word: &AtomicU64, start: usize, out: &mut [u8]) {
    let bytes = word.load(Ordering::Relaxed).to_ne_bytes();
    out.copy_from_slice(&bytes[start..start + out.len()]);
}

/// Sets bytes of a word, from `start` on, and leaves the others to whoever writes them meanwhile.
fn put(word: &AtomicU64, start: usize, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    let set = |old: u64| {
        let mut all = old.to_ne_bytes();
        all[start..start + bytes.len()].copy_from_slice(bytes);
        u64::from_ne_bytes(all)
    };
    let mut old = word.load(Ordering::Relaxed);
    while let Err(now) =
        word.compare_exchange_weak(old, set(old), Ordering::Relaxed, Ordering::Relaxed)
    {
        old = now;
    }
}

impl ProtectionDomain {
    /// Registers `len` bytes of new memory, all zero. Peers may do what `access` says; this side
    /// may always read and write it.
    ///
    /// # Errors
    /// [`Error::System`] if there is no such amount of memory, [`Error::Invalid`] for rights that
    /// regions of this API do not have.
    pub fn register(&self, len: usize, access: Access) -> Result<Region> {
        Region::new(self, len, access)
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Region").field("len", &self.inner.len).finish_non_exhaustive()
    }
}

/// A part of a region, as requests name it.
#[derive(Clone, Debug)]
pub struct RegionSlice {
    region: Region,
    offset: u64,
    len: u32,
}

impl RegionSlice {
    /// The region that it is a part of.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Its length in bytes.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn entry(&self) -> Sge {
        Sge { addr: self.offset, length: self.len, lkey: self.region.inner.key }
    }
}

/// Memory of a peer: an address, a length and the key for it. It is plain data that a peer sends,
/// by [`RemoteKey::to_bytes`] or in any other form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RemoteKey {
    /// The address of the first byte, as the peer's regions count: 0 for a region of this crate.
    pub addr: u64,
    /// Its length in bytes.
    pub len: u64,
    /// The key, `rkey` of verbs and STag of iWARP.
    pub rkey: u32,
}

impl RemoteKey {
    /// Bytes of its encoding.
    pub const LEN: usize = 20;

    /// A part of it.
    ///
    /// # Errors
    /// [`Error::Range`] beyond the end, or beyond 2^64 of a key that names such addresses;
    /// [`Error::Invalid`] for a range that ends before it begins.
    pub fn slice(self, range: Range<u64>) -> Result<Self> {
        let during = "slicing a remote key";
        check_order(during, &range)?;
        let (offset, len) = (range.start, range.end - range.start);
        let addr = self.addr.checked_add(offset).filter(|_| range.end <= self.len);
        let addr = addr.ok_or(Error::Range { during, offset, len, size: self.len })?;
        Ok(Self { addr, len, ..self })
    }

    /// Its encoding: address, length and key, big-endian.
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&self.addr.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.len.to_be_bytes());
        bytes[16..].copy_from_slice(&self.rkey.to_be_bytes());
        bytes
    }

    /// What a peer has encoded; `None` if there are fewer bytes than that takes, or they name
    /// addresses beyond 2^64. Bytes after it are left alone. Zeroes, with which `weft0` fills up
    /// private data, are a key of no bytes: look at its `len` too.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (addr, rest) = bytes.split_first_chunk()?;
        let (len, rest) = rest.split_first_chunk()?;
        let rkey = u32::from_be_bytes(*rest.first_chunk()?);
        let (addr, len) = (u64::from_be_bytes(*addr), u64::from_be_bytes(*len));
        addr.checked_add(len)?;
        Some(Self { addr, len, rkey })
    }
}
