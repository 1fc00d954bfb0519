//! What connections learnt of the paths to other hosts, for later ones of any process of this user
//! (RFC 9959, Careful Resume): a file with a line for each host, its rate and its round trip.
//!
//! A path may have changed since, so what is known is used carefully: for a day, at half of the
//! rate, and by a connection whose own round trip is like the remembered one (S-65), which checks
//! the rate by one short flight before it relies on it. Only what carried several times the
//! path's content is remembered: a short connection has not seen the path full.
//!
//! Invariant: a file that is damaged, of another version, or another user's counts as empty;
//! nothing here fails a connection, and the file is replaced as a whole.
//!
//! Order: [`KnownPaths::find`] before a connection, [`KnownPaths::remember`] at its end.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use weft_os::{clock, own_file, plain_file};
use weft_rnic::shuttle::cc::Saved;

/// First line of the file.
const VERSION: &str = "weft-paths 1";
/// Hosts that are remembered, at most: those that were used last.
const HOSTS_MAX: usize = 256;
/// Bytes that are read, at most.
const FILE_MAX: u64 = 64 * 1024;
/// How long a path is remembered, in seconds: a day.
const LIFETIME_S: u64 = 86_400;
/// The part of a remembered rate that is relied on, as in RFC 9959, section 3.2.
const CAREFUL_DIVISOR: u64 = 2;
/// Bandwidth-delay products that a connection must have sent to have seen its path full.
const LEARNT_PATHS: u64 = 4;
const NS_PER_S: u64 = 1_000_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct KnownPath {
    remote: IpAddr,
    saved: Saved,
    /// When, in seconds since 1970.
    at_s: u64,
}

/// The file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownPaths(PathBuf);

impl KnownPaths {
    /// Paths in the file of this user: `weft/paths` in `XDG_STATE_HOME`, or in `~/.local/state`.
    /// None without a home directory.
    pub fn of_user() -> Option<Self> {
        let named = |name| std::env::var_os(name).map(PathBuf::from).filter(|it| it.is_absolute());
        let state = named("XDG_STATE_HOME");
        let state = state.or_else(|| Some(named("HOME")?.join(".local/state")))?;
        Some(Self(state.join("weft/paths")))
    }

    /// Paths in this file.
    pub fn at(path: &Path) -> Self {
        Self(path.to_path_buf())
    }

    /// What to begin with towards `remote`.
    pub fn find(&self, remote: IpAddr) -> Option<Saved> {
        self.find_at(remote, clock::time_of_day_ns() / NS_PER_S)
    }

    fn find_at(&self, remote: IpAddr, now_s: u64) -> Option<Saved> {
        let known = self.read().into_iter().find(|known| known.remote == remote)?;
        // One from the future was written under another clock, and its age is unknown.
        let age_s = now_s.checked_sub(known.at_s)?;
        let rate_bps = known.saved.rate_bps / CAREFUL_DIVISOR;
        (age_s <= LIFETIME_S && rate_bps > 0).then_some(Saved { rate_bps, ..known.saved })
    }

    /// Remembers what a connection to `remote` learnt, if the bytes that it sent could show it.
    pub fn remember(&self, remote: IpAddr, saved: Saved, sent_octets: u64) {
        let Saved { rate_bps, min_rtt_ns } = saved;
        let path_octets = u128::from(rate_bps) * u128::from(min_rtt_ns) / u128::from(8 * NS_PER_S);
        if remote.is_loopback() || u128::from(sent_octets) < u128::from(LEARNT_PATHS) * path_octets
        {
            return;
        }
        let at_s = clock::time_of_day_ns() / NS_PER_S;
        if let Err(error) = self.put(KnownPath { remote, saved, at_s }) {
            log::debug!("{} is not written: {error}", self.0.display());
        }
    }

    fn put(&self, path: KnownPath) -> io::Result<()> {
        let mut all = self.read();
        all.retain(|known| known.remote != path.remote);
        all.insert(0, path);
        all.truncate(HOSTS_MAX);
        let mut text = format!("{VERSION}\n");
        for KnownPath { remote, saved, at_s } in all {
            let Saved { rate_bps, min_rtt_ns } = saved;
            text.push_str(&format!("{remote} {rate_bps} {min_rtt_ns} {at_s}\n"));
        }
        if let Some(dir) = self.0.parent() {
            fs::create_dir_all(dir)?;
        }
        // A name of this call's own: of two that write at once the last one stays.
        static CALLS: AtomicU32 = AtomicU32::new(0);
        let call = CALLS.fetch_add(1, Ordering::Relaxed);
        let new = self.0.with_extension(format!("new-{}-{call}", std::process::id()));
        let written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new);
        let outcome = written
            .and_then(|mut file| own_file::writing(|| file.write_all(text.as_bytes())))
            .and_then(|()| fs::rename(&new, &self.0));
        if outcome.is_err() {
            // There may be none.
            let _ = fs::remove_file(&new);
        }
        outcome
    }

    fn read(&self) -> Vec<KnownPath> {
        let mut text = String::new();
        let Ok((file, metadata)) = plain_file::open(&self.0) else { return Vec::new() };
        // Who may write it could have a connection begin too fast.
        let is_own = metadata.mode() & 0o022 == 0;
        if !is_own || file.take(FILE_MAX).read_to_string(&mut text).is_err() {
            return Vec::new();
        }
        let mut lines = text.lines();
        match lines.next() {
            Some(VERSION) => lines.filter_map(parse).take(HOSTS_MAX).collect(),
            _ => Vec::new(),
        }
    }
}

fn parse(line: &str) -> Option<KnownPath> {
    let mut words = line.split(' ');
    let remote = words.next()?.parse().ok()?;
    let mut number = || words.next()?.parse::<u64>().ok();
    let saved = Saved { rate_bps: number()?, min_rtt_ns: number()? };
    Some(KnownPath { remote, saved, at_s: number()? })
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    const GBIT: Saved = Saved { rate_bps: 1_000_000_000, min_rtt_ns: 70_000_000 };

    struct TempPaths(PathBuf);

    impl TempPaths {
        fn new(name: &str) -> Self {
            let dir = format!("weft-known-paths-{name}-{}", std::process::id());
            Self(std::env::temp_dir().join(dir))
        }

        fn paths(&self) -> KnownPaths {
            KnownPaths::at(&self.0.join("state/paths"))
        }
    }

    impl Drop for TempPaths {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn host(number: u8) -> IpAddr {
        [192, 0, 2, number].into()
    }

    #[test]
    fn half_of_a_rate_is_relied_on_for_a_day() {
        let dir = TempPaths::new("day");
        let paths = dir.paths();
        assert_eq!(paths.find(host(1)), None);
        paths.remember(host(1), GBIT, 100_000_000);
        let half = Saved { rate_bps: 500_000_000, ..GBIT };
        assert_eq!(paths.find(host(1)), Some(half));
        assert_eq!(paths.find(host(2)), None);
        let now_s = clock::time_of_day_ns() / NS_PER_S;
        assert_eq!(paths.find_at(host(1), now_s + LIFETIME_S + 2), None);
        assert_eq!(paths.find_at(host(1), now_s - 10), None, "from the future");
    }

    #[test]
    fn a_connection_that_did_not_fill_its_path_teaches_nothing() {
        let dir = TempPaths::new("short");
        let paths = dir.paths();
        paths.remember(host(1), GBIT, 30_000_000);
        paths.remember([127, 0, 0, 1].into(), GBIT, u64::MAX);
        assert!(paths.read().is_empty() && !dir.0.exists());
    }

    #[test]
    fn of_two_threads_that_remember_at_once_one_at_least_is_heard() {
        for round in 0..300 {
            let dir = TempPaths::new("threads");
            let (paths, start) = (dir.paths(), Barrier::new(2));
            std::thread::scope(|scope| {
                for number in 1..=2 {
                    let (paths, start) = (&paths, &start);
                    scope.spawn(move || {
                        start.wait();
                        paths.remember(host(number), GBIT, u64::MAX);
                    });
                }
            });
            let found = (1..=2).any(|number| paths.find(host(number)).is_some());
            let files = fs::read_dir(dir.0.join("state")).unwrap().count();
            assert!(found && files == 1, "round {round}: {files} files");
        }
    }

    #[test]
    fn the_hosts_of_last_use_are_kept_and_damage_is_none() {
        let dir = TempPaths::new("many");
        let paths = dir.paths();
        for number in 0..300_u32 {
            paths.remember(IpAddr::from(number.to_be_bytes().map(|it| it | 1)), GBIT, u64::MAX);
            paths.remember(host(7), GBIT, u64::MAX);
        }
        assert!(paths.read().len() <= HOSTS_MAX && paths.find(host(7)).is_some());
        for text in ["weft-paths 2\n192.0.2.7 1 1 1\n", "", "weft-paths 1\nx\n1 2 3\n"] {
            fs::write(&paths.0, text).unwrap();
            assert_eq!(paths.read(), []);
        }
    }
}
