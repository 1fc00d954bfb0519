//! One direction of a path at work: from one TUN device, through a link, to another.
//!
//! A thread runs [`route`] for each direction; they share nothing. Segments that arrive within
//! [`DirectionSetup::gather_ns`] are handed on together, so that a fast path costs few wake-ups; a
//! segment that travels alone is handed on at its time. Nothing is handed on early.

use std::fs::File;
use std::io::{self, BufWriter};
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::clock::{PathClock, thread_cpu_ns, thread_kept_waiting_ns};
use crate::link::{Link, LinkConfig, LinkDelivery};
use crate::packet::{BUNDLE_BYTES_MAX, BundleParts, OFFLOAD_BYTES, TunFrame, plain_offload};
use crate::pcapng::CaptureWriter;
use crate::stats::{DelayHistogram, DirectionStats};
use crate::tun::{self, Tun};
use weft_units::NS_PER_SEC;

/// A capture that both directions write to.
pub type SharedCapture = Arc<Mutex<CaptureWriter<BufWriter<File>>>>;

/// Parameters of [`route`].
#[derive(Debug)]
pub struct DirectionSetup {
    /// TUN device that packets are read from.
    pub from: Arc<Tun>,
    /// TUN device that they are written to.
    pub to: Arc<Tun>,
    /// Configuration of the link.
    pub config: LinkConfig,
    /// Seed of the link's random numbers.
    pub seed: u64,
    /// Longest time that segments are gathered into a bundle, in nanoseconds.
    pub gather_ns: u64,
    /// Clock of the path.
    pub clock: PathClock,
    /// Captures of what is sent and of what arrives.
    pub captures: [Option<SharedCapture>; 2],
    /// Statistics, shared with whoever reports them.
    pub stats: Arc<Mutex<DirectionStats>>,
}

#[derive(Clone, Debug)]
struct BundleSegment {
    frame: Rc<TunFrame>,
    index: usize,
}

/// Segments that will be written as one bundle.
#[derive(Debug)]
struct Gathered {
    frame: Rc<TunFrame>,
    range: Range<usize>,
    marked: bool,
    /// Due time of the first one, in nanoseconds.
    due_ns: u64,
}

#[derive(Debug)]
struct Router {
    setup: DirectionSetup,
    link: Link<BundleSegment>,
    numbers: DirectionStats,
    late: DelayHistogram,
    unread: DelayHistogram,
    gathered: Option<Gathered>,
    spare: Vec<Vec<u8>>,
    scratch: Vec<u8>,
    /// Last time at which the device was known to be empty, in nanoseconds.
    empty_ns: u64,
    published_ns: u64,
    /// Whether statistics have changed since they were published.
    is_untold: bool,
}

/// Rounds between two checks of `stop` under load.
const BUSY_TURNS_MAX: u32 = 64;
/// Bundles read per round, before due ones are sent.
const READS_MAX: usize = 16;
/// Segments sent per round, before the device is read again.
const DELIVERIES_MAX: usize = 2048;
/// Packets up to this size are copied out of their 64 KiB buffer. Copying larger ones halves the
/// rate.
const COPIED_BYTES_MAX: usize = 4096;
/// Bytes in flight and in the queue at most. The excess is dropped and reported as a complaint.
const IN_FLIGHT_BYTES_MAX: u64 = 4 << 30;
const SPARE_BUFFERS_MAX: usize = 4096;
const PUBLISH_NS: u64 = 10_000_000;

/// Routes until `stop` is readable or closed.
///
/// # Errors
/// A device is gone.
pub fn route(setup: DirectionSetup, stop: BorrowedFd<'_>) -> io::Result<()> {
    tun::go_first();
    // The default timer slack adds 50 us to each wait.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    let mut router = Router::new(setup);
    let mut busy_turns = 0;
    loop {
        let handed_on = router.deliver();
        let read = router.receive()?;
        busy_turns = if handed_on || read { busy_turns + 1 } else { 0 };
        router.publish(false);
        // `stop` is polled under load too.
        if busy_turns % BUSY_TURNS_MAX == 0 && router.wait(stop, busy_turns > 0)? {
            router.publish(true);
            return Ok(());
        }
    }
}

impl Router {
    fn new(setup: DirectionSetup) -> Self {
        Self {
            link: Link::new(setup.config.clone(), setup.seed),
            setup,
            numbers: DirectionStats::default(),
            late: DelayHistogram::default(),
            unread: DelayHistogram::default(),
            gathered: None,
            spare: Vec::new(),
            scratch: Vec::new(),
            empty_ns: 0,
            published_ns: 0,
            is_untold: false,
        }
    }

    /// Reads waiting bundles, up to a limit; returns whether the limit was reached.
    fn receive(&mut self) -> io::Result<bool> {
        for _ in 0..READS_MAX {
            let mut offload = [0; OFFLOAD_BYTES];
            let mut buffer = self.spare.pop().unwrap_or_else(|| vec![0; BUNDLE_BYTES_MAX]);
            let read = self.setup.from.read(&mut offload, &mut buffer)?;
            let now_ns = self.setup.clock.now_ns();
            let Some(bytes) = read else {
                self.spare.push(buffer);
                self.empty_ns = now_ns;
                return Ok(false);
            };
            self.numbers.bundles_read += 1;
            self.is_untold = true;
            self.unread.record(now_ns.saturating_sub(self.empty_ns));
            if bytes < COPIED_BYTES_MAX {
                let small = buffer[..bytes].to_vec();
                self.spare.push(buffer);
                buffer = small;
            }
            match TunFrame::parse(&offload, buffer, bytes) {
                Ok(frame) => self.admit(now_ns, Rc::new(frame)),
                Err(_) => self.numbers.damaged += 1,
            }
        }
        Ok(true)
    }

    fn admit(&mut self, now_ns: u64, frame: Rc<TunFrame>) {
        let markable = frame.is_markable();
        if self.link.in_flight_bytes() > IN_FLIGHT_BYTES_MAX {
            self.numbers.overflowed += 1;
            return;
        }
        for index in 0..frame.segments() {
            let bytes = frame.wire_bytes(index) as u32;
            self.capture(0, now_ns, || frame.segment(index, false, None));
            let segment = BundleSegment { frame: Rc::clone(&frame), index };
            self.link.handle(now_ns, bytes, markable, segment);
        }
        self.recycle(frame);
    }

    /// Sends due segments, up to a limit; returns whether the limit was reached.
    fn deliver(&mut self) -> bool {
        let now_ns = self.setup.clock.now_ns();
        let mut left = DELIVERIES_MAX;
        while left > 0
            && let Some(delivery) = self.link.poll(now_ns)
        {
            left -= 1;
            self.hand_on(delivery);
        }
        self.flush();
        left == 0
    }

    fn hand_on(&mut self, delivery: LinkDelivery<BundleSegment>) {
        let LinkDelivery {
            packet: BundleSegment { frame, index }, marked, corrupt, due_ns, ..
        } = delivery;
        if corrupt.is_some() {
            self.flush();
            let packet = frame.segment(index, marked, corrupt);
            self.write(
                due_ns,
                &BundleParts { offload: plain_offload(), headers: &packet, payload: &[] },
            );
            self.capture(1, self.setup.clock.now_ns(), || packet);
            return;
        }
        if let Some(gathered) = &mut self.gathered
            && Rc::ptr_eq(&gathered.frame, &frame)
            && gathered.range.end == index
            && gathered.marked == marked
        {
            gathered.range.end += 1;
            return;
        }
        self.flush();
        self.gathered = Some(Gathered { frame, range: index..index + 1, marked, due_ns });
    }

    fn flush(&mut self) {
        let Some(Gathered { frame, range, marked, due_ns }) = self.gathered.take() else { return };
        let mut scratch = std::mem::take(&mut self.scratch);
        self.write(due_ns, &frame.run(range.clone(), marked, &mut scratch));
        self.scratch = scratch;
        if self.setup.captures[1].is_some() {
            let now_ns = self.setup.clock.now_ns();
            range.for_each(|index| self.capture(1, now_ns, || frame.segment(index, marked, None)));
        }
        self.recycle(frame);
    }

    /// Writes segments, of which the first was due at `due_ns`.
    fn write(&mut self, due_ns: u64, run: &BundleParts<'_>) {
        self.late.record(self.setup.clock.now_ns() - due_ns);
        self.numbers.bundles_written += 1;
        self.is_untold = true;
        self.numbers.refused += u64::from(self.setup.to.write(run).is_err());
    }

    /// Returns the buffer of a frame to the pool once no segment refers to it.
    fn recycle(&mut self, frame: Rc<TunFrame>) {
        let Some(buffer) = Rc::into_inner(frame).map(TunFrame::into_buffer) else { return };
        if buffer.len() == BUNDLE_BYTES_MAX && self.spare.len() < SPARE_BUFFERS_MAX {
            self.spare.push(buffer);
        }
    }

    fn capture(&self, end: usize, now_ns: u64, packet: impl FnOnce() -> Vec<u8>) {
        let Some(capture) = &self.setup.captures[end] else { return };
        let time_ns = self.setup.clock.calendar_ns(now_ns);
        let mut writer = capture.lock().unwrap_or_else(PoisonError::into_inner);
        writer.packet(time_ns, end == 1, &packet());
    }

    /// Waits for a readable device, a due segment or `stop`; only polls if it `is_busy`. Returns
    /// whether to stop.
    fn wait(&mut self, stop: BorrowedFd<'_>, is_busy: bool) -> io::Result<bool> {
        let now_ns = self.setup.clock.now_ns();
        let gather_ns = if self.link.in_flight() > 1 { self.setup.gather_ns } else { 0 };
        let due_ns = self.link.next_due_ns().map(|due_ns| due_ns + gather_ns);
        let untold_ns = self.is_untold.then(|| self.published_ns + PUBLISH_NS);
        let busy_ns = is_busy.then_some(now_ns);
        let wake_ns = due_ns.into_iter().chain(untold_ns).chain(busy_ns).min();
        let timeout = wake_ns.map(|wake_ns| timespec(wake_ns.saturating_sub(now_ns)));
        let from = self.setup.from.as_fd();
        let mut fds = [stop, from].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let is_over = !fds[0].revents().is_empty();
        if !is_busy {
            self.empty_ns = self.setup.clock.now_ns();
        }
        Ok(is_over)
    }

    fn publish(&mut self, at_once: bool) {
        let now_ns = self.setup.clock.now_ns();
        if !at_once && (!self.is_untold || now_ns - self.published_ns < PUBLISH_NS) {
            return;
        }
        (self.published_ns, self.is_untold) = (now_ns, false);
        self.numbers.link = self.link.counters();
        self.numbers.queue_bytes = self.link.queue_bytes(now_ns);
        self.numbers.rate_bps = self.link.rate(now_ns).map(|rate| rate.bps());
        self.numbers.late = self.late.summary();
        self.numbers.unread = self.unread.summary();
        self.numbers.cpu_ns = thread_cpu_ns();
        self.numbers.kept_waiting_ns = thread_kept_waiting_ns();
        self.numbers.elapsed_ns = now_ns;
        *self.setup.stats.lock().unwrap_or_else(PoisonError::into_inner) = self.numbers;
    }
}

fn timespec(ns: u64) -> Timespec {
    Timespec { tv_sec: (ns / NS_PER_SEC) as i64, tv_nsec: (ns % NS_PER_SEC) as i64 }
}
