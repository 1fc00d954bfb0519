//! A budget by itself, under a controller that notes what it hears.

use std::cell::RefCell;

use super::*;
use crate::cc::{Params, Saved};

/// What a controller hears of, in order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Heard {
    Sent(Sent),
    Acked(Acked),
    Lost(Lost),
    Spurious(Spurious),
    Ecn(Ecn),
    PathChanged(Option<Saved>),
    DatagramOctets(u16),
    Outage,
}

thread_local! {
    static HEARD: RefCell<Vec<Heard>> = const { RefCell::new(Vec::new()) };
}

/// What the recorders of this thread have heard since the last call.
pub(crate) fn heard() -> Vec<Heard> {
    HEARD.take()
}

fn note(heard: Heard) {
    HEARD.with_borrow_mut(|all| all.push(heard));
}

/// A controller with a constant window and rate that notes what it hears.
struct Recorder {
    window_octets: u64,
    rate_bps: u64,
}

impl Controller for Recorder {
    fn on_sent(&mut self, sent: &Sent) {
        note(Heard::Sent(*sent));
    }

    fn on_acked(&mut self, acked: &Acked) {
        note(Heard::Acked(*acked));
    }

    fn on_lost(&mut self, lost: &Lost) {
        note(Heard::Lost(*lost));
    }

    fn on_spurious(&mut self, spurious: &Spurious) {
        note(Heard::Spurious(*spurious));
    }

    fn on_ecn(&mut self, ecn: &Ecn) {
        note(Heard::Ecn(*ecn));
    }

    fn on_outage(&mut self, _: u64) {
        note(Heard::Outage);
    }

    fn on_path_changed(&mut self, _: u64, saved: Option<Saved>) {
        note(Heard::PathChanged(saved));
    }

    fn on_datagram_octets(&mut self, octets: u16) {
        note(Heard::DatagramOctets(octets));
    }

    fn pacing_rate_bps(&self) -> u64 {
        self.rate_bps
    }

    fn window_octets(&self) -> u64 {
        self.window_octets
    }

    fn name(&self) -> &'static str {
        "recorder"
    }
}

/// A recorder without a window, at the largest rate of `params`.
pub(crate) fn recorder(params: &Params) -> Box<dyn Controller> {
    Box::new(Recorder { window_octets: u64::MAX, rate_bps: params.max_rate_bps })
}

fn budget(window_octets: u64, rate_bps: u64) -> PathBudget {
    PathBudget::new(Box::new(Recorder { window_octets, rate_bps }))
}

fn unlimited() -> PathBudget {
    budget(u64::MAX, u64::MAX)
}

fn send(budget: &mut PathBudget, now_ns: u64) -> Flight {
    let mut flight = Flight::new(0, 1, 100, 100);
    flight.sent_ns = now_ns;
    budget.handle_sent(now_ns, &mut flight);
    flight
}

/// An acknowledgement at `now_ns` on a path of 1 µs.
fn at(now_ns: u64) -> AckReport {
    let rtt = Rtt { latest_ns: 1000, smoothed_ns: 1000, var_ns: 0, min_ns: 1000 };
    AckReport { now_ns, rtt, timed: true, one_way_ns: 0, marked: 0 }
}

/// What the controller hears of the acknowledgement of `flight`.
fn arrive(budget: &mut PathBudget, now_ns: u64, flight: &Flight) -> Acked {
    budget.handle_arrived(flight, 1, 0);
    budget.report(&at(now_ns));
    acked().expect("an acknowledgement")
}

fn acked() -> Option<Acked> {
    heard().into_iter().find_map(|heard| match heard {
        Heard::Acked(acked) => Some(acked),
        _ => None,
    })
}

/// S-62.
#[test]
fn a_message_with_nothing_behind_it_does_not_measure_the_path() {
    let mut budget = unlimited();
    for now_ns in [10_000, 20_000] {
        let flight = send(&mut budget, now_ns);
        budget.handle_app_limited();
        let acked = arrive(&mut budget, now_ns + 5000, &flight);
        assert!(acked.rate.unwrap().app_limited);
    }
    let full = send(&mut budget, 30_000);
    let acked = arrive(&mut budget, 32_000, &full);
    assert!(!acked.rate.unwrap().app_limited, "there was more to send");
}

/// S-62.
#[test]
fn what_leaves_before_a_pause_is_acknowledged_does_not_measure_the_path_either() {
    let mut budget = unlimited();
    let first = send(&mut budget, 10_000);
    budget.handle_app_limited();
    let second = send(&mut budget, 11_000);
    let mut samples = vec![arrive(&mut budget, 15_000, &first)];
    let third = send(&mut budget, 15_500);
    samples.push(arrive(&mut budget, 16_000, &second));
    samples.push(arrive(&mut budget, 20_500, &third));
    let limited = samples.iter().map(|acked| acked.rate.unwrap().app_limited);
    assert_eq!(limited.collect::<Vec<_>>(), [true, true, false]);
}

/// S-53: a reaction can be undone entirely if every loss of about the last round trip was none.
#[test]
fn losses_were_all_none_once_the_last_of_them_arrives_or_is_forgotten() {
    let mut budget = unlimited();
    let mut flight = Flight::new(0, 4, 100, 100);
    budget.handle_sent(0, &mut flight);
    budget.handle_lost(9000, &flight, 0b1111, true);
    let all_were = |budget: &mut PathBudget, packets| {
        budget.handle_arrived(&flight, packets, packets);
        budget.report_spurious(10_000);
        budget.report(&at(10_000));
        let spurious = heard().into_iter().find_map(|heard| match heard {
            Heard::Spurious(spurious) => Some(spurious.all),
            _ => None,
        });
        spurious.expect("spurious losses")
    };
    assert!(!all_were(&mut budget, 0b0001));
    assert!(!all_were(&mut budget, 0b0010));
    budget.forget_missing(1);
    assert!(all_were(&mut budget, 0b1000));
    budget.report_spurious(11_000);
    assert_eq!(heard(), [], "each is reported once");
}

/// What a controller with a window of nothing would block for ever.
#[test]
fn two_datagrams_may_be_in_flight_whatever_the_window() {
    let mut narrow = budget(0, u64::MAX);
    for allowed in [Allowance::Packets(2), Allowance::Packets(1), Allowance::Full] {
        assert_eq!(narrow.allowance(1, 100), allowed);
        send(&mut narrow, 1);
    }
    let mut wide = budget(599, u64::MAX);
    assert_eq!(wide.allowance(1, 100), Allowance::Packets(5));
}

#[test]
fn what_pacing_holds_back_has_a_time_and_no_more_than_the_window_leaves() {
    // A datagram of 100 bytes takes 100 µs, and a pause of a millisecond is made up for.
    let mut paced = budget(300, 8_000_000);
    let now_ns = 10_000_000;
    assert_eq!(paced.allowance(now_ns, 100), Allowance::Packets(3));
    let mut flight = Flight::new(0, 20, 100, 100);
    paced.handle_sent(now_ns, &mut flight);
    assert_eq!(paced.allowance(now_ns, 100), Allowance::Full);
    paced.handle_arrived(&flight, (1 << 20) - 1, 0);
    assert_eq!(paced.allowance(now_ns, 100), Allowance::At(11_000_000));
    assert_eq!(paced.allowance(11_000_000, 100), Allowance::Packets(3));
}

/// Otherwise 64 kB at the initial rate would delay what follows for long.
#[test]
fn probes_of_the_path_mtu_are_not_paced() {
    for (cargo, allowed) in [
        (Cargo::MtuProbe, Allowance::Packets(10)),
        (Cargo::Frames, Allowance::At(9_000_000 + 65_000_000)),
    ] {
        let mut paced = budget(u64::MAX, 8_000_000);
        let mut flight = Flight::new(0, 1, 65_000, 65_000);
        flight.cargo = cargo;
        paced.handle_sent(10_000_000, &mut flight);
        assert_eq!(paced.allowance(10_000_000, 100), allowed);
    }
}

#[test]
fn the_next_packet_leaves_when_pacing_and_window_let_it() {
    // A window of 1000 bytes a round trip of 1 ms is 8 Mbit/s.
    let mut budget = budget(1000, 16_000_000);
    assert_eq!(budget.outlook(20_000_000, 1_000_000), (20_000_000, 8_000_000));
    assert_eq!(budget.outlook(20_000_000, 250_000), (20_000_000, 16_000_000));
    let mut flight = Flight::new(0, 3, 1000, 1000);
    budget.handle_sent(20_000_000, &mut flight);
    // Pacing makes up for a millisecond: the next is due 1.5 ms after that. The window is
    // exceeded by 2000 bytes.
    assert_eq!(budget.outlook(20_000_000, 1_000_000), (22_500_000, 8_000_000));
    assert_eq!(budget.outlook(30_000_000, 1_000_000), (32_000_000, 8_000_000));
}

#[test]
fn an_acknowledgement_is_reported_with_all_that_it_showed() {
    let mut budget = unlimited();
    let flights = [0, 1, 2].map(|at| {
        let mut flight = Flight::new(4 * at, 4, 100, 50);
        flight.sent_ns = 1000 * (at + 1);
        budget.handle_sent(flight.sent_ns, &mut flight);
        flight
    });
    let sent = |at: u64| Sent {
        now_ns: 1000 * at,
        packets: 4,
        octets: 350,
        in_flight_octets: 350 * at,
        app_limited: false,
    };
    assert_eq!(heard(), [1, 2, 3].map(|at| Heard::Sent(sent(at))));
    budget.handle_arrived(&flights[0], 0b1110, 0);
    budget.handle_arrived(&flights[1], 0b0011, 0);
    budget.handle_lost(9000, &flights[0], 0b0001, true);
    budget.handle_lost(9000, &flights[1], 0b1100, true);
    budget.handle_lost(9000, &flights[2], 0b0001, false);
    let lost = |sent_ns, packets, octets, in_flight_octets| Lost {
        now_ns: 9000,
        sent_ns,
        packets,
        octets,
        prior_delivered_octets: 0,
        in_flight_octets,
    };
    let losses = [lost(1000, 1, 100, 500), lost(2000, 2, 150, 350)];
    assert_eq!(heard(), losses.map(Heard::Lost), "the loss of a probe is not told");
    budget.report(&AckReport { one_way_ns: 7, marked: 3, ..at(9000) });
    let ecn = Ecn { now_ns: 9000, packets: 3, sent_ns: 2000 };
    let rate = RateSample {
        delivered_octets: 450,
        interval_ns: 8000,
        prior_delivered_octets: 0,
        app_limited: false,
    };
    let acked = Acked {
        now_ns: 9000,
        packets: 5,
        octets: 450,
        lost_packets: 3,
        lost_octets: 250,
        sent_ns: 2000,
        rtt: Some(at(9000).rtt),
        one_way_ns: 7,
        rate: Some(rate),
        delivered_octets: 450,
        in_flight_octets: 250,
    };
    assert_eq!(heard(), [Heard::Ecn(ecn), Heard::Acked(acked)]);
    budget.report(&AckReport { marked: 1, ..at(9500) });
    assert_eq!(heard(), [], "nothing of its own was acknowledged");
}

#[test]
fn losses_that_a_timer_found_are_not_those_of_the_next_acknowledgement() {
    let mut budget = unlimited();
    let [first, second] = [1000, 2000].map(|now_ns| send(&mut budget, now_ns));
    budget.handle_lost(9000, &first, 1, true);
    budget.forget_losses();
    let acked = arrive(&mut budget, 9000, &second);
    assert_eq!((acked.lost_packets, acked.lost_octets), (0, 0));
    assert_eq!(acked.in_flight_octets, 0);
}

#[test]
fn spurious_losses_are_reported_together_with_the_newest_time_of_sending() {
    let mut budget = unlimited();
    let [mut early, mut late] = [0, 4].map(|pn| Flight::new(pn, 4, 100, 100));
    (early.sent_ns, late.sent_ns) = (1000, 2000);
    for flight in [&mut early, &mut late] {
        budget.handle_sent(flight.sent_ns, flight);
        budget.handle_lost(9000, flight, 0b1111, true);
    }
    heard();
    budget.handle_arrived(&late, 0b0011, 0b0011);
    budget.handle_arrived(&early, 0b0001, 0b0001);
    budget.report_spurious(9500);
    let spurious = Spurious { now_ns: 9500, sent_ns: 2000, packets: 3, octets: 300, all: false };
    assert_eq!(heard(), [Heard::Spurious(spurious)]);
}

/// The longer of the interval of sending and that of arrival, which no burst of
/// acknowledgements shortens below the round trip.
#[test]
fn a_rate_is_measured_over_the_longer_interval_and_no_less_than_a_round_trip() {
    for (apart_ns, took_ns, interval_ns) in
        [(500, 1500, Some(2000)), (500, 499, None), (500, 500, Some(1000))]
    {
        let mut budget = unlimited();
        let first = send(&mut budget, 10_000);
        let second = send(&mut budget, 10_000 + apart_ns);
        budget.handle_arrived(&first, 1, 0);
        let acked = arrive(&mut budget, 10_000 + apart_ns + took_ns, &second);
        let rate = acked.rate.map(|rate| (rate.delivered_octets, rate.interval_ns));
        assert_eq!(rate, interval_ns.map(|interval_ns| (200, interval_ns)));
    }
    let mut budget = unlimited();
    let [first, second, third] = [10_000, 11_000, 14_000].map(|ns| send(&mut budget, ns));
    arrive(&mut budget, 20_000, &first);
    budget.handle_arrived(&second, 1, 0);
    let acked = arrive(&mut budget, 21_000, &third);
    // Sent over 4 µs; the acknowledgements took 11 µs since the first was sent.
    assert_eq!(acked.rate.unwrap().interval_ns, 11_000);
}
