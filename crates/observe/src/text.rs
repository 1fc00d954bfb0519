//! A report as text: a line for each thing, of a word and of settings `name=value`.
//!
//! Names that a reader does not know are skipped, so that versions understand each other.
//!
//! Invariant: what [`ProcessReport::parse`] gives has printable characters only and is no larger
//! than [`TEXT_MAX`] and [`REPORTED_MAX`] allow, whatever the text is.

use std::fmt::Write;

use crate::report::{
    ConnLimit, ConnReport, Counters, DeviceReport, DeviceType, ProcessReport, REPORTED_MAX,
};

/// The first word of a report, and its version.
const MAGIC: &str = "weft-report 1";
/// The last word: what ends without it was cut off.
const END: &str = "end";
/// Length of a report in bytes, at most.
pub const TEXT_MAX: usize = 512 << 10;
/// Length of a text within one, in characters, at most.
const WORD_MAX: usize = 64;
/// Devices of a process, at most.
pub const DEVICES_MAX: usize = 32;

impl ProcessReport {
    /// The report as it goes to who asks.
    pub fn to_text(&self) -> String {
        let mut text = format!("{MAGIC}\nprocess pid={}", self.pid);
        word(&mut text, "name", &self.name);
        let (at_ns, cpu_ns, left_out) = (self.at_ns, self.cpu_ns, self.left_out);
        let _ = writeln!(text, " at_ns={at_ns} cpu_ns={cpu_ns} left_out={left_out}");
        for device in &self.devices {
            let _ = write!(text, "device kind={}", device.kind.word());
            word(&mut text, "name", &device.name);
            numbers(&mut text, device.counters.named());
            text.push('\n');
        }
        for conn in &self.connections {
            let _ = write!(text, "conn qpn={} limit={}", conn.qpn, conn.limit);
            for (name, value) in conn.words() {
                word(&mut text, name, value);
            }
            numbers(&mut text, conn.counters.named());
            numbers(&mut text, conn.gauges.named());
            text.push('\n');
        }
        text + END + "\n"
    }

    /// A report out of `text`; `None` if it is not one, or was cut off.
    pub fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        if text.len() > TEXT_MAX || lines.next() != Some(MAGIC) {
            return None;
        }
        let mut report = Self::default();
        for line in lines {
            let (what, rest) = line.split_once(' ').unwrap_or((line, ""));
            let settings = rest.split(' ').filter_map(|setting| setting.split_once('='));
            match what {
                "process" => settings.for_each(|(name, value)| report.set(name, value)),
                "device" if report.devices.len() < DEVICES_MAX => {
                    report.devices.push(DeviceReport::of(settings)?);
                }
                "conn" if report.connections.len() < REPORTED_MAX => {
                    report.connections.push(ConnReport::of(settings));
                }
                END => return Some(report),
                _ => {}
            }
        }
        None
    }

    fn set(&mut self, name: &str, value: &str) {
        let number = || value.parse().unwrap_or_default();
        match name {
            "pid" => self.pid = value.parse().unwrap_or_default(),
            "name" => self.name = clean(value),
            "at_ns" => self.at_ns = number(),
            "cpu_ns" => self.cpu_ns = number(),
            "left_out" => self.left_out = number(),
            _ => {}
        }
    }
}

impl DeviceReport {
    fn of<'a>(settings: impl Iterator<Item = (&'a str, &'a str)>) -> Option<Self> {
        let (mut device, mut kind) = (Self::default(), None);
        for (name, value) in settings {
            match name {
                "kind" => kind = DeviceType::of_word(value),
                "name" => device.name = clean(value),
                _ => set(&mut device.counters, name, value),
            }
        }
        device.kind = kind?;
        Some(device)
    }
}

fn set(counters: &mut Counters, name: &str, value: &str) {
    if let Ok(value) = value.parse() {
        counters.set(name, value);
    }
}

impl ConnReport {
    fn words(&self) -> [(&'static str, &str); 6] {
        [
            ("device", &self.device),
            ("kind", &self.kind),
            ("state", &self.state),
            ("carrier", &self.carrier),
            ("local", &self.local),
            ("peer", &self.peer),
        ]
    }

    fn of<'a>(settings: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        let mut conn = Self::default();
        for (name, value) in settings {
            match name {
                "qpn" => conn.qpn = value.parse().unwrap_or_default(),
                "limit" => conn.limit = ConnLimit::of_word(value),
                "device" => conn.device = clean(value),
                "kind" => conn.kind = clean(value),
                "state" => conn.state = clean(value),
                "carrier" => conn.carrier = clean(value),
                "local" => conn.local = clean(value),
                "peer" => conn.peer = clean(value),
                _ => {
                    set(&mut conn.counters, name, value);
                    if let Ok(value) = value.parse() {
                        conn.gauges.set(name, value);
                    }
                }
            }
        }
        conn
    }
}

/// A text without what would end it, or do something to a terminal.
fn clean(text: &str) -> String {
    let shown = |c: char| if c.is_ascii_graphic() { c } else { '?' };
    text.chars().take(WORD_MAX).map(shown).collect()
}

fn word(text: &mut String, name: &str, value: &str) {
    let _ = write!(text, " {name}={}", clean(value));
}

/// What is not zero, as that is what is not said.
fn numbers(text: &mut String, named: impl Iterator<Item = (&'static str, u64)>) {
    for (name, value) in named.filter(|(_, value)| *value > 0) {
        let _ = write!(text, " {name}={value}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Gauges;

    fn report() -> ProcessReport {
        let counters = Counters { connections: 2, bytes_out: 1 << 60, ..Counters::default() };
        ProcessReport {
            pid: 7,
            name: "ib_write_bw".into(),
            at_ns: 5,
            cpu_ns: 3,
            left_out: 0,
            devices: vec![DeviceReport { kind: DeviceType::Iwarp, name: "x".into(), counters }],
            connections: vec![ConnReport {
                qpn: 0x11,
                device: "x".into(),
                peer: "[::1]:5".into(),
                limit: ConnLimit::Cpu,
                counters,
                gauges: Gauges { rtt_ns: 9, ..Gauges::default() },
                ..ConnReport::default()
            }],
        }
    }

    #[test]
    fn a_report_comes_back_as_it_was() {
        assert_eq!(ProcessReport::parse(&report().to_text()), Some(report()));
    }

    #[test]
    fn what_is_cut_off_is_no_report() {
        let text = report().to_text();
        for len in 0..text.len() - 1 {
            assert_eq!(ProcessReport::parse(&text[..len]), None, "{len}");
        }
    }

    #[test]
    fn nothing_hostile_comes_through() {
        let long = "a".repeat(10_000);
        let escape = format!(
            "{MAGIC}\nprocess pid=-1 name=\u{1b}[2J{long} at_ns=x new=1\nnews a=b\n\
             conn qpn=99999999999 bytes_out=-3 peer=\u{7}é\nconn\nend\n"
        );
        let report = ProcessReport::parse(&escape).unwrap();
        assert_eq!((report.pid, report.name.len(), report.at_ns), (0, WORD_MAX, 0));
        assert!(report.name.starts_with("?[2J"));
        assert_eq!(report.connections.len(), 2);
        assert_eq!(report.connections[0].peer, "??");
        let many = format!("{MAGIC}\n{}end\n", "conn qpn=1\n".repeat(REPORTED_MAX + 5));
        assert_eq!(ProcessReport::parse(&many).unwrap().connections.len(), REPORTED_MAX);
        let endless = format!("{MAGIC}\n{}end\n", " ".repeat(TEXT_MAX));
        assert_eq!(ProcessReport::parse(&endless), None);
    }

    /// Damaged in every place by a generator from a printed seed: no panic, and what comes out has
    /// its bounds.
    #[test]
    fn damaged_reports_harm_nobody() {
        let mut seed: u64 = 0x5eed;
        let text = report().to_text();
        for round in 0..20_000 {
            let mut bytes = text.clone().into_bytes();
            for _ in 0..3 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let at = (seed >> 33) as usize % bytes.len();
                bytes[at] = (seed >> 25) as u8;
            }
            if let Some(report) = ProcessReport::parse(&String::from_utf8_lossy(&bytes)) {
                let names =
                    [&report.name].into_iter().chain(report.devices.iter().map(|d| &d.name));
                for name in names {
                    assert!(name.chars().all(|c| c.is_ascii_graphic()), "round {round}: {name:?}");
                }
            }
        }
    }
}
