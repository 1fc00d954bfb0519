//! Unmodified programs, both ends or one of them under the library. Those that this machine does
//! not have are named as ignored.

mod common;

use std::net::{TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

use common::{Dir, Program, Running};
use libtest_mimic::{Arguments, Failed, Trial};

/// Octets that programs fetch.
const OCTETS: usize = 5 << 20;
/// Ports below those that the kernel gives out.
const PORTS: std::ops::Range<u16> = 21_000..31_000;

/// Both ends of a check: the program that serves and those that call it.
type Check = fn(caller_is_ours: bool) -> Result<(), Failed>;

fn main() {
    let checks: [(&str, &[&str], Check); 6] = [
        ("http_server_and_curl", &["python3", "curl"], http),
        ("asyncio", &["python3"], asyncio),
        ("iperf3", &["iperf3"], iperf3),
        ("netcat", &["nc"], netcat),
        ("node_http", &["node"], node),
        ("redis", &["redis-server", "redis-benchmark"], redis),
    ];
    let trials = checks.into_iter().flat_map(|(name, programs, check)| {
        let missing = programs.iter().any(|program| find(program).is_none());
        [true, false].map(|ours| {
            let name = format!("{name}_with_{}", if ours { "ours" } else { "plain" });
            Trial::test(name, move || check(ours)).with_ignored_flag(missing)
        })
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit();
}

fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|path| path.is_file())
}

fn program(name: &str, ours: bool) -> Program {
    Program::new(&find(name).expect("it was found before"), ours)
}

/// A number that is free in TCP and UDP, and that the kernel gives to nobody.
fn free_port() -> String {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let span = PORTS.end - PORTS.start;
    loop {
        let turn = NEXT.fetch_add(1, Ordering::Relaxed).wrapping_mul(7);
        let port = PORTS.start + (std::process::id() as u16).wrapping_add(turn) % span;
        let free =
            |at| TcpListener::bind((at, port)).is_ok() && UdpSocket::bind((at, port)).is_ok();
        if free("127.0.0.1") {
            return port.to_string();
        }
    }
}

/// Whether what both ends said fits.
fn judge(server: &str, ours: bool) -> Result<(), Failed> {
    let expected = if ours { "SDP over Shuttle" } else { "TCP, it did not ask for SDP" };
    let accepted = |line: &&str| line.contains("accepted") && line.contains(expected);
    if server.lines().any(|line| accepted(&line)) {
        return Ok(());
    }
    Err(format!("no connection was accepted by {expected}:\n{server}").into())
}

/// Starts a server and waits until it listens.
fn serve(command: &mut Program) -> Running {
    let mut server = command.start();
    server.line_with("listens at");
    server
}

/// A file that is not the same twice.
fn content(dir: &Dir) -> (PathBuf, Vec<u8>) {
    let octets: Vec<u8> = (0..OCTETS as u64).map(|at| ((at * at) >> 7) as u8).collect();
    let path = dir.path("file");
    std::fs::write(&path, &octets).expect("a file");
    (path, octets)
}

fn same(file: &Path, octets: &[u8]) -> Result<(), Failed> {
    let found = std::fs::read(file)?;
    if found == octets { Ok(()) } else { Err(format!("{} octets differ", found.len()).into()) }
}

fn http(ours: bool) -> Result<(), Failed> {
    let (dir, port) = (Dir::new(&format!("http-{ours}")), free_port());
    let (_, octets) = content(&dir);
    let mut command = program("python3", true);
    command.args(["-m", "http.server", "--bind", "127.0.0.1", &port]).dir(&dir.path(""));
    let server = serve(command.stdout(Stdio::null()));
    let copy = dir.path("copy");
    let mut curl = program("curl", ours);
    curl.args(["-sSf", "--retry", "2", "-o"]).args([&copy]);
    curl.args([format!("http://127.0.0.1:{port}/file")]).start().end();
    same(&copy, &octets)?;
    judge(&server.stop(), ours)
}

const ASYNCIO_SERVER: &str = "
import asyncio, sys
async def serve(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()
async def main():
    server = await asyncio.start_server(serve, '127.0.0.1', int(sys.argv[1]))
    await server.serve_forever()
asyncio.run(main())
";

const ASYNCIO_CALLER: &str = "
import asyncio, sys
async def call(number):
    reader, writer = await asyncio.open_connection('127.0.0.1', int(sys.argv[1]))
    sent = bytes([number]) * 300000
    writer.write(sent)
    writer.write_eof()
    assert await reader.read() == sent
    writer.close()
    await writer.wait_closed()
async def main():
    await asyncio.gather(*(call(number) for number in range(10)))
asyncio.run(main())
";

fn asyncio(ours: bool) -> Result<(), Failed> {
    let port = free_port();
    let mut command = program("python3", true);
    let server = serve(command.args(["-c", ASYNCIO_SERVER, &port]));
    program("python3", ours).args(["-c", ASYNCIO_CALLER, &port]).start().end();
    judge(&server.stop(), ours)
}

fn iperf3(ours: bool) -> Result<(), Failed> {
    for direction in [&[][..], &["-R"]] {
        let port = free_port();
        let mut command = program("iperf3", true);
        command.args(["-s", "-1", "-B", "127.0.0.1", "-p", &port]);
        let server = serve(command.stdout(Stdio::null()));
        let mut caller = program("iperf3", ours);
        caller.args(["-c", "127.0.0.1", "-p", &port, "-n", "10M", "-P", "2"]).args(direction);
        caller.stdout(Stdio::null()).start().end();
        judge(&server.end(), ours)?;
    }
    Ok(())
}

fn netcat(ours: bool) -> Result<(), Failed> {
    let (dir, port) = (Dir::new(&format!("nc-{ours}")), free_port());
    let (file, octets) = content(&dir);
    let copy = dir.path("copy");
    let mut command = program("nc", true);
    command.args(["-l", "127.0.0.1", &port]);
    let server = serve(command.stdout(std::fs::File::create(&copy)?.into()));
    let mut caller = program("nc", ours);
    caller.args(["-N", "127.0.0.1", &port]).stdin(std::fs::File::open(&file)?.into());
    caller.start().end();
    let said = server.end();
    same(&copy, &octets)?;
    judge(&said, ours)
}

const NODE_SERVER: &str = "
const http = require('http');
http.createServer((request, response) => {
  let octets = 0;
  request.on('data', part => octets += part.length);
  request.on('end', () => response.end(String(octets)));
}).listen(Number(process.argv[1]), '127.0.0.1');
";

const NODE_CALLER: &str = "
const http = require('http');
const sent = Buffer.alloc(1 << 20, 7);
let left = 8;
for (let i = 0; i < 8; i++) {
  const options = { host: '127.0.0.1', port: Number(process.argv[1]), method: 'POST' };
  const request = http.request(options, response => {
    let text = '';
    response.on('data', part => text += part);
    response.on('end', () => {
      if (text !== String(sent.length)) process.exit(1);
      if (--left === 0) process.exit(0);
    });
  });
  request.end(sent);
}
";

fn node(ours: bool) -> Result<(), Failed> {
    let port = free_port();
    let mut command = program("node", true);
    let server = serve(command.args(["-e", NODE_SERVER, &port]));
    program("node", ours).args(["-e", NODE_CALLER, &port]).start().end();
    judge(&server.stop(), ours)
}

fn redis(ours: bool) -> Result<(), Failed> {
    let (dir, port) = (Dir::new(&format!("redis-{ours}")), free_port());
    let mut command = program("redis-server", true);
    command.args(["--port", &port, "--bind", "127.0.0.1", "--save", ""]).dir(&dir.path(""));
    let server = serve(command.stdout(Stdio::null()));
    let mut caller = program("redis-benchmark", ours);
    caller.args(["-p", &port, "-n", "2000", "-c", "10", "-t", "set,get,lrange_100", "-q"]);
    caller.stdout(Stdio::null()).start().end();
    judge(&server.stop(), ours)
}

/// Asks a program to end.
fn terminate(id: u32) {
    let asked = Command::new("kill").arg(id.to_string()).status();
    assert!(asked.is_ok_and(|status| status.success()), "it was there");
}

impl Running {
    /// Ends a server; gives what it said.
    fn stop(self) -> String {
        terminate(self.id());
        self.rest()
    }
}
