//! What Weft asks of Linux besides sockets: descriptors, epoll, threads, memory, clock and random
//! bytes, in safe calls.
//!
//! Invariant: nothing here knows RDMA, and nothing keeps state but what belongs to the process as a
//! whole: the list of descriptors that a forked child closes ([`fds`]), the secret that random
//! bytes are stretched from where no source is left ([`random`]), the origin of the clock
//! ([`clock`]), whose memory it is and whether it is a new child ([`forks`]), its own
//! threads ([`last_thread`]), what standard error was ([`stderr`]), which user stands for those
//! that are not known ([`users`]), and what the kernel was found to know.
//!
//! Order of calls: [`random::prepare`] before the process may lose its sources of random bytes;
//! nothing else has an order.

#![deny(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used)
)]

pub mod blocking;
pub mod borrowed;
pub mod calls;
pub mod clock;
pub mod fds;
pub mod forks;
pub mod last_thread;
pub mod mark;
pub mod next;
pub mod options;
pub mod own_file;
pub mod plain_file;
pub mod random;
pub mod semaphore;
pub mod stderr;
pub mod sys;
pub mod thread;
pub mod users;
