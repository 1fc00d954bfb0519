//! Scatter/gather entries: pieces of local memory in work requests.

/// A scatter/gather entry, laid out as `ibv_sge`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Sge {
    /// First byte, an address of this process or an offset from the region's own start address.
    pub addr: u64,
    /// Length in bytes.
    pub length: u32,
    /// Local key of the region.
    pub lkey: u32,
}

/// A list of scatter/gather entries; short lists live in place.
#[derive(Clone, Debug, Default)]
pub struct SgeList {
    len: u8,
    short: [Sge; 4],
    long: Vec<Sge>,
}

impl SgeList {
    /// Replaces the content by `sges`, at most 255 of them.
    pub fn set(&mut self, sges: &[Sge]) {
        self.len = sges.len() as u8;
        if sges.len() <= self.short.len() {
            self.short[..sges.len()].copy_from_slice(sges);
        } else {
            self.long.clear();
            self.long.extend_from_slice(sges);
        }
    }

    /// The entries in order.
    pub fn as_slice(&self) -> &[Sge] {
        let len = usize::from(self.len);
        if len <= self.short.len() { &self.short[..len] } else { &self.long }
    }
}

/// The parts of `sges` that hold bytes `offset..offset + len` of the whole, in order.
pub fn parts(sges: &[Sge], offset: u64, len: u64) -> impl Iterator<Item = Sge> {
    let (mut next, end) = (0, offset.saturating_add(len));
    let within = sges.iter().map_while(move |sge| {
        let start = next;
        next += u64::from(sge.length);
        let (from, to) = (offset.max(start), end.min(next));
        let length = to.saturating_sub(from) as u32;
        let addr = sge.addr.wrapping_add(from - start);
        (start < end).then_some(Sge { addr, length, lkey: sge.lkey })
    });
    within.filter(|part| part.length > 0)
}

/// Total length of a list in bytes.
pub fn total_len(sges: &[Sge]) -> u64 {
    sges.iter().map(|s| u64::from(s.length)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_any_length_come_back() {
        let mut list = SgeList::default();
        for n in [0usize, 1, 4, 5, 32, 2] {
            let sges: Vec<Sge> =
                (0..n as u64).map(|i| Sge { addr: i, length: i as u32, lkey: 7 }).collect();
            list.set(&sges);
            assert_eq!(list.as_slice(), sges);
        }
    }
}
