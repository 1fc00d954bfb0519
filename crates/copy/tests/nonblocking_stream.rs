//! `weft cp -` where another process has made stdin or stdout one that does not wait.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use weft_copy::byte_stream;
use weft_copy::meter::{Meter, ShowStyle};
use weft_session::MessageChannel;

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

fn quiet() -> Meter {
    Meter::new(ShowStyle::Silent, false)
}

#[test]
fn all_of_it_passes() {
    let (near_in, far_out) = std::io::pipe().unwrap();
    let (far_in, near_out) = std::io::pipe().unwrap();
    let near = MessageChannel::through(near_in, near_out);
    let far = MessageChannel::through(far_in, far_out);
    let (input, mut feeding, is_empty) = TellingStream::pair();
    let (output, mut draining, is_full) = TellingStream::pair();
    // More than a socket holds.
    let bytes: Vec<u8> = (0..4 << 20).map(|at: u32| (at / 7) as u8).collect();
    thread::scope(|scope| {
        let sending = scope.spawn(|| byte_stream::send(&far, input, None, &quiet()));
        let receiving = scope.spawn(|| byte_stream::receive(&near, output, &quiet()));
        let drained = scope.spawn(move || {
            let mut all = Vec::new();
            // If it is not told, the stream has failed, and ends.
            let _ = is_full.recv();
            draining.read_to_end(&mut all).unwrap();
            all
        });
        let _ = is_empty.recv();
        // What is not taken is missed below.
        let _ = feeding.write_all(&bytes);
        drop(feeding);
        sending.join().unwrap().unwrap();
        receiving.join().unwrap().unwrap();
        assert!(drained.join().unwrap() == bytes);
    });
}
