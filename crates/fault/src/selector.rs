//! Which objects, devices and processes a fault is for.

use std::fmt;

/// What a fault is for; each part that is not said is any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultSelector {
    /// The object that is the so-manyth of its kind in the process, from 1.
    pub only: Option<u32>,
    /// The queue pair with this number.
    pub qpn: Option<u32>,
    /// The device with this name.
    pub device: Option<String>,
    /// Processes whose name this matches: `*` is any letters, `?` is one.
    pub process: Option<String>,
    /// The process of this rank in its job.
    pub rank: Option<u32>,
}

/// An object that a fault may be for; what it does not have, no fault can select it by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultSubject<'a> {
    /// It is the so-manyth of its kind in the process, from 1.
    pub number: u32,
    /// Its number, if it is a queue pair.
    pub qpn: Option<u32>,
    /// The name of its device.
    pub device: &'a str,
}

impl FaultSelector {
    /// Whether it selects the object.
    pub fn admits(&self, subject: &FaultSubject<'_>) -> bool {
        self.only.is_none_or(|only| only == subject.number)
            && (self.qpn.is_none() || self.qpn == subject.qpn)
            && self.admits_device(subject.device)
    }

    /// Whether it selects the device of this name.
    pub fn admits_device(&self, name: &str) -> bool {
        self.device.as_ref().is_none_or(|device| device == name)
    }

    /// Whether it selects the process of this name and rank.
    pub fn admits_process(&self, name: &str, rank: Option<u32>) -> bool {
        let named = self.process.as_ref().is_none_or(|glob| matches_glob(glob, name));
        named && (self.rank.is_none() || self.rank == rank)
    }

    /// What is said of it, as settings of a fault.
    pub(crate) fn settings(&self) -> impl Iterator<Item = String> {
        let Self { only, qpn, device, process, rank } = self;
        let numbers = [("only", only), ("qpn", qpn), ("rank", rank)];
        let words = [("dev", device), ("process", process)];
        let numbers = numbers.into_iter().filter_map(|(key, value)| Some((key, (*value)?)));
        let numbers = numbers.map(|(key, value)| format!("{key}={value}"));
        let words = words.into_iter().filter_map(|(key, value)| Some((key, value.as_ref()?)));
        numbers.chain(words.map(|(key, value)| format!("{key}={value}")))
    }
}

impl fmt::Display for FaultSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.settings().collect::<Vec<_>>().join(","))
    }
}

/// Whether `glob` matches all of `text`: `*` is any letters, `?` is one.
pub fn matches_glob(glob: &str, text: &str) -> bool {
    let (glob, text): (Vec<char>, Vec<char>) = (glob.chars().collect(), text.chars().collect());
    let (mut at, mut place) = (0, 0);
    // Where to go on if what follows the last `*` does not match.
    let mut retry: Option<(usize, usize)> = None;
    while at < text.len() {
        match glob.get(place) {
            Some('*') => {
                retry = Some((place, at));
                place += 1;
            }
            Some(letter) if *letter == '?' || *letter == text[at] => {
                place += 1;
                at += 1;
            }
            _ => {
                let Some((star, from)) = retry else { return false };
                retry = Some((star, from + 1));
                (place, at) = (star + 1, from + 1);
            }
        }
    }
    glob[place..].iter().all(|letter| *letter == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_whole_names() {
        for (glob, text) in
            [("*", ""), ("ib_*", "ib_write_bw"), ("?b_*_bw", "ib_write_bw"), ("a*b*c", "aXbYbc")]
        {
            assert!(matches_glob(glob, text), "{glob} {text}");
        }
        for (glob, text) in [("ib_", "ib_write_bw"), ("?", ""), ("a*b", "abc"), ("", "x")] {
            assert!(!matches_glob(glob, text), "{glob} {text}");
        }
    }

    #[test]
    fn each_part_that_is_said_must_be_so() {
        let on = FaultSelector { qpn: Some(7), device: Some("weft0".into()), ..Default::default() };
        let qp = FaultSubject { number: 1, qpn: Some(7), device: "weft0" };
        assert!(on.admits(&qp));
        assert!(!on.admits(&FaultSubject { qpn: None, ..qp }));
        assert!(!on.admits(&FaultSubject { device: "weft_iw0", ..qp }));
        let job = FaultSelector { process: Some("r*".into()), rank: Some(1), ..Default::default() };
        assert!(job.admits_process("rping", Some(1)));
        assert!(!job.admits_process("rping", None) && !job.admits_process("ls", Some(1)));
    }
}
