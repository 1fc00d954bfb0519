//! What applications are told when their device is reset.

use std::net::{IpAddr, Ipv4Addr};
use std::thread;
use std::time::Duration;

use crate::wait::block_on;
use crate::{
    Connection, Device, DeviceKind, Error, Listener, LocalHost, QueuePair, QueuePairOptions,
};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const LIMIT: Duration = Duration::from_secs(20);

/// A device that is reset 6 s after it was opened, when all connections have been made.
fn device(kind: DeviceKind) -> Device {
    Device::open(&LocalHost::with_faults("device-fatal=60s:at=6s"), kind).unwrap()
}

fn queue_pair(device: &Device) -> QueuePair {
    let cq = device.completion_queue(16).unwrap();
    device.protection_domain().queue_pair(QueuePairOptions::reliable(&cq)).unwrap()
}

/// Both ends of a connection through `listener`.
fn connect(device: &Device, listener: &Listener) -> [Connection; 2] {
    let (near, far, to) = (queue_pair(device), queue_pair(device), listener.local_addr());
    let client = thread::spawn(move || Connection::open(&near, to, b"", LIMIT).unwrap());
    let accepted = listener.accept().unwrap().accept(&far, b"").unwrap();
    [client.join().unwrap(), accepted]
}

fn is_reset<T>(outcome: Result<T, Error>) -> bool {
    matches!(outcome, Err(Error::DeviceReset { .. }))
}

fn all_that_wait_are_told(kind: DeviceKind) {
    let device = device(kind);
    let listener = Listener::bind(&device, (HERE, 0).into()).unwrap();
    let ends = connect(&device, &listener);
    assert!(is_reset(listener.accept_within(LIMIT)), "{kind:?}");
    assert!(is_reset(listener.accept()), "{kind:?}: it is remembered");
    for end in ends {
        assert!(end.wait_end(LIMIT).unwrap(), "{kind:?}");
        block_on(end.ended()).unwrap();
    }
}

#[test]
fn who_waits_for_a_peer_of_weft_iw0_or_for_the_end_is_told_of_a_reset() {
    all_that_wait_are_told(DeviceKind::Iwarp);
}

#[test]
fn who_waits_for_a_peer_of_weft0_or_for_the_end_is_told_of_a_reset() {
    all_that_wait_are_told(DeviceKind::Roce);
}

#[test]
fn a_listener_at_no_address_of_its_own_serves_the_device_that_is_opened_again() {
    for kind in [DeviceKind::Iwarp, DeviceKind::Roce] {
        let host = LocalHost::with_faults("device-fatal=1ms:at=100ms");
        let before = Device::open(&host, kind).unwrap();
        let listener = Listener::bind(&before, (Ipv4Addr::UNSPECIFIED, 0).into()).unwrap();
        before.wait_event(LIMIT).unwrap();
        let again = std::iter::repeat_with(|| Device::open(&host, kind));
        let after = again.flatten().next().unwrap();
        let (near, far) = (queue_pair(&after), queue_pair(&after));
        let to = (HERE, listener.local_addr().port()).into();
        let client = thread::spawn(move || Connection::open(&near, to, b"", LIMIT).unwrap());
        let accepted = listener.accept_within(LIMIT).unwrap().accept(&far, b"").unwrap();
        drop((client.join().unwrap(), accepted));
    }
}

#[test]
fn a_device_that_was_reset_makes_no_more_objects() {
    let device = device(DeviceKind::Roce);
    let event = device.wait_event(LIMIT).unwrap();
    assert_eq!((event.kind, event.object), (crate::AsyncKind::DeviceFatal, None));
    let error = device.completion_queue(16).unwrap_err();
    assert!(error.to_string().contains("open the device again"), "{error}");
    assert!(is_reset::<()>(Err(error)));
}
