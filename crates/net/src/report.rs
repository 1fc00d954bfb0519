//! What a person must be told and no verb can say: one line each, through the [`log`] facade, to
//! the logger of the library that this engine is part of.
//!
//! What went wrong is told once, however often it happens; the attempts and changes of state that
//! led to it are for who asks for `debug`.
//!
//! Invariant: what strangers cause is bounded for each source and in all, and takes nothing from
//! what the application's own calls cause. What is bounded in all becomes possible again with time.

mod told;

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use log::Level;
use weft_os::clock::{self, Moment};
use weft_sync::Mutex;

use told::LineAllowance;
pub use told::ToldLines;

/// Different lines about one stranger.
const LINES_OF_ONE: usize = 4;
/// Lines about strangers at once, and how long until another one may be told.
const STRANGERS_BURST: u32 = 32;
const STRANGERS_PAUSE: Duration = Duration::from_secs(2);
/// Strangers that are remembered; beyond that all are forgotten, and may be told of again.
const STRANGERS_MAX: usize = 1024;

/// How lines of this level begin on stderr, after `weft: `.
pub fn level_label(level: Level) -> &'static str {
    match level {
        Level::Error => "error",
        Level::Warn => "warning",
        Level::Info => "info",
        Level::Debug => "debug",
        Level::Trace => "trace",
    }
}

/// Tells what the application asked for and cannot have.
pub fn error(line: String) {
    once(Level::Error, &line, &line);
}

/// Tells what is probably not as the person believes.
pub fn warning(line: String) {
    once(Level::Warn, &line, &line);
}

/// The same, unless a line with this `topic` was told: others differ by what says nothing new.
pub fn warning_about(topic: &str, line: &str) {
    once(Level::Warn, topic, line);
}

/// Tells a line once: peers repeat themselves, and so do applications with many queue pairs.
fn once(level: Level, topic: &str, line: &str) {
    static TOLD: Mutex<ToldLines> = Mutex::new(ToldLines::new());
    let mut told = TOLD.lock();
    if told.admit(clock::now(), level, topic) {
        log::log!(level, "{line}");
    }
}

/// Tells a line about a peer that came by itself, if it is a new one: few for each source, so that
/// no source uses up what may be said of others. `line` is made if it may be told.
pub fn stranger(peer: IpAddr, line: impl FnOnce() -> String) {
    static STRANGERS: Mutex<Option<Strangers>> = Mutex::new(None);
    let mut strangers = STRANGERS.lock();
    let strangers = strangers.get_or_insert_with(Strangers::new);
    if let Some(line) = strangers.admit(clock::now(), peer, line) {
        log::error!("{line}");
    }
}

/// What was told of peers that came by themselves.
struct Strangers {
    told: HashMap<IpAddr, BTreeSet<String>>,
    allowance: LineAllowance,
}

impl Strangers {
    fn new() -> Self {
        let allowance = LineAllowance::new(STRANGERS_BURST, STRANGERS_PAUSE);
        Self { told: HashMap::new(), allowance }
    }

    /// The line, if it is to be told.
    fn admit(
        &mut self,
        now: Moment,
        peer: IpAddr,
        line: impl FnOnce() -> String,
    ) -> Option<String> {
        let source = source_of(peer);
        if self.told.get(&source).is_some_and(|lines| lines.len() >= LINES_OF_ONE) {
            return None;
        }
        let line = line();
        if self.told.get(&source).is_some_and(|lines| lines.contains(&line))
            || !self.allowance.spend(now)
        {
            return None;
        }
        if self.told.len() >= STRANGERS_MAX && !self.told.contains_key(&source) {
            self.told.clear();
        }
        self.told.entry(source).or_default().insert(line.clone());
        Some(line)
    }
}

/// Who a peer is: a host of IPv6 has the whole of its link's prefix for addresses.
pub fn source_of(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(v6) => {
            let mut octets = v6.octets();
            octets[8..].fill(0);
            Ipv6Addr::from(octets).into()
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn one_source_does_not_use_up_what_is_said_of_others() {
        let now = clock::now();
        let mut strangers = Strangers::new();
        let mut told = |peer: &str, line: usize| {
            strangers.admit(now, ip(peer), || format!("{peer} {line}")).is_some()
        };
        assert!(told("192.0.2.1", 0) && !told("192.0.2.1", 0));
        assert_eq!((0..1000).filter(|line| told("192.0.2.1", *line)).count(), LINES_OF_ONE - 1);
        let prefix = (0..1000).filter(|host| told(&format!("2001:db8::{host:x}"), 0));
        assert_eq!(prefix.count(), LINES_OF_ONE);
        assert!(told("192.0.2.2", 0) && told("2001:db8:0:1::1", 0));
    }

    #[test]
    fn many_sources_are_bounded_and_others_are_told_of_later() {
        let now = clock::now();
        let mut strangers = Strangers::new();
        let mut told = |now, host: u32| {
            strangers.admit(now, IpAddr::V4(host.into()), || "line".into()).is_some()
        };
        let burst = (0..5000).filter(|host| told(now, *host)).count();
        assert_eq!(burst, STRANGERS_BURST as usize);
        assert!(!told(now + STRANGERS_PAUSE / 2, 6000));
        assert!(told(now + STRANGERS_PAUSE, 6000) && !told(now + STRANGERS_PAUSE, 6001));
        let later = now + STRANGERS_PAUSE * 1000;
        assert_eq!((7000..8000).filter(|host| told(later, *host)).count(), burst);
    }
}
