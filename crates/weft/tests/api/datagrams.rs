//! Queue pairs for datagrams.

use std::net::IpAddr;

use weft_rdma::{Address, DeviceKind, QueuePairOptions, Work};

use crate::side::{HERE, Side};

const ROUTE: usize = Address::ROUTE_LEN;

fn side(qkey: u32) -> Side {
    side_at(HERE, qkey)
}

fn side_at(ip: IpAddr, qkey: u32) -> Side {
    Side::with(DeviceKind::Roce, |_, cq| QueuePairOptions::datagrams(cq, ip, qkey))
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
    let back = Address::of_sender(&asked, &at_b.read(0..ROUTE).unwrap(), 0x11).unwrap();
    assert_eq!(back, a.qp.address(HERE));
    b.qp.post(4, Work::send_inline(b"pong").with_imm(9).to(back)).unwrap();
    assert_eq!(a.expect(1).imm, Some(9));
    assert_eq!(at_a.read(ROUTE..ROUTE + 4).unwrap(), b"pong");
}

#[test]
fn the_route_header_tells_which_address_a_datagram_is_from() {
    for ip in ["127.0.0.9", "::1"] {
        let ip: IpAddr = ip.parse().unwrap();
        let (a, b) = (side_at(ip, 1), side_at(ip, 2));
        let inbox = b.memory(&[0; 64]);
        b.qp.recv(1, &inbox.whole().unwrap()).unwrap();
        a.qp.post(2, Work::send_inline(b"from here").to(b.qp.address(ip))).unwrap();
        let (came, route) = (b.expect(1), inbox.read(0..ROUTE).unwrap());
        assert_eq!(Address::of_sender(&came, &route, 1), Some(a.qp.address(ip)));
        assert_eq!(Address::of_sender(&came, &route[1..], 1), None);
        assert_eq!(Address::of_sender(&came, &[0; ROUTE], 1), None);
    }
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
