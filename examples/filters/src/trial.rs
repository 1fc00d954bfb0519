//! A filter by itself, for tests of what it makes of its records.

use anyhow::Result;

use crate::chain::UnitSink;
use crate::frame::{HEADER, records};
use crate::outlet::{Outlet, UnitBuffer};
use crate::report::{FilterTraffic, GroupReport};
use crate::{Filter, UnitSize};

/// What `filter` gives for a query and these records.
///
/// # Errors
/// The filter fails.
pub fn through(filter: &mut dyn Filter, query: &[u8], taken: &[Vec<u8>]) -> Result<Vec<Vec<u8>>> {
    let (mut unit, mut given) = (UnitBuffer::new("trial", UnitSize::new(1024)?), Given(Vec::new()));
    let mut out = Outlet::new(&mut unit, &mut given);
    filter.begin(query, &mut out)?;
    taken.iter().try_for_each(|record| filter.take(record, &mut out))?;
    filter.end(&mut out)?;
    out.send()?;
    Ok(given.0)
}

/// The records that came out.
struct Given(Vec<Vec<u8>>);

impl UnitSink for Given {
    fn query(&mut self, _query: &[u8]) -> Result<()> {
        Ok(())
    }

    fn unit(&mut self, unit: &[u8]) -> Result<()> {
        for record in records(&unit[HEADER..]) {
            self.0.push(record?.to_vec());
        }
        Ok(())
    }

    fn end(&mut self, _flows: Vec<FilterTraffic>) -> Result<()> {
        Ok(())
    }

    fn done(&mut self) -> Result<GroupReport> {
        anyhow::bail!("a trial has no end")
    }

    fn fail(&mut self, _why: &str) {}
}
