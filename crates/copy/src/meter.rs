//! What a copy has done, and how people and programs are told.
//!
//! Both ends count; only the near one shows. Invariant: what a far end named is escaped before it
//! is shown, and stdout has nothing but the events of `--json`.
//!
//! Order: [`Meter::new`]; counts from any thread; [`Meter::shown`] around the copy.

use std::fmt;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Result;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};
use weft_os::clock::{self, Moment};
use weft_session::client::FarSession;
use weft_session::{ChannelTraffic, MessageChannel};
use weft_sync::{Condvar, Mutex};

use crate::threads::spawn;

/// How often a line is written where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);
/// How often the bar and the events are brought up to date.
const REFRESH: Duration = Duration::from_millis(250);

/// How a copy is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShowStyle {
    /// A line on a terminal that is written over.
    Bar,
    /// A line now and then.
    Lines,
    /// Events on stdout, one JSON object a line.
    Json,
    /// Problems only.
    Quiet,
    /// Nothing: the near end shows.
    Silent,
}

/// Counts of a copy.
#[derive(Debug)]
pub struct Meter {
    style: ShowStyle,
    /// Nothing is copied: names of files are what is asked for.
    is_dry_run: bool,
    bar: ProgressBar,
    started: Moment,
    is_over: Mutex<bool>,
    ended: Condvar,
    /// Why something is missing on stdout.
    unsaid: OnceLock<io::Error>,
    /// What carries data from here, for each host that it goes to.
    traffic: Mutex<Vec<Arc<ChannelTraffic>>>,
    /// Whether all files were listed, so that the totals are final.
    pub is_listed: AtomicBool,
    /// Files that were listed.
    pub files: AtomicU64,
    /// Bytes in them.
    pub bytes: AtomicU64,
    /// Bytes that are there, copied now or before, or on their way.
    pub bytes_done: AtomicU64,
    /// Bytes that were copied now, or are on their way.
    pub bytes_moved: AtomicU64,
    /// Files that are whole now.
    pub files_done: AtomicU64,
    /// Files that were there already.
    pub files_skipped: AtomicU64,
    /// Files and other things that could not be copied.
    pub failed: AtomicU64,
}

impl Meter {
    /// Counts, shown in this style; of a copy, or of what one would do.
    pub fn new(style: ShowStyle, is_dry_run: bool) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        if style == ShowStyle::Bar {
            bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        Self {
            style,
            is_dry_run,
            bar,
            started: clock::now(),
            is_over: Mutex::new(false),
            ended: Condvar::default(),
            unsaid: OnceLock::new(),
            traffic: Mutex::default(),
            is_listed: AtomicBool::new(false),
            files: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            bytes_done: AtomicU64::new(0),
            bytes_moved: AtomicU64::new(0),
            files_done: AtomicU64::new(0),
            files_skipped: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        }
    }

    /// Counts something that could not be copied, and tells of it at once. `why` is safe to show.
    pub fn problem(&self, why: &str) {
        add(&self.failed, 1);
        self.event("problem", json!({ "what": why }));
        if self.style != ShowStyle::Silent {
            self.say(&format!("weft: {why}"));
        }
    }

    /// Tells what a person should know.
    pub fn note(&self, what: &str) {
        self.event("note", json!({ "what": what }));
        if self.style != ShowStyle::Silent {
            self.say(&format!("weft: {what}"));
        }
    }

    /// Data leaves by `channel`: what is on its way is not shown as done.
    pub fn leaves_by(&self, channel: &MessageChannel) {
        self.traffic.lock().push(channel.traffic());
    }

    /// Tells that the far end was reached.
    pub fn connected(&self, host: &str, session: &FarSession) {
        let carrier = if session.channel().is_udp() { "udp" } else { "ssh" };
        let data = json!({
            "host": host,
            "carrier": carrier,
            "ssh_ms": in_ms(session.greeted()),
            "elapsed_ms": in_ms(self.started.elapsed()),
        });
        self.event("connected", data);
    }

    /// A count of bytes without those that are on their way.
    fn arrived(&self, bytes: &AtomicU64) -> u64 {
        let on_the_way = self.traffic.lock().iter().map(|traffic| traffic.on_the_way()).sum();
        get(bytes).saturating_sub(on_the_way)
    }

    /// Tells of a file that is there now, or would be.
    pub fn file(&self, path: &str) {
        self.event("file", json!({ "path": path }));
        if self.is_dry_run && !matches!(self.style, ShowStyle::Silent | ShowStyle::Json) {
            self.bar.suspend(|| self.print(&path));
        }
    }

    fn say(&self, line: &str) {
        // Without a stderr the exit status must do.
        self.bar.suspend(|| _ = writeln!(std::io::stderr(), "{line}"));
    }

    fn event(&self, name: &str, fields: Value) {
        if self.style == ShowStyle::Json {
            let event = json!({ "event": name, "data": fields });
            self.print(&event);
        }
    }

    fn print(&self, line: &dyn fmt::Display) {
        match writeln!(io::stdout(), "{line}") {
            Ok(()) => {}
            // A closed stdout leaves nobody to tell.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            Err(error) => drop(self.unsaid.set(error)),
        }
    }

    /// Tells that what stdout has is not all, if that is so; returns whether it is.
    pub fn complains_of_stdout(&self) -> bool {
        let unsaid = self.unsaid.get();
        if let Some(error) = unsaid {
            self.say(&format!("weft: stdout has not got all: {error}"));
        }
        unsaid.is_some()
    }

    /// Shows what is counted while `copy` runs.
    pub fn shown(&self, copy: impl FnOnce() -> Result<()>) -> Result<()> {
        std::thread::scope(|scope| {
            let outcome = spawn(scope, || self.refresh()).and_then(|_| copy());
            if outcome.is_ok() {
                // All that was sent has come, though it may not have been acknowledged.
                self.traffic.lock().clear();
            }
            *self.is_over.lock() = true;
            self.ended.notify_all();
            outcome
        })
    }

    fn refresh(&self) {
        if let Ok(style) = ProgressStyle::with_template(
            "{percent:>3}% {decimal_bytes}/{decimal_total_bytes} {decimal_bytes_per_sec} \
             ETA {eta} {msg}",
        ) {
            self.bar.set_style(style);
        }
        let mut told = self.started;
        loop {
            let is_over =
                self.ended.wait_timeout_while(self.is_over.lock(), REFRESH, |over| !*over);
            let is_over = *is_over;
            let now = clock::now();
            match self.style {
                ShowStyle::Bar => self.draw(),
                ShowStyle::Lines
                    if now.saturating_duration_since(told) >= LINE_EVERY && !is_over =>
                {
                    told = now;
                    self.say(&format!("weft: {}", self.summary()));
                }
                ShowStyle::Json => self.event("progress", self.counts()),
                _ => {}
            }
            if is_over {
                self.bar.finish_and_clear();
                return;
            }
        }
    }

    fn draw(&self) {
        self.bar.set_length(get(&self.bytes));
        self.bar.set_position(self.arrived(&self.bytes_done));
        let closed = get(&self.files_done) + get(&self.files_skipped) + get(&self.failed);
        let left = get(&self.files).saturating_sub(closed);
        let more = if self.is_listed.load(Ordering::Relaxed) { "" } else { "+" };
        self.bar.set_message(format!("{left}{more} files left"));
    }

    fn counts(&self) -> Value {
        json!({
            "files": get(&self.files),
            "bytes": get(&self.bytes),
            "is_listed": self.is_listed.load(Ordering::Relaxed),
            "files_done": get(&self.files_done),
            "files_skipped": get(&self.files_skipped),
            "failed": get(&self.failed),
            "bytes_done": self.arrived(&self.bytes_done),
            "bytes_copied": self.arrived(&self.bytes_moved),
            "elapsed_ms": in_ms(self.started.elapsed()),
        })
    }

    /// What was done, in a line.
    pub fn summary(&self) -> String {
        let elapsed = self.started.elapsed().as_secs_f64();
        let bytes = self.arrived(&self.bytes_moved) as f64;
        let rate = if elapsed > 0.0 { 8.0 * bytes / elapsed / 1e6 } else { 0.0 };
        let (done, files) = (get(&self.files_done), get(&self.files));
        let mut text = if self.is_dry_run {
            format!("{done} of {files} files would be copied")
        } else {
            let there = done + get(&self.files_skipped);
            let copied = format!("{:.1} MB copied in {elapsed:.1} s", bytes / 1e6);
            format!("{there} of {files} files, {copied}, {rate:.0} Mbit/s")
        };
        for (count, what) in
            [(get(&self.files_skipped), "there already"), (get(&self.failed), "not copied")]
        {
            if count > 0 {
                text += &format!(", {count} {what}");
            }
        }
        text
    }

    /// Tells the end: `Ok`, or why it came early.
    pub fn end(&self, outcome: Result<(), &str>) {
        let mut data = self.counts();
        data["error"] = outcome.err().map_or(Value::Null, Value::from);
        self.event("end", data);
        match (self.style, outcome) {
            (ShowStyle::Silent, _) => {}
            (_, Err(why)) => self.say(&format!("weft: {why}")),
            (ShowStyle::Bar | ShowStyle::Lines, Ok(())) => {
                self.say(&format!("weft: {}", self.summary()));
            }
            _ => {}
        }
    }
}

fn in_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Adds to a count.
pub(crate) fn add(count: &AtomicU64, more: u64) {
    count.fetch_add(more, Ordering::Relaxed);
}

/// A count.
pub(crate) fn get(count: &AtomicU64) -> u64 {
    count.load(Ordering::Relaxed)
}
