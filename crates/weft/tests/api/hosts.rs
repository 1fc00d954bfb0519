//! Several hosts in one process, with settings of their own.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use weft_os::clock;
use weft_rdma::{Connection, DeviceKind, Error, HostOptions, Listener, LocalHost, Result, Work};

use crate::side::{BOTH, LIMIT, Side};

const LOOPBACK: ([u8; 4], u16) = ([127, 0, 0, 1], 0);
/// How long anybody may be left without a word.
const WORD: Duration = Duration::from_secs(2);
/// Attempts of which one is told by then.
const ATTEMPTS: usize = 4;

fn host(key: u8) -> LocalHost {
    LocalHost::new(HostOptions::default().key([key; 32]).threads(1).unwrap())
}

/// Connects a new queue pair of `host` to `to`, on a thread of its own.
fn connect(
    host: &LocalHost,
    kind: DeviceKind,
    to: SocketAddr,
) -> thread::JoinHandle<(Side, Result<Connection>, Duration)> {
    let host = host.clone();
    thread::spawn(move || {
        let side = Side::of(&host, kind);
        let began = clock::now();
        let outcome = Connection::open(&side.qp, to, b"", LIMIT);
        (side, outcome, began.elapsed())
    })
}

#[test]
fn hosts_with_one_key_are_connected() {
    for kind in BOTH {
        let far = Side::of(&host(1), kind);
        let listener = Listener::bind(&far.device, LOOPBACK.into()).unwrap();
        let client = connect(&host(1), kind, listener.local_addr());
        let inbox = far.memory(&[0; 8]);
        far.qp.recv(1, &inbox.whole().unwrap()).unwrap();
        let accepted = listener.accept_within(LIMIT).unwrap().accept(&far.qp, b"").unwrap();
        let (near, outcome, _) = client.join().unwrap();
        let connection = outcome.unwrap();
        near.qp.post(2, Work::send_inline(b"one key")).unwrap();
        assert_eq!(far.expect(1).len, 7);
        assert_eq!(inbox.read(0..7).unwrap(), b"one key");
        drop((connection, accepted));
    }
}

#[test]
fn hosts_with_different_keys_are_refused_and_told_why() {
    let kind = DeviceKind::Roce;
    let far = Side::of(&host(1), kind);
    let listener = Listener::bind(&far.device, LOOPBACK.into()).unwrap();
    let attempt = || {
        let client = connect(&host(2), kind, listener.local_addr());
        let (_side, outcome, took) = client.join().unwrap();
        let error = outcome.unwrap_err();
        assert!(matches!(&error, Error::Forbidden { .. }), "{error:?}");
        assert!(error.to_string().contains("no key in common"), "{error}");
        took
    };
    // One may be held up by what else this machine does.
    let late: Vec<_> = (0..ATTEMPTS).map(|_| attempt()).take_while(|took| *took >= WORD).collect();
    assert!(late.len() < ATTEMPTS, "told after {late:?}");
    let nobody = listener.accept_within(Duration::ZERO).unwrap_err();
    assert!(matches!(nobody, Error::TimedOut { .. }), "{nobody}");
}

#[test]
fn objects_of_one_host_are_not_those_of_another() {
    let (one, other) = (Side::of(&host(1), DeviceKind::Roce), Side::of(&host(1), DeviceKind::Roce));
    let options = weft_rdma::QueuePairOptions::reliable(&other.cq);
    assert!(matches!(one.domain.queue_pair(options), Err(Error::Invalid { .. })));
}

#[test]
fn what_a_host_cannot_have_is_refused_and_not_replaced() {
    for threads in [0, 17] {
        let error = HostOptions::default().threads(threads).unwrap_err();
        assert!(error.to_string().contains("1 to 16"), "{error}");
    }
    let (low, high) = (70, 60);
    for ports in [low..=high, 0..=9] {
        let error = HostOptions::default().path_ports(ports).unwrap_err();
        assert!(error.to_string().contains("range of ports"), "{error}");
    }
    for ports in [0..=0, 60..=60] {
        HostOptions::default().path_ports(ports).unwrap();
    }
}

#[test]
fn a_key_is_read_as_weft_prints_it_and_is_not_shown() {
    let error = HostOptions::default().key_text("secret").unwrap_err();
    assert!(matches!(error, Error::Invalid { .. }), "{error}");
    let options = HostOptions::default().key([0x5a; 32]);
    assert!(!format!("{options:?}").contains("90"), "{options:?}");
}
