//! Queue pairs for datagrams.

use weft_rdma::{Address, DeviceKind, QueuePairOptions, Work};

use crate::side::{HERE, Side};

/// Bytes of the route header before each datagram.
const ROUTE: usize = 40;

fn side(qkey: u32) -> Side {
    Side::with(DeviceKind::Roce, |_, cq| QueuePairOptions::datagrams(cq, HERE, qkey))
}

#[test]
fn a_datagram_says_who_sent_it_and_can_be_answered() {
    let (a, b) = (side(0x11), side(0x22));
    let (at_a, at_b) = (a.memory(&[0; 64]), b.memory(&[0; 64]));
    a.qp.recv(1, &at_a.whole().unwrap()).unwrap();
    b.qp.recv(2, &at_b.whole().unwrap()).unwrap();
    let to = Address::from_bytes(&b.qp.address(HERE).to_bytes()).unwrap();
    a.qp.post(3, Work::send_inline(b"ping").to(to)).unwrap();
    a.expect(3);
    let asked = b.expect(2);
    assert_eq!((asked.len as usize, asked.source), (ROUTE + 4, a.qp.number()));
    assert_eq!(at_b.read(ROUTE..ROUTE + 4).unwrap(), b"ping");
    let back = Address { ip: HERE, number: asked.source, qkey: 0x11 };
    b.qp.post(4, Work::send_inline(b"pong").with_imm(9).to(back)).unwrap();
    assert_eq!(a.expect(1).imm, Some(9));
    assert_eq!(at_a.read(ROUTE..ROUTE + 4).unwrap(), b"pong");
}

#[test]
fn a_datagram_without_an_address_and_an_address_without_datagrams_are_refused() {
    let datagrams = side(1);
    let refused = datagrams.qp.post(1, Work::send_inline(b"x")).unwrap_err();
    assert!(refused.to_string().contains("a datagram has an address"), "{refused}");
    assert!(datagrams.qp.connect_to(HERE, datagrams.qp.address(HERE)).is_err());
    let (a, b) = crate::side::pair(DeviceKind::Roce);
    let work = Work::send_inline(b"x").to(b.qp.address(HERE));
    assert!(a.qp.post(1, work).unwrap_err().to_string().contains("one peer"));
}
