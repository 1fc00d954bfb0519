//! The terminal while `weft top` fills it: single keys without echo, another screen, and all as it
//! was afterwards.

use std::io::{self, IsTerminal, PipeReader, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios};
use rustix::termios::{tcgetattr, tcgetwinsize, tcsetattr};

use crate::sys;

/// The other screen, without a cursor; and back.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
/// To the top left.
const HOME: &str = "\x1b[H";
/// Clears what is left of a line, and of the screen.
const REST_OF_LINE: &str = "\x1b[K";
const REST: &str = "\x1b[J";

/// The terminal in the hands of `weft top`.
pub struct Terminal {
    before: Termios,
    /// Readable once a signal is to end this process.
    ends: PipeReader,
}

impl Terminal {
    /// Takes the terminal, if stdin and stdout are one.
    pub fn take() -> Option<Self> {
        let (input, output) = (io::stdin(), io::stdout());
        if !input.is_terminal() || !output.is_terminal() {
            return None;
        }
        let ends = sys::end_late().ok()?;
        let before = tcgetattr(&input).ok()?;
        let mut raw = before.clone();
        // Signals stay: Ctrl-C ends it, and is seen as a key.
        raw.local_modes -= LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG;
        raw.special_codes[SpecialCodeIndex::VMIN] = 0;
        raw.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(&input, OptionalActions::Now, &raw).ok()?;
        write!(output.lock(), "{ENTER}").ok()?;
        Some(Self { before, ends })
    }

    /// Shows `text`, as much as fits.
    ///
    /// # Errors
    /// The terminal is gone.
    pub fn show(&self, text: &str) -> io::Result<()> {
        let size = tcgetwinsize(io::stdout()).ok();
        let (rows, columns) = size.map_or((24, 80), |s| (s.ws_row.max(2), s.ws_col.max(20)));
        let mut screen = HOME.to_owned();
        for (index, line) in text.lines().take(usize::from(rows) - 1).enumerate() {
            let gap = if index == 0 { "" } else { "\r\n" };
            let shown: String = line.chars().take(columns.into()).collect();
            screen += &format!("{gap}{shown}{REST_OF_LINE}");
        }
        screen += REST;
        let mut out = io::stdout().lock();
        out.write_all(screen.as_bytes())?;
        out.flush()
    }

    /// The next key within this time; `q` for a signal that is to end this process.
    pub fn key(&self, within: Duration) -> Option<u8> {
        let input = io::stdin();
        let wait = Timespec::try_from(within).ok();
        let both = [input.as_fd(), self.ends.as_fd()];
        let mut fds = both.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        if !matches!(poll(&mut fds, wait.as_ref()), Ok(1..)) {
            return None;
        }
        if !fds[1].revents().is_empty() {
            return Some(b'q');
        }
        let mut key = [0];
        // What a buffer took of the next keys, no poll would tell of.
        match rustix::io::read(input.as_fd(), &mut key) {
            Ok(1) => Some(key[0]),
            Err(rustix::io::Errno::INTR) => None,
            // The terminal is gone.
            _ => Some(b'q'),
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
        let _ = write!(io::stdout(), "{LEAVE}");
        let _ = io::stdout().flush();
    }
}
