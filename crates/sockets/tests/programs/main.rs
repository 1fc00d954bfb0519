//! Unmodified programs, both ends or one of them under the library. Those that this machine does
//! not have are named as ignored; so are those that take long, which `make soak-sockets` runs.

#[path = "../common/mod.rs"]
mod common;
mod http;
mod services;
mod streams;

use std::cell::Cell;
use std::path::{Path, PathBuf};

use common::{Dir, Program, Running};
use libtest_mimic::{Arguments, Failed, Trial};
use weft_testkit::{Signal, listens_to_tcp, listens_to_udp};

/// Bytes that programs fetch.
const BYTES: usize = 5 << 20;

thread_local! {
    /// Whether the programs of this thread's check have pairs.
    static HAS_PAIRS: Cell<bool> = const { Cell::new(false) };
}

/// Which ends of a check are under the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ours {
    /// Both, and SDP carries what they say.
    Both,
    /// Both, and they have pairs.
    Paired,
    Server,
    Caller,
}

impl Ours {
    fn server(self) -> bool {
        self != Self::Caller
    }

    fn caller(self) -> bool {
        self != Self::Server
    }
}

/// Programs that are there, and both of them run.
struct Row {
    name: &'static str,
    programs: &'static [&'static str],
    check: fn(Ours) -> Result<(), Failed>,
    long: bool,
    /// Whether both ends are intercepted, and of one user.
    pairs: bool,
}

impl Row {
    const fn new(
        name: &'static str,
        programs: &'static [&'static str],
        check: fn(Ours) -> Result<(), Failed>,
    ) -> Self {
        Self { name, programs, check, long: false, pairs: true }
    }

    const fn long(self) -> Self {
        Self { long: true, ..self }
    }

    const fn without_pairs(self) -> Self {
        Self { pairs: false, ..self }
    }

    fn trials(&'static self) -> impl Iterator<Item = Trial> {
        let missing = self.programs.iter().find(|program| find(program).is_none());
        let ends = [
            (Ours::Both, "both_ours"),
            (Ours::Paired, "pairs"),
            (Ours::Server, "a_plain_caller"),
            (Ours::Caller, "a_plain_server"),
        ];
        let ends = ends.into_iter().filter(|(ours, _)| *ours != Ours::Paired || self.pairs);
        ends.map(move |(ours, how)| {
            let name = format!("{}_with_{how}", self.name);
            let trial = Trial::test(name, move || match missing {
                Some(program) => {
                    eprintln!("{}: there is no {program} here", self.name);
                    Ok(())
                }
                None => {
                    HAS_PAIRS.set(ours == Ours::Paired);
                    (self.check)(ours)
                }
            });
            trial.with_ignored_flag(missing.is_some() || self.long)
        })
    }
}

const ROWS: [Row; 13] = [
    Row::new("http_server_and_curl", &["python3", "curl"], http::python),
    Row::new("asyncio", &["python3"], http::asyncio),
    Row::new("node_http", &["node"], http::node),
    Row::new("nginx_and_wrk", &["nginx", "wrk", "curl"], http::nginx),
    Row::new("go_http", &["go", "python3", "curl"], http::go).long().without_pairs(),
    Row::new("iperf3", &["iperf3"], streams::iperf3),
    // Its listener has SO_REUSEPORT.
    Row::new("netcat", &["nc"], streams::netcat).without_pairs(),
    Row::new("netpipe", &["NPtcp"], streams::netpipe),
    Row::new("sockperf", &["sockperf"], streams::sockperf).long(),
    Row::new("nuttcp", &["nuttcp"], streams::nuttcp),
    Row::new("redis", &["redis-server", "redis-benchmark"], services::redis),
    Row::new("ssh_and_scp", &["sshd", "ssh", "scp", "ssh-keygen", "unshare"], services::ssh),
    Row::new("postgresql", &["postgres", "initdb", "pgbench", "setpriv"], services::postgresql)
        .long()
        .without_pairs(),
];

fn main() {
    static TABLE: [Row; ROWS.len()] = ROWS;
    let trials = TABLE.iter().flat_map(Row::trials).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// Where programs are: those of users, those of administrators, PostgreSQL's, and what
/// `scripts/servers.sh` has unpacked.
fn places() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = std::env::split_paths(&path).collect();
    places.push("/usr/sbin".into());
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    places.extend(versions.map(|version| version.path().join("bin")));
    let target = common::library().ancestors().nth(3).map(Path::to_owned).unwrap_or_default();
    places.extend(["usr/sbin", "usr/bin"].map(|dir| target.join("servers").join(dir)));
    places
}

fn find(program: &str) -> Option<PathBuf> {
    places().into_iter().map(|dir| dir.join(program)).find(|path| path.is_file())
}

fn path(name: &str) -> PathBuf {
    find(name).expect("it was found before")
}

fn program(name: &str, ours: bool) -> Program {
    let program = if HAS_PAIRS.get() { common::program_as_it_comes } else { common::program };
    program(&path(name), ours)
}

/// A port that nobody has in TCP or UDP.
fn free_port() -> String {
    weft_testkit::free_port().to_string()
}

/// Whether what the ends said on stderr fits: a caller that is ours says which way it went, and so
/// does the server if there is no such caller. Some servers have no stderr.
fn judge(server: &str, caller: &str, ours: Ours) -> Result<(), Failed> {
    let (said, what, way) = match ours {
        Ours::Both => (caller, "connected to", "SDP over Shuttle"),
        Ours::Paired => (caller, "connected to", "a pair on this host"),
        Ours::Caller => (caller, "connected to", "TCP, "),
        Ours::Server => (server, "accepted", "TCP, it did not ask for SDP"),
    };
    if said.lines().any(|line| line.contains(what) && line.contains(way)) {
        return Ok(());
    }
    Err(format!("no line says `{what}` and `{way}`:\n{said}").into())
}

/// Starts a server and waits until it listens at `port`, for Hellos too if it is `ours`.
fn serve(server: &Program, port: &str, ours: bool) -> Running {
    let port = port.parse().expect("a number");
    // To call it would be to be served.
    let listens = |_: &Running| listens_to_tcp(port) && (!ours || listens_to_udp(port));
    server.start().until("listened", listens)
}

/// A file that is not the same twice.
fn content(dir: &Dir) -> (PathBuf, Vec<u8>) {
    let bytes: Vec<u8> = (0..BYTES as u64).map(|at| ((at * at) >> 7) as u8).collect();
    (dir.write("file", &bytes), bytes)
}

fn same(file: &Path, bytes: &[u8]) -> Result<(), Failed> {
    let found = std::fs::read(file)?;
    if found == bytes { Ok(()) } else { Err(format!("{} bytes differ", found.len()).into()) }
}

/// Ends a server; gives what it said.
fn stop(server: Running) -> String {
    server.signal(Signal::TERM);
    server.wait_group().stderr
}
