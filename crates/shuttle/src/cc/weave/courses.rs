//! Courses: what a flow does on small modelled paths, state by state, is what `courses.txt` says.
//!
//! A change that is not to change the control of rates leaves that file as it is. One that is
//! writes it anew, and its difference shows which states begin earlier or later, and at which rate:
//!
//! ```text
//! COURSES=show cargo test -p weft-shuttle courses -- --nocapture | sed -n 's/^| //p' > courses.txt
//! ```
//!
//! Whether a course is a good one is for the simulator to say; here it is only known.

use std::collections::VecDeque;
use std::fmt::Write as _;

use super::*;
use crate::cc::controller::{RateSample, Rtt};

/// Bytes of a packet.
const PACKET: u64 = 1250;
/// Packets that arrive after a lost one before that counts as lost, as in the recovery.
const REORDERED: u64 = 3;
/// Time without acknowledgements after which the path is down, in nanoseconds.
const DOWN_NS: u64 = 600_000_000;
const MS: u64 = 1_000_000;

/// A part of the time, from its first millisecond to its last.
type CoursePart = (u64, u64);

/// A path: one bottleneck with a queue, then a delay.
#[derive(Clone, Debug)]
struct CoursePlan {
    name: &'static str,
    rate_bps: u64,
    rtt_ms: u64,
    /// Bytes that the queue holds.
    queue: u64,
    /// Lost packets of a thousand, wherever they are.
    loss: u64,
    /// Milliseconds by which a delay varies, in order.
    jitter_ms: u64,
    /// Milliseconds for which acknowledgements wait for each other.
    bunch_ms: u64,
    seconds: u64,
    /// The path carries nothing then.
    outage: Option<CoursePart>,
    /// The application has nothing to send then, but for a packet now and again.
    pause: Option<CoursePart>,
    /// Another rate from this millisecond on.
    turn: Option<(u64, u64)>,
    /// Milliseconds that the round trip is longer by from this millisecond on.
    step: Option<(u64, u64)>,
    /// Others fill the queue to this many milliseconds then, and halve that after each loss.
    others: Option<(CoursePart, u64)>,
    /// The queue marks packets from this many milliseconds on.
    marks_ms: Option<u64>,
    /// A policer: its rate, and the bytes of its bucket.
    policer: Option<(u64, u64)>,
    saved: Option<Saved>,
    initial_bps: Option<u64>,
}

const PLAN: CoursePlan = CoursePlan {
    name: "",
    rate_bps: 20_000_000,
    rtt_ms: 40,
    queue: 200_000,
    loss: 0,
    jitter_ms: 0,
    bunch_ms: 0,
    seconds: 15,
    outage: None,
    pause: None,
    turn: None,
    step: None,
    others: None,
    marks_ms: None,
    policer: None,
    saved: None,
    initial_bps: None,
};

fn plans() -> Vec<CoursePlan> {
    let saved = Some(Saved { rate_bps: 18_000_000, min_rtt_ns: 40 * MS });
    vec![
        CoursePlan { name: "a path for one", seconds: 30, ..PLAN },
        CoursePlan { name: "a long path", rtt_ms: 200, queue: 1_000_000, ..PLAN },
        CoursePlan { name: "a short path", rtt_ms: 4, seconds: 6, ..PLAN },
        CoursePlan { name: "random loss of 1 %", loss: 10, ..PLAN },
        CoursePlan { name: "random loss of 5 %", loss: 50, seconds: 30, ..PLAN },
        CoursePlan { name: "a shallow queue", queue: 15_000, ..PLAN },
        CoursePlan { name: "jitter of 12 ms in order", jitter_ms: 12, seconds: 30, ..PLAN },
        CoursePlan {
            name: "a long path with jitter",
            rtt_ms: 100,
            jitter_ms: 30,
            seconds: 30,
            ..PLAN
        },
        CoursePlan { name: "bunches of 9 ms", bunch_ms: 9, ..PLAN },
        CoursePlan { name: "an outage of 2 s", outage: Some((5000, 7000)), ..PLAN },
        CoursePlan { name: "an outage of 30 ms", outage: Some((5000, 5030)), ..PLAN },
        CoursePlan { name: "an application that pauses", pause: Some((4000, 7000)), ..PLAN },
        CoursePlan { name: "half the rate after 5 s", turn: Some((5000, 10_000_000)), ..PLAN },
        CoursePlan { name: "thrice the rate after 5 s", turn: Some((5000, 60_000_000)), ..PLAN },
        CoursePlan { name: "30 ms more after 5 s", step: Some((5000, 30)), ..PLAN },
        CoursePlan {
            name: "others, for 12 s",
            others: Some(((4000, 16_000), 60)),
            seconds: 30,
            ..PLAN
        },
        CoursePlan { name: "others from the start", others: Some(((0, 6000), 25)), ..PLAN },
        CoursePlan { name: "marks", marks_ms: Some(5), ..PLAN },
        CoursePlan { name: "a policer", policer: Some((8_000_000, 30_000)), seconds: 40, ..PLAN },
        CoursePlan {
            name: "a policer for a while",
            policer: Some((12_000_000, 100_000)),
            turn: Some((20_000, 6_000_000)),
            loss: 5,
            seconds: 40,
            ..PLAN
        },
        CoursePlan { name: "what was saved", saved, ..PLAN },
        CoursePlan { name: "a wished rate", initial_bps: Some(40_000_000), ..PLAN },
    ]
}

struct CoursePacket {
    number: u64,
    sent_ns: u64,
    /// When its acknowledgement comes, and when it arrived; `None` if it was lost.
    arrives_ns: Option<(u64, u64)>,
    marked: bool,
    app_limited: bool,
    /// What was delivered when it was sent, and when the last of it was.
    prior: (u64, u64),
}

struct Course {
    plan: CoursePlan,
    weave: Weave,
    now_ns: u64,
    flight: VecDeque<CoursePacket>,
    number: u64,
    next_send_ns: u64,
    /// When the queue is empty again, and the last arrival.
    free_ns: u64,
    arrived_ns: u64,
    delivered: (u64, u64),
    rtt: Option<Rtt>,
    /// The bytes of the policer's bucket, and since when.
    bucket: (u64, u64),
    /// Milliseconds of the others' queue.
    others_ms: u64,
    random: u64,
    is_down: bool,
    /// What `text` says of the state last.
    said: String,
    text: String,
}

impl Course {
    fn new(plan: CoursePlan) -> Self {
        let initial_rate_bps = plan.initial_bps;
        let datagram_octets = PACKET as u16;
        let params = Params { datagram_octets, initial_rate_bps, seed: 7, ..Params::default() };
        let mut weave = Weave::new(&params);
        if plan.saved.is_some() {
            weave.on_path_changed(0, plan.saved);
        }
        let bucket = (plan.policer.map_or(0, |(_, bytes)| bytes), 0);
        Self {
            plan,
            weave,
            now_ns: MS,
            flight: VecDeque::new(),
            number: 0,
            next_send_ns: 0,
            free_ns: 0,
            arrived_ns: 0,
            delivered: (0, MS),
            rtt: None,
            bucket,
            others_ms: 0,
            random: 1,
            is_down: false,
            said: String::new(),
            text: String::new(),
        }
    }

    /// A number below 1000.
    fn draw(&mut self) -> u64 {
        // The generator of Knuth's MMIX.
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005);
        self.random = self.random.wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % 1000
    }

    fn is_in(&self, part: Option<CoursePart>) -> bool {
        part.is_some_and(|(from_ms, to_ms)| (from_ms * MS..to_ms * MS).contains(&self.now_ns))
    }

    fn rate_bps(&self) -> u64 {
        let turned = self.plan.turn.filter(|(at_ms, _)| self.now_ns >= at_ms * MS);
        turned.map_or(self.plan.rate_bps, |(_, rate_bps)| rate_bps)
    }

    /// When a packet that is sent now arrives, and whether it is marked; `None` if it is lost.
    fn carry(&mut self) -> Option<(u64, bool)> {
        let (chance, delay) = (self.draw(), self.draw());
        let step_ms = self.plan.step.filter(|(at_ms, _)| self.now_ns >= at_ms * MS);
        let (rate_bps, others) = (self.rate_bps(), self.plan.others);
        if let Some((rate_bps, bytes)) = self.plan.policer {
            let filled = octets_in(rate_bps, self.now_ns - self.bucket.1);
            self.bucket = ((self.bucket.0 + filled).min(bytes), self.now_ns);
            self.bucket.0 = self.bucket.0.checked_sub(PACKET)?;
        }
        if self.is_in(self.plan.outage) || chance < self.plan.loss {
            return None;
        }
        let begins_ns = self.free_ns.max(self.now_ns);
        let waits_ns = begins_ns - self.now_ns;
        let most_ms =
            others.filter(|(part, _)| self.is_in(Some(*part))).map(|(_, most_ms)| most_ms);
        // They add a hundredth of a millisecond with each packet of ours, and fall by a third.
        self.others_ms = most_ms.map_or(0, |_| self.others_ms + 1);
        if most_ms.is_some_and(|most_ms| self.others_ms > most_ms * 100) {
            self.others_ms = self.others_ms * 2 / 3;
            return None;
        }
        if octets_in(rate_bps, waits_ns) + PACKET > self.plan.queue {
            return None;
        }
        self.free_ns = begins_ns + PACKET * 8 * SECOND_NS / rate_bps;
        let varies_ns = delay * self.plan.jitter_ms * MS / 1000 + self.others_ms * MS / 100;
        let one_way_ns = self.plan.rtt_ms * MS / 2 + step_ms.map_or(0, |(_, ms)| ms * MS);
        self.arrived_ns = self.arrived_ns.max(self.free_ns + varies_ns + one_way_ns);
        let is_marked = self.plan.marks_ms.is_some_and(|ms| waits_ns > ms * MS);
        Some((self.arrived_ns, is_marked))
    }

    fn in_flight(&self) -> u64 {
        self.flight.len() as u64 * PACKET
    }

    fn send(&mut self) {
        let app_limited = self.is_in(self.plan.pause);
        let way_back_ns = self.plan.rtt_ms * MS / 2;
        let bunch_ns = (self.plan.bunch_ms * MS).max(1);
        let carried = self.carry();
        self.number += 1;
        self.flight.push_back(CoursePacket {
            number: self.number,
            sent_ns: self.now_ns,
            arrives_ns: carried
                .map(|(at_ns, _)| ((at_ns + way_back_ns).next_multiple_of(bunch_ns), at_ns)),
            marked: carried.is_some_and(|(_, is_marked)| is_marked),
            app_limited,
            prior: self.delivered,
        });
        let gap_ns = PACKET * 8 * SECOND_NS / self.weave.pacing_rate_bps();
        let pause_ns = if app_limited || self.is_down { 100 * MS } else { 0 };
        self.next_send_ns = self.next_send_ns.max(self.now_ns) + gap_ns.max(pause_ns);
        let in_flight_octets = self.in_flight();
        let now_ns = self.now_ns;
        let sent = Sent { now_ns, packets: 1, octets: PACKET, in_flight_octets, app_limited };
        self.weave.on_sent(&sent);
    }

    fn lose(&mut self, packet: &CoursePacket) {
        self.weave.on_lost(&Lost {
            now_ns: self.now_ns,
            sent_ns: packet.sent_ns,
            packets: 1,
            octets: PACKET,
            prior_delivered_octets: packet.prior.0,
            in_flight_octets: self.in_flight(),
        });
    }

    /// Takes the acknowledgement of the packet at `at` of those in flight.
    fn acknowledge(&mut self, at: usize) {
        let Some(packet) = self.flight.remove(at) else { return };
        let Some((_, arrived_ns)) = packet.arrives_ns else { return };
        let (mut lost_packets, now_ns) = (0, self.now_ns);
        while self.flight.front().is_some_and(|first| first.number + REORDERED <= packet.number) {
            let Some(lost) = self.flight.pop_front() else { return };
            self.lose(&lost);
            lost_packets += 1;
        }
        if packet.marked {
            self.weave.on_ecn(&Ecn { now_ns, packets: 1, sent_ns: packet.sent_ns });
        }
        let latest_ns = now_ns - packet.sent_ns;
        let before = self.rtt.unwrap_or(Rtt {
            latest_ns,
            smoothed_ns: latest_ns,
            var_ns: latest_ns / 2,
            min_ns: latest_ns,
        });
        let rtt = Rtt {
            latest_ns,
            smoothed_ns: (7 * before.smoothed_ns + latest_ns) / 8,
            var_ns: before.var_ns,
            min_ns: before.min_ns.min(latest_ns),
        };
        self.rtt = Some(rtt);
        self.delivered = (self.delivered.0 + PACKET, now_ns);
        self.is_down = false;
        self.weave.on_acked(&Acked {
            now_ns,
            packets: 1,
            octets: PACKET,
            lost_packets,
            lost_octets: u64::from(lost_packets) * PACKET,
            sent_ns: packet.sent_ns,
            rtt: Some(rtt),
            // The clocks differ by some time.
            one_way_ns: (arrived_ns - packet.sent_ns) as i64 - 5_000_000,
            rate: Some(RateSample {
                delivered_octets: self.delivered.0 - packet.prior.0,
                interval_ns: now_ns - packet.prior.1.min(packet.sent_ns),
                prior_delivered_octets: packet.prior.0,
                app_limited: packet.app_limited,
            }),
            delivered_octets: self.delivered.0,
            in_flight_octets: self.in_flight(),
        });
    }

    /// Says which state it is in, if that is another one.
    fn say(&mut self) {
        let weave = &self.weave;
        let phase = format!("{:?}", weave.phase);
        let mut said: String = phase.chars().take_while(char::is_ascii_alphabetic).collect();
        for (is, what) in
            [(weave.competes, "competes"), (weave.trial.depends, "loss depends on the rate")]
        {
            if is {
                let _cannot_fail = write!(said, ", {what}");
            }
        }
        if said != self.said {
            let (rate, window) = (weave.pacing_rate_bps() / 1000, weave.window_octets() / 100);
            let at_ms = self.now_ns / MS;
            let _cannot_fail =
                writeln!(self.text, "{at_ms:6} ms {rate:6} kbit/s {window:6}00 B {said}");
            self.said = said;
        }
    }

    /// Lets the time pass; gives what was said.
    fn run(mut self) -> String {
        let end_ns = self.plan.seconds * SECOND_NS;
        while self.now_ns < end_ns {
            let arrival = self.flight.iter().enumerate().find_map(|(at, packet)| {
                packet.arrives_ns.map(|(acked_ns, _)| (acked_ns.max(self.now_ns), at))
            });
            let room = self.in_flight() + PACKET <= self.weave.window_octets();
            let sends_ns = if room { self.next_send_ns.max(self.now_ns) } else { u64::MAX };
            let down_ns = self.delivered.1 + DOWN_NS;
            match arrival {
                Some((acked_ns, at))
                    if acked_ns <= sends_ns && acked_ns <= down_ns.max(self.now_ns) =>
                {
                    self.now_ns = acked_ns;
                    self.acknowledge(at);
                }
                _ if sends_ns <= down_ns => {
                    self.now_ns = sends_ns;
                    self.send();
                }
                _ => {
                    // Nothing has come for long: all is lost, and a probe is sent now and again.
                    self.now_ns = down_ns.max(self.now_ns);
                    self.delivered.1 = self.now_ns;
                    let lost: Vec<CoursePacket> = self.flight.drain(..).collect();
                    lost.iter().for_each(|packet| self.lose(packet));
                    self.is_down = true;
                    self.weave.on_outage(self.now_ns);
                }
            }
            self.say();
        }
        let delivered = self.delivered.0 / 1000;
        let _cannot_fail = writeln!(self.text, "{delivered} kB were delivered");
        self.text
    }
}

#[test]
fn the_course_on_each_path_is_the_known_one() {
    let courses = plans().into_iter().map(|plan| {
        let name = plan.name;
        format!("# {name}\n{}", Course::new(plan).run())
    });
    let courses = courses.collect::<Vec<_>>().join("\n");
    if std::env::var_os("COURSES").is_some_and(|value| value == "show") {
        println!();
        courses.lines().for_each(|line| println!("| {line}"));
        return;
    }
    let mut name = "";
    for (line, known) in courses.lines().zip(include_str!("courses.txt").lines()) {
        name = if known.starts_with('#') { known } else { name };
        assert_eq!(line, known, "{name}");
    }
    assert_eq!(courses.len(), include_str!("courses.txt").len(), "as many lines");
}
