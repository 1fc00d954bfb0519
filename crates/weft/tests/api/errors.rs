//! What applications are told when something does not work.

use weft_rdma::{Address, DeviceKind, Error, QpState, QueuePairOptions, Region, WcStatus, Work};

use crate::side::{BOTH, HERE, LIMIT, Side, pair};

#[test]
fn a_queue_that_is_full_takes_more_once_completions_were_taken() {
    for kind in BOTH {
        let a = Side::with(kind, |_, cq| QueuePairOptions::reliable(cq).depth(4));
        let b = Side::new(kind);
        a.connect(&b);
        let memory = a.memory(&[0; 4]);
        let post = |id| a.qp.send(id, &memory.whole().unwrap());
        (0..4).for_each(|id| post(id).unwrap());
        assert!(matches!(post(4), Err(Error::QueueFull { .. })));
        let inbox = b.memory(&[0; 4]);
        (0..5).for_each(|id| b.qp.recv(id, &inbox.whole().unwrap()).unwrap());
        b.connect(&a);
        a.expect(0);
        post(5).unwrap();
        for id in [1, 2, 3, 5] {
            a.expect(id);
        }
    }
}

/// Sends `count` words, of which the last one comes into `inbox`; returns when it is there.
fn fill(near: &Side, inbox: &Region, count: u64) {
    for id in 0..count {
        near.qp.post(id, Work::send_inline(&[1; 8])).unwrap();
        near.expect(id);
    }
    while inbox.load(0).unwrap() == 0 {
        std::thread::yield_now();
    }
}

#[test]
fn a_queue_of_receives_is_full_until_their_completions_were_taken() {
    const DEPTH: u32 = 4;
    for kind in BOTH {
        for is_shared in [false, true] {
            let far = Side::new(kind);
            let small = far.device.completion_queue(DEPTH).unwrap();
            let srq = is_shared.then(|| far.domain.shared_receive_queue(DEPTH, 1).unwrap());
            let mut options = QueuePairOptions::reliable(&far.cq).recv_cq(&small).recv_depth(DEPTH);
            options.srq = srq.clone();
            let far_qp = far.domain.queue_pair(options).unwrap();
            let inbox = far.memory(&[0; 8]);
            let room = far.memory(&[0; 8]);
            let recv = |id, at: &Region| match &srq {
                Some(srq) => srq.recv(id, &at.whole().unwrap()),
                None => far_qp.recv(id, &at.whole().unwrap()),
            };
            let near = Side::new(kind);
            near.qp.connect_to(HERE, far_qp.address(HERE)).unwrap();
            far_qp.connect_to(HERE, near.qp.address(HERE)).unwrap();
            (0..3).for_each(|id| recv(id, &room).unwrap());
            recv(3, &inbox).unwrap();
            fill(&near, &inbox, DEPTH.into());
            let full = recv(4, &room).unwrap_err();
            assert!(matches!(full, Error::QueueFull { .. }), "{kind:?}: {full}");
            assert_eq!(small.wait(LIMIT).unwrap().id, 0);
            recv(4, &room).unwrap();
            near.qp.post(9, Work::send_inline(&[1; 8])).unwrap();
            let ids = [(); 4].map(|()| small.wait(LIMIT).unwrap().ok().unwrap().id);
            assert_eq!(ids, [1, 2, 3, 4], "{kind:?}");
        }
    }
}

#[test]
fn completions_beyond_the_queue_are_an_error_and_not_lost_in_silence() {
    let side = Side::new(DeviceKind::Roce);
    let small = side.device.completion_queue(1).unwrap();
    let options = side.qp.options().clone().recv_cq(&small);
    let far = side.domain.queue_pair(options).unwrap();
    let near = Side::new(DeviceKind::Roce);
    near.qp.connect_to(HERE, far.address(HERE)).unwrap();
    far.connect_to(HERE, near.qp.address(HERE)).unwrap();
    let memory = side.memory(&[0; 4]);
    (0..3).for_each(|id| far.recv(id, &memory.whole().unwrap()).unwrap());
    for id in 0..3 {
        near.qp.post(id, Work::send_inline(b"x")).unwrap();
    }
    near.next();
    let start = weft_os::clock::now();
    let error = loop {
        match small.wait(LIMIT) {
            Ok(_) => assert!(start.elapsed() < LIMIT),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::Overflow), "{error}");
}

#[test]
fn completions_before_those_that_were_lost_are_given_without_an_error() {
    /// As many as are taken from the engine at once, so that the next look finds the error.
    const ENTRIES: u32 = 16;
    let side = Side::new(DeviceKind::Roce);
    let small = side.device.completion_queue(ENTRIES).unwrap();
    let far = side.domain.queue_pair(side.qp.options().clone().recv_cq(&small)).unwrap();
    let near = Side::new(DeviceKind::Roce);
    near.qp.connect_to(HERE, far.address(HERE)).unwrap();
    far.connect_to(HERE, near.qp.address(HERE)).unwrap();
    let memory = side.memory(&[0; 4]).whole().unwrap();
    let count = u64::from(ENTRIES) + 2;
    (0..count).for_each(|id| far.recv(id, &memory).unwrap());
    (0..count).for_each(|id| near.qp.post(id, Work::send_inline(b"x")).unwrap());
    while side.device.wait_event(LIMIT).unwrap().object != Some(small.object_id()) {}
    let mut all = Vec::new();
    let taken = small.poll_into(&mut all, 64).unwrap();
    assert_eq!((taken, taken >= ENTRIES as usize), (all.len(), true));
    let error = small.poll_into(&mut all, 64).unwrap_err();
    assert!(matches!(error, Error::Overflow) && all.len() == taken, "{error}");
}

#[test]
fn what_waits_in_a_queue_pair_that_fails_is_told() {
    for kind in BOTH {
        let (a, b) = pair(kind);
        let small = b.memory(&[0; 2]);
        b.qp.recv(1, &small.whole().unwrap()).unwrap();
        b.qp.recv(2, &small.whole().unwrap()).unwrap();
        a.qp.post(3, Work::send_inline(b"too long")).unwrap();
        let failed = b.next();
        assert_eq!((failed.id, failed.status), (1, WcStatus::LocLenErr), "{kind:?}");
        let flushed = b.next();
        assert_eq!((flushed.id, flushed.status), (2, WcStatus::WrFlushErr), "{kind:?}");
        assert_eq!(b.qp.state(), QpState::Err);
        let error = flushed.ok().unwrap_err();
        assert!(error.to_string().contains("make a new queue pair"), "{error}");
    }
}

#[test]
fn receives_end_when_the_application_fails_their_queue_pair() {
    for kind in BOTH {
        let (a, b) = pair(kind);
        let inbox = b.memory(&[0; 8]);
        (1..3).for_each(|id| b.qp.recv(id, &inbox.whole().unwrap()).unwrap());
        a.qp.post(9, Work::send_inline(b"x")).unwrap();
        b.expect(1);
        b.qp.fail().unwrap();
        let flushed = b.next();
        assert_eq!((flushed.id, flushed.status), (2, WcStatus::WrFlushErr), "{kind:?}");
        assert_eq!(b.qp.state(), QpState::Err);
        b.qp.fail().expect("it is so already");
        let late = b.qp.recv(3, &inbox.whole().unwrap());
        late.unwrap();
        assert_eq!((b.next().id, b.qp.state()), (3, QpState::Err));
    }
}

#[test]
fn a_call_too_early_or_too_large_changes_nothing() {
    for kind in BOTH {
        let (a, b) = (Side::new(kind), Side::new(kind));
        let early = a.qp.post(1, Work::send_inline(b"x")).unwrap_err();
        assert!(early.to_string().starts_with("posting a send: "), "{early}");
        a.connect(&b);
        b.connect(&a);
        assert!(a.qp.post(2, Work::send_inline(&[0; 4096])).is_err());
        let word = a.memory(&[0; 16]).whole().unwrap();
        let key = b.memory(&[0; 16]).remote_key();
        assert!(a.qp.post(3, Work::fetch_add(&word, key, 1)).is_err());
        assert!(a.qp.post(4, Work::read(&word, key).with_imm(1)).is_err());
        let many = vec![word.clone(); 33];
        assert!(a.qp.send(5, &many).is_err() && a.qp.recv(5, &many).is_err());
        assert!(a.device.completion_queue(0).is_err());
        b.qp.recv(6, &word_of(&b)).unwrap();
        a.qp.send(7, &word).unwrap();
        a.expect(7);
        b.expect(6);
    }
}

fn word_of(side: &Side) -> weft_rdma::RegionSlice {
    side.memory(&[0; 16]).whole().unwrap()
}

#[test]
fn who_connects_a_queue_pair_again_is_told_that_it_has_a_peer() {
    for kind in BOTH {
        let (a, b) = pair(kind);
        let again = a.qp.connect_to(HERE, b.qp.address(HERE));
        let error = again.unwrap_err();
        assert!(error.to_string().contains("it has a peer"), "{kind:?}: {error}");
    }
}

fn is_no_local_address(error: &Error) -> bool {
    let Error::System { source, .. } = error else { return false };
    source.kind() == std::io::ErrorKind::AddrNotAvailable
}

#[test]
fn who_names_an_address_of_another_host_as_its_own_is_told_at_once() {
    for local in ["10.1.2.3", "0.0.0.0", "::", "224.0.0.1"] {
        let local = local.parse().unwrap();
        for kind in BOTH {
            let (a, b) = (Side::new(kind), Side::new(kind));
            let error = a.qp.connect_to(local, b.qp.address(local)).unwrap_err();
            assert!(is_no_local_address(&error), "{kind:?} {local}: {error}");
            assert_eq!(a.qp.state(), QpState::Init);
        }
        let side = Side::new(DeviceKind::Roce);
        let options = QueuePairOptions::datagrams(&side.cq, local, 1);
        let error = side.domain.queue_pair(options).unwrap_err();
        assert!(is_no_local_address(&error), "{local}: {error}");
    }
}

#[test]
fn the_number_of_a_peer_has_24_bits() {
    for kind in BOTH {
        let side = Side::new(kind);
        let peer = Address { number: 1 << 24, ..side.qp.address(HERE) };
        let error = side.qp.connect_to(HERE, peer).unwrap_err();
        assert!(matches!(error, Error::Invalid { .. }), "{kind:?}: {error}");
    }
}

#[test]
fn an_rnic_has_reliable_queue_pairs_alone() {
    let side = Side::new(DeviceKind::Iwarp);
    for options in
        [QueuePairOptions::unreliable(&side.cq), QueuePairOptions::datagrams(&side.cq, HERE, 1)]
    {
        let error = side.domain.queue_pair(options).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    }
}
