//! The text of a plan.
//!
//! `plan = item *( ";" item )`, `item = name [ "=" value ] [ ":" setting *( "," setting ) ]`,
//! `setting = key "=" value | number`. Every name, what it takes and what it counts is in
//! [`crate::forms()`]; what a name does not take is an error.

use thiserror::Error;

use crate::forms::{FORMS, FaultForm, names};
use crate::word::{self, RETRY_EXC};
use crate::{
    CallFault, CorruptPlace, FaultDirection, FaultKind, FaultPlan, FaultSelector, PlannedFault,
    Share, Status, Verb, When,
};

/// A text that is no plan.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FaultPlanError {
    /// Nothing is said, or nothing between two semicolons.
    #[error("a fault is missing; there are {names}", names = names())]
    Empty,
    /// There is no such fault.
    #[error("`{0}` is no fault; there are {names}", names = names())]
    Name(String),
    /// Something of a fault is wrong.
    #[error("`{item}`: {what}; it is written {form}")]
    Item {
        /// The fault.
        item: String,
        /// What is wrong.
        what: String,
        /// How such a fault is written.
        form: &'static str,
    },
    /// There are more faults than anybody wants.
    #[error("more than {FAULTS_MAX} faults")]
    Many,
}

/// The setting that a number alone is the value of.
const UNNAMED: &str = "times";
/// What stands where there must be a time.
const TIME: &str = "a time such as 5ms, at most an hour";
/// What stands where there must be a number of 16 bits.
const SHORT: &str = "a number of 16 bits, decimal or with 0x";
const FAULTS_MAX: usize = 256;
const TIMES_MAX: u64 = 1 << 20;

/// Reads a plan.
pub fn plan(text: &str) -> Result<FaultPlan, FaultPlanError> {
    let mut plan = FaultPlan::default();
    // A semicolon at the end is no gap.
    let text = text.trim().strip_suffix(';').unwrap_or(text);
    for item in text.split(';') {
        let item = FaultWords::read(item.trim())?;
        if item.name == "seed" {
            let seed = item.value.and_then(|value| value.parse().ok());
            plan.seed = Some(seed.ok_or_else(|| item.error("the seed is a number"))?);
        } else {
            plan.faults.push(item.fault()?);
        }
        if plan.faults.len() > FAULTS_MAX {
            return Err(FaultPlanError::Many);
        }
    }
    Ok(plan)
}

/// A fault, cut into words.
struct FaultWords<'a> {
    text: &'a str,
    known: &'static FaultForm,
    name: &'static str,
    value: Option<&'a str>,
    settings: Vec<(&'static str, &'a str)>,
}

impl<'a> FaultWords<'a> {
    fn read(text: &'a str) -> Result<Self, FaultPlanError> {
        if text.is_empty() {
            return Err(FaultPlanError::Empty);
        }
        let (head, rest) = text.split_once(':').map_or((text, None), |(h, r)| (h, Some(r)));
        let (name, value) = head.split_once('=').map_or((head, None), |(n, v)| (n, Some(v.trim())));
        let name = name.trim();
        let Some(known) = FORMS.iter().find(|known| known.name == name) else {
            return Err(FaultPlanError::Name(name.to_owned()));
        };
        let mut item = Self { text, known, name: known.name, value, settings: Vec::new() };
        for setting in rest.into_iter().flat_map(|rest| rest.split(',')) {
            let (key, value) = setting.split_once('=').unwrap_or((UNNAMED, setting));
            let mut keys = known.settings.iter().chain(known.on.keys());
            let Some(key) = keys.find(|known| **known == key.trim()) else {
                return Err(item.error(&format!("`{}` is not a setting of it", setting.trim())));
            };
            if item.get(key).is_some() {
                return Err(item.error(&format!("`{key}` is said twice")));
            }
            item.settings.push((key, value.trim()));
        }
        Ok(item)
    }

    fn error(&self, what: &str) -> FaultPlanError {
        let (item, what) = (self.text.to_owned(), what.to_owned());
        FaultPlanError::Item { item, what, form: self.known.form }
    }

    fn get(&self, key: &str) -> Option<&'a str> {
        self.settings.iter().find(|(known, _)| *known == key).map(|(_, value)| *value)
    }

    /// The value of a setting as `read` understands it, which takes `wanted`.
    fn read_setting<T>(
        &self,
        key: &str,
        wanted: &str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, FaultPlanError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let result = read(value).map(Some);
        result.ok_or_else(|| self.error(&format!("`{key}` is {wanted}, and not `{value}`")))
    }

    /// The value after the name, which must be `wanted`.
    fn read_value<T>(
        &self,
        wanted: &str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Result<T, FaultPlanError> {
        let read = self.value.and_then(read);
        read.ok_or_else(|| self.error(&format!("behind `{}=` there must be {wanted}", self.name)))
    }

    fn fault(&self) -> Result<PlannedFault, FaultPlanError> {
        let (kind, when) = (self.kind()?, self.when()?);
        let until_ns = self.read_setting("until", TIME, word::time_ns)?;
        if let (When::AtNs(at), Some(until)) = (when, until_ns)
            && until <= at
        {
            return Err(self.error("`until` is not later than `at`"));
        }
        Ok(PlannedFault { kind, when, until_ns, on: self.selector()? })
    }

    fn selector(&self) -> Result<FaultSelector, FaultPlanError> {
        let place = |text: &str| text.parse::<u32>().ok().filter(|number| *number > 0);
        let rank = |text: &str| text.parse::<u32>().ok();
        let number = "a number of 24 bits, decimal or with 0x";
        Ok(FaultSelector {
            only: self.read_setting("only", "a number from 1", place)?,
            qpn: self.read_setting("qpn", number, word::qpn)?,
            device: self.read_setting("dev", "the name of a device", word::name)?,
            process: self.read_setting("process", "the name of a program", word::name)?,
            rank: self.read_setting("rank", "a number from 0", rank)?,
        })
    }

    fn kind(&self) -> Result<FaultKind, FaultPlanError> {
        if self.value.is_some() && !self.known.takes_value {
            return Err(self.error("there is nothing to set by `=`"));
        }
        Ok(match self.name {
            "qp-error" => FaultKind::QpError(self.status()?),
            "rnr" => FaultKind::Rnr(self.rnr_times()?),
            "hang" => FaultKind::Hang,
            "slow-ack" => {
                let (delay_ns, jitter_ns) = self.lateness()?;
                FaultKind::SlowAck { delay_ns, jitter_ns }
            }
            "cq-overflow" => FaultKind::CqOverflow,
            "cq-overrun" => FaultKind::CqOverrun,
            "mr-invalid" => FaultKind::MrInvalid,
            "fail" => FaultKind::Call(self.call()?),
            "alloc-fail" => FaultKind::AllocFail { verb: self.maker()?, times: self.times()? },
            "device-fatal" => FaultKind::DeviceFatal(self.read_value(TIME, word::time_ns)?),
            "port-down" => FaultKind::PortDown(self.read_value(TIME, word::time_ns)?),
            "gid-change" => FaultKind::GidChange,
            "addr-gone" => FaultKind::AddrGone(self.read_value(TIME, word::time_ns)?),
            "pkey-change" => FaultKind::PkeyChange(self.read_value(SHORT, word::short)?),
            "lid-change" => FaultKind::LidChange(self.read_value(SHORT, word::short)?),
            "peer-gone" => FaultKind::PeerGone,
            "drop" => FaultKind::Drop(self.share()?, self.way()?),
            "corrupt" => FaultKind::Corrupt(self.share()?, self.corrupt_place()?),
            _ => {
                let (delay_ns, jitter_ns) = self.lateness()?;
                FaultKind::Delay { delay_ns, jitter_ns }
            }
        })
    }

    fn when(&self) -> Result<When, FaultPlanError> {
        let count = |text: &str| text.parse::<u64>().ok();
        let nth = |text: &str| text.parse::<u64>().ok()?.checked_sub(1);
        let after = self.read_setting("after", "a number", count)?;
        let nth = self.read_setting("nth", "a number from 1", nth)?;
        let at = self.read_setting("at", "a time such as 2s, at most an hour", word::time_ns)?;
        let chance = match self.name {
            "qp-error" if self.value.is_some() => Some(self.share()?),
            _ => None,
        };
        let timed = self.known.settings.contains(&"at") && !self.known.settings.contains(&"after");
        let mut said = [
            after.map(When::After),
            nth.map(When::After),
            at.map(When::AtNs),
            chance.map(When::Chance),
        ]
        .into_iter()
        .flatten();
        match (said.next(), said.next()) {
            (None, _) if timed => Ok(When::AtNs(0)),
            (None, _) => Ok(When::After(0)),
            (Some(when), None) => Ok(when),
            _ => Err(self.error("it can happen only once: say one of a share, `after` and `at`")),
        }
    }

    fn lateness(&self) -> Result<(u64, u64), FaultPlanError> {
        let delay_ns = self.read_value(TIME, word::time_ns)?;
        Ok((delay_ns, self.read_setting("jitter", TIME, word::time_ns)?.unwrap_or(0)))
    }

    fn share(&self) -> Result<Share, FaultPlanError> {
        self.read_value("a share such as 1%, from 0% to 100%", word::share)
    }

    fn status(&self) -> Result<Status, FaultPlanError> {
        let wanted = format!("one of {}", word::statuses());
        Ok(self.read_setting("status", &wanted, word::status)?.unwrap_or(RETRY_EXC))
    }

    fn rnr_times(&self) -> Result<u32, FaultPlanError> {
        let times = |text: &str| text.parse().ok().filter(|times| (1..=1000).contains(times));
        let times = self.read_setting("times", "a number from 1 to 1000", times)?;
        times.ok_or_else(|| self.error("how often is missing"))
    }

    fn call(&self) -> Result<CallFault, FaultPlanError> {
        let names = Verb::ALL.map(|(name, _)| name).join(", ");
        let verb = |text: &str| Verb::ALL.iter().find(|(name, _)| *name == text).map(|v| v.1);
        let errnos = format!("one of {}", word::errnos());
        Ok(CallFault {
            verb: self.read_value(&format!("one of {names}"), verb)?,
            errno: self.read_setting("errno", &errnos, word::errno)?.unwrap_or(word::ENOMEM),
            times: self.times()?,
        })
    }

    fn times(&self) -> Result<u64, FaultPlanError> {
        let times = |text: &str| text.parse().ok().filter(|times| (1..=TIMES_MAX).contains(times));
        Ok(self.read_setting("times", "a number from 1", times)?.unwrap_or(1))
    }

    /// The verb that makes what cannot be made; none for every kind.
    fn maker(&self) -> Result<Option<Verb>, FaultPlanError> {
        let kinds = Verb::MAKERS.map(|(name, _)| name).join(", ");
        let maker = |text: &str| match text {
            word::ANY => Some(None),
            _ => Verb::MAKERS.iter().find(|(name, _)| *name == text).map(|v| Some(v.1)),
        };
        self.read_value(&format!("one of {kinds} and any"), maker)
    }

    fn corrupt_place(&self) -> Result<CorruptPlace, FaultPlanError> {
        let place = |text: &str| match text {
            "bad" => Some(CorruptPlace::Wire),
            "good" => Some(CorruptPlace::Payload),
            _ => None,
        };
        let place = self.read_setting("crc", "bad or good", place)?.unwrap_or(CorruptPlace::Wire);
        let per_queue_pair = self.get("only").is_some() || self.get("qpn").is_some();
        if place == CorruptPlace::Payload && per_queue_pair {
            return Err(self.error("with `crc=good` it is for a device, not a queue pair"));
        }
        Ok(place)
    }

    fn way(&self) -> Result<FaultDirection, FaultPlanError> {
        let way = |text: &str| match text {
            "in" => Some(FaultDirection::In),
            "out" => Some(FaultDirection::Out),
            _ => None,
        };
        Ok(self.read_setting("way", "in or out", way)?.unwrap_or(FaultDirection::Both))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> PlannedFault {
        let plan = plan(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(plan.faults.len(), 1, "{text}");
        plan.faults[0].clone()
    }

    fn refusal(text: &str) -> String {
        plan(text).expect_err(text).to_string()
    }

    #[test]
    fn each_fault_is_read() {
        let fault = one("qp-error:after=1000");
        assert_eq!((fault.kind, fault.when), (FaultKind::QpError(RETRY_EXC), When::After(1000)));
        let fault = one("qp-error=0.1%:status=rem-access,only=2");
        assert_eq!(fault.when, When::Chance(Share::new(0.001)));
        assert_eq!(fault.on.only, Some(2));
        assert_eq!(one("rnr:3").kind, FaultKind::Rnr(3));
        assert_eq!(one("rnr:times=3,after=9").when, When::After(9));
        assert_eq!((one("hang:after=3").kind, one("hang").when), (FaultKind::Hang, When::After(0)));
        let outage = one("port-down=2s:at=1s");
        assert_eq!(outage.kind, FaultKind::PortDown(2_000_000_000));
        assert_eq!(
            (outage.when, one("port-down=1s").when),
            (When::AtNs(1_000_000_000), When::AtNs(0))
        );
        assert_eq!(one("cq-overflow").when, When::After(0));
        assert_eq!(one("peer-gone:at=2s").when, When::AtNs(2_000_000_000));
        assert_eq!(one("drop=1%").kind, FaultKind::Drop(Share::new(0.01), FaultDirection::Both));
        assert_eq!(
            one("drop=1%:way=in").kind,
            FaultKind::Drop(Share::new(0.01), FaultDirection::In)
        );
        assert_eq!(
            one("corrupt=100%").kind,
            FaultKind::Corrupt(Share::new(1.0), CorruptPlace::Wire)
        );
        let jitter = FaultKind::Delay { delay_ns: 5_000_000, jitter_ns: 1_000 };
        assert_eq!(one("delay=5ms:jitter=1us").kind, jitter);
        let call = CallFault { verb: Verb::RegMr, errno: 14, times: 2 };
        assert_eq!(one("fail=reg_mr:errno=EFAULT,times=2").kind, FaultKind::Call(call));
    }

    #[test]
    fn faults_of_devices_and_objects_are_read() {
        let fatal = one("device-fatal=1s:at=2s,dev=weft0");
        assert_eq!(fatal.kind, FaultKind::DeviceFatal(1_000_000_000));
        assert_eq!(fatal.on.device.as_deref(), Some("weft0"));
        assert_eq!(one("gid-change").when, When::AtNs(0));
        assert_eq!(one("addr-gone=1s:at=1s").when, When::AtNs(1_000_000_000));
        assert_eq!(one("pkey-change=0x8001").kind, FaultKind::PkeyChange(0x8001));
        assert_eq!(one("lid-change=7").kind, FaultKind::LidChange(7));
        assert_eq!(one("cq-overrun:after=2").kind, FaultKind::CqOverrun);
        assert_eq!(one("mr-invalid:at=1s,only=2").on.only, Some(2));
        let nth = one("alloc-fail=mr:nth=3");
        assert_eq!(nth.kind, FaultKind::AllocFail { verb: Some(Verb::RegMr), times: 1 });
        assert_eq!(nth.when, When::After(2));
        assert_eq!(one("alloc-fail=any").kind, FaultKind::AllocFail { verb: None, times: 1 });
        let late = FaultKind::SlowAck { delay_ns: 5_000_000, jitter_ns: 0 };
        assert_eq!(one("slow-ack=5ms:at=1s,until=2s,qpn=0x11").kind, late);
        let payload = FaultKind::Corrupt(Share::new(0.01), CorruptPlace::Payload);
        assert_eq!(one("corrupt=1%:crc=good").kind, payload);
        let job = one("hang:process=ib_*,rank=0").on;
        assert_eq!((job.process.as_deref(), job.rank), (Some("ib_*"), Some(0)));
    }

    #[test]
    fn faults_and_a_seed_stand_side_by_side() {
        let plan = plan(" drop=1% ; delay = 5ms ; seed=7 ; ").unwrap();
        assert_eq!((plan.faults.len(), plan.seed), (2, Some(7)));
        assert_eq!(plan.seeded(9).seed, Some(7));
    }

    #[test]
    fn what_is_shown_reads_as_the_same() {
        for text in [
            "qp-error:after=1000,status=retry-exc",
            "qp-error=0.1%:status=rem-access,only=2",
            "rnr:3,after=9; cq-overflow; peer-gone:at=2s; seed=1",
            "hang:after=7,only=2; port-down=2s:at=1s",
            "fail=post_send:after=3,errno=ENOMEM,times=1",
            "slow-ack=5ms:at=1s,until=2s,jitter=1ms,qpn=17; cq-overrun:after=3,only=1",
            "device-fatal=1s:at=2s,dev=weft0; gid-change:at=1s; addr-gone=2s; lid-change=7",
            "pkey-change=0x8001; mr-invalid:at=1s,only=2; alloc-fail=mr:after=2,times=3",
            "alloc-fail=any; corrupt=1%:until=3s,crc=good; hang:rank=0,process=ib_*",
            "drop=1%:way=out; corrupt=0.5%; delay=5ms:jitter=1us; cq-overflow:after=7,only=1",
        ] {
            assert_eq!(plan(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn errors_say_what_is_wrong_and_what_would_be_right() {
        assert!(refusal("").contains("a fault is missing; there are qp-error, rnr"));
        assert!(refusal("drop=1%;;seed=1").contains("a fault is missing"));
        assert!(refusal("dorp=1%").contains("`dorp` is no fault; there are qp-error"));
        assert!(refusal("drop").contains("behind `drop=` there must be a share such as 1%"));
        assert!(refusal("drop=1").contains("it is written drop=SHARE[:way=in|out]"));
        assert!(refusal("drop=1%:after=3").contains("`after=3` is not a setting of it"));
        assert!(refusal("port-down").contains("behind `port-down=` there must be a time"));
        assert!(refusal("port-down=1s:only=1").contains("not a setting of it"));
        assert!(refusal("drop=1%:at=2s,until=1s").contains("`until` is not later than `at`"));
        assert!(refusal("corrupt=1%:crc=good,only=1").contains("for a device, not a queue pair"));
        assert!(refusal("alloc-fail=ram").contains("one of context, pd, "));
        assert!(refusal("alloc-fail=mr:nth=0").contains("a number from 1"));
        assert!(refusal("gid-change:qpn=7").contains("`qpn=7` is not a setting of it"));
        assert!(refusal("hang:qpn=0x1000000").contains("a number of 24 bits"));
        assert!(refusal("pkey-change=x").contains("a number of 16 bits"));
        assert!(refusal("mr-invalid:after=1,at=1s").contains("only once"));
        assert!(refusal("rnr").contains("how often is missing"));
        assert!(refusal("rnr:0").contains("`times` is a number from 1 to 1000, and not `0`"));
        assert!(refusal("rnr:1,2").contains("said twice"));
        assert!(refusal("rnr=3").contains("nothing to set by `=`"));
        assert!(refusal("qp-error:after=1,at=2s").contains("only once"));
        assert!(refusal("qp-error:status=bad").contains("one of loc-len, "));
        assert!(refusal("fail=open").contains("one of open_device, "));
        assert!(refusal("fail=reg_mr:errno=12").contains("one of EPERM, "));
        assert!(refusal("seed=x").contains("the seed is a number"));
        assert!(refusal("peer-gone:at=2").contains("a time such as 2s"));
        assert_eq!(plan(&"cq-overflow;".repeat(257)), Err(FaultPlanError::Many));
    }
}
