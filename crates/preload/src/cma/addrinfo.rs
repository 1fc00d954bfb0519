//! Names to addresses: `getaddrinfo` of the C library, in librdmacm's structure.
//!
//! A result is one allocation of ours for each part, freed by [`rdma_freeaddrinfo`] alone.

use std::ffi::{CStr, CString, c_char, c_int};
use std::mem;
use std::net::SocketAddr;
use std::ptr;

use super::sockaddr;
use crate::errno::{self, needs_memory};
use crate::real::pass_when_off;
use weft_os::calls::sleeping;
use weft_verbs_abi::IBV_QPT_RC;
use weft_verbs_abi::cma::{
    IBV_QPT_UD, RAI_DNS, RAI_NUMERICHOST, RAI_PASSIVE, RAI_SA, RDMA_PS_TCP, RDMA_PS_UDP, Storage,
    rdma_addrinfo,
};

/// The hints of `rdma_getaddrinfo`.
#[derive(Clone, Copy)]
pub struct Hints {
    flags: c_int,
    family: c_int,
    qp_type: c_int,
    port_space: c_int,
    src: Option<SocketAddr>,
    dst: Option<SocketAddr>,
}

impl Hints {
    const NONE: Hints =
        Hints { flags: 0, family: 0, qp_type: 0, port_space: 0, src: None, dst: None };

    /// The hints that an application passes, or the defaults without hints.
    ///
    /// # Safety
    /// `hints` is NULL or readable with the addresses it names.
    pub unsafe fn given(hints: *const rdma_addrinfo) -> Hints {
        // SAFETY: the caller passes NULL or readable hints.
        match unsafe { hints.as_ref() } {
            // SAFETY: the addresses in them are whole.
            Some(raw) => unsafe { Hints::read(raw) },
            None => Hints::NONE,
        }
    }

    /// An errno for what is asked of a resolver that is not there, or of two at once.
    pub fn refusal(&self) -> Option<c_int> {
        match self.flags & (RAI_SA | RAI_DNS) {
            RAI_SA => Some(libc::EOPNOTSUPP),
            0 | RAI_DNS => None,
            _ => Some(libc::EINVAL),
        }
    }

    /// # Safety
    /// The addresses that `raw` names are whole.
    unsafe fn read(raw: &rdma_addrinfo) -> Hints {
        let present = |addr: *mut libc::sockaddr, len: libc::socklen_t| match len {
            0 => ptr::null_mut(),
            _ => addr,
        };
        Hints {
            flags: raw.ai_flags,
            family: raw.ai_family,
            qp_type: raw.ai_qp_type,
            port_space: raw.ai_port_space,
            // SAFETY: the caller passes whole addresses.
            src: unsafe { sockaddr::read(present(raw.ai_src_addr, raw.ai_src_len)) },
            // SAFETY: as above.
            dst: unsafe { sockaddr::read(present(raw.ai_dst_addr, raw.ai_dst_len)) },
        }
    }

    fn is_passive(&self) -> bool {
        self.flags & RAI_PASSIVE != 0
    }

    fn is_datagram(&self) -> bool {
        self.qp_type == IBV_QPT_UD || self.qp_type == 0 && self.port_space == RDMA_PS_UDP
    }

    /// The type of queue pair and the port space; each follows from the other.
    fn kind(&self) -> (c_int, c_int) {
        let (qp_type, port_space) = match self.is_datagram() {
            true => (IBV_QPT_UD, RDMA_PS_UDP),
            false => (IBV_QPT_RC, RDMA_PS_TCP),
        };
        let or = |given: c_int, default: c_int| if given == 0 { default } else { given };
        (or(self.qp_type, qp_type), or(self.port_space, port_space))
    }

    fn to_libc(self) -> libc::addrinfo {
        // SAFETY: zeroes are hints without a wish.
        let mut raw: libc::addrinfo = unsafe { mem::zeroed() };
        raw.ai_family = self.family;
        raw.ai_socktype = if self.is_datagram() { libc::SOCK_DGRAM } else { libc::SOCK_STREAM };
        if self.is_passive() {
            raw.ai_flags |= libc::AI_PASSIVE;
        }
        if self.flags & RAI_NUMERICHOST != 0 {
            raw.ai_flags |= libc::AI_NUMERICHOST;
        }
        raw
    }
}

/// An address from the C library's `getaddrinfo`.
struct FoundAddress {
    addr: SocketAddr,
    canonical_name: Option<CString>,
}

/// Asks the C library; or its error, one of `EAI_*`.
///
/// # Safety
/// `node` and `service` are NULL or NUL-terminated.
unsafe fn look_up(
    node: *const c_char,
    service: *const c_char,
    hints: Hints,
) -> Result<FoundAddress, c_int> {
    let hints = hints.to_libc();
    let mut list = ptr::null_mut();
    // SAFETY: the caller passes strings or NULL; `list` receives a list that is freed below.
    let find = || unsafe { libc::getaddrinfo(node, service, &raw const hints, &raw mut list) };
    // A server of names may let it wait for seconds.
    let code = sleeping(find);
    if code != 0 {
        return Err(code);
    }
    // SAFETY: the list is not freed yet.
    let found = unsafe { first(list) };
    // SAFETY: the list came from getaddrinfo, and nothing borrows from it any more.
    unsafe { libc::freeaddrinfo(list) };
    found.ok_or(libc::EAI_FAMILY)
}

/// # Safety
/// `list` is NULL or a list from getaddrinfo.
unsafe fn first(list: *const libc::addrinfo) -> Option<FoundAddress> {
    // SAFETY: the caller passes NULL or a live list.
    let entry = unsafe { list.as_ref() }?;
    // SAFETY: an entry has a whole address.
    let addr = unsafe { sockaddr::read(entry.ai_addr) }?;
    let canonical_name = match entry.ai_canonname.is_null() {
        true => None,
        // SAFETY: names are NUL-terminated.
        false => Some(unsafe { CStr::from_ptr(entry.ai_canonname) }.to_owned()),
    };
    Some(FoundAddress { addr, canonical_name })
}

/// `rdma_getaddrinfo`. Gives an error of getaddrinfo (`EAI_*`) where the C library found nothing,
/// else -1 and `errno`.
///
/// # Safety
/// `node` and `service` are NULL or NUL-terminated, `hints` NULL or readable with what it names,
/// `res` writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
    res: *mut *mut rdma_addrinfo,
) -> c_int {
    pass_when_off!(rdma_getaddrinfo(node, service, hints, res));
    needs_memory!(errno::minus_one);
    if res.is_null() || node.is_null() && service.is_null() && hints.is_null() {
        return errno::minus_one(libc::EINVAL);
    }
    // SAFETY: the caller passes NULL or readable hints.
    let wish = unsafe { Hints::given(hints) };
    if let Some(code) = wish.refusal() {
        return errno::minus_one(code);
    }
    // SAFETY: the caller passes strings or NULL.
    match unsafe { AddrInfo::find(node, service, wish) } {
        Ok(answer) => {
            // SAFETY: the caller passes a writable pointer.
            unsafe { res.write(answer.into_raw()) };
            0
        }
        Err(code) => code,
    }
}

/// A result in the making.
#[derive(Clone)]
pub struct AddrInfo {
    wish: Hints,
    family: c_int,
    src: Option<SocketAddr>,
    dst: Option<SocketAddr>,
    src_name: Option<CString>,
    dst_name: Option<CString>,
}

impl AddrInfo {
    /// Asks the C library for the names that are not NULL; or its error, one of `EAI_*`.
    ///
    /// # Safety
    /// `node` and `service` are NULL or NUL-terminated.
    pub unsafe fn find(
        node: *const c_char,
        service: *const c_char,
        wish: Hints,
    ) -> Result<AddrInfo, c_int> {
        let mut answer = AddrInfo::new(wish);
        if !node.is_null() || !service.is_null() {
            // SAFETY: strings or NULL by contract.
            answer.take(unsafe { look_up(node, service, wish) }?, wish.is_passive());
        }
        Ok(answer)
    }

    fn new(wish: Hints) -> AddrInfo {
        let (src, dst) = (wish.src, wish.dst);
        AddrInfo { wish, family: wish.family, src, dst, src_name: None, dst_name: None }
    }

    fn take(&mut self, found: FoundAddress, passive: bool) {
        self.family = if found.addr.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        if passive {
            (self.src, self.src_name) = (Some(found.addr), found.canonical_name);
        } else {
            (self.dst, self.dst_name) = (Some(found.addr), found.canonical_name);
        }
    }

    /// For [`rdma_freeaddrinfo`] to take back.
    pub fn into_raw(self) -> *mut rdma_addrinfo {
        let (qp_type, port_space) = self.wish.kind();
        let (ai_src_addr, ai_src_len) = boxed(self.src);
        let (ai_dst_addr, ai_dst_len) = boxed(self.dst);
        let name = |name: Option<CString>| name.map_or(ptr::null_mut(), CString::into_raw);
        Box::into_raw(Box::new(rdma_addrinfo {
            ai_flags: self.wish.flags,
            ai_family: self.family,
            ai_qp_type: qp_type,
            ai_port_space: port_space,
            ai_src_len,
            ai_dst_len,
            ai_src_addr,
            ai_dst_addr,
            ai_src_canonname: name(self.src_name),
            ai_dst_canonname: name(self.dst_name),
            ai_route_len: 0,
            ai_route: ptr::null_mut(),
            ai_connect_len: 0,
            ai_connect: ptr::null_mut(),
            ai_next: ptr::null_mut(),
        }))
    }
}

fn boxed(addr: Option<SocketAddr>) -> (*mut libc::sockaddr, libc::socklen_t) {
    let Some(addr) = addr else { return (ptr::null_mut(), 0) };
    let storage = Storage::from(addr);
    let len = sockaddr::len_of(storage.family()) as libc::socklen_t;
    (Box::into_raw(Box::new(storage)).cast(), len)
}

/// `rdma_freeaddrinfo`.
///
/// # Safety
/// `res` is NULL or came from [`rdma_getaddrinfo`], and is not used again. Data for the route or
/// the connection that the application put in was allocated by `malloc`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_freeaddrinfo(res: *mut rdma_addrinfo) {
    pass_when_off!(rdma_freeaddrinfo(res));
    let mut next = res;
    while !next.is_null() {
        // SAFETY: each result came from Box::into_raw.
        let one = unsafe { Box::from_raw(next) };
        next = one.ai_next;
        for addr in [one.ai_src_addr, one.ai_dst_addr] {
            if !addr.is_null() {
                // SAFETY: addresses came from Box::into_raw, as storage.
                drop(unsafe { Box::from_raw(addr.cast::<Storage>()) });
            }
        }
        for name in [one.ai_src_canonname, one.ai_dst_canonname] {
            if !name.is_null() {
                // SAFETY: names came from CString::into_raw.
                drop(unsafe { CString::from_raw(name) });
            }
        }
        for data in [one.ai_route, one.ai_connect] {
            // SAFETY: the application allocated it by malloc, or it is NULL.
            unsafe { libc::free(data) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(node: Option<&CStr>, service: Option<&CStr>, hints: Option<rdma_addrinfo>) -> Asked {
        let text = |text: Option<&CStr>| text.map_or(ptr::null(), CStr::as_ptr);
        let hints = hints.as_ref().map_or(ptr::null(), ptr::from_ref);
        let mut res = ptr::null_mut();
        // SAFETY: strings and hints are live, the result is writable.
        let code = unsafe { rdma_getaddrinfo(text(node), text(service), hints, &raw mut res) };
        Asked { code, res }
    }

    struct Asked {
        code: c_int,
        res: *mut rdma_addrinfo,
    }

    impl Asked {
        fn get(&self) -> &rdma_addrinfo {
            assert_eq!(self.code, 0);
            // SAFETY: a successful call gave a result.
            unsafe { &*self.res }
        }

        fn src(&self) -> Option<SocketAddr> {
            // SAFETY: a result has whole addresses.
            unsafe { sockaddr::read(self.get().ai_src_addr) }
        }

        fn dst(&self) -> Option<SocketAddr> {
            // SAFETY: a result has whole addresses.
            unsafe { sockaddr::read(self.get().ai_dst_addr) }
        }
    }

    impl Drop for Asked {
        fn drop(&mut self) {
            // SAFETY: NULL or a result, used no more.
            unsafe { rdma_freeaddrinfo(self.res) };
        }
    }

    fn hints(flags: c_int, qp_type: c_int, port_space: c_int) -> rdma_addrinfo {
        // SAFETY: zeroes are hints without a wish.
        let zero: rdma_addrinfo = unsafe { mem::zeroed() };
        rdma_addrinfo { ai_flags: flags, ai_qp_type: qp_type, ai_port_space: port_space, ..zero }
    }

    #[test]
    fn an_active_wish_gives_a_destination_and_a_passive_one_a_source() {
        let numeric = hints(RAI_NUMERICHOST, 0, RDMA_PS_TCP);
        let active = ask(Some(c"127.0.0.1"), Some(c"7174"), Some(numeric));
        assert_eq!(active.dst(), Some("127.0.0.1:7174".parse().unwrap()));
        assert_eq!(active.src(), None);
        assert_eq!(active.get().ai_qp_type, IBV_QPT_RC);
        assert_eq!(active.get().ai_dst_len as usize, sockaddr::len_of(libc::AF_INET));
        let passive = ask(None, Some(c"7174"), Some(hints(RAI_PASSIVE, 0, RDMA_PS_TCP)));
        assert!(passive.src().unwrap().ip().is_unspecified());
        assert_eq!(passive.dst(), None);
        assert_eq!(passive.get().ai_flags, RAI_PASSIVE);
    }

    #[test]
    fn type_and_port_space_follow_from_each_other() {
        let table = [
            (0, 0, IBV_QPT_RC, RDMA_PS_TCP),
            (IBV_QPT_RC, 0, IBV_QPT_RC, RDMA_PS_TCP),
            (0, RDMA_PS_UDP, IBV_QPT_UD, RDMA_PS_UDP),
            (IBV_QPT_UD, 0, IBV_QPT_UD, RDMA_PS_UDP),
        ];
        for (qp_type, port_space, type_found, space_found) in table {
            let asked = ask(Some(c"127.0.0.1"), None, Some(hints(0, qp_type, port_space)));
            assert_eq!(asked.get().ai_qp_type, type_found);
            assert_eq!(asked.get().ai_port_space, space_found);
        }
    }

    #[test]
    fn addresses_in_the_hints_are_copied() {
        let mut storage = Storage::from("127.0.0.2:5".parse::<SocketAddr>().unwrap());
        let addr = storage.0.as_mut_ptr().cast();
        let len = sockaddr::len_of(libc::AF_INET) as libc::socklen_t;
        let with_dst = rdma_addrinfo { ai_dst_addr: addr, ai_dst_len: len, ..hints(0, 0, 0) };
        assert_eq!(ask(None, None, Some(with_dst)).dst(), storage.decode());
        let with_src = rdma_addrinfo { ai_src_addr: addr, ai_src_len: len, ..hints(0, 0, 0) };
        let asked = ask(Some(c"127.0.0.1"), Some(c"9"), Some(with_src));
        assert_eq!(asked.src(), storage.decode());
        assert_eq!(asked.dst(), Some("127.0.0.1:9".parse().unwrap()));
    }

    #[test]
    fn what_is_not_found_is_told_as_getaddrinfo_tells_it() {
        let numeric = hints(RAI_NUMERICHOST, 0, RDMA_PS_TCP);
        assert_eq!(ask(Some(c"not-a-number"), None, Some(numeric)).code, libc::EAI_NONAME);
        assert_eq!(ask(None, None, None).code, -1);
        assert_eq!(errno::get(), libc::EINVAL);
    }
}
