//! How long regions live, and what reaches them.

use weft_rdma::{Access, DeviceKind, QueuePairOptions, RemoteKey, WcStatus};

use crate::side::{BOTH, Side, pair};

#[test]
fn a_region_outlives_its_posting() {
    for kind in BOTH {
        let (a, b) = (Side::new(kind), Side::new(kind));
        a.connect(&b);
        let from = a.memory(&[0x5a; 4096]);
        a.qp.send(1, &from.whole().unwrap()).unwrap();
        drop(from);
        // Nobody could take it yet. What is freed would be used again by this.
        let others: Vec<_> = (0..8).map(|_| a.memory(&[0xff; 4096])).collect();
        let to = b.memory(&[0; 4096]);
        let slice = to.whole().unwrap();
        b.qp.recv(2, &slice).unwrap();
        drop(slice);
        b.connect(&a);
        b.expect(2);
        assert_eq!(to.read(0..4096).unwrap(), [0x5a; 4096], "{kind:?}");
        a.expect(1);
        drop(others);
    }
}

#[test]
fn a_key_is_dead_once_its_region_is_gone() {
    for kind in BOTH {
        let (a, b) = pair(kind);
        let (from, to) = (a.memory(b"late"), b.memory(&[0; 4]));
        let (slice, key) = (from.whole().unwrap(), to.remote_key());
        a.qp.write(1, &slice, key).unwrap();
        a.expect(1);
        // An answer shows that the Write is over, wherever it completes.
        a.qp.read(2, &slice, key).unwrap();
        a.expect(2);
        drop(to);
        a.qp.read(3, &slice, key).unwrap();
        let failed = a.next();
        assert_eq!((failed.id, failed.status), (3, WcStatus::RemAccessErr), "{kind:?}");
        assert!(failed.ok().is_err());
    }
}

#[test]
fn a_key_that_names_what_no_memory_has_is_not_sliced() {
    let key = RemoteKey { addr: u64::MAX - 1, len: 8, rkey: 7 };
    assert!(key.slice(4..5).is_err() && key.slice(1..2).is_ok());
}

#[test]
fn a_slice_keeps_its_region() {
    let (a, b) = pair(DeviceKind::Iwarp);
    let slice = b.memory(&[0; 8]).whole().unwrap();
    let key = slice.region().remote_key();
    let from = a.memory(b"for ever");
    a.qp.write(1, &from.whole().unwrap(), key).unwrap();
    a.qp.read(2, &from.whole().unwrap(), key).unwrap();
    a.expect(1);
    a.expect(2);
    assert_eq!(slice.region().read(0..8).unwrap(), b"for ever");
}

#[test]
fn a_peer_may_do_what_the_region_grants_and_nothing_else() {
    for kind in BOTH {
        let (a, b) = pair(kind);
        let closed = b.domain.register(8, Access::REMOTE_WRITE).unwrap();
        let mine = a.memory(&[1; 8]);
        a.qp.read(1, &mine.whole().unwrap(), closed.remote_key()).unwrap();
        assert_eq!(a.next().status, WcStatus::RemAccessErr, "{kind:?}");
        assert_eq!(mine.read(0..8).unwrap(), [1; 8]);
    }
    let device = Side::new(DeviceKind::Iwarp);
    assert!(device.domain.register(8, Access::ON_DEMAND).is_err());
}

#[test]
fn a_region_of_another_domain_is_refused_when_it_is_posted() {
    let (a, b) = pair(DeviceKind::Roce);
    let foreign = b.memory(&[0; 8]).whole().unwrap();
    assert!(a.qp.send(1, &foreign).is_err());
    assert!(a.qp.recv(1, &foreign).is_err());
    let cq = Side::new(DeviceKind::Iwarp).cq;
    assert!(a.domain.queue_pair(QueuePairOptions::reliable(&cq)).is_err());
}

#[test]
fn ranges_end_where_the_region_does() {
    let side = Side::new(DeviceKind::Iwarp);
    let region = side.memory(b"0123456789");
    assert!(region.slice(10..10).unwrap().is_empty());
    assert!(region.slice(9..11).is_err() && region.slice(11..11).is_err());
    assert!(region.read_at(usize::MAX, &mut [0]).is_err());
    assert!(region.write_at(8, b"xyz").is_err());
    assert!(region.load(8).is_err() && region.load(4).is_err());
    assert_eq!(region.read(0..10).unwrap(), b"0123456789");
    let key = region.remote_key();
    assert!(key.slice(10..10).is_ok() && key.slice(0..11).is_err() && key.slice(11..11).is_err());
    let beyond = side.qp.write(1, &region.whole().unwrap(), key.slice(1..10).unwrap());
    assert!(beyond.unwrap_err().to_string().contains("10 bytes from 0 on, of 9"));
}

#[test]
fn a_range_that_ends_before_it_begins_is_an_error() {
    let region = Side::new(DeviceKind::Iwarp).memory(b"0123456789");
    let (begin, end) = (5, 3);
    let key = region.remote_key();
    let errors = [
        region.slice(begin..end).unwrap_err(),
        region.read(begin..end).unwrap_err(),
        key.slice(begin as u64..end as u64).unwrap_err(),
    ];
    for error in errors {
        assert!(error.to_string().contains("ends before it begins"), "{error}");
    }
}

#[test]
fn bytes_are_copied_from_and_to_any_place() {
    let side = Side::new(DeviceKind::Iwarp);
    for (offset, len) in (0..10).flat_map(|offset| (0..28).map(move |len| (offset, len))) {
        let mut bytes: Vec<u8> = (100..138).collect();
        let region = side.memory(&bytes);
        let new: Vec<u8> = (0..len as u8).collect();
        region.write_at(offset, &new).unwrap();
        bytes[offset..offset + len].copy_from_slice(&new);
        assert_eq!(region.read(0..38).unwrap(), bytes, "{len} bytes to {offset}");
        let read = region.read(offset..offset + len).unwrap();
        assert_eq!(read, new, "{len} bytes from {offset}");
    }
}

#[test]
fn keys_travel_as_bytes() {
    let key = RemoteKey { addr: 1, len: u64::MAX - 1, rkey: 3 };
    let mut bytes = key.to_bytes().to_vec();
    bytes.extend([0; 36]);
    assert_eq!(RemoteKey::from_bytes(&bytes), Some(key));
    assert_eq!(RemoteKey::from_bytes(&bytes[..RemoteKey::LEN - 1]), None);
    let wraps = RemoteKey { addr: 2, ..key };
    assert_eq!(RemoteKey::from_bytes(&wraps.to_bytes()), None);
}
