//! What a socket takes from outside this machine.

use std::os::fd::AsFd;

use weft_os::options::set_value;

use super::UdpPort;

impl UdpPort {
    /// Has the kernel cut what comes from outside by IPv6 to datagrams without bytes. A sender
    /// there could claim an address of this machine, which the kernel does not look at, unlike with
    /// IPv4. Whether the system agrees.
    pub fn screen(&self) -> bool {
        /// What is on its way from this machine comes by this interface, in every network name
        /// space, or, if it is a copy of what was sent to a group, as a packet of this kind.
        const LOOPBACK: u32 = 1;
        const PACKET_LOOPBACK: u32 = 5;
        const UDP_HEADER: u32 = 8;
        let about = |what: libc::c_int| (libc::SKF_AD_OFF + what) as u32;
        let load = |what| filter(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, about(what));
        let is =
            |value, yes, no| filter(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, yes, no, value);
        let keep = |octets| filter(libc::BPF_RET | libc::BPF_K, 0, 0, octets);
        let mut program = [
            load(libc::SKF_AD_PROTOCOL),
            is(libc::ETH_P_IPV6 as u32, 0, 4),
            load(libc::SKF_AD_IFINDEX),
            is(LOOPBACK, 2, 0),
            load(libc::SKF_AD_PKTTYPE),
            is(PACKET_LOOPBACK, 0, 1),
            keep(u32::MAX),
            keep(UDP_HEADER),
        ];
        let program = libc::sock_fprog { len: program.len() as _, filter: program.as_mut_ptr() };
        set_value(self.fd.as_fd(), libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
    }
}

fn filter(code: u32, yes: u8, no: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: yes, jf: no, k }
}
