//! A filter and what comes after it: the next filter, a stream to it, or the end.
//!
//! Invariant: each link passes a query on before it works on it, so no filter gets a record of a
//! query that it has not heard of.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::failure::FilterFailure;
use crate::frame::{HEADER, records};
use crate::outlet::{Outlet, UnitBuffer};
use crate::report::{FilterTraffic, GroupReport, now};
use crate::{Filter, FilterProgram, GroupQuery};

/// What takes units of work. Calls come as the frames of a stream do.
pub(crate) trait UnitSink {
    /// A query begins.
    fn query(&mut self, query: &[u8]) -> Result<()>;
    /// A unit of work: a whole frame.
    fn unit(&mut self, unit: &[u8]) -> Result<()>;
    /// The query's work has ended; so much went over the streams until now.
    fn end(&mut self, flows: Vec<FilterTraffic>) -> Result<()>;
    /// There are no more queries. Returns when the whole rest of the chain has finished.
    fn done(&mut self) -> Result<GroupReport>;
    /// A filter before this link failed.
    fn fail(&mut self, why: &str);
}

/// A filter, and the link that it gives its units to.
pub(crate) struct FilterStage {
    name: &'static str,
    filter: Box<dyn Filter>,
    unit: UnitBuffer,
    next: Box<dyn UnitSink>,
}

impl FilterStage {
    /// The filter `name` before `next`.
    pub fn new(
        name: &'static str,
        filter: Box<dyn Filter>,
        asked: &GroupQuery,
        next: Box<dyn UnitSink>,
    ) -> Self {
        Self { name, filter, unit: UnitBuffer::new(name, asked.unit), next }
    }

    /// Has the filter do something; what fails then is its own failure, unless another's.
    fn work(
        &mut self,
        what: impl FnOnce(&mut dyn Filter, &mut Outlet<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut outlet = Outlet::new(&mut self.unit, self.next.as_mut());
        what(self.filter.as_mut(), &mut outlet).map_err(|error| FilterFailure::of(self.name, error))
    }
}

impl UnitSink for FilterStage {
    fn query(&mut self, query: &[u8]) -> Result<()> {
        self.next.query(query)?;
        self.work(|filter, out| filter.begin(query, out))
    }

    fn unit(&mut self, unit: &[u8]) -> Result<()> {
        self.work(|filter, out| {
            records(&unit[HEADER..]).try_for_each(|record| filter.take(record?, out))
        })
    }

    fn end(&mut self, mut flows: Vec<FilterTraffic>) -> Result<()> {
        self.work(|filter, out| {
            filter.end(out)?;
            out.send()
        })?;
        flows.push(self.unit.flow.clone());
        self.next.end(flows)
    }

    fn done(&mut self) -> Result<GroupReport> {
        self.work(|filter, _| filter.finish())?;
        self.next.done()
    }

    fn fail(&mut self, why: &str) {
        self.next.fail(why);
    }
}

/// The end of a chain: sees how much came, and how long the last filter takes to finish.
pub(crate) struct ChainMeter {
    program: &'static str,
    unit: usize,
    ended: Option<Instant>,
    queries: u64,
    flows: Vec<FilterTraffic>,
}

impl ChainMeter {
    /// A meter that has seen nothing yet.
    pub fn new(program: &'static str, asked: &GroupQuery) -> Self {
        let unit = asked.unit.bytes();
        Self { program, unit, ended: None, queries: 0, flows: Vec::new() }
    }
}

impl UnitSink for ChainMeter {
    fn query(&mut self, _query: &[u8]) -> Result<()> {
        Ok(())
    }

    fn unit(&mut self, _unit: &[u8]) -> Result<()> {
        bail!("the last filter gives records, and nobody takes them")
    }

    fn end(&mut self, mut flows: Vec<FilterTraffic>) -> Result<()> {
        // Nothing goes out of the last filter.
        flows.pop();
        self.flows = flows;
        self.ended = Some(now());
        self.queries += 1;
        Ok(())
    }

    fn done(&mut self) -> Result<GroupReport> {
        let flows = std::mem::take(&mut self.flows);
        let finishing = self.ended.map_or(Duration::ZERO, |ended| now() - ended);
        Ok(GroupReport::new(self.program, self.unit, self.queries, finishing, flows))
    }

    fn fail(&mut self, _why: &str) {}
}

/// Asks the chain that begins with `first`.
pub(crate) fn ask(first: &mut dyn UnitSink, asked: &GroupQuery) -> Result<GroupReport> {
    let began = now();
    for _ in 0..asked.times {
        first.query(&asked.query)?;
        first.end(Vec::new())?;
    }
    Ok(first.done()?.timed(now() - began))
}

/// Runs a whole chain in this process, without a socket: its answer is what every other way of
/// running it has to come to.
///
/// # Errors
/// A filter fails; the error begins with its name.
pub fn alone(
    program: &FilterProgram,
    filters: Vec<Box<dyn Filter>>,
    asked: &GroupQuery,
) -> Result<GroupReport> {
    let mut chain: Box<dyn UnitSink> = Box::new(ChainMeter::new(program.name, asked));
    for (filter, name) in filters.into_iter().zip(program.filters).rev() {
        chain = Box::new(FilterStage::new(name, filter, asked, chain));
    }
    ask(chain.as_mut(), asked)
}
