//! Access rights of memory regions.

bitflags::bitflags! {
    /// Access rights of a region; the values of `IBV_ACCESS_*`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Access: u32 {
        /// Local writes: received data and Read responses.
        const LOCAL_WRITE = 1;
        /// Remote Writes.
        const REMOTE_WRITE = 1 << 1;
        /// Remote Reads.
        const REMOTE_READ = 1 << 2;
        /// Remote Atomics.
        const REMOTE_ATOMIC = 1 << 3;
        /// Memory windows may be bound to it.
        const MW_BIND = 1 << 4;
        /// Addresses are offsets from the region's start.
        const ZERO_BASED = 1 << 5;
        /// On-demand paging: no page is checked at registration.
        const ON_DEMAND = 1 << 6;
        /// All rights of a peer.
        const REMOTE = Self::REMOTE_WRITE.bits()
            | Self::REMOTE_READ.bits()
            | Self::REMOTE_ATOMIC.bits();
    }
}

impl Access {
    /// Bits that a device may ignore (`IBV_ACCESS_OPTIONAL_RANGE`, bits 20 to 29).
    pub const OPTIONAL: u32 = 0x3ff0_0000;

    /// Parses the caller's flags; unknown bits outside the optional range make it `None`.
    pub fn from_user(bits: u32) -> Option<Self> {
        Self::from_bits(bits & !Self::OPTIONAL)
    }

    /// Whether the combination may be registered: a peer that may change memory needs a region
    /// that this side may change too.
    pub fn is_consistent(self) -> bool {
        !self.intersects(Self::REMOTE_WRITE | Self::REMOTE_ATOMIC)
            || self.contains(Self::LOCAL_WRITE)
    }

    /// Whether a peer has any right.
    pub fn is_remote(self) -> bool {
        self.intersects(Self::REMOTE)
    }

    /// Whether any of these rights lets memory change.
    pub fn changes_memory(self) -> bool {
        self.intersects(Self::LOCAL_WRITE | Self::REMOTE_WRITE | Self::REMOTE_ATOMIC)
    }
}
