//! Sends datagrams over a path, and counts what arrives.
//!
//! `tool sink` listens at the far side, for datagrams and for a connection that asks how many
//! came. `tool blast COUNT BYTES PER_SECOND` sends, asks, and prints the answer. `tool take` and
//! `tool give BYTES` check the bytes of a stream.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

const FAR: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
const ASK_PORT: u16 = 7000;
const DATA_PORT: u16 = 7001;
const BURST: u64 = 32;
/// A buffer for what comes while this process does not run.
const BUFFER_BYTES: usize = 4 << 20;
/// After so long without a datagram, what was sent before the question has come.
const SILENCE: Duration = Duration::from_millis(300);

pub fn run(args: &[String]) -> ExitCode {
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse::<u64>().unwrap();
    match words.as_slice() {
        ["sink"] => sink(),
        ["blast", count, bytes, rate] => blast(number(count), number(bytes), number(rate)),
        ["take"] => take(),
        ["give", bytes] => give(number(bytes)),
        other => panic!("{other:?}"),
    }
    ExitCode::SUCCESS
}

/// Answers with "datagrams bytes nanoseconds overflows": how many came, how much, from the first
/// to the last in what time, and how many this process did not read in time.
fn sink() {
    let udp = UdpSocket::bind((FAR, DATA_PORT)).unwrap();
    let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&udp, BUFFER_BYTES);
    udp.set_read_timeout(Some(SILENCE)).unwrap();
    let listener = TcpListener::bind((FAR, ASK_PORT)).unwrap();
    let questions = thread::spawn(move || listener.accept().unwrap().0);
    let (mut count, mut bytes, mut buffer) = (0_u64, 0_u64, [0; 65536]);
    let (mut first, mut last) = (None, now());
    loop {
        match udp.recv(&mut buffer) {
            Ok(length) => {
                last = now();
                // The rate is that between arrivals, so the first bytes do not count.
                bytes += if first.is_some() { length as u64 } else { 0 };
                first.get_or_insert(last);
                count += 1;
            }
            Err(_) if questions.is_finished() => break,
            Err(_) => {}
        }
    }
    let nanoseconds = (last - first.unwrap_or(last)).as_nanos();
    let mut asker = questions.join().unwrap();
    writeln!(asker, "{count} {bytes} {nanoseconds} {}", overflows()).unwrap();
}

/// The fifth number of the second line that begins with "Udp:" (RFC 4113, and Linux's own).
fn overflows() -> u64 {
    let text = std::fs::read_to_string("/proc/net/snmp").unwrap();
    let line = text.lines().filter(|line| line.starts_with("Udp:")).nth(1).unwrap();
    line.split_whitespace().nth(5).unwrap().parse().unwrap()
}

fn blast(count: u64, bytes: u64, per_second: u64) {
    let udp = UdpSocket::bind(("0.0.0.0", 0)).unwrap();
    udp.connect((FAR, DATA_PORT)).unwrap();
    let data = vec![0x5a; bytes as usize];
    let start = now();
    for number in 0..count {
        if number % BURST == 0 {
            let due = Duration::from_nanos(number * 1_000_000_000 / per_second);
            // Nobody waits for this: it is the pace itself.
            thread::park_timeout(due.saturating_sub(now() - start));
        }
        udp.send(&data).unwrap();
    }
    let mut answer = String::new();
    let asker = TcpStream::connect((FAR, ASK_PORT)).unwrap();
    BufReader::new(asker).read_line(&mut answer).unwrap();
    print!("{answer}");
}

/// The time on a clock that all processes share.
fn now() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The byte at a place of the stream.
fn pattern(at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// Reads one stream and answers with how much of it came, up to the first wrong byte.
fn take() {
    let listener = TcpListener::bind((FAR, ASK_PORT)).unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    let (mut right, mut buffer) = (0, vec![0; 1 << 18]);
    loop {
        let length = stream.read(&mut buffer).unwrap();
        if length == 0 {
            break;
        }
        let wrong = buffer[..length]
            .iter()
            .enumerate()
            .position(|(i, byte)| *byte != pattern(right + i as u64));
        right += wrong.unwrap_or(length) as u64;
        if wrong.is_some() {
            break;
        }
    }
    writeln!(stream, "{right}").unwrap();
}

fn give(bytes: u64) {
    let mut stream = TcpStream::connect((FAR, ASK_PORT)).unwrap();
    let data: Vec<u8> = (0..bytes).map(pattern).collect();
    stream.write_all(&data).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).unwrap();
    print!("{answer}");
}
