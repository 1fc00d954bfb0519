//! How long the peer may be silent, and when it is asked for a sign of life. Without I/O.
//!
//! Invariant: a silent peer is asked several times before it counts as gone.
//!
//! Order: [`PeerLife::look`] after each [`PeerLife::pause`], and what happens meanwhile before it.

use std::time::Duration;

use anyhow::{Result, ensure};
use weft_os::clock::Moment;

use crate::ssh::SshEnd;

/// Silence after which the peer is asked for a sign of life.
const ASK_AFTER: Duration = Duration::from_secs(5);
/// Silence after which the peer is gone.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// The same once ssh has ended with a process, which may be the peer's.
const ORPHAN_SILENCE_MAX: Duration = Duration::from_secs(2);
/// The same where it may as well have lost its connection. What the peer has, such as the right to
/// write a file, is kept from its successor for as long.
pub const UNCLEAR_SILENCE_MAX: Duration = Duration::from_secs(4);
/// How often it is looked whether a sign of life is due: an idle channel wakes twice a second.
const PAUSE: Duration = Duration::from_millis(500);
/// How often the peer is asked where its end is likely.
const DOUBTFUL_PAUSE: Duration = Duration::from_millis(250);

/// What is known of the peer's life.
#[derive(Debug)]
pub(crate) struct PeerLife {
    heard: Moment,
    asked: Moment,
    ssh_end: Option<SshEnd>,
}

impl PeerLife {
    /// It was heard just now.
    pub fn new(now: Moment) -> Self {
        Self { heard: now, asked: now, ssh_end: None }
    }

    /// It was heard.
    pub fn note_heard(&mut self, now: Moment) {
        self.heard = now;
    }

    /// This process was stopped for so long: that was no silence of the peer.
    pub fn note_stop(&mut self, stopped: Duration, now: Moment) {
        self.heard = now.min(self.heard + stopped);
    }

    /// ssh has ended.
    pub fn note_ssh_end(&mut self, how: SshEnd, now: Moment) {
        self.ssh_end = Some(how);
        self.heard = now;
    }

    /// Whether the peer is to be asked for a sign of life now.
    ///
    /// # Errors
    /// It has been silent for too long.
    pub fn look(&mut self, now: Moment) -> Result<bool> {
        let silence = now.saturating_duration_since(self.heard);
        let most = match self.ssh_end {
            Some(SshEnd::WithProcess) => ORPHAN_SILENCE_MAX,
            Some(SshEnd::Unclear) => UNCLEAR_SILENCE_MAX,
            Some(SshEnd::Alone) | None => SILENCE_MAX,
        };
        let is_doubtful = self.is_doubtful();
        let pause = if is_doubtful { DOUBTFUL_PAUSE } else { ASK_AFTER };
        let ssh = if self.ssh_end.is_some() { ", and ssh to it has ended" } else { "" };
        ensure!(silence < most, "the far end has been silent for {silence:.0?}{ssh}");
        let since_asked = now.saturating_duration_since(self.asked);
        let is_due = (is_doubtful || silence >= pause) && since_asked >= pause;
        if is_due {
            self.asked = now;
        }
        Ok(is_due)
    }

    /// Until [`PeerLife::look`] is due again.
    pub fn pause(&self) -> Duration {
        if self.is_doubtful() { DOUBTFUL_PAUSE } else { PAUSE }
    }

    fn is_doubtful(&self) -> bool {
        matches!(self.ssh_end, Some(SshEnd::WithProcess | SshEnd::Unclear))
    }
}

#[cfg(test)]
mod tests {
    use weft_os::clock;

    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// For how long a peer may be silent, and how often it is asked meanwhile.
    fn patience(ssh_end: Option<SshEnd>) -> (Duration, u32) {
        let start = clock::now();
        let mut life = PeerLife::new(start);
        if let Some(how) = ssh_end {
            life.note_ssh_end(how, start);
        }
        let (mut now, mut asked) = (start, 0);
        while let Ok(is_asked) = life.look(now) {
            asked += u32::from(is_asked);
            now += life.pause();
        }
        (now - start, asked)
    }

    #[test]
    fn a_peer_is_given_up_soon_only_where_its_process_may_have_ended() {
        assert_eq!(patience(None), (ms(60_000), 11));
        assert_eq!(patience(Some(SshEnd::Alone)), (ms(60_000), 11));
        assert_eq!(patience(Some(SshEnd::Unclear)), (ms(4000), 15));
        assert_eq!(patience(Some(SshEnd::WithProcess)), (ms(2000), 7));
    }

    #[test]
    fn a_peer_that_answers_lives_and_a_stop_of_this_process_is_no_silence() {
        let start = clock::now();
        let mut life = PeerLife::new(start);
        life.note_ssh_end(SshEnd::WithProcess, start);
        assert!(life.look(start + ms(1900)).unwrap());
        life.note_heard(start + ms(1950));
        assert!(life.look(start + ms(3900)).unwrap());
        life.note_stop(ms(1000), start + ms(4500));
        life.look(start + ms(4900)).unwrap();
        let error = life.look(start + ms(5000)).unwrap_err().to_string();
        assert!(error.contains("ssh to it has ended"), "{error}");
    }
}
