//! `weft pipe` and `weft forward`.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, Output, Stdio};
use std::thread;
use std::time::Duration;

use weft_testkit::{free_port, listens_to_tcp, text};

use crate::far_host::{FarHost, noise};

fn pipe(host: &FarHost, command: &[&str], stdin: &[u8]) -> Output {
    let mut weft = host.weft("pipe");
    weft.args(["far", "--"]).args(command);
    weft.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = weft.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let stdin = stdin.to_vec();
    // A command that does not read it leaves nobody to write to.
    let writing = thread::spawn(move || drop(input.write_all(&stdin)));
    let output = child.wait_with_output().unwrap();
    writing.join().unwrap();
    output
}

#[test]
fn bytes_go_both_ways_and_the_status_is_the_commands() {
    let Some(host) = FarHost::start("pipe") else { return };
    let bytes = noise(1, 6_000_000);
    let output = pipe(&host, &["sh", "-c", "cat; echo problem >&2; exit 7"], &bytes);
    assert!(output.stdout == bytes, "{} bytes came back", output.stdout.len());
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(7), "problem\n".into()));
    let words = pipe(&host, &["printf", "%s|", "a b", "$HOME", ";"], b"");
    assert_eq!(text(&words.stdout), "a b|$HOME|;|");
    assert_eq!(pipe(&host, &["sh", "-c", "kill -9 $$"], b"").status.code(), Some(137));
    let missing = pipe(&host, &["nonesuch"], b"");
    assert_eq!(missing.status.code(), Some(127));
    assert!(text(&missing.stderr).contains("nonesuch: No such file"), "{}", text(&missing.stderr));
}

/// What is opened next would have its number, and be read as it.
#[test]
fn a_closed_stdin_is_empty() {
    let Some(host) = FarHost::start("pipe-closed") else { return };
    let weft = host.weft("pipe");
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "exec \"$0\" \"$@\" <&-"]).arg(weft.get_program()).args(weft.get_args());
    for (name, value) in weft.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell.args(["far", "--", "wc", "-c"]).current_dir(weft.get_current_dir().unwrap());
    let output = shell.output().unwrap();
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), "0\n".into()));
}

/// The command would take what it has for the whole input.
#[test]
fn a_stdin_that_cannot_be_read_is_no_success() {
    let Some(host) = FarHost::start("pipe-unread") else { return };
    let mut weft = host.weft("pipe");
    weft.args(["far", "--", "cat"]).stdin(std::fs::File::open("/").unwrap());
    let output = weft.output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(text(&output.stderr).contains("reading stdin: Is a directory"));
}

/// What is missing at its end would not be missed.
#[test]
fn a_stdout_that_cannot_be_written_is_no_success() {
    let Some(host) = FarHost::start("pipe-unwritten") else { return };
    let mut weft = host.weft("pipe");
    weft.args(["far", "--", "echo", "all"]);
    weft.stdin(Stdio::null()).stdout(std::fs::File::create("/dev/full").unwrap());
    let output = weft.output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    let said = text(&output.stderr);
    assert!(said.contains("writing stdout: No space left on device"), "{said}");
}

/// A shell ends so where it finds no command, with what others have written before.
#[test]
fn a_status_of_127_does_not_cut_the_output_off() {
    let Some(host) = FarHost::start("pipe-127") else { return };
    // More than the pipes on the way hold, and less than that and a window.
    let mut weft = host.weft("pipe");
    weft.args(["far", "--", "sh", "-c", "head -c 800000 /dev/zero; exit 127"]);
    let child = weft.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    // Whoever reads late finds all of it. Here it is late enough for the status to be there first.
    thread::park_timeout(Duration::from_secs(1));
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(127), 800_000));
}

#[test]
fn a_command_that_stops_reading_or_a_reader_that_stops_ends_it() {
    let Some(host) = FarHost::start("pipe-ends") else { return };
    let output = pipe(&host, &["head", "-c", "10"], &noise(1, 6_000_000));
    assert_eq!((output.status.code(), output.stdout.len()), (Some(0), 10));
    let mut weft = host.weft("pipe");
    weft.args(["far", "--", "sh", "-c", "yes; echo status $? >&2"]);
    let mut child = weft.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 100];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(text(&output.stderr).starts_with("status "), "{}", text(&output.stderr));
}

/// A forwarding process, killed with this.
struct Forwarding(Child);

impl Forwarding {
    fn start(host: &FarHost, options: &[&str], port: u16) -> Self {
        let mut weft = host.weft("forward");
        let mut child = weft.args(options).arg("far").stderr(Stdio::null()).spawn().unwrap();
        while !listens_to_tcp(port) {
            assert_eq!(child.try_wait().unwrap(), None, "it ended before it listened");
            thread::park_timeout(Duration::from_millis(10));
        }
        Self(child)
    }
}

impl Drop for Forwarding {
    fn drop(&mut self) {
        // `timeout` passes this one on.
        let id = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
        let _ = self.0.wait();
    }
}

/// Answers each connection with what it said, once it has said all.
fn echo() -> u16 {
    let (listener, port) = server();
    answer_at(listener);
    port
}

/// A server whose kernel takes a hundred connections, and the port.
fn server() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

/// Has what each connection brings sent back on it.
fn answer_at(listener: TcpListener) {
    thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut connection = connection;
                let mut bytes = Vec::new();
                if connection.read_to_end(&mut bytes).is_ok() {
                    let _ = connection.write_all(&bytes);
                }
            });
        }
    });
}

fn ask(port: u16, bytes: &[u8]) -> Vec<u8> {
    let mut connection = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let mut back = Vec::new();
    connection.write_all(bytes).unwrap();
    connection.shutdown(Shutdown::Write).unwrap();
    connection.read_to_end(&mut back).unwrap();
    back
}

#[test]
fn connections_are_forwarded_from_here_and_from_there() {
    let Some(host) = FarHost::start("forward") else { return };
    let (server, local, remote, nobody, dead) =
        (echo(), free_port(), free_port(), free_port(), free_port());
    let options = [
        format!("-L127.0.0.1:{local}:127.0.0.1:{server}"),
        format!("-L127.0.0.1:{nobody}:127.0.0.1:{dead}"),
        format!("-R127.0.0.1:{remote}:127.0.0.1:{server}"),
    ];
    let options: Vec<_> = options.iter().map(String::as_str).collect();
    let _forwarding = Forwarding::start(&host, &options, remote);
    let bytes = noise(5, 3_000_000);
    assert!(ask(local, &bytes) == bytes && ask(remote, &bytes) == bytes);
    let mut refused = TcpStream::connect(("127.0.0.1", nobody)).unwrap();
    let error = refused.read(&mut [0; 1]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    // One that is not read holds back no other.
    let mut stuck = TcpStream::connect(("127.0.0.1", local)).unwrap();
    stuck.write_all(b"x").unwrap();
    let many: Vec<_> = (0..300_u64)
        .map(|n| thread::spawn(move || ask(local, &noise(n, 2000)) == noise(n, 2000)))
        .collect();
    assert!(many.into_iter().all(|one| one.join().unwrap()));
}

/// How many connections are open at once; `WEFT_CONNECTIONS` asks for more.
fn connections() -> usize {
    let asked = std::env::var("WEFT_CONNECTIONS").ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or(1200)
}

#[test]
fn many_connections_are_open_at_once() {
    let Some(host) = FarHost::start("forward-many") else { return };
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limit.maximum, ..limit };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, raised).unwrap();
    let ((listener, server), local) = (server(), free_port());
    // The kernel resets some of those that a full queue of 128 keeps waiting (SyncookiesFailed).
    rustix::net::listen(&listener, 4096).unwrap();
    let option = format!("-L127.0.0.1:{local}:127.0.0.1:{server}");
    let _forwarding = Forwarding::start(&host, &[&option], local);
    let mut all: Vec<_> = (0..connections())
        .map(|number| {
            let mut connection = TcpStream::connect(("127.0.0.1", local)).unwrap();
            connection.write_all(&noise(number as u64, 500)).unwrap();
            connection
        })
        .collect();
    answer_at(listener);
    // None has ended while the others came.
    for (number, connection) in all.iter_mut().enumerate() {
        connection.shutdown(Shutdown::Write).unwrap();
        let mut back = Vec::new();
        connection.read_to_end(&mut back).unwrap();
        assert!(back == noise(number as u64, 500), "{number}");
    }
}

/// The kernel closes the sockets of a process that a signal ends.
#[test]
fn a_forward_that_a_signal_ends_resets_its_connections() {
    let Some(host) = FarHost::start("forward-ended") else { return };
    let ((listener, server), local) = (server(), free_port());
    let option = format!("-L127.0.0.1:{local}:127.0.0.1:{server}");
    let forwarding = Forwarding::start(&host, &[&option], local);
    let mut client = TcpStream::connect(("127.0.0.1", local)).unwrap();
    client.write_all(b"a part").unwrap();
    let (mut server, _) = listener.accept().unwrap();
    server.read_exact(&mut [0; 6]).unwrap();
    drop(forwarding);
    for socket in [&mut client, &mut server] {
        let error = socket.read(&mut [0; 1]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    }
}
