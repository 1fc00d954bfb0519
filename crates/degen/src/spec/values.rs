//! Values of settings: what stands after the `=`.
//!
//! Each function reads one value whole or says what its form is.

use super::{QueueSpec, ScheduleStep};
use crate::link::{Fading, FrameAggregation, Jitter, Loss, Outage};
use weft_units::{Bitrate, Malformed, Share, number, parse_bytes, parse_time_ns};

const PAIR: &str = "two values with a colon between them";
const OUTAGE: &str = "AT+FOR or AT+FOR/EVERY with EVERY longer than FOR, such as 2s+500ms/10s";
const STEP: &str = "AT:KEY=VALUE with rate, loss or delay, such as 10s:rate=100mbit";
const JITTER: &str = "a time, or a time and `:reorder`";
const QUEUE: &str = "a size such as 64KiB, or a multiple such as 0.5bdp";
const FADING: &str = "LEAST:MOST:EVERY, such as 5mbit:80mbit:20ms, LEAST not above MOST";
const FRAMES: &str = "N:TIME with 1 packet or more, such as 32:4ms";
const INTERVAL: &str = "a time longer than none";

pub(super) fn pair(value: &str) -> Result<(&str, &str), Malformed> {
    value.split_once(':').ok_or_else(|| Malformed::new(value, PAIR))
}

pub(super) fn parse_queue(value: &str) -> Result<QueueSpec, Malformed> {
    if let Some(times) = value.strip_suffix("bdp") {
        return number(times).map(QueueSpec::Bdp).ok_or_else(|| Malformed::new(value, QUEUE));
    }
    if value.ends_with(|c: char| c.is_ascii_digit()) {
        // netem's limit is in packets: a number alone would be taken for that.
        return Err(Malformed::new(value, QUEUE));
    }
    parse_bytes(value).map(QueueSpec::Bytes).map_err(|_| Malformed::new(value, QUEUE))
}

pub(super) fn parse_gilbert(value: &str) -> Result<Loss, Malformed> {
    let shares: Vec<&str> = value.split(':').collect();
    let at = |index: usize, usual: f64| match shares.get(index) {
        Some(text) => text.parse(),
        None => Ok(Share::new(usual)),
    };
    if !(2..=4).contains(&shares.len()) {
        return Err(Malformed::new(value, PAIR));
    }
    Ok(Loss::Gilbert {
        to_bad: at(0, 0.0)?,
        to_good: at(1, 0.0)?,
        bad: at(2, 1.0)?,
        good: at(3, 0.0)?,
    })
}

pub(super) fn parse_jitter(value: &str) -> Result<Jitter, Malformed> {
    let (by, reorders) = match value.split_once(':') {
        Some((by, "reorder")) => (by, true),
        Some(_) => return Err(Malformed::new(value, JITTER)),
        None => (value, false),
    };
    Ok(Jitter { by_ns: parse_time_ns(by)?, reorders })
}

pub(super) fn parse_fading(value: &str) -> Result<Fading, Malformed> {
    let wrong = || Malformed::new(value, FADING);
    let (least, rest) = value.split_once(':').ok_or_else(wrong)?;
    let (most, every) = rest.split_once(':').ok_or_else(wrong)?;
    let (least, most) = (least.parse::<Bitrate>()?, most.parse::<Bitrate>()?);
    let fading = Fading { least, most, every_ns: parse_interval_ns(every)? };
    if fading.least > fading.most { Err(wrong()) } else { Ok(fading) }
}

pub(super) fn parse_frames(value: &str) -> Result<FrameAggregation, Malformed> {
    let (packets, wait) = pair(value)?;
    let packets = packets.parse().ok().filter(|packets| *packets >= 1);
    let packets = packets.ok_or_else(|| Malformed::new(value, FRAMES))?;
    Ok(FrameAggregation { packets, wait_ns: parse_time_ns(wait)? })
}

pub(super) fn parse_interval_ns(value: &str) -> Result<u64, Malformed> {
    parse_time_ns(value)
        .and_then(|ns| if ns > 0 { Ok(ns) } else { Err(Malformed::new(value, INTERVAL)) })
}

pub(super) fn parse_outage(value: &str) -> Result<Outage, Malformed> {
    let (at, rest) = value.split_once('+').ok_or_else(|| Malformed::new(value, OUTAGE))?;
    let (lasts, every) = match rest.split_once('/') {
        Some((lasts, every)) => (lasts, Some(parse_time_ns(every)?)),
        None => (rest, None),
    };
    let outage =
        Outage { at_ns: parse_time_ns(at)?, for_ns: parse_time_ns(lasts)?, every_ns: every };
    if every.is_some_and(|every_ns| every_ns <= outage.for_ns) {
        return Err(Malformed::new(value, OUTAGE));
    }
    Ok(outage)
}

pub(super) fn parse_step(value: &str) -> Result<(u64, ScheduleStep), Malformed> {
    let (at, change) = value.split_once(':').ok_or_else(|| Malformed::new(value, STEP))?;
    let step = match change.split_once('=') {
        Some(("rate", rate)) => ScheduleStep::Rate(rate.parse()?),
        Some(("loss", loss)) => ScheduleStep::Loss(loss.parse()?),
        Some(("delay", delay)) => ScheduleStep::DelayNs(parse_time_ns(delay)?),
        _ => return Err(Malformed::new(value, STEP)),
    };
    Ok((parse_time_ns(at)?, step))
}
