//! Clients where a system call that Weft can do without fails, as old kernels and the filters of
//! containers have it: they run all the same.

use weft_interop::source;
use weft_testkit::{LIMIT, Lab, Program, free_port};

/// `EPERM` is what filters answer, `ENOSYS` what kernels do.
const ERRNOS: [i32; 2] = [libc::EPERM, libc::ENOSYS];

/// A call, and the arguments with which it fails, by their places.
type Rule = (&'static str, libc::c_long, &'static [(u8, i32)]);

const SET: libc::c_long = libc::SYS_setsockopt;
const GET: libc::c_long = libc::SYS_getsockopt;

const NETLINK: &str = "AF_NETLINK";

const OTHERS: [Rule; 16] = [
    ("epoll_pwait2", libc::SYS_epoll_pwait2, &[]),
    ("getrandom", libc::SYS_getrandom, &[]),
    ("memfd_create", libc::SYS_memfd_create, &[]),
    ("mincore", libc::SYS_mincore, &[]),
    ("MADV_POPULATE_READ", libc::SYS_madvise, &[(2, libc::MADV_POPULATE_READ)]),
    ("MADV_POPULATE_WRITE", libc::SYS_madvise, &[(2, libc::MADV_POPULATE_WRITE)]),
    ("kcmp", libc::SYS_kcmp, &[]),
    ("preadv2", libc::SYS_preadv2, &[]),
    ("PR_SET_TIMERSLACK", libc::SYS_prctl, &[(0, libc::PR_SET_TIMERSLACK)]),
    ("PR_SET_NAME", libc::SYS_prctl, &[(0, libc::PR_SET_NAME)]),
    ("prlimit64", libc::SYS_prlimit64, &[]),
    ("sched_getaffinity", libc::SYS_sched_getaffinity, &[]),
    (NETLINK, libc::SYS_socket, &[(0, libc::AF_NETLINK)]),
    ("AF_INET6", libc::SYS_socket, &[(0, libc::AF_INET6)]),
    ("SIOCGIFMTU", libc::SYS_ioctl, &[(1, libc::SIOCGIFMTU as i32)]),
    ("TIOCOUTQ", libc::SYS_ioctl, &[(1, libc::TIOCOUTQ as i32)]),
];

const OF_UDP: [Rule; 16] = [
    ("UDP_SEGMENT", GET, &[(1, libc::SOL_UDP), (2, libc::UDP_SEGMENT)]),
    ("UDP_GRO", SET, &[(1, libc::SOL_UDP), (2, libc::UDP_GRO)]),
    ("SO_RXQ_OVFL", SET, &[(1, libc::SOL_SOCKET), (2, libc::SO_RXQ_OVFL)]),
    ("IP_RECVTOS", SET, &[(1, libc::IPPROTO_IP), (2, libc::IP_RECVTOS)]),
    ("IPV6_RECVTCLASS", SET, &[(1, libc::IPPROTO_IPV6), (2, libc::IPV6_RECVTCLASS)]),
    ("IPV6_V6ONLY", SET, &[(1, libc::IPPROTO_IPV6), (2, libc::IPV6_V6ONLY)]),
    ("SO_SNDBUFFORCE", SET, &[(1, libc::SOL_SOCKET), (2, libc::SO_SNDBUFFORCE)]),
    ("SO_RCVBUFFORCE", SET, &[(1, libc::SOL_SOCKET), (2, libc::SO_RCVBUFFORCE)]),
    ("SO_SNDBUF", SET, &[(1, libc::SOL_SOCKET), (2, libc::SO_SNDBUF)]),
    ("SO_RCVBUF", SET, &[(1, libc::SOL_SOCKET), (2, libc::SO_RCVBUF)]),
    ("what SO_RCVBUF is", GET, &[(1, libc::SOL_SOCKET), (2, libc::SO_RCVBUF)]),
    ("IP_MTU", GET, &[(1, libc::IPPROTO_IP), (2, libc::IP_MTU)]),
    ("IPV6_MTU", GET, &[(1, libc::IPPROTO_IPV6), (2, libc::IPV6_MTU)]),
    ("IP_MULTICAST_ALL", SET, &[(1, libc::IPPROTO_IP), (2, libc::IP_MULTICAST_ALL)]),
    ("IP_MULTICAST_TTL", SET, &[(1, libc::IPPROTO_IP), (2, libc::IP_MULTICAST_TTL)]),
    ("IPV6_MULTICAST_HOPS", SET, &[(1, libc::IPPROTO_IPV6), (2, libc::IPV6_MULTICAST_HOPS)]),
];

const OF_TCP: [Rule; 12] = [
    ("TCP_NODELAY", SET, &[(1, libc::IPPROTO_TCP), (2, libc::TCP_NODELAY)]),
    ("SO_KEEPALIVE", SET, &[(1, libc::SOL_SOCKET), (2, libc::SO_KEEPALIVE)]),
    ("TCP_KEEPIDLE", SET, &[(1, libc::IPPROTO_TCP), (2, libc::TCP_KEEPIDLE)]),
    ("TCP_KEEPINTVL", SET, &[(1, libc::IPPROTO_TCP), (2, libc::TCP_KEEPINTVL)]),
    ("TCP_KEEPCNT", SET, &[(1, libc::IPPROTO_TCP), (2, libc::TCP_KEEPCNT)]),
    ("TCP_USER_TIMEOUT", SET, &[(1, libc::IPPROTO_TCP), (2, libc::TCP_USER_TIMEOUT)]),
    ("TCP_CONGESTION", SET, &[(1, libc::IPPROTO_TCP), (2, libc::TCP_CONGESTION)]),
    ("IP_BIND_ADDRESS_NO_PORT", SET, &[(1, libc::IPPROTO_IP), (2, libc::IP_BIND_ADDRESS_NO_PORT)]),
    ("SO_LINGER", SET, &[(1, libc::SOL_SOCKET), (2, libc::SO_LINGER)]),
    ("SO_NETNS_COOKIE", GET, &[(1, libc::SOL_SOCKET), (2, libc::SO_NETNS_COOKIE)]),
    ("TCP_MAXSEG", GET, &[(1, libc::IPPROTO_TCP), (2, libc::TCP_MAXSEG)]),
    ("TCP_INFO", GET, &[(1, libc::IPPROTO_TCP), (2, libc::TCP_INFO)]),
];

/// The command line that has the call fail with `errno`.
fn denial(lab: &Lab, (_, call, arguments): &Rule, errno: i32) -> String {
    let words: Vec<_> = arguments.iter().map(|(at, value)| format!("{at}={value}")).collect();
    format!("{} {errno} {call} {} --", lab.path("deny").display(), words.join(" "))
}

/// Two ends, and what the client says on stdout or stderr once it is served.
struct Pair {
    server: Program,
    client: Program,
    port: u16,
    /// What the server says on stderr when it listens.
    listens: &'static str,
    says: &'static str,
}

fn rping(lab: &Lab, transport: &str) -> Pair {
    let port = free_port();
    let line = format!("-a 127.0.0.1 -p {port} -C 3 -v -V -S 4000");
    let end = |role| lab.program("rping").args(role).args(&line).env("WEFT_TRANSPORT", transport);
    Pair { server: end("-s"), client: end("-c"), port, listens: "", says: "ping data: rdma-ping-2" }
}

fn pingpong(lab: &Lab, name: &str) -> Pair {
    let port = free_port();
    let server = lab.program(name).args(&format!("-d weft0 -g 0 -n 20 -e -p {port}"));
    Pair { client: server.clone().arg("127.0.0.1"), server, port, listens: "", says: "20 iters in" }
}

fn sockets(lab: &Lab, rule: &Rule) -> Pair {
    // On one host SDP needs to be told by the kernel which user has opened a socket.
    let says = if rule.0 == NETLINK { "TCP, it does not take SDP" } else { "SDP over" };
    let port = free_port();
    let program =
        |line: &str| lab.program("sh").with_sockets().env("WEFT_LANE", "off").arg("-c").arg(line);
    let server = program(&format!("head -c 300000 /dev/zero | nc -N -l 127.0.0.1 {port}"));
    let client = program(&format!("test $(nc -d 127.0.0.1 {port} | wc -c) = 300000"));
    Pair { server, client, port, listens: "listens at", says }
}

/// Runs the clients where the call fails, all at the same time; says what does not succeed.
fn failures(lab: &Lab, rule: &Rule, errno: i32) -> Vec<String> {
    let denial = denial(lab, rule, errno);
    let pairs = [
        rping(lab, "shuttle"),
        rping(lab, "iwarp"),
        pingpong(lab, "ibv_rc_pingpong"),
        pingpong(lab, "ibv_ud_pingpong"),
        sockets(lab, rule),
    ];
    let running = pairs.map(|pair| {
        let server = pair.server.started_by(&denial).start().listening(pair.port);
        let server = server.complained(pair.listens);
        (server, pair.client.started_by(&denial).start(), pair.says)
    });
    let mut failed = Vec::new();
    for (server, client, says) in running {
        if !client.ends_within(LIMIT) {
            let (client, server) = (client.end(), server.end());
            failed.push(format!("{} = {errno}: has not ended: {client}\n{server}", rule.0));
            continue;
        }
        let client = client.wait();
        let said = client.stdout.contains(says) || client.stderr.contains(says);
        if !client.status.success() || !said {
            failed.push(format!("{} = {errno}: {client}\n{}", rule.0, server.end()));
            continue;
        }
        let server = server.wait();
        if !server.status.success() {
            failed.push(format!("{} = {errno}: {server}", rule.0));
        }
    }
    failed
}

fn without_each(rules: &[Rule]) {
    let Some(lab) = Lab::with(&["rping", "ibv_rc_pingpong", "nc", "cc"]) else { return };
    lab.compile("cc".as_ref(), &source("deny"), &[]);
    let each = rules.iter().flat_map(|rule| ERRNOS.map(|errno| (rule, errno)));
    let failed: Vec<_> = each.flat_map(|(rule, errno)| failures(&lab, rule, errno)).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn without_what_udp_may_lack() {
    without_each(&OF_UDP);
}

#[test]
fn without_what_tcp_may_lack() {
    without_each(&OF_TCP);
}

#[test]
fn without_what_else_a_system_may_lack() {
    without_each(&OTHERS);
}
