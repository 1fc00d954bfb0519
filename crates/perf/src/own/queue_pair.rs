//! A queue pair: lists of requests that are made once and posted repeatedly.

use std::rc::Rc;
use std::sync::Arc;

use anyhow::{Result, bail};
use weft_host::{HostQp, HostQpInit};
use weft_verbs::{
    Access, QpAttr, QpAttrMask, QpCap, QpState, QpType, RecvWr, SendFlags, SendOp, SendWr, Sge,
};

use super::cm::HostCmId;
use super::domain::{HostDomain, refused};
use crate::terms::{Act, INLINE, ReadDepth, Remote, Sizes};

/// A queue pair of an id, on a domain.
pub struct HostQueuePair {
    id: HostCmId,
    qp: Arc<HostQp>,
    _domain: Rc<HostDomain>,
    sends: RequestList,
    receives: RequestList,
}

/// Requests of one length that are posted together.
struct RequestList {
    act: Act,
    number: u64,
    flags: SendFlags,
    places: Vec<Sge>,
    remotes: Vec<Remote>,
}

impl RequestList {
    fn new(act: Act, bytes: u32, lkey: u32, count: usize, number: u64) -> Self {
        let inline = matches!(act, Act::Send | Act::Write) && bytes <= INLINE;
        Self {
            act,
            number,
            flags: if inline { SendFlags::INLINE } else { SendFlags::empty() },
            places: vec![Sge { addr: 0, length: bytes, lkey }; count],
            remotes: vec![Remote::default(); count],
        }
    }

    /// Local memory of a request; requests without bytes have none.
    fn place(&self, index: usize) -> &[Sge] {
        let place = &self.places[index..=index];
        if place[0].length > 0 { place } else { &[] }
    }

    fn op(&self, index: usize) -> SendOp {
        let Remote { address: to, key: stag } = self.remotes[index];
        match self.act {
            Act::Send => SendOp::Send,
            Act::Write => SendOp::Write { to, stag },
            Act::Read => SendOp::Read { to, stag },
            Act::FetchAdd => SendOp::FetchAdd { to, stag, add: 1 },
        }
    }
}

impl HostQueuePair {
    /// Gives an id a queue pair. Before that its address is to be resolved.
    ///
    /// # Errors
    /// The device refuses.
    pub fn new(id: HostCmId, domain: &Rc<HostDomain>, sizes: Sizes) -> Result<Self> {
        if !domain.is_of(&id) {
            bail!("two connections came by two devices");
        }
        let what = "making a queue pair";
        let qp = domain.context.create_qp(init(domain, sizes)).map_err(refused(what))?;
        let attr = QpAttr {
            state: QpState::Init,
            port: 1,
            access: Access::REMOTE | Access::LOCAL_WRITE,
            ..QpAttr::default()
        };
        let set = QpAttrMask::PKEY_INDEX | QpAttrMask::PORT | QpAttrMask::ACCESS_FLAGS;
        // From here on its end is that of the queue pair.
        let none = || RequestList::new(Act::Send, 0, 0, 0, 0);
        let (sends, receives) = (none(), none());
        let made = Self { id, qp, _domain: domain.clone(), sends, receives };
        made.qp.modify(&attr, set | QpAttrMask::STATE).map_err(refused(what))?;
        Ok(made)
    }

    /// Its id.
    pub fn id(&self) -> &HostCmId {
        &self.id
    }

    /// Asks the peer for a connection.
    ///
    /// # Errors
    /// The route is not known.
    pub fn connect(&self, depth: ReadDepth, private_data: &[u8]) -> Result<()> {
        self.id.connect(&self.qp, depth, private_data)
    }

    /// Grants a peer the connection that it asks for.
    ///
    /// # Errors
    /// The peer is gone.
    pub fn accept(&self, depth: ReadDepth, private_data: &[u8]) -> Result<()> {
        self.id.accept(&self.qp, depth, private_data)
    }

    /// Prepares a list of `count` requests of `bytes` each. The last one completes, as `number`.
    pub fn prepare(&mut self, act: Act, bytes: u32, lkey: u32, count: usize, number: u64) {
        self.sends = RequestList::new(act, bytes, lkey, count, number);
    }

    /// Says for the request at `index` of the list where it is from and to.
    pub fn aim(&mut self, index: usize, local: u64, remote: Remote) {
        self.sends.places[index].addr = local;
        self.sends.remotes[index] = remote;
    }

    /// Posts the first `count` requests of the list.
    ///
    /// # Errors
    /// The queue is full, or the connection is over.
    pub fn post(&mut self, count: usize) -> Result<()> {
        let list = &self.sends;
        let mut posted = Ok(());
        for index in 0..count {
            let last = index + 1 == count;
            let flags = if last { list.flags | SendFlags::SIGNALED } else { list.flags };
            let (wr_id, op, sges) = (list.number, list.op(index), list.place(index));
            posted = self.qp.post_send(&SendWr { wr_id, op, flags, sges });
            if posted.is_err() {
                break;
            }
        }
        self.qp.ring();
        posted.map_err(refused("posting a request"))
    }

    /// Prepares a list of `count` receives of `bytes`, which complete as `number`.
    pub fn prepare_receives(&mut self, bytes: u32, lkey: u32, count: usize, number: u64) {
        self.receives = RequestList::new(Act::Send, bytes, lkey, count, number);
    }

    /// Says for the receive at `index` of the list where it is to.
    pub fn aim_receive(&mut self, index: usize, local: u64) {
        self.receives.places[index].addr = local;
    }

    /// Posts the first `count` receives of the list.
    ///
    /// # Errors
    /// The queue is full, or the connection is over.
    pub fn post_receives(&mut self, count: usize) -> Result<()> {
        let list = &self.receives;
        for index in 0..count {
            let wr = RecvWr { wr_id: list.number, sges: list.place(index) };
            self.qp.post_recv(&wr).map_err(refused("posting a receive"))?;
        }
        Ok(())
    }
}

impl Drop for HostQueuePair {
    fn drop(&mut self) {
        self.id.disconnect();
        // Its completions and events that nobody took are gone with it.
        let _ = self.qp.destroy();
    }
}

fn init(domain: &HostDomain, sizes: Sizes) -> HostQpInit {
    HostQpInit {
        kind: QpType::Rc,
        pd: Arc::clone(&domain.pd),
        send_cq: Arc::clone(&domain.cq),
        recv_cq: Arc::clone(&domain.cq),
        srq: None,
        xrcd: None,
        cap: QpCap {
            max_send_wr: sizes.sends,
            max_recv_wr: sizes.receives,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: INLINE,
        },
        sq_sig_all: false,
        cookie: 0,
    }
}
