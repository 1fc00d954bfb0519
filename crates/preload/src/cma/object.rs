//! The objects behind the pointers that an application holds.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::net::SocketAddr;
use std::sync::Arc;
use std::{mem, ptr};

use weft_host::DeviceKind;
use weft_rdmacm::{CmId, EventChannel};
use weft_sync::{Mutex, MutexGuard};

use super::devices::CmaDevice;
use super::names::SharedAddrInfo;
use super::{route, sockaddr};
use crate::errno::needs_memory;
use crate::ibv::qp;
use crate::log::log;
use crate::rdma;
use weft_verbs::{QpAttr, QpAttrMask};
use weft_verbs_abi::cma::{
    IBV_QPT_UD, IdHead, QpInitAttr, RDMA_PS_TCP, Storage, ibv_sa_path_rec, rdma_cm_id,
    rdma_event_channel, rdma_ib_addr,
};
use weft_verbs_abi::{IBV_QPT_RC, ibv_ece, ibv_pd};

/// The default partition, which every port of a channel adapter is in; iWARP has none.
pub const PKEY_DEFAULT: u16 = 0xFFFF;

/// A copy of what an application passes by address and length.
///
/// # Safety
/// `bytes` is NULL or has `len` readable bytes.
pub unsafe fn copy_bytes(bytes: *const c_void, len: usize) -> Vec<u8> {
    if bytes.is_null() {
        return Vec::new();
    }
    let mut copy = vec![0; len];
    // SAFETY: as many bytes are readable, and the copy has as much room.
    unsafe { ptr::copy_nonoverlapping(bytes.cast(), copy.as_mut_ptr(), len) };
    copy
}

/// The channels that the application has, by the addresses that it knows them by.
static CHANNELS: Mutex<BTreeMap<usize, Arc<EventChannel>>> = Mutex::new(BTreeMap::new());

/// The meaning of a channel's address.
pub enum ChannelObject {
    /// A channel that the application has and has not destroyed.
    Live(Arc<EventChannel>),
    /// One it destroyed. A thread that takes events can come back with such an address while
    /// another ends the application; what it points to is never looked at.
    Destroyed,
    /// NULL: the call is synchronous.
    Absent,
}

impl ChannelObject {
    /// A new channel, for [`ChannelObject::destroy`] to take back; or an errno.
    pub fn create() -> Result<*mut rdma_event_channel, c_int> {
        needs_memory!(Err);
        let channel = EventChannel::new(rdma::host()).map_err(|e| weft_net::refused(e).errno())?;
        let head = Box::into_raw(Box::new(rdma_event_channel { fd: channel.fd() }));
        channels().insert(head.addr(), channel);
        Ok(head)
    }

    /// The channel at an address.
    pub fn find(channel: *mut rdma_event_channel) -> ChannelObject {
        if channel.is_null() {
            return ChannelObject::Absent;
        }
        channels().get(&channel.addr()).cloned().map_or(Self::Destroyed, Self::Live)
    }

    /// The channel at an address; none for NULL and for a destroyed one.
    pub fn live(channel: *mut rdma_event_channel) -> Option<Arc<EventChannel>> {
        match Self::find(channel) {
            Self::Live(channel) => Some(channel),
            Self::Destroyed | Self::Absent => None,
        }
    }

    /// Ends a channel, if there is one at the address. A thread that sleeps in it stays asleep.
    pub fn destroy(channel: *mut rdma_event_channel) {
        let Some(object) = channels().remove(&channel.addr()) else { return };
        object.close();
        // SAFETY: the address was in the table, so it came from Box::into_raw and was not freed.
        drop(unsafe { Box::from_raw(channel) });
    }
}

fn channels() -> MutexGuard<'static, BTreeMap<usize, Arc<EventChannel>>> {
    CHANNELS.lock()
}

/// An id and what is behind it.
#[repr(C)]
pub struct IdObject {
    pub head: IdHead,
    pub cm: Arc<CmId>,
    /// Attributes of the queue pairs for the requests of this listener (`rdma_create_ep`).
    pub request_qp: Cell<Option<QpInitAttr>>,
    /// Goes in front of the private data of a connect (`ai_connect`).
    pub connect_data: RefCell<Vec<u8>>,
    /// The result of `rdma_resolve_addrinfo`.
    pub found: SharedAddrInfo,
    pub local_ece: Cell<ibv_ece>,
    /// Number of the queue pair that was made for the id.
    pub qp_num: Cell<u32>,
    /// What `path_rec` points to.
    path: Cell<ibv_sa_path_rec>,
}

impl IdObject {
    /// A new id, for [`IdObject::free`] to take back.
    pub fn create(
        cm: Arc<CmId>,
        channel: *mut rdma_event_channel,
        context: *mut c_void,
        port_space: c_int,
    ) -> *mut IdObject {
        // SAFETY: zeroes are null pointers, zero numbers, and an empty address.
        let mut head: IdHead = unsafe { mem::zeroed() };
        head.id.channel = Cell::new(channel);
        head.id.context = Cell::new(context);
        head.id.ps = Cell::new(port_space);
        let reliable = port_space == RDMA_PS_TCP;
        head.id.qp_type = Cell::new(if reliable { IBV_QPT_RC } else { IBV_QPT_UD });
        let object = Box::into_raw(Box::new(IdObject {
            head,
            cm: cm.clone(),
            request_qp: Cell::new(None),
            connect_data: RefCell::default(),
            found: SharedAddrInfo::default(),
            local_ece: Cell::new(ibv_ece { vendor_id: 0, options: 0, comp_mask: 0 }),
            qp_num: Cell::new(0),
            // SAFETY: zeroes are a valid record.
            path: Cell::new(unsafe { mem::zeroed() }),
        }));
        cm.set_cookie(object as u64);
        object
    }

    /// The object of an id; none for NULL.
    ///
    /// # Safety
    /// `id` is NULL or a live one from [`IdObject::create`], which outlives the reference.
    pub unsafe fn get<'a>(id: *mut rdma_cm_id) -> Option<&'a IdObject> {
        // SAFETY: the pointer is NULL or the head of a live object, whose fields are cells.
        unsafe { id.cast::<IdObject>().as_ref() }
    }

    /// The object that the connection manager's id was made for.
    ///
    /// # Safety
    /// The id is not destroyed before the reference is gone: one of its events is not acknowledged.
    pub unsafe fn of<'a>(cm: &CmId) -> Option<&'a IdObject> {
        // SAFETY: the cookie is the address of the object, or 0 before there is one.
        unsafe { IdObject::get(ptr::with_exposed_provenance_mut(cm.cookie() as usize)) }
    }

    /// Ends an id whose events are all acknowledged.
    ///
    /// # Safety
    /// `object` came from [`IdObject::create`] and is not used again.
    pub unsafe fn free(object: *mut IdObject) {
        // SAFETY: the pointer came from Box::into_raw and is given up by the caller.
        drop(unsafe { Box::from_raw(object) });
    }

    /// The pointer that the application knows.
    pub fn as_ptr(&self) -> *mut rdma_cm_id {
        ptr::from_ref(self).cast_mut().cast()
    }

    /// Whether each call on the id waits for its event.
    pub fn is_sync(&self) -> bool {
        self.head.sync.get() != 0
    }

    /// The kind of the id's device.
    pub fn personality(&self) -> DeviceKind {
        self.cm.personality()
    }

    /// Shows the application the addresses that the id has now.
    pub fn show_addresses(&self) {
        let (local, peer) = (self.cm.local_addr(), self.cm.peer_addr());
        let addr = &self.head.id.route.addr;
        let storage = |addr: Option<SocketAddr>| addr.map_or(Storage::EMPTY, Storage::from);
        addr.src.set(storage(local));
        addr.dst.set(storage(peer));
        addr.ibaddr.set(rdma_ib_addr {
            sgid: sockaddr::gid(local),
            dgid: sockaddr::gid(peer),
            pkey: PKEY_DEFAULT.to_be(),
        });
    }

    /// Shows the application of an adapter's id the path to the peer: programs look there for the
    /// size of packets.
    pub fn show_path(&self) {
        let Some(path) = route::path_record(&self.cm) else { return };
        self.path.set(path);
        self.head.id.route.path_rec.set(self.path.as_ptr());
        self.head.id.route.num_paths.set(1);
    }

    /// Binds the id to its device, unless its address leaves open which one that would be.
    pub fn show_device(&self) {
        let bound = self.cm.local_addr().is_some_and(|addr| !addr.ip().is_unspecified());
        let id = &self.head.id;
        let device = self.cm.device().and_then(|id| CmaDevice::get(id).ok());
        let Some(device) = device.filter(|_| bound) else { return };
        if id.verbs.get() == device.context {
            return;
        }
        // An id that is only bound may still turn out to be of the other device.
        let before = id.verbs.replace(device.context);
        id.port_num.set(1);
        // SAFETY: a domain of an id is live.
        let other = |pd: *mut ibv_pd| unsafe { (*pd).context } == before;
        if id.pd.get().is_null() || other(id.pd.get()) {
            id.pd.set(device.pd);
        }
    }

    /// Lets the queue pair of the id show its state, and the acknowledgement timeout that was set.
    pub fn show_queue_pair(&self) {
        // An application may have destroyed the queue pair without telling the id, or do so just
        // now.
        let (number, qp) = (self.qp_num.get(), self.head.id.qp.get());
        let Some(core) = qp::refresh_living(self.personality(), number, qp) else { return };
        let rnic = self.personality() == DeviceKind::Iwarp;
        if let Some(timeout) = self.cm.ack_timeout().filter(|_| rnic) {
            // A device that is gone takes none.
            let _ = core.modify(&QpAttr { timeout, ..QpAttr::default() }, QpAttrMask::TIMEOUT);
        }
        if let Some(capabilities) = core.capabilities() {
            log!(Debug, "queue pair {:#x} is connected: {capabilities}", core.num());
        }
    }
}
