//! Filters joined by streams, as in DataCutter (Beynon et al., Parallel Computing 27, 2001): a
//! program that works on much data is a chain of filters, each a process of its own wherever one
//! likes, and each stream between two of them is a TCP connection. Nothing here knows of Weft: the
//! sockets are plain ones, so that programs run unchanged over TCP and, by `weft run --sockets`,
//! over SDP.
//!
//! The first filter is asked a *query*, which is told to all. What filters give each other are
//! *records*. A stream carries them in *units of work*: as many records as fit into the size that
//! was chosen, in one write, and never more; so that size is the grain in which data moves and in
//! which filters work beside each other. A query ends on each stream with the end of work.
//!
//! Invariant: nobody succeeds alone. A filter's process ends well only if all filters of the group
//! have; if one fails, all the others fail and say which it was, and why.
//!
//! Order: for each query, [`Filter::begin`], [`Filter::take`] for each record, [`Filter::end`];
//! after the last query [`Filter::finish`]. A chain runs in one process by [`alone`], or each of
//! its filters in a process of its own: [`command`] gives programs both, and starts the processes.
#![forbid(unsafe_code)]

mod chain;
pub mod command;
mod failure;
mod frame;
mod group;
mod member;
pub mod noise;
mod outlet;
mod picture;
mod progress;
mod report;
mod size;
mod stream;
mod trial;

use anyhow::Result;

pub use chain::alone;
pub use outlet::Outlet;
pub use picture::Picture;
pub use progress::ProgressLine;
pub use report::{FilterTraffic, GroupReport};
pub use size::{Extent, UnitSize};
pub use trial::through;

/// A program: its name, and the names of its filters from the first to the last.
#[derive(Clone, Copy, Debug)]
pub struct FilterProgram {
    /// As its command is called.
    pub name: &'static str,
    /// At least two.
    pub filters: &'static [&'static str],
}

/// What a group is asked.
#[derive(Clone, Debug)]
pub struct GroupQuery {
    /// The query, as the program's filters read it.
    pub query: Vec<u8>,
    /// How often.
    pub times: u64,
    /// The size of units of work.
    pub unit: UnitSize,
}

/// A part of a program: takes records and gives others.
///
/// What it gives may depend on nothing but the query and the records, in their order; so a query
/// has one answer, however its units travel.
pub trait Filter {
    /// A query begins. The first filter, which gets no records, does all its work here.
    ///
    /// # Errors
    /// The query makes no sense, or cannot be answered.
    fn begin(&mut self, query: &[u8], out: &mut Outlet<'_>) -> Result<()>;

    /// The next record.
    ///
    /// # Errors
    /// The record makes no sense.
    fn take(&mut self, record: &[u8], out: &mut Outlet<'_>) -> Result<()>;

    /// There are no more records of this query.
    ///
    /// # Errors
    /// Something is missing.
    fn end(&mut self, _out: &mut Outlet<'_>) -> Result<()> {
        Ok(())
    }

    /// There are no more queries. The last filter writes its result here.
    ///
    /// # Errors
    /// The result cannot be kept.
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}
