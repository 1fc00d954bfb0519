//! The page of counters of one direction of a lane.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use weft_rnic::NotReady;
use weft_rnic::wire::ids::Msn;

use super::loan::LoanLine;
use super::memory::Mapping;
use super::ring::FlowCounters;

/// What the reader of a direction is woken for.
pub mod sleeps {
    /// Nothing: it is awake.
    pub const NOT: u32 = 0;
    /// What is written in this direction.
    pub const FOR_SEGMENTS: u32 = 1;
    /// That, and that some of its own segments in the other direction were taken.
    pub const FOR_ALL: u32 = 2;
}

/// What a side sleeps for.
#[repr(C)]
pub struct SleepWords {
    /// One of [`mod@sleeps`].
    pub what: AtomicU32,
    /// With [`sleeps::FOR_ALL`]: counts of segments taken of the two flows, modulo 2^32. It is
    /// woken when one of them is reached.
    pub acks: [AtomicU32; 2],
}

impl SleepWords {
    /// Whether it sleeps for a count of segments that `taken` has reached.
    pub fn awaits(&self, taken: [u32; 2]) -> bool {
        let acks = self.acks.each_ref().map(|acks| acks.load(Ordering::Relaxed));
        self.what.load(Ordering::Acquire) == sleeps::FOR_ALL && has_reached(taken, acks)
    }
}

/// Whether one of two counts modulo 2^32 is no less than what is awaited of it.
pub fn has_reached(counts: [u32; 2], awaited: [u32; 2]) -> bool {
    counts.iter().zip(awaited).any(|(count, awaited)| count.wrapping_sub(awaited) as i32 >= 0)
}

/// A value with a cache line of its own.
#[repr(C, align(64))]
pub struct Line<T>(pub T);

/// The page of a direction. All zero is a direction in which nothing was written.
#[repr(C)]
pub struct DirectionPage {
    /// The rings.
    pub flows: [FlowCounters; 2],
    /// What the reader of this direction sleeps for.
    pub reader_sleeps: Line<SleepWords>,
    /// Nothing follows.
    pub finished: Line<AtomicU32>,
    /// What the reader says of a message that waits for a receive; see [`pack`].
    pub not_ready: Line<AtomicU64>,
    /// The writer's memory that the reader may read.
    pub loan: LoanLine,
    /// 1 while the reader reads there; see [`super::loan`].
    pub reads: Line<AtomicU32>,
}

/// Whether there is a message that waits.
const WAITS: u64 = 1 << 63;
/// What the writer puts in its place to take that message back, and what follows it, for good: who
/// finds this does not place it.
pub const WITHDRAWN: u64 = 1 << 62;

/// What waits for a receive, as a word; 0 if nothing does.
pub fn pack(not_ready: Option<NotReady>) -> u64 {
    not_ready.map_or(0, |NotReady { credit, wait_us }| {
        WAITS | u64::from(wait_us & 0x3fff_ffff) << 32 | u64::from(credit.0)
    })
}

/// The reverse of [`pack`].
pub fn unpack(word: u64) -> Option<NotReady> {
    let wait_us = (word >> 32) as u32 & 0x3fff_ffff;
    (word & WAITS != 0).then_some(NotReady { credit: Msn(word as u32), wait_us })
}

/// The page of a direction.
pub fn of(mapping: &Mapping, direction: usize) -> &DirectionPage {
    // SAFETY: mapped as long as the mapping lives, aligned to a page, and of atomics and
    // cells only.
    unsafe { &*mapping.page(direction).cast() }
}
