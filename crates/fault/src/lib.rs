//! Faults on purpose: what is to go wrong, in words, and when it does.
//!
//! A [`FaultPlan`] is read from a text such as `drop=1%; qp-error:after=1000; seed=7`; the library
//! that the faults happen in asks it for the faults of one kind, and a [`Dice`] for what is left to
//! chance.
//!
//! Invariant: what a dice says follows from the seed, the kind of the fault, the number of the
//! object and how often it was asked, and from nothing else; so the same seed repeats a run as far
//! as the program repeats itself.
//!
//! Order: [`FaultPlan::parse`]; [`FaultPlan::seeded`] if the text names no seed; then the faults,
//! and [`Dice::new`] for each object.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used)
)]

mod dice;
mod forms;
mod fuzz;
mod parse;
mod passthrough;
mod selector;
mod show;
mod word;

pub use dice::Dice;
pub use forms::forms;
pub use parse::FaultPlanError;
pub use passthrough::BeyondPassthrough;
pub use selector::{FaultSelector, FaultSubject, matches_glob};
pub use weft_units::Share;

/// What is to go wrong.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FaultPlan {
    /// The faults, in the order of the text.
    pub faults: Vec<PlannedFault>,
    /// What chance follows from, if the text says so.
    pub seed: Option<u64>,
}

/// One thing that is to go wrong.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedFault {
    /// What.
    pub kind: FaultKind,
    /// When.
    pub when: When,
    /// When it ends, in nanoseconds on the clock of `when`; never if nothing is said.
    pub until_ns: Option<u64>,
    /// To which objects, devices and processes; to each if nothing is said.
    pub on: FaultSelector,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FaultKind {
    /// A request of a queue pair ends with this `ibv_wc_status`, and the queue pair fails.
    QpError(Status),
    /// A message finds no receive posted, this often in a row.
    Rnr(u32),
    /// A request never completes, and none behind it.
    Hang,
    /// The port is down for so long, in nanoseconds, from the time given: counted from when the
    /// device is opened.
    PortDown(u64),
    /// A completion queue loses all that it holds, and polling it fails.
    CqOverflow,
    /// The same as an adapter does it: polling the queue finds nothing more, and does not fail.
    CqOverrun,
    /// The peer is not heard of again.
    PeerGone,
    /// A call of the verbs fails.
    Call(CallFault),
    /// An object of this kind, or of any, cannot be made for want of memory.
    AllocFail {
        /// Which verb makes it; each of them if nothing is said.
        verb: Option<Verb>,
        /// How often it fails before it works again.
        times: u64,
    },
    /// Completions of send requests are late, as with acknowledgements that are.
    SlowAck {
        /// By so much at least, in nanoseconds.
        delay_ns: u64,
        /// And by up to so much more.
        jitter_ns: u64,
    },
    /// The rows of the GID table move.
    GidChange,
    /// The addresses of the port are gone for so long, in nanoseconds.
    AddrGone(u64),
    /// The first partition key of the port becomes this one.
    PkeyChange(u16),
    /// The local identifier of the port becomes this one.
    LidChange(u16),
    /// The device is reset, and is back after so long, in nanoseconds.
    DeviceFatal(u64),
    /// A memory region becomes invalid.
    MrInvalid,
    /// A datagram is lost.
    Drop(Share, FaultDirection),
    /// A bit of what arrives is changed.
    Corrupt(Share, CorruptPlace),
    /// What arrives is later than it was.
    Delay {
        /// By so much at least, in nanoseconds.
        delay_ns: u64,
        /// And by up to so much more.
        jitter_ns: u64,
    },
}

/// When it goes wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum When {
    /// After so many of what the fault counts went well.
    After(u64),
    /// So many nanoseconds after the first connection of the process.
    AtNs(u64),
    /// Each time with this probability.
    Chance(Share),
}

/// Which datagrams a fault is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultDirection {
    /// Those that arrive.
    In,
    /// Those that leave.
    Out,
    /// All.
    Both,
}

/// Where a bit is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CorruptPlace {
    /// Below the check of the transport, which finds it.
    Wire,
    /// Above it, in payload that was found to be right: the application alone can find it.
    Payload,
}

/// The status of a failed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// The value of `enum ibv_wc_status`.
    pub code: u32,
    /// Its name in the text of a plan.
    pub name: &'static str,
}

/// A call of the verbs that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallFault {
    /// Which.
    pub verb: Verb,
    /// The error, as errno.h numbers it.
    pub errno: i32,
    /// How often it fails before it works again.
    pub times: u64,
}

/// The calls that can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// `ibv_open_device`.
    OpenDevice,
    /// `ibv_alloc_pd`.
    AllocPd,
    /// `ibv_alloc_mw`.
    AllocMw,
    /// `ibv_alloc_dm`.
    AllocDm,
    /// `ibv_create_ah` and its kin.
    CreateAh,
    /// `ibv_create_comp_channel`.
    CreateCompChannel,
    /// `ibv_reg_mr` and its kin.
    RegMr,
    /// `ibv_create_cq` and its kin.
    CreateCq,
    /// `ibv_create_qp` and its kin, also by rdma-cm.
    CreateQp,
    /// `ibv_create_srq` and its kin.
    CreateSrq,
    /// `ibv_modify_qp`.
    ModifyQp,
    /// `ibv_post_send` and its kin.
    PostSend,
    /// `ibv_post_recv`.
    PostRecv,
}

impl Verb {
    /// All of them, with their names in the text of a plan.
    pub const ALL: [(&'static str, Self); 13] = [
        ("open_device", Self::OpenDevice),
        ("alloc_pd", Self::AllocPd),
        ("alloc_mw", Self::AllocMw),
        ("alloc_dm", Self::AllocDm),
        ("create_ah", Self::CreateAh),
        ("create_comp_channel", Self::CreateCompChannel),
        ("reg_mr", Self::RegMr),
        ("create_cq", Self::CreateCq),
        ("create_qp", Self::CreateQp),
        ("create_srq", Self::CreateSrq),
        ("modify_qp", Self::ModifyQp),
        ("post_send", Self::PostSend),
        ("post_recv", Self::PostRecv),
    ];

    /// Those that make an object, with the name of what they make in the text of a plan.
    pub const MAKERS: [(&'static str, Self); 10] = [
        ("context", Self::OpenDevice),
        ("pd", Self::AllocPd),
        ("mw", Self::AllocMw),
        ("dm", Self::AllocDm),
        ("ah", Self::CreateAh),
        ("channel", Self::CreateCompChannel),
        ("mr", Self::RegMr),
        ("cq", Self::CreateCq),
        ("qp", Self::CreateQp),
        ("srq", Self::CreateSrq),
    ];

    /// What it makes, if it makes something.
    pub fn makes(self) -> Option<&'static str> {
        Self::MAKERS.iter().find(|(_, verb)| *verb == self).map(|(name, _)| *name)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        let named = Self::ALL.iter().find(|(_, verb)| *verb == self);
        named.map_or("", |(name, _)| name)
    }
}

impl FaultPlan {
    /// Reads a plan; docs/faults.md has the grammar.
    ///
    /// # Errors
    /// With what is wrong, where, and what could stand there.
    pub fn parse(text: &str) -> Result<Self, FaultPlanError> {
        parse::plan(text)
    }

    /// The same plan with a seed: its own, or else `seed`.
    pub fn seeded(mut self, seed: u64) -> Self {
        self.seed.get_or_insert(seed);
        self
    }

    /// Adds what another one says, whose seed wins.
    pub fn add(&mut self, other: Self) {
        self.faults.extend(other.faults);
        self.seed = other.seed.or(self.seed);
    }
}

impl FaultKind {
    /// Whether it is a change of a device and its port, at a time.
    pub fn is_of_device(self) -> bool {
        matches!(
            self,
            Self::PortDown(_)
                | Self::GidChange
                | Self::AddrGone(_)
                | Self::PkeyChange(_)
                | Self::LidChange(_)
                | Self::DeviceFatal(_)
        )
    }

    /// Whether it goes on from one time to another.
    pub fn has_window(self) -> bool {
        matches!(
            self,
            Self::Drop(..) | Self::Corrupt(..) | Self::Delay { .. } | Self::SlowAck { .. }
        )
    }
}
