//! Plans as text that reads as the same plan.

use std::fmt;

use weft_units::show_time_exactly;

use crate::{CorruptPlace, FaultDirection, FaultKind, FaultPlan, PlannedFault, Verb, When, word};

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
        if let FaultKind::Rnr(times) = self.kind {
            settings.push(times.to_string());
        }
        match self.when {
            When::After(0) | When::AtNs(0) if self.kind.begins_at_once() => {}
            When::After(0) | When::Chance(_) => {}
            When::After(count) => settings.push(format!("after={count}")),
            When::AtNs(ns) => settings.push(format!("at={}", show_time_exactly(ns))),
        }
        settings.extend(self.until_ns.map(|ns| format!("until={}", show_time_exactly(ns))));
        settings.extend(self.kind.settings());
        settings.extend(self.on.settings());
        let colon = if settings.is_empty() { "" } else { ":" };
        write!(f, "{}{colon}{}", self.head(), settings.join(","))
    }
}

impl PlannedFault {
    /// The name of the fault, and the value behind it.
    fn head(&self) -> String {
        let timed = |name: &str, ns| format!("{name}={}", show_time_exactly(ns));
        match (self.kind, self.when) {
            (FaultKind::QpError(_), When::Chance(share)) => format!("qp-error={share}"),
            (FaultKind::QpError(_), _) => "qp-error".to_owned(),
            (FaultKind::Rnr(_), _) => "rnr".to_owned(),
            (FaultKind::Hang, _) => "hang".to_owned(),
            (FaultKind::PortDown(ns), _) => timed("port-down", ns),
            (FaultKind::CqOverflow, _) => "cq-overflow".to_owned(),
            (FaultKind::CqOverrun, _) => "cq-overrun".to_owned(),
            (FaultKind::PeerGone, _) => "peer-gone".to_owned(),
            (FaultKind::Call(call), _) => format!("fail={}", call.verb.name()),
            (FaultKind::AllocFail { verb, .. }, _) => {
                format!("alloc-fail={}", verb.and_then(Verb::makes).unwrap_or(word::ANY))
            }
            (FaultKind::Drop(share, _), _) => format!("drop={share}"),
            (FaultKind::Corrupt(share, _), _) => format!("corrupt={share}"),
            (FaultKind::Delay { delay_ns, .. }, _) => timed("delay", delay_ns),
            (FaultKind::SlowAck { delay_ns, .. }, _) => timed("slow-ack", delay_ns),
            (FaultKind::GidChange, _) => "gid-change".to_owned(),
            (FaultKind::AddrGone(ns), _) => timed("addr-gone", ns),
            (FaultKind::PkeyChange(key), _) => format!("pkey-change={key:#06x}"),
            (FaultKind::LidChange(lid), _) => format!("lid-change={lid}"),
            (FaultKind::DeviceFatal(ns), _) => timed("device-fatal", ns),
            (FaultKind::MrInvalid, _) => "mr-invalid".to_owned(),
        }
    }
}

impl FaultKind {
    /// Whether a time of zero need not be said.
    fn begins_at_once(self) -> bool {
        self.is_of_device() || self.has_window()
    }

    fn settings(self) -> Vec<String> {
        let one = |text: String| vec![text];
        match self {
            Self::QpError(status) => one(format!("status={}", status.name)),
            Self::Call(call) => {
                let errno = format!("errno={}", word::show_errno(call.errno));
                vec![errno, format!("times={}", call.times)]
            }
            Self::AllocFail { times, .. } if times > 1 => one(format!("times={times}")),
            Self::Drop(_, FaultDirection::In) => one("way=in".to_owned()),
            Self::Drop(_, FaultDirection::Out) => one("way=out".to_owned()),
            Self::Corrupt(_, CorruptPlace::Payload) => one("crc=good".to_owned()),
            Self::Delay { jitter_ns, .. } | Self::SlowAck { jitter_ns, .. } if jitter_ns > 0 => {
                one(format!("jitter={}", show_time_exactly(jitter_ns)))
            }
            _ => Vec::new(),
        }
    }
}
