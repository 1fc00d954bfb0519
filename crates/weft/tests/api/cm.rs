//! Connections by rdma-cm.

use std::net::SocketAddr;
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

use weft_rdma::{Connection, DeviceKind, Error, Listener, QpState, Work};

use crate::side::{BOTH, LIMIT, Side};

const LOOPBACK: ([u8; 4], u16) = ([127, 0, 0, 1], 0);

fn listen(kind: DeviceKind) -> Listener {
    Listener::bind(&Side::new(kind).device, LOOPBACK.into()).unwrap()
}

/// Connects to `to` on a thread of its own.
fn connect(kind: DeviceKind, to: SocketAddr) -> thread::JoinHandle<(Side, Connection)> {
    thread::spawn(move || {
        let side = Side::new(kind);
        let connection = Connection::open(&side.qp, to, b"question", LIMIT).unwrap();
        (side, connection)
    })
}

#[test]
fn both_ends_learn_of_each_other_and_of_the_end() {
    for kind in BOTH {
        let listener = listen(kind);
        let client = connect(kind, listener.local_addr());
        let incoming = listener.accept_within(LIMIT).unwrap();
        assert!(incoming.private_data().starts_with(b"question"));
        assert_eq!(incoming.device().kind(), kind);
        let far = Side::new(kind);
        let accepted = incoming.accept(&far.qp, b"answer").unwrap();
        let (near, connection) = client.join().unwrap();
        assert!(connection.private_data().starts_with(b"answer"));
        assert_eq!(connection.peer_addr(), listener.local_addr());
        assert_eq!(connection.local_addr(), accepted.peer_addr());
        assert_eq!(connection.queue_pair().number(), near.qp.number());
        assert!(!connection.wait_end(Duration::ZERO).unwrap());
        accepted.disconnect().unwrap();
        assert!(connection.wait_end(LIMIT).unwrap() && accepted.wait_end(LIMIT).unwrap());
        assert!(connection.wait_end(Duration::ZERO).unwrap(), "it stays over");
    }
}

#[test]
fn dropping_a_connection_ends_it_though_its_queue_pair_lives() {
    for kind in BOTH {
        let listener = listen(kind);
        let client = connect(kind, listener.local_addr());
        let far = Side::new(kind);
        let accepted = listener.accept().unwrap().accept(&far.qp, b"").unwrap();
        let (near, connection) = client.join().unwrap();
        drop(connection);
        assert!(accepted.wait_end(LIMIT).unwrap(), "{kind:?}");
        drop(near);
    }
}

#[test]
fn listeners_and_connections_end_with_their_last_handle() {
    for kind in BOTH {
        let listener = listen(kind);
        let (first, second) = (listener.clone(), listener);
        let client = connect(kind, first.local_addr());
        drop(first);
        let far = Side::new(kind);
        let accepted = second.accept().unwrap().accept(&far.qp, b"").unwrap();
        let (_near, connection) = client.join().unwrap();
        let other = connection.clone();
        drop(connection);
        assert!(!other.wait_end(Duration::from_millis(20)).unwrap(), "{kind:?}");
        let waiting = thread::spawn({
            let other = other.clone();
            move || other.wait_end(LIMIT)
        });
        accepted.disconnect().unwrap();
        assert!(other.wait_end(LIMIT).unwrap() && waiting.join().unwrap().unwrap());
    }
}

#[test]
fn a_connection_keeps_its_queue_pair() {
    for kind in BOTH {
        let listener = listen(kind);
        let client = connect(kind, listener.local_addr());
        let far = Side::new(kind);
        let inbox = far.memory(&[0; 8]);
        far.qp.recv(1, &inbox.whole().unwrap()).unwrap();
        let accepted = listener.accept().unwrap().accept(&far.qp, b"").unwrap();
        let (near, connection) = client.join().unwrap();
        drop(near);
        let qp = connection.queue_pair().clone();
        qp.post(2, Work::send_inline(b"still")).unwrap();
        far.expect(1);
        drop(accepted);
    }
}

#[test]
fn a_refusal_brings_the_words_of_the_peer() {
    for kind in BOTH {
        let listener = listen(kind);
        let to = listener.local_addr();
        let client = thread::spawn(move || {
            Connection::open(&Side::new(kind).qp, to, b"", LIMIT).unwrap_err()
        });
        listener.accept().unwrap().reject(b"not today").unwrap();
        let Error::Rejected { peer, private_data, .. } = client.join().unwrap() else {
            panic!("{kind:?}: not a refusal");
        };
        assert_eq!(peer, to);
        assert!(private_data.starts_with(b"not today"));
    }
}

#[test]
fn dropping_a_request_refuses_it() {
    for kind in BOTH {
        let listener = listen(kind);
        let to = listener.local_addr();
        let client = thread::spawn(move || {
            Connection::open(&Side::new(kind).qp, to, b"", LIMIT).unwrap_err()
        });
        drop(listener.accept().unwrap());
        assert!(matches!(client.join().unwrap(), Error::Rejected { .. }));
    }
}

#[test]
fn a_connection_begins_at_the_address_that_it_is_opened_from() {
    let from = SocketAddr::from(([127, 0, 0, 7], 0));
    for kind in BOTH {
        let listener = listen(kind);
        let to = listener.local_addr();
        let client = thread::spawn(move || {
            let side = Side::new(kind);
            let family = Connection::open_from(&side.qp, ([0; 16], 0).into(), to, b"", LIMIT);
            assert!(matches!(family, Err(Error::Invalid { .. })), "{kind:?}");
            let foreign = SocketAddr::from(([192, 0, 2, 1], 0));
            let foreign = Connection::open_from(&side.qp, foreign, to, b"", LIMIT);
            assert!(matches!(foreign, Err(Error::System { .. })), "{kind:?}");
            Connection::open_from(&side.qp, from, to, b"", LIMIT).unwrap()
        });
        let incoming = listener.accept_within(LIMIT).unwrap();
        assert_eq!(incoming.peer_addr().ip(), from.ip(), "{kind:?}");
        let accepted = incoming.accept(&Side::new(kind).qp, b"").unwrap();
        let connection = client.join().unwrap();
        assert_eq!(connection.local_addr(), accepted.peer_addr());
    }
}

#[test]
fn nobody_there_is_an_error_with_a_reason() {
    // No test listens at this address of loopback.
    let free = SocketAddr::from(([127, 0, 0, 2], 9));
    for kind in BOTH {
        let error = Connection::open(&Side::new(kind).qp, free, b"", LIMIT).unwrap_err();
        let refused = matches!(&error, Error::Rejected { peer, .. } if *peer == free);
        assert!(refused, "{kind:?}: {error}");
        assert!(error.to_string().contains("nobody listens there"), "{error}");
    }
}

#[test]
fn who_waits_for_nobody_is_told_in_time() {
    let listener = listen(DeviceKind::Iwarp);
    let nobody = listener.accept_within(Duration::from_millis(5)).unwrap_err();
    assert!(matches!(nobody, Error::TimedOut { .. }), "{nobody}");
}

#[test]
fn a_queue_pair_is_connected_once_and_by_its_own_device() {
    let listener = listen(DeviceKind::Iwarp);
    let to = listener.local_addr();
    let client = thread::spawn(move || {
        let side = Side::new(DeviceKind::Iwarp);
        let refused = Connection::open(&side.qp, to, b"", LIMIT).is_err();
        assert_eq!(side.qp.state(), QpState::Err);
        let side = Side::new(DeviceKind::Iwarp);
        let connection = Connection::open(&side.qp, to, b"", LIMIT).unwrap();
        let again = Connection::open(&side.qp, to, b"", LIMIT);
        (refused, connection, again.is_err())
    });
    let foreign = Side::new(DeviceKind::Roce);
    // What does not fit refuses the peer, which may try again with another queue pair.
    assert!(listener.accept().unwrap().accept(&foreign.qp, b"").is_err());
    let fitting = Side::new(DeviceKind::Iwarp);
    let accepted = listener.accept().unwrap().accept(&fitting.qp, b"").unwrap();
    let (refused, _connection, again) = client.join().unwrap();
    assert!(refused && again);
    drop(accepted);
}

#[test]
fn nobody_is_looked_for_at_port_0() {
    for kind in BOTH {
        let side = Side::new(kind);
        let error = Connection::open(&side.qp, LOOPBACK.into(), b"", LIMIT).unwrap_err();
        assert!(matches!(error, Error::Invalid { .. }), "{kind:?}: {error}");
        assert_eq!(side.qp.state(), QpState::Init);
    }
}

#[test]
fn a_peer_that_has_given_up_is_no_error_of_the_system_to_who_accepts() {
    for kind in BOTH {
        let listener = listen(kind);
        let near = Side::new(kind);
        let attempt = Connection::open_async(&near.qp, listener.local_addr(), b"", LIMIT);
        let mut attempt = Box::pin(attempt);
        let mut context = Context::from_waker(Waker::noop());
        assert!(attempt.as_mut().poll(&mut context).is_pending());
        let incoming = loop {
            // Route and address are found before the request leaves.
            assert!(attempt.as_mut().poll(&mut context).is_pending());
            match listener.accept_within(Duration::from_millis(1)) {
                Err(Error::TimedOut { .. }) => {}
                incoming => break incoming.unwrap(),
            }
        };
        drop(attempt);
        let outcome = incoming.accept(&Side::new(kind).qp, b"");
        // It may have left before this host answers, or just after.
        let is_told = matches!(outcome, Err(Error::Unreachable { .. } | Error::Rejected { .. }));
        assert!(is_told, "{kind:?}: {outcome:?}");
    }
}
