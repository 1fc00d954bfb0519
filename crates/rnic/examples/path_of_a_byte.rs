//! The path of a byte by the RFCs, in memory: a Write from one queue pair to another over MPA, with
//! every step in the hand of this program.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weft_rnic::mpa::{Agreed, MpaRole};
use weft_rnic::wire::llp::{Piece, RegisteredMemory};
use weft_rnic::{Batch, Conn, Input, MpaLink, MpaQp, RdmaDevice, WhenClosed, Written};
use weft_verbs::mr::{Backing, RegionSpec};
use weft_verbs::{
    Access, AsyncQueue, Cq, QpCap, QpInit, QpState, QpType, SendFlags, SendOp, SendWr, Sge, Wake,
    Wc,
};

struct NoWake;

impl Wake for NoWake {
    fn wake(&self) {}
}

/// A device with a queue pair, and a region over `memory`, whose first byte has address 0.
struct MemoryEnd {
    device: RdmaDevice,
    cq: Arc<Cq>,
    conn: Conn,
    key: u32,
}

impl MemoryEnd {
    fn new(role: MpaRole, memory: &[AtomicU64], access: Access) -> Self {
        // Keys are to be drawn at random; these are the same each time.
        let device = RdmaDevice::new(&weft_verbs::limits::IWARP, Box::new(|| 0x0bad_cafe));
        let (pd, events) = (device.alloc_pd(), AsyncQueue::new(Box::new(NoWake)));
        let cq = Arc::new(Cq::new(16, None, Arc::clone(&events), 0));
        let (addr, len) = (memory.as_ptr() as u64, size_of_val(memory) as u64);
        let (backing, iova) = (Backing::Mapped, 0);
        let spec = RegionSpec { pd: Arc::clone(&pd), addr, len, iova, access, backing };
        let key = device.register(&spec).expect("the rights are consistent");
        let init = QpInit {
            kind: QpType::Rc,
            start: QpState::Init,
            pd,
            send_cq: Arc::clone(&cq),
            recv_cq: Arc::clone(&cq),
            srq: None,
            xrcd: None,
            cap: QpCap { max_send_wr: 1, max_recv_wr: 1, ..QpCap::default() },
            sq_sig_all: true,
            cookie: 0,
        };
        let qp = device.create_qp(init, &events).expect("its limits are those of the device");
        // What the Request and Reply of MPA have led to (RFC 5044, section 7.1).
        let agreed = Agreed { crc: true, ird: 1, ord: 1, ..Agreed::default() };
        let (emss, stall_ns, confirm) = (1460, 1_000_000_000, false);
        let when_closed = WhenClosed::Fail;
        let batch_bytes = 512 << 10;
        let link =
            MpaLink { role, agreed: &agreed, emss, batch_bytes, stall_ns, confirm, when_closed };
        let conn = Conn::Mpa(Box::new(MpaQp::new(Arc::new(qp), &link, 0)));
        Self { device, cq, conn, key }
    }

    /// Everything that TCP would be given now.
    fn output(&mut self) -> Vec<u8> {
        let (mut stream, regions) = (Vec::new(), Arc::clone(self.device.regions()));
        self.conn.poll_transmit(
            || 0,
            |batch: &Batch<'_>| {
                let before = stream.len();
                for piece in batch.gather.pieces() {
                    match piece {
                        Piece::Slab { start, len } => {
                            stream.extend_from_slice(batch.gather.staged(*start, *len));
                        }
                        // Payload stays where the application has it up to here.
                        Piece::Memory(memory) => regions.reader().copy_to(*memory, &mut stream),
                    }
                }
                Written::Octets(stream.len() - before)
            },
        );
        stream
    }
}

fn main() {
    // Atomic, since the peer writes it while this side may look.
    let source = [AtomicU64::new(u64::from_ne_bytes(*b"one byte"))];
    let sink = [AtomicU64::new(0)];
    let mut near = MemoryEnd::new(MpaRole::Initiator, &source, Access::empty());
    let mut far =
        MemoryEnd::new(MpaRole::Responder, &sink, Access::LOCAL_WRITE | Access::REMOTE_WRITE);

    // RDMAP (RFC 5040): a work request names a buffer of the peer by its key (STag) and offset.
    let sges = &[Sge { addr: 0, length: 8, lkey: near.key }];
    let op = SendOp::Write { to: 0, stag: far.key };
    let write = SendWr { wr_id: 7, op, flags: SendFlags::SIGNALED, sges };
    near.conn.qp().post_send(&write).expect("the queue has room");

    // DDP (RFC 5041) cuts it into tagged segments, MPA (RFC 5044) frames them for the stream.
    let stream = near.output();
    let (ulpdu_len, rest) = stream.split_first_chunk().expect("a frame");
    let ulpdu_len = usize::from(u16::from_be_bytes(*ulpdu_len));
    assert_eq!(ulpdu_len, 14 + 8, "the header of a tagged segment, and the payload");
    assert_eq!(rest[0], 0xc1, "tagged, the last one of its message; DDP 1");
    assert_eq!(rest[1] & 0x0f, 0, "an RDMA Write");
    assert_eq!(rest[2..6], far.key.to_be_bytes());
    assert_eq!(&rest[14..22], b"one byte");
    assert_eq!(stream.len(), 2 + ulpdu_len + 4, "no padding, and the CRC");

    // The peer takes whole frames only, checks the CRC, key, bounds and rights, and places.
    assert_eq!(far.conn.handle(Input::Bytes(&stream[..20]), 0), 0);
    assert_eq!(far.conn.handle(Input::Bytes(&stream), 0), stream.len());
    assert_eq!(sink[0].load(Ordering::Acquire).to_ne_bytes(), *b"one byte");

    // A Write over TCP completes once TCP has it; the peer's application hears of none.
    let mut completion = [Wc::default()];
    assert_eq!(near.cq.poll(&mut completion), Ok(1));
    assert_eq!((completion[0].wr_id, completion[0].is_success()), (7, true));
    assert_eq!(far.cq.poll(&mut completion), Ok(0));
}
