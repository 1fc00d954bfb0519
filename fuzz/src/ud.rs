//! Any datagrams to a queue pair for unreliable datagrams: no panic, no receive taken for what is
//! not for it, nothing written beyond what was posted.

use std::net::IpAddr;
use std::sync::Arc;

use weft_rnic::shuttle::{AddressPair, Key, Opener, Route, Sealer};
use weft_rnic::wire::datagram::{Cipher, DatagramHeader, ROUTE_LEN};
use weft_rnic::{Conn, ConnEvent, Input, RdmaDevice, UdConfig, UdPolicy, UdQp};
use weft_verbs::limits::ROCE;
use weft_verbs::mr::{Backing, RegionSpec};
use weft_verbs::{
    Access, AsyncQueue, Cq, Qp, QpCap, QpInit, QpState, QpType, RecvWr, Sge, Wake, Wc,
};

/// The number and the queue key of the queue pair that [`datagrams`] are for.
pub const NUMBER: u32 = 4000 << 8 | 7;
/// As [`NUMBER`].
pub const QKEY: u32 = 0x1111_2222;
/// The key of what is sealed, and the time of day.
pub const KEY: [u8; 32] = [7; 32];
/// As [`KEY`].
pub const NOW_NS: u64 = 1_800_000_000_000_000_000;
/// Bits of the first octet: there is a key; the addresses are of IPv6; clear text is refused.
pub const SEALED: u8 = 1;
/// As [`SEALED`].
pub const V6: u8 = 2;
/// As [`SEALED`].
pub const SHUT: u8 = 4;

/// Receives that are posted, and the octets of each.
const RECEIVES: usize = 3;
const ROOM: usize = 256;

struct Silent;

impl Wake for Silent {
    fn wake(&self) {}
}

struct Policy {
    open: bool,
}

impl UdPolicy for Policy {
    fn admit(&self, _: &AddressPair) -> bool {
        self.open
    }

    fn permit(&self, _: &AddressPair) -> bool {
        self.open
    }

    fn permit_groups(&self) -> bool {
        self.open
    }
}

/// The path that datagrams come by, as their receiver has it.
pub fn route(flags: u8) -> Route {
    let at = |host: u8| {
        let v6 = std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, host.into());
        let ip = if flags & V6 == 0 { IpAddr::from([192, 0, 2, host]) } else { v6.into() };
        (ip, 4000).into()
    };
    Route { local: at(2), remote: at(1) }
}

/// What seals and opens for one life of a sender.
pub fn seals(salt: u64) -> (Sealer, Opener) {
    let key = Key::new(KEY);
    (Sealer::new(&key, Cipher::Aes128Gcm, NOW_NS, salt), Opener::new(&key, NOW_NS, false))
}

/// `data` as datagrams, each after its length in two octets, behind an octet of flags.
pub fn datagrams(data: &[u8]) {
    let Some((flags, mut data)) = data.split_first() else { return };
    let mut memory = vec![0_u64; RECEIVES * ROOM / 8 + 1];
    let guard = memory.len() - 1;
    memory[guard] = u64::MAX;
    let (qp, cq) = queue_pair(&memory);
    let sealed = flags & SEALED != 0;
    let config = UdConfig {
        port: 4000,
        group: None,
        seals: sealed.then(|| seals(1)),
        protection: None,
        screened: true,
        policy: Box::new(Policy { open: flags & SHUT == 0 }),
    };
    let mut conn = Conn::Datagram(Box::new(UdQp::new(Arc::clone(&qp), config)));
    let mut wanted = 0;
    while let Some((len, rest)) = data.split_first_chunk() {
        let (datagram, rest) = rest.split_at(rest.len().min(u16::from_be_bytes(*len).into()));
        data = rest;
        let mut bytes = datagram.to_vec();
        let input = Input::Datagram { route: route(*flags), marked: false, bytes: &mut bytes };
        let consumed = conn.handle(input, NOW_NS);
        assert!(consumed == datagram.len() || consumed == 0 && conn.is_held());
        if consumed == 0 {
            break;
        }
        let header = DatagramHeader::parse(datagram).map(|(header, _)| header);
        wanted += usize::from(header.is_some_and(|h| (h.to, h.qkey) == (NUMBER, QKEY)));
    }
    let events = std::iter::from_fn(|| conn.poll_event());
    assert!(
        events.into_iter().all(|e| matches!(e, ConnEvent::Dropped(_) | ConnEvent::Notice { .. }))
    );
    check(&cq, (!sealed).then_some(if flags & SHUT == 0 { wanted } else { 0 }));
    assert_eq!(memory[guard], u64::MAX, "written behind the last receive");
}

/// A queue pair with receives into `memory`, and where they complete.
fn queue_pair(memory: &[u64]) -> (Arc<Qp>, Arc<Cq>) {
    let device = RdmaDevice::new(&ROCE, Box::new(|| 0x5a5a_1234));
    let pd = device.alloc_pd();
    let events = AsyncQueue::new(Box::new(Silent));
    let cq = Arc::new(Cq::new(64, None, Arc::clone(&events), 1));
    let init = QpInit {
        kind: QpType::Ud,
        start: QpState::Init,
        pd: Arc::clone(&pd),
        send_cq: Arc::clone(&cq),
        recv_cq: Arc::clone(&cq),
        srq: None,
        xrcd: None,
        cap: QpCap { max_recv_wr: 8, max_recv_sge: 1, ..QpCap::default() },
        sq_sig_all: true,
        cookie: 2,
    };
    let made = device.create_qp_numbered(NUMBER, init, &events);
    let qp = Arc::new(made.expect("nobody has the number"));
    let addr = memory.as_ptr() as u64;
    let len = (RECEIVES * ROOM) as u64;
    let (access, backing) = (Access::LOCAL_WRITE, Backing::Mapped);
    let spec = RegionSpec { pd, addr, len, iova: addr, access, backing };
    let lkey = device.register(&spec).expect("it is mapped");
    for at in 0..RECEIVES as u64 {
        let sge = Sge { addr: addr + at * ROOM as u64, length: ROOM as u32, lkey };
        qp.post_recv(&RecvWr { wr_id: at, sges: &[sge] }).expect("the queue has room");
    }
    qp.set_attrs(|attrs| attrs.qkey = QKEY);
    qp.enter(QpState::Rts);
    (qp, cq)
}

/// Receives complete in order, each once, with what fits; so many as were `wanted`, if that is
/// known.
fn check(cq: &Cq, wanted: Option<usize>) {
    let mut done = [(); 64].map(|()| Wc::default());
    let count = cq.poll(&mut done).expect("the queue has room for all");
    for (at, wc) in done[..count].iter().enumerate() {
        assert_eq!(wc.wr_id, at as u64);
        let fits = (ROUTE_LEN..=ROOM).contains(&(wc.byte_len as usize));
        assert!(wc.status != 0 || fits, "{wc:?}");
    }
    assert!(wanted.is_none_or(|wanted| count == wanted), "{count} of {wanted:?}");
}
