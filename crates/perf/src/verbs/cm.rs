//! rdma-cm: ids, their channel of events, and how they become connections.
//!
//! Order: [`Cm::dial`], then [`OwnedCmId::find_route`] when its address is resolved, then a queue
//! pair and [`OwnedCmId::connect`] when its route is; or [`Cm::listen`], then a queue pair and
//! [`OwnedCmId::accept`] for each [`Happened::Request`].

use std::cell::Cell;
use std::ffi::{CStr, c_int};
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::ptr;
use std::rc::Rc;

use anyhow::{Context, Result, anyhow};
use weft_verbs_abi::cma::*;
use weft_verbs_abi::*;

use super::library::{Library, library};
use crate::terms::{Happened, ReadDepth};

/// Requests that may wait to be accepted.
const BACKLOG: c_int = 256;
/// Time limit of address and route resolution, in milliseconds.
const RESOLVING_MS: c_int = 10_000;
/// `rnr_retry_count` 7: retries without limit.
const FOR_EVER: u8 = 7;
const RETRIES: u8 = 7;

/// A channel of events.
pub struct Cm(Rc<Channel>);

struct Channel {
    raw: *mut rdma_event_channel,
    library: &'static Library,
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: every id keeps the channel, so there is none left on it.
        unsafe { (self.library.rdma_destroy_event_channel)(self.raw) };
    }
}

impl Cm {
    /// A channel without ids.
    ///
    /// # Errors
    /// rdma-core is not there, or the system has no more descriptors.
    pub fn new() -> Result<Self> {
        let library = library()?;
        // SAFETY: the function takes nothing.
        let raw = unsafe { (library.rdma_create_event_channel)() };
        if raw.is_null() {
            let error = failed("opening a channel of rdma-cm");
            return Err(error.context("this machine's own adapters cannot be used"));
        }
        Ok(Self(Rc::new(Channel { raw, library })))
    }

    /// Readable when something has happened.
    pub fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel is live.
        let fd = unsafe { (*self.0.raw).fd };
        // SAFETY: the descriptor is the channel's, which lives as long as the borrow.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }

    fn id(&self) -> Result<OwnedCmId> {
        let mut raw = ptr::null_mut();
        let create = self.0.library.rdma_create_id;
        // SAFETY: the channel is live, and the place for the id is writable.
        let made = unsafe { create(self.0.raw, &mut raw, ptr::null_mut(), RDMA_PS_TCP) };
        check(made, "making an id")?;
        Ok(OwnedCmId::own(raw, &self.0))
    }

    /// Listens at an address; with port 0 the system chooses one.
    ///
    /// # Errors
    /// No device has the address, or the port is taken.
    pub fn listen(&self, address: SocketAddr) -> Result<OwnedCmId> {
        let id = self.id()?;
        let mut raw = Storage::from(address);
        // SAFETY: the id is live; the address is a whole one.
        let bound = unsafe { (self.0.library.rdma_bind_addr)(id.raw, (&raw mut raw).cast()) };
        check(bound, "binding an id").with_context(|| format!("at {address}"))?;
        // SAFETY: the id is live.
        let listening = unsafe { (self.0.library.rdma_listen)(id.raw, BACKLOG) };
        check(listening, "listening").with_context(|| format!("at {address}"))?;
        Ok(id)
    }

    /// Begins to call an address.
    ///
    /// # Errors
    /// The system has no more of something.
    pub fn dial(&self, address: SocketAddr) -> Result<OwnedCmId> {
        let id = self.id()?;
        let mut raw = Storage::from(address);
        let resolve = self.0.library.rdma_resolve_addr;
        let to = (&raw mut raw).cast();
        // SAFETY: the id is live, no source is named, and the address is a whole one.
        let begun = unsafe { resolve(id.raw, ptr::null_mut(), to, RESOLVING_MS) };
        check(begun, "resolving an address").with_context(|| address.to_string())?;
        Ok(id)
    }

    /// The next event: the id that it is about, by its [`OwnedCmId::key`], and what it is. Sleeps
    /// until there is one.
    ///
    /// # Errors
    /// The channel cannot be read.
    pub fn next(&self) -> Result<(usize, Happened<OwnedCmId>)> {
        let mut event = ptr::null_mut();
        // SAFETY: the channel is live, and the place for the event is writable.
        let got = unsafe { (self.0.library.rdma_get_cm_event)(self.0.raw, &mut event) };
        check(got, "reading an event of rdma-cm")?;
        // SAFETY: the library gave a whole event, which stays until it is acknowledged.
        let seen = unsafe { &*event };
        let key =
            if seen.event == RDMA_CM_EVENT_CONNECT_REQUEST { seen.listen_id } else { seen.id };
        let answer = (key as usize, self.read(seen));
        // SAFETY: the event is acknowledged once, and not looked at again.
        unsafe { (self.0.library.rdma_ack_cm_event)(event) };
        Ok(answer)
    }

    fn read(&self, event: &rdma_cm_event) -> Happened<OwnedCmId> {
        match event.event {
            RDMA_CM_EVENT_ADDR_RESOLVED => Happened::AddressResolved,
            RDMA_CM_EVENT_ROUTE_RESOLVED => Happened::RouteResolved,
            RDMA_CM_EVENT_CONNECT_REQUEST => {
                Happened::Request(OwnedCmId::own(event.id, &self.0), private_data(event))
            }
            RDMA_CM_EVENT_ESTABLISHED => Happened::Established(private_data(event)),
            RDMA_CM_EVENT_DISCONNECTED | RDMA_CM_EVENT_DEVICE_REMOVAL => Happened::Disconnected,
            RDMA_CM_EVENT_ADDR_ERROR
            | RDMA_CM_EVENT_ROUTE_ERROR
            | RDMA_CM_EVENT_CONNECT_ERROR
            | RDMA_CM_EVENT_UNREACHABLE
            | RDMA_CM_EVENT_REJECTED => Happened::Failed(self.why(event.event, event.status)),
            _ => Happened::Other,
        }
    }

    fn why(&self, event: u32, status: c_int) -> String {
        // SAFETY: the function takes any number.
        let name = unsafe { (self.0.library.rdma_event_str)(event) };
        // SAFETY: what it gives is a string that is never freed.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
        let reason = io::Error::from_raw_os_error(status.saturating_abs());
        if status == 0 { name.into_owned() } else { format!("{name}: {reason}") }
    }
}

fn private_data(event: &rdma_cm_event) -> Vec<u8> {
    // SAFETY: events of connections, which are all that come here, have this parameter.
    let conn = unsafe { event.param.conn };
    let (from, len) = (conn.private_data, usize::from(conn.private_data_len));
    let mut bytes = vec![0; len];
    if !from.is_null() {
        // SAFETY: the event has as much private data as it says, and the copy has room for it.
        unsafe { ptr::copy_nonoverlapping(from.cast(), bytes.as_mut_ptr(), len) };
    }
    bytes
}

/// An id, which goes away with this.
pub struct OwnedCmId {
    pub(super) raw: *mut rdma_cm_id,
    channel: Rc<Channel>,
    connected: Cell<bool>,
}

impl std::fmt::Debug for OwnedCmId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Id({:p})", self.raw)
    }
}

impl OwnedCmId {
    fn own(raw: *mut rdma_cm_id, channel: &Rc<Channel>) -> Self {
        Self { raw, channel: channel.clone(), connected: Cell::new(false) }
    }

    pub(super) fn library(&self) -> &'static Library {
        self.channel.library
    }

    /// Key by which events name the id.
    pub fn key(&self) -> usize {
        self.raw as usize
    }

    /// TCP or UDP port that it listens at.
    pub fn port(&self) -> u16 {
        // SAFETY: the id is live.
        u16::from_be(unsafe { (self.library().rdma_get_src_port)(self.raw) })
    }

    /// Its device's context; null before its address is resolved.
    pub(super) fn context(&self) -> *mut ibv_context {
        // SAFETY: the id is live.
        unsafe { &*self.raw }.verbs.get()
    }

    /// The name of its device; empty before its address is resolved.
    pub fn device(&self) -> String {
        let context = self.context();
        if context.is_null() {
            return String::new();
        }
        // SAFETY: the context is live.
        let device = unsafe { (*context).device };
        // SAFETY: a context has its device, which is live.
        let name = unsafe { &raw const (*device).name };
        // SAFETY: a name ends in NUL.
        unsafe { CStr::from_ptr(name.cast()) }.to_string_lossy().into_owned()
    }

    /// Resolves the route to the peer.
    ///
    /// # Errors
    /// The library's.
    pub fn find_route(&self) -> Result<()> {
        // SAFETY: the id is live.
        check(
            unsafe { (self.library().rdma_resolve_route)(self.raw, RESOLVING_MS) },
            "finding a route",
        )
    }

    /// Asks the peer for a connection.
    ///
    /// # Errors
    /// The library's.
    pub(super) fn connect(&self, terms: ReadDepth, private_data: &[u8]) -> Result<()> {
        let mut param = param(terms, private_data);
        self.connected.set(true);
        // SAFETY: the id is live and has a queue pair; the data lives until the call returns.
        check(unsafe { (self.library().rdma_connect)(self.raw, &mut param) }, "connecting")
    }

    /// Grants a peer the connection that it asks for.
    ///
    /// # Errors
    /// The library's.
    pub(super) fn accept(&self, terms: ReadDepth, private_data: &[u8]) -> Result<()> {
        let mut param = param(terms, private_data);
        self.connected.set(true);
        // SAFETY: the id is live and has a queue pair; the data lives until the call returns.
        check(unsafe { (self.library().rdma_accept)(self.raw, &mut param) }, "accepting")
    }

    /// Tells a peer that it gets no connection.
    pub fn reject(&self) {
        // SAFETY: the id is live, and there is no data. A peer that is gone need not be told.
        unsafe { (self.library().rdma_reject)(self.raw, ptr::null(), 0) };
    }
}

impl Drop for OwnedCmId {
    fn drop(&mut self) {
        if self.connected.get() {
            // SAFETY: the id is live. A connection that is over needs no end.
            unsafe { (self.library().rdma_disconnect)(self.raw) };
        }
        // SAFETY: the id is live; asked for its queue pair only.
        let queue_pair = unsafe { &*self.raw }.qp.get();
        if !queue_pair.is_null() {
            // SAFETY: the id is live, and nobody uses its queue pair without it.
            unsafe { (self.library().rdma_destroy_qp)(self.raw) };
        }
        // SAFETY: the id is live, its events are acknowledged, and nobody knows it any more.
        unsafe { (self.library().rdma_destroy_id)(self.raw) };
    }
}

fn param(terms: ReadDepth, private_data: &[u8]) -> rdma_conn_param {
    rdma_conn_param {
        private_data: private_data.as_ptr().cast(),
        private_data_len: u8::try_from(private_data.len()).expect("private data is short"),
        responder_resources: terms.depth,
        initiator_depth: terms.depth,
        flow_control: 0,
        retry_count: RETRIES,
        rnr_retry_count: FOR_EVER,
        srq: 0,
        qp_num: 0,
    }
}

/// The last error of a function of C that says by -1 or NULL that it failed.
pub(super) fn failed(what: &'static str) -> anyhow::Error {
    anyhow!(io::Error::last_os_error()).context(what)
}

fn check(result: c_int, what: &'static str) -> Result<()> {
    if result == 0 { Ok(()) } else { Err(failed(what)) }
}
