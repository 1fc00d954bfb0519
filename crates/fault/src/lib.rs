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
mod parse;
mod word;

pub use dice::Dice;
pub use parse::{FaultPlanError, forms};
pub use weft_units::Share;

use std::fmt;

use weft_units::show_time_exactly;

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
    /// To which object of its kind, counted from 1 within a process; to each if nothing is said.
    pub only: Option<u32>,
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
    /// A completion queue loses a completion, and fails.
    CqOverflow,
    /// The peer is not heard of again.
    PeerGone,
    /// A call of the verbs fails.
    Call(CallFault),
    /// A datagram is lost.
    Drop(Share, FaultDirection),
    /// A byte of what arrives is changed.
    Corrupt(Share),
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
    pub const ALL: [(&'static str, Self); 7] = [
        ("reg_mr", Self::RegMr),
        ("create_cq", Self::CreateCq),
        ("create_qp", Self::CreateQp),
        ("create_srq", Self::CreateSrq),
        ("modify_qp", Self::ModifyQp),
        ("post_send", Self::PostSend),
        ("post_recv", Self::PostRecv),
    ];

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

impl PlannedFault {
    /// Whether it is for the object `number`.
    pub fn is_for(&self, number: u32) -> bool {
        self.only.is_none_or(|only| only == number)
    }
}

/// A text that reads as the same plan.
impl fmt::Display for FaultPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seed = self.seed.map(|seed| format!("seed={seed}"));
        let items: Vec<String> =
            self.faults.iter().map(PlannedFault::to_string).chain(seed).collect();
        f.write_str(&items.join("; "))
    }
}

impl fmt::Display for PlannedFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut settings = Vec::new();
        let head = match (self.kind, self.when) {
            (FaultKind::QpError(_), When::Chance(share)) => format!("qp-error={share}"),
            (FaultKind::QpError(_), _) => "qp-error".to_owned(),
            (FaultKind::Rnr(times), _) => {
                settings.push(times.to_string());
                "rnr".to_owned()
            }
            (FaultKind::Hang, _) => "hang".to_owned(),
            (FaultKind::PortDown(ns), _) => format!("port-down={}", show_time_exactly(ns)),
            (FaultKind::CqOverflow, _) => "cq-overflow".to_owned(),
            (FaultKind::PeerGone, _) => "peer-gone".to_owned(),
            (FaultKind::Call(call), _) => format!("fail={}", call.verb.name()),
            (FaultKind::Drop(share, _), _) => format!("drop={share}"),
            (FaultKind::Corrupt(share), _) => format!("corrupt={share}"),
            (FaultKind::Delay { delay_ns, .. }, _) => {
                format!("delay={}", show_time_exactly(delay_ns))
            }
        };
        match self.when {
            When::After(0) | When::Chance(_) => {}
            When::After(count) => settings.push(format!("after={count}")),
            When::AtNs(ns) => settings.push(format!("at={}", show_time_exactly(ns))),
        }
        match self.kind {
            FaultKind::QpError(status) => settings.push(format!("status={}", status.name)),
            FaultKind::Call(call) => {
                settings.push(format!("errno={}", word::show_errno(call.errno)));
                settings.push(format!("times={}", call.times));
            }
            FaultKind::Drop(_, FaultDirection::In) => settings.push("way=in".to_owned()),
            FaultKind::Drop(_, FaultDirection::Out) => settings.push("way=out".to_owned()),
            FaultKind::Delay { jitter_ns, .. } if jitter_ns > 0 => {
                settings.push(format!("jitter={}", show_time_exactly(jitter_ns)));
            }
            _ => {}
        }
        settings.extend(self.only.map(|only| format!("only={only}")));
        let colon = if settings.is_empty() { "" } else { ":" };
        write!(f, "{head}{colon}{}", settings.join(","))
    }
}
