//! Streams that are waited for, whatever their open file says.
//!
//! Not to wait (`O_NONBLOCK`) is a property of an open file, which all processes share that have
//! it: a parent that wants it for its end of a terminal or a socket sets it for stdin of its
//! children. To clear it would break that parent.
//!
//! Invariant: no call fails because nothing is there or there is no room yet.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};

use crate::sys::{self, ReadyFor};

/// A stream on which each call waits until it can do something.
#[derive(Debug)]
pub struct Blocking<T>(pub T);

impl<T: AsFd> Blocking<T> {
    fn retry<R>(
        &mut self,
        ready: ReadyFor,
        mut call: impl FnMut(&mut T) -> io::Result<R>,
    ) -> io::Result<R> {
        loop {
            match call(&mut self.0) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    sys::wait_ready(self.0.as_fd(), ready)?;
                }
                done => return done,
            }
        }
    }
}

impl<T: AsFd> AsFd for Blocking<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl<T: Read + AsFd> Read for Blocking<T> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.retry(ReadyFor::Reading, |stream| stream.read(bytes))
    }
}

impl<T: Write + AsFd> Write for Blocking<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.retry(ReadyFor::Writing, |stream| stream.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.retry(ReadyFor::Writing, Write::flush)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc::{self, Receiver, Sender};
    use std::thread;

    use super::*;

    /// A stream that does not wait, and tells when it would have to.
    struct TellingStream(UnixStream, Sender<()>);

    impl TellingStream {
        /// One, its peer, and what it tells.
        fn pair() -> (Self, UnixStream, Receiver<()>) {
            let (stream, peer) = UnixStream::pair().unwrap();
            stream.set_nonblocking(true).unwrap();
            let (telling, told) = mpsc::channel();
            (Self(stream, telling), peer, told)
        }

        fn tell<T>(&self, outcome: io::Result<T>) -> io::Result<T> {
            if outcome.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
                let _ = self.1.send(());
            }
            outcome
        }
    }

    impl AsFd for TellingStream {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }
    }

    impl Read for TellingStream {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            let outcome = self.0.read(bytes);
            self.tell(outcome)
        }
    }

    impl Write for TellingStream {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let outcome = self.0.write(bytes);
            self.tell(outcome)
        }

        fn flush(&mut self) -> io::Result<()> {
            self.0.flush()
        }
    }

    #[test]
    fn who_reads_waits_until_something_comes() {
        let (stream, mut peer, told) = TellingStream::pair();
        let writing = thread::spawn(move || {
            told.recv().unwrap();
            peer.write_all(b"late").unwrap();
        });
        let mut all = Vec::new();
        Blocking(stream).read_to_end(&mut all).unwrap();
        writing.join().unwrap();
        assert_eq!(all, b"late");
    }

    #[test]
    fn who_writes_waits_until_there_is_room() {
        let (stream, mut peer, told) = TellingStream::pair();
        // More than a socket holds.
        let bytes: Vec<u8> = (0..4 << 20).map(|at: u32| (at / 7) as u8).collect();
        let reading = thread::spawn(move || {
            told.recv().unwrap();
            let mut all = Vec::new();
            peer.read_to_end(&mut all).unwrap();
            all
        });
        let mut blocking = Blocking(stream);
        blocking.write_all(&bytes).unwrap();
        drop(blocking);
        assert!(reading.join().unwrap() == bytes);
    }
}
