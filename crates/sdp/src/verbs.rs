//! Interface to the layer below: a queue pair, and private memory registered for it.

use weft_verbs::{Misuse, Wc};
use weft_wire::sdp::Advert;

/// Work request of SDP, identified in its completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SdpWork {
    /// A receive into this slot.
    Recv(u16),
    /// A Send from this slot.
    Send(u16),
    /// An RDMA Read of what the peer advertises.
    Read,
    /// An RDMA Write to where the peer invites it.
    Write,
}

/// Memory of the application, registered under `key`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppMemory {
    /// First byte.
    pub addr: u64,
    /// Length in bytes.
    pub len: u32,
    /// Its key, local and remote.
    pub key: u32,
}

impl SdpWork {
    /// Work request id.
    pub fn to_id(self) -> u64 {
        match self {
            Self::Recv(slot) => u64::from(slot),
            Self::Send(slot) => 1 << 16 | u64::from(slot),
            Self::Read => 2 << 16,
            Self::Write => 3 << 16,
        }
    }

    /// The work request with this id.
    pub fn from_id(id: u64) -> Option<Self> {
        let slot = id as u16;
        match id >> 16 {
            0 => Some(Self::Recv(slot)),
            1 => Some(Self::Send(slot)),
            2 if slot == 0 => Some(Self::Read),
            3 if slot == 0 => Some(Self::Write),
            _ => None,
        }
    }
}

/// Completion of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SdpCompletion {
    /// The work request.
    pub work: SdpWork,
    /// Whether it succeeded.
    pub ok: bool,
    /// Bytes received.
    pub octets: u32,
}

impl SdpCompletion {
    /// The completion in `wc`, if it is of SDP.
    pub fn of(wc: &Wc) -> Option<Self> {
        let work = SdpWork::from_id(wc.wr_id)?;
        Some(Self { work, ok: wc.is_success(), octets: wc.byte_len })
    }
}

/// A queue pair, and private memory that is registered for it. Offsets are from the first byte of
/// that memory, of which there are [`SdpConfig::private_octets`](crate::SdpConfig::private_octets).
pub trait Verbs {
    /// Copies `octets` to private memory at `at`.
    ///
    /// # Errors
    /// The range is not within the private memory.
    fn fill(&mut self, at: u64, octets: &[u8]) -> Result<(), Misuse>;

    /// Copies private memory from `at` on into `into`.
    ///
    /// # Errors
    /// The range is not within the private memory.
    fn fetch(&self, at: u64, into: &mut [u8]) -> Result<(), Misuse>;

    /// Posts a receive of at most `len` bytes of private memory from `at` on.
    ///
    /// # Errors
    /// The queue pair does not take it.
    fn post_recv(&mut self, work: SdpWork, at: u64, len: u32) -> Result<(), Misuse>;

    /// Posts a Send of `len` bytes of private memory from `at` on and then `tail`, signaled;
    /// `solicited` if the peer is to be woken for it first of all.
    ///
    /// # Errors
    /// The queue pair does not take it.
    fn post_send(
        &mut self,
        work: SdpWork,
        at: u64,
        len: u32,
        tail: Option<AppMemory>,
        solicited: bool,
    ) -> Result<(), Misuse>;

    /// Posts an RDMA Read of `from`, all of it, into `into`, signaled.
    ///
    /// # Errors
    /// The queue pair does not take it.
    fn post_read(&mut self, work: SdpWork, into: AppMemory, from: Advert) -> Result<(), Misuse>;

    /// Posts an RDMA Write of `from`, all of it, to `to`, signaled.
    ///
    /// # Errors
    /// The queue pair does not take it.
    fn post_write(&mut self, work: SdpWork, from: AppMemory, to: Advert) -> Result<(), Misuse>;

    /// Registers `len` bytes of this process from `addr` on, for the peer to read, or, if they are
    /// to be `written`, for what is read from it or what it writes; gives the key. The owner
    /// vouches for the memory until it is deregistered.
    ///
    /// # Errors
    /// It cannot be registered.
    fn register(&mut self, addr: u64, len: u32, written: bool) -> Result<u32, Misuse>;

    /// Ends a registration: from now on nothing reads or writes the memory.
    fn deregister(&mut self, key: u32);
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Takes receives, which it counts, and nothing else. The bytes of its memory are their own
    /// offsets.
    #[derive(Default)]
    pub struct Receives(pub u16);

    impl Verbs for Receives {
        fn fill(&mut self, _: u64, _: &[u8]) -> Result<(), Misuse> {
            Err(Misuse::Fault)
        }
        fn fetch(&self, at: u64, into: &mut [u8]) -> Result<(), Misuse> {
            into.iter_mut().enumerate().for_each(|(i, octet)| *octet = at as u8 + i as u8);
            Ok(())
        }
        fn post_recv(&mut self, _: SdpWork, _: u64, _: u32) -> Result<(), Misuse> {
            self.0 += 1;
            Ok(())
        }
        fn post_send(
            &mut self,
            _: SdpWork,
            _: u64,
            _: u32,
            _: Option<AppMemory>,
            _: bool,
        ) -> Result<(), Misuse> {
            Err(Misuse::Fault)
        }
        fn post_read(&mut self, _: SdpWork, _: AppMemory, _: Advert) -> Result<(), Misuse> {
            Err(Misuse::Fault)
        }
        fn post_write(&mut self, _: SdpWork, _: AppMemory, _: Advert) -> Result<(), Misuse> {
            Err(Misuse::Fault)
        }
        fn register(&mut self, _: u64, _: u32, _: bool) -> Result<u32, Misuse> {
            Err(Misuse::Fault)
        }
        fn deregister(&mut self, _: u32) {}
    }

    #[test]
    fn work_is_known_by_its_name() {
        for work in [
            SdpWork::Recv(0),
            SdpWork::Recv(u16::MAX),
            SdpWork::Send(0),
            SdpWork::Send(7),
            SdpWork::Read,
            SdpWork::Write,
        ] {
            assert_eq!(SdpWork::from_id(work.to_id()), Some(work));
        }
        assert_eq!(SdpWork::from_id(2 << 16 | 1), None);
        assert_eq!(SdpWork::from_id(u64::MAX), None);
    }
}
