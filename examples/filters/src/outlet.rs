//! Where a filter puts its records: they fill a unit, and full units go downstream.
//!
//! Invariant: a unit holds whole records, and is never longer than the size that was chosen.

use anyhow::{Result, ensure};

use crate::chain::Link;
use crate::frame::{HEADER, Kind, RECORD, seal};
use crate::report::Flow;
use crate::size::UnitSize;

/// The way out of a filter.
pub struct Outlet<'a> {
    unit: &'a mut Unit,
    next: &'a mut dyn Link,
}

/// The unit that is being filled, and what left before it.
pub(crate) struct Unit {
    frame: Vec<u8>,
    size: UnitSize,
    /// What went out.
    pub flow: Flow,
}

impl Unit {
    /// An empty unit of the stream that leaves `from`.
    pub fn new(from: &str, size: UnitSize) -> Self {
        let flow = Flow { from: from.into(), units: 0, octets: 0 };
        Self { frame: vec![0; HEADER], size, flow }
    }
}

impl<'a> Outlet<'a> {
    pub(crate) fn new(unit: &'a mut Unit, next: &'a mut dyn Link) -> Self {
        Self { unit, next }
    }

    /// Gives a record to the next filter.
    ///
    /// # Errors
    /// It does not fit into a unit, or the stream broke.
    pub fn put(&mut self, record: &[u8]) -> Result<()> {
        let size = self.unit.size.octets();
        let needed = RECORD + record.len();
        ensure!(HEADER + needed <= size, "a record of {} octets, units of {size}", record.len());
        if self.unit.frame.len() + needed > size {
            self.send()?;
        }
        self.unit.frame.extend_from_slice(&(record.len() as u16).to_be_bytes());
        self.unit.frame.extend_from_slice(record);
        Ok(())
    }

    /// Sends what there is, if there is anything.
    pub(crate) fn send(&mut self) -> Result<()> {
        let Unit { frame, flow, .. } = self.unit;
        if frame.len() == HEADER {
            return Ok(());
        }
        seal(frame, Kind::Unit)?;
        flow.units += 1;
        flow.octets += frame.len() as u64;
        self.next.unit(frame)?;
        frame.truncate(HEADER);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Report;

    /// Keeps the lengths of units.
    struct Lengths(Vec<usize>);

    impl Link for Lengths {
        fn query(&mut self, _query: &[u8]) -> Result<()> {
            Ok(())
        }
        fn unit(&mut self, unit: &[u8]) -> Result<()> {
            self.0.push(unit.len());
            Ok(())
        }
        fn end(&mut self, _flows: Vec<Flow>) -> Result<()> {
            Ok(())
        }
        fn done(&mut self) -> Result<Report> {
            anyhow::bail!("not asked")
        }
        fn fail(&mut self, _why: &str) {}
    }

    #[test]
    fn units_are_as_full_as_whole_records_make_them() {
        let mut unit = Unit::new("a", UnitSize::new(1024).unwrap());
        let mut lengths = Lengths(Vec::new());
        let mut outlet = Outlet::new(&mut unit, &mut lengths);
        for length in [508, 508, 1, 1018, 0] {
            outlet.put(&vec![0; length]).unwrap();
        }
        assert!(outlet.put(&[0; 1019]).is_err());
        outlet.send().unwrap();
        outlet.send().unwrap();
        assert_eq!(lengths.0, [1024, 7, 1024, 6]);
        assert_eq!((unit.flow.units, unit.flow.octets), (4, 2061));
    }
}
