//! Where a filter puts its records: they fill a unit, and full units go downstream.
//!
//! Invariant: a unit holds whole records, and is never longer than the size that was chosen.

use anyhow::{Result, ensure};

use crate::chain::UnitSink;
use crate::frame::{FrameKind, HEADER, RECORD, seal};
use crate::report::FilterTraffic;
use crate::size::UnitSize;

/// The way out of a filter.
pub struct Outlet<'a> {
    unit: &'a mut UnitBuffer,
    next: &'a mut dyn UnitSink,
}

/// The unit that is being filled, and what left before it.
pub(crate) struct UnitBuffer {
    frame: Vec<u8>,
    size: UnitSize,
    /// What went out.
    pub flow: FilterTraffic,
}

impl UnitBuffer {
    /// An empty unit of the stream that leaves `from`.
    pub fn new(from: &str, size: UnitSize) -> Self {
        let flow = FilterTraffic { from: from.into(), units: 0, bytes: 0 };
        Self { frame: vec![0; HEADER], size, flow }
    }
}

impl<'a> Outlet<'a> {
    pub(crate) fn new(unit: &'a mut UnitBuffer, next: &'a mut dyn UnitSink) -> Self {
        Self { unit, next }
    }

    /// Gives a record to the next filter.
    ///
    /// # Errors
    /// It does not fit into a unit, or the stream broke.
    pub fn put(&mut self, record: &[u8]) -> Result<()> {
        let size = self.unit.size.bytes();
        let needed = RECORD + record.len();
        ensure!(HEADER + needed <= size, "a record of {} bytes, units of {size}", record.len());
        if self.unit.frame.len() + needed > size {
            self.send()?;
        }
        self.unit.frame.extend_from_slice(&(record.len() as u16).to_be_bytes());
        self.unit.frame.extend_from_slice(record);
        Ok(())
    }

    /// Sends what there is, if there is anything.
    pub(crate) fn send(&mut self) -> Result<()> {
        let UnitBuffer { frame, flow, .. } = self.unit;
        if frame.len() == HEADER {
            return Ok(());
        }
        seal(frame, FrameKind::Unit)?;
        flow.units += 1;
        flow.bytes += frame.len() as u64;
        self.next.unit(frame)?;
        frame.truncate(HEADER);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::GroupReport;

    /// Keeps the lengths of units.
    struct Lengths(Vec<usize>);

    impl UnitSink for Lengths {
        fn query(&mut self, _query: &[u8]) -> Result<()> {
            Ok(())
        }
        fn unit(&mut self, unit: &[u8]) -> Result<()> {
            self.0.push(unit.len());
            Ok(())
        }
        fn end(&mut self, _flows: Vec<FilterTraffic>) -> Result<()> {
            Ok(())
        }
        fn done(&mut self) -> Result<GroupReport> {
            anyhow::bail!("not asked")
        }
        fn fail(&mut self, _why: &str) {}
    }

    #[test]
    fn units_are_as_full_as_whole_records_make_them() {
        let mut unit = UnitBuffer::new("a", UnitSize::new(1024).unwrap());
        let mut lengths = Lengths(Vec::new());
        let mut outlet = Outlet::new(&mut unit, &mut lengths);
        for length in [508, 508, 1, 1018, 0] {
            outlet.put(&vec![0; length]).unwrap();
        }
        assert!(outlet.put(&[0; 1019]).is_err());
        outlet.send().unwrap();
        outlet.send().unwrap();
        assert_eq!(lengths.0, [1024, 7, 1024, 6]);
        assert_eq!((unit.flow.units, unit.flow.bytes), (4, 2061));
    }
}
