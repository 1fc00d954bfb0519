//! A queue pair: lists of requests that are made once and posted repeatedly.

use std::ptr;
use std::rc::Rc;

use anyhow::{Context, Result, bail};
use weft_verbs_abi::*;

use super::cm::{OwnedCmId, failed};
use super::domain::VerbsDomain;
use crate::terms::{Act, INLINE, ReadDepth, Remote, Sizes};

/// A queue pair of an id, on a domain.
pub struct PerfQueuePair {
    // Destroys the queue pair first of all.
    id: OwnedCmId,
    raw: *mut ibv_qp,
    post_send: PostSend,
    post_recv: PostRecv,
    inline: u32,
    _domain: Rc<VerbsDomain>,
    sends: Vec<ibv_send_wr>,
    send_places: Vec<ibv_sge>,
    receives: Vec<ibv_recv_wr>,
    receive_places: Vec<ibv_sge>,
}

impl PerfQueuePair {
    /// Gives an id a queue pair. Before that its address is to be resolved.
    ///
    /// # Errors
    /// The device refuses.
    pub fn new(id: OwnedCmId, domain: &Rc<VerbsDomain>, sizes: Sizes) -> Result<Self> {
        if !domain.is_of(&id) {
            bail!("two connections came by two devices");
        }
        let inline = [INLINE, 0].into_iter().find(|&inline| create(&id, domain, sizes, inline));
        let inline = inline.ok_or_else(|| failed("rdma_create_qp"))?;
        // SAFETY: the id is live, and has a queue pair.
        let raw = unsafe { &*id.raw }.qp.get();
        // SAFETY: the context is live; so its table is readable.
        let ops = unsafe { &(*domain.context).ops };
        Ok(Self {
            raw,
            post_send: ops.post_send.context("the device cannot send")?,
            post_recv: ops.post_recv.context("the device cannot receive")?,
            inline,
            _domain: domain.clone(),
            id,
            sends: Vec::new(),
            send_places: Vec::new(),
            receives: Vec::new(),
            receive_places: Vec::new(),
        })
    }

    /// Its id.
    pub fn id(&self) -> &OwnedCmId {
        &self.id
    }

    /// Asks the peer for a connection.
    ///
    /// # Errors
    /// The library's.
    pub fn connect(&self, depth: ReadDepth, private_data: &[u8]) -> Result<()> {
        self.id.connect(depth, private_data)
    }

    /// Grants a peer the connection that it asks for.
    ///
    /// # Errors
    /// The library's.
    pub fn accept(&self, depth: ReadDepth, private_data: &[u8]) -> Result<()> {
        self.id.accept(depth, private_data)
    }

    /// Prepares a list of `count` requests of `bytes` each. The last one completes, as `number`.
    pub fn prepare(&mut self, act: Act, bytes: u32, lkey: u32, count: usize, number: u64) {
        let opcode = match act {
            Act::Send => IBV_WR_SEND,
            Act::Write => IBV_WR_RDMA_WRITE,
            Act::Read => IBV_WR_RDMA_READ,
            Act::FetchAdd => IBV_WR_ATOMIC_FETCH_AND_ADD,
        };
        let inline = matches!(act, Act::Send | Act::Write) && bytes <= self.inline;
        let send_flags = if inline { IBV_SEND_INLINE } else { 0 };
        let wr = ibv_send_wr {
            wr_id: number,
            num_sge: i32::from(bytes > 0),
            opcode,
            send_flags,
            ..ibv_send_wr::EMPTY
        };
        self.sends = vec![wr; count];
        self.send_places = vec![ibv_sge { addr: 0, length: bytes, lkey }; count];
    }

    /// Says for the request at `index` of the list where it is from and to.
    pub fn aim(&mut self, index: usize, local: u64, remote: Remote) {
        self.send_places[index].addr = local;
        let Remote { address: remote_addr, key: rkey } = remote;
        self.sends[index].wr = match self.sends[index].opcode {
            IBV_WR_ATOMIC_FETCH_AND_ADD => {
                WrTarget { atomic: WrAtomic { remote_addr, compare_add: 1, swap: 0, rkey } }
            }
            _ => WrTarget { rdma: WrRdma { remote_addr, rkey } },
        };
    }

    /// Posts the first `count` requests of the list.
    ///
    /// # Errors
    /// The queue is full, or the connection is over.
    pub fn post(&mut self, count: usize) -> Result<()> {
        for index in 0..count {
            self.sends[index].sg_list = &raw mut self.send_places[index];
            let last = index + 1 == count;
            let next = if last { ptr::null_mut() } else { &raw mut self.sends[index + 1] };
            self.sends[index].next = next;
            self.sends[index].send_flags &= !IBV_SEND_SIGNALED;
            if last {
                self.sends[index].send_flags |= IBV_SEND_SIGNALED;
            }
        }
        let mut bad = ptr::null_mut();
        // SAFETY: the queue pair is live, and the list with its places until the call returns.
        let posted = unsafe { (self.post_send)(self.raw, self.sends.as_mut_ptr(), &mut bad) };
        refused(posted, "posting a request")
    }

    /// Prepares a list of `count` receives of `bytes`, which complete as `number`.
    pub fn prepare_receives(&mut self, bytes: u32, lkey: u32, count: usize, number: u64) {
        let (next, sg_list) = (ptr::null_mut(), ptr::null_mut());
        let num_sge = i32::from(bytes > 0);
        self.receives = vec![ibv_recv_wr { wr_id: number, next, sg_list, num_sge }; count];
        self.receive_places = vec![ibv_sge { addr: 0, length: bytes, lkey }; count];
    }

    /// Says for the receive at `index` of the list where it is to.
    pub fn aim_receive(&mut self, index: usize, local: u64) {
        self.receive_places[index].addr = local;
    }

    /// Posts the first `count` receives of the list.
    ///
    /// # Errors
    /// The queue is full, or the connection is over.
    pub fn post_receives(&mut self, count: usize) -> Result<()> {
        for index in 0..count {
            self.receives[index].sg_list = &raw mut self.receive_places[index];
            let last = index + 1 == count;
            let next = if last { ptr::null_mut() } else { &raw mut self.receives[index + 1] };
            self.receives[index].next = next;
        }
        let mut bad = ptr::null_mut();
        // SAFETY: the queue pair is live, and the list with its places until the call returns.
        let posted = unsafe { (self.post_recv)(self.raw, self.receives.as_mut_ptr(), &mut bad) };
        refused(posted, "posting a receive")
    }
}

fn create(id: &OwnedCmId, domain: &VerbsDomain, sizes: Sizes, inline: u32) -> bool {
    let mut attributes = ibv_qp_init_attr {
        qp_context: ptr::null_mut(),
        send_cq: domain.cq,
        recv_cq: domain.cq,
        srq: ptr::null_mut(),
        cap: ibv_qp_cap {
            max_send_wr: sizes.sends,
            max_recv_wr: sizes.receives,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: inline,
        },
        qp_type: IBV_QPT_RC,
        sq_sig_all: 0,
    };
    // SAFETY: the id, the domain and its queue are live.
    let made = unsafe { (id.library().rdma_create_qp)(id.raw, domain.pd, &mut attributes) };
    made == 0
}

/// Posting functions return an errno.
fn refused(result: i32, what: &'static str) -> Result<()> {
    if result == 0 {
        return Ok(());
    }
    Err(std::io::Error::from_raw_os_error(result.saturating_abs())).context(what)
}
