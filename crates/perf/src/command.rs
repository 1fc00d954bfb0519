//! `weft perf`: arguments and their defaults.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use weft_units::{WrongArgument, parse_bytes_u32};

use crate::client::{self, ClientOutcome};
use crate::run::SILENT_MAX;
use crate::server;
use crate::test::{Test, TestAmount, TestOperation, VERSION, depth_for};

/// The arguments.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, after_long_help = SECTIONS)]
#[command(arg_required_else_help = true, subcommand_negates_reqs = true)]
pub struct PerfArgs {
    #[command(subcommand)]
    what: Option<PerfCommand>,

    #[command(flatten)]
    client: Client,
}

#[derive(Debug, Subcommand)]
enum PerfCommand {
    /// Wait for clients, and serve one after another
    ///
    /// The client decides what is measured. The two sides talk by TCP at PORT; the streams use
    /// PORT+1, by UDP or TCP.
    Server(Server),
    /// Measure with a server; `weft perf HOST` is the same
    Client(Client),
}

/// Where: the same for both sides.
#[derive(Clone, Debug, Args)]
struct PortArgs {
    /// The server's port of TCP; the streams have the next one
    #[arg(short, long, default_value_t = PORT)]
    port: u16,

    /// Transport of the streams [default: one that the other side accepts, Shuttle first]
    #[arg(long, value_name = "TRANSPORT")]
    transport: Option<TransportChoice>,

    /// Use only this device: weft0, weft_iw0, or an adapter of this machine
    #[arg(short, long, value_name = "DEVICE")]
    device: Option<String>,

    /// Encrypt with the key in this file, as WEFT_KEY does; the other side needs the same
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    key: Option<PathBuf>,

    /// Speak in clear text to another host, as WEFT_INSECURE=1 does
    #[arg(long, conflicts_with = "key")]
    insecure: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum TransportChoice {
    /// Shuttle where the other side takes it, else iWARP
    Auto,
    /// Over UDP, by weft0
    Shuttle,
    /// Over TCP, by weft_iw0
    Iwarp,
}

#[derive(Clone, Debug, Args)]
struct Server {
    #[command(flatten)]
    place: PortArgs,

    /// End after one client
    #[arg(short = '1', long)]
    one_off: bool,

    /// How long a client may be silent in the middle of a test before the next one is served
    #[arg(long, value_name = "SECONDS", default_value_t = SILENT_MAX.as_secs(),
          value_parser = clap::value_parser!(u64).range(1..=86400))]
    patience: u64,
}

#[derive(Clone, Debug, Args)]
struct Client {
    /// The server: a name or an address
    // Beside a subcommand there is none.
    #[arg(required = true)]
    host: Option<String>,

    #[command(flatten)]
    place: PortArgs,

    /// What is measured [default: write; with --latency send]
    #[arg(long, value_name = "OPERATION")]
    op: Option<TestOperation>,

    /// Measure the latency of single messages instead of bandwidth
    #[arg(long)]
    latency: bool,

    /// Bytes of a message, or several sizes: `64,4K,1M` [default: 64K; with --latency 64]
    ///
    /// K, M and G are powers of 1024, whether small or capital, and kB, MB and GB of 1000.
    #[arg(short, long, value_name = "SIZE", value_delimiter = ',', value_parser = parse_bytes_u32)]
    size: Vec<u32>,

    /// All sizes from 2 bytes to 8 MiB
    #[arg(short, long, conflicts_with = "size")]
    all: bool,

    /// Queue pairs that are used at once
    #[arg(short = 'P', long, value_name = "N", visible_short_alias = 'q', default_value_t = 1)]
    streams: u16,

    /// Both sides begin requests, each on queue pairs of its own
    #[arg(short, long, visible_alias = "bidir")]
    bidirectional: bool,

    /// The server begins the requests
    #[arg(short = 'R', long, conflicts_with = "bidirectional")]
    reverse: bool,

    /// How long each size is measured [default: 10, of several sizes 1]
    #[arg(short, long, value_name = "SECONDS", conflicts_with = "count")]
    time: Option<f64>,

    /// How many messages, on each queue pair
    #[arg(short = 'n', long, value_name = "COUNT")]
    count: Option<u64>,

    /// Seconds between two lines
    #[arg(short, long, value_name = "SECONDS", default_value_t = 1.0)]
    interval: f64,

    /// Leave the start out of the result; it is reported separately
    #[arg(short = 'O', long, value_name = "SECONDS", default_value_t = 0.0)]
    omit: f64,

    /// Requests outstanding on each queue pair [default: 32 MiB in all; 16 to 1024]
    #[arg(long, value_name = "N")]
    depth: Option<u32>,

    /// Sleep until something is complete, instead of polling
    #[arg(short, long)]
    events: bool,

    /// Check the data: every message of Sends and Reads, and what Writes leave in memory
    #[arg(long)]
    verify: bool,

    /// Say everything in JSON: one document, at the end
    #[arg(short = 'J', long)]
    json: bool,
}

/// Default TCP port.
const PORT: u16 = 18520;
/// The sizes of `--all`: these powers of two.
const ALL: std::ops::RangeInclusive<u32> = 1..=23;
/// How long is measured, in seconds: one size, or each of several.
const TIMES_S: [f64; 2] = [10.0, 1.0];
const SIZE: u32 = 65536;
const LATENCY_SIZE: u32 = 64;
const ATOMIC_SIZE: u32 = 8;
const FAILURE: u8 = 1;
/// The status for arguments that cannot be followed, the same in every command.
const WRONG_ARGUMENT: u8 = 125;
const INTERRUPTED: u8 = 130;
/// Weft's devices, but for one that has another name by WEFT_DEV.
const SHUTTLE_DEVICE: &str = "weft0";
const IWARP_DEVICE: &str = "weft_iw0";

const SECTIONS: &str = "\
EXAMPLES
    Does it work here? Both ends on one host, for two seconds:
        weft perf server -1 & sleep 1; weft perf 127.0.0.1 -t 2

    What is there between two hosts?
        weft perf server                        (on 192.0.2.1)
        weft perf 192.0.2.1

    Both directions at once, eight streams, without the first two seconds:
        weft perf 192.0.2.1 --bidirectional -P 8 -O 2

    How long does a message take, and how long do the slowest?
        weft perf 192.0.2.1 --latency
        weft perf 192.0.2.1 --latency --op read -s 4K -n 10000

    All sizes, for a script:
        weft perf 192.0.2.1 --all --json

    Over a long path, on one machine:
        weft wan 70ms 1% 200mbit --server 'weft perf server -1' -- weft perf 10.77.0.2

    An adapter of this machine, without Weft:
        weft perf server -d mlx5_0
        weft perf 192.0.2.1 -d mlx5_0

WHAT IS SAID
    Rates count what was delivered, until the last of it was. `up` is what the client begins, `down`
    what the server does. A latency of Sends and Writes is half of a round trip, that of Reads and
    Atomics a whole one. CPU is CPU time of the whole process on each side; a side that polls
    uses all of its CPU, with --events it does not.

BETWEEN HOSTS
    weft0 encrypts, and both sides need the same key: --key FILE, or WEFT_KEY; `weft key new` makes
    one. --insecure on both sides says that clear text is meant. What the two sides say to each
    other about the test goes in clear text over TCP: no data, but figures.

EXIT STATUS
    0    all was measured
    1    a test failed, or data was wrong
    125  weft was called wrongly: an argument, or a device that is not here
    130  it was interrupted; what was measured until then was said";

/// Environment that a process needs before it can measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Surroundings {
    /// Variables to set.
    pub variables: Vec<(&'static str, String)>,
    /// Whether Weft's devices are to be there.
    pub weft: bool,
}

impl PerfArgs {
    fn place(&self) -> &PortArgs {
        match &self.what {
            Some(PerfCommand::Server(server)) => &server.place,
            Some(PerfCommand::Client(client)) => &client.place,
            None => &self.client.place,
        }
    }

    /// Environment for these arguments. `own_name` is what WEFT_DEV calls `weft0`.
    pub fn surroundings(&self, own_name: Option<&str>) -> Surroundings {
        let mut around = Surroundings { variables: Vec::new(), weft: true };
        let place = self.place();
        let mut transport = place.transport;
        match place.device.as_deref() {
            Some(name) if name == own_name.unwrap_or(SHUTTLE_DEVICE) => {
                transport = transport.or(Some(TransportChoice::Shuttle));
            }
            Some(IWARP_DEVICE) => transport = transport.or(Some(TransportChoice::Iwarp)),
            Some(_) => around.weft = false,
            None => {}
        }
        if let Some(name) = transport.and_then(|transport| transport.to_possible_value()) {
            around.variables.push(("WEFT_TRANSPORT", name.get_name().to_owned()));
        }
        if let Some(file) = &place.key {
            around.variables.push(("WEFT_KEY", format!("file:{}", file.display())));
            // Who names a key does not mean clear text, whatever the environment says.
            around.variables.push(("WEFT_INSECURE", String::from("0")));
        }
        if place.insecure {
            around.variables.push(("WEFT_INSECURE", String::from("1")));
        }
        around
    }
}

/// Runs the command in the present environment; returns the exit status.
pub fn main(command: &PerfArgs) -> u8 {
    let ended = match &command.what {
        Some(PerfCommand::Server(server)) => {
            server::serve(&server.options()).map(|()| ClientOutcome::Whole)
        }
        Some(PerfCommand::Client(client)) => client::measure(&client.options()),
        None => client::measure(&command.client.options()),
    };
    match ended {
        Ok(ClientOutcome::Whole) => 0,
        Ok(ClientOutcome::Wrong) => FAILURE,
        Ok(ClientOutcome::Interrupted) => INTERRUPTED,
        Err(error) => {
            // Where stderr takes nothing, the status says it.
            let _ = writeln!(io::stderr(), "weft perf: {error:#}");
            if error.is::<WrongArgument>() { WRONG_ARGUMENT } else { FAILURE }
        }
    }
}

impl Server {
    fn options(&self) -> server::ServerOptions {
        let PortArgs { port, device, .. } = self.place.clone();
        let patience = Duration::from_secs(self.patience);
        server::ServerOptions { port, one_off: self.one_off, device, patience }
    }
}

impl Client {
    fn options(&self) -> client::ClientOptions {
        let tests = self.sizes().into_iter().map(|bytes| self.test(bytes)).collect();
        let PortArgs { port, device, .. } = self.place.clone();
        let host = bare(self.host.as_deref().unwrap_or_default()).to_owned();
        client::ClientOptions { host, port, tests, device, json: self.json }
    }

    fn operation(&self) -> TestOperation {
        self.op.unwrap_or(if self.latency { TestOperation::Send } else { TestOperation::Write })
    }

    fn sizes(&self) -> Vec<u32> {
        if self.all {
            return ALL.map(|bits| 1 << bits).collect();
        }
        if !self.size.is_empty() {
            return self.size.clone();
        }
        vec![match (self.operation(), self.latency) {
            (TestOperation::Atomic, _) => ATOMIC_SIZE,
            (_, true) => LATENCY_SIZE,
            (_, false) => SIZE,
        }]
    }

    fn test(&self, bytes: u32) -> Test {
        let several = self.all || self.size.len() > 1;
        let seconds = self.time.unwrap_or(TIMES_S[usize::from(several)]);
        let ways = self.streams.saturating_mul(if self.bidirectional { 2 } else { 1 });
        Test {
            version: VERSION,
            operation: self.operation(),
            latency: self.latency,
            bytes,
            streams: self.streams,
            up: !self.reverse,
            down: self.reverse || self.bidirectional,
            amount: self.count.map_or(TestAmount::Seconds(seconds), TestAmount::Messages),
            omit_s: self.omit,
            depth: self.depth.unwrap_or(depth_for(bytes, ways)),
            events: self.events,
            verify: self.verify,
            interval_s: self.interval,
        }
    }
}

/// A host without the brackets that stand around an IPv6 address where a port may follow.
fn bare(host: &str) -> &str {
    let inner = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    inner.unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Whole {
        #[command(flatten)]
        command: PerfArgs,
    }

    fn parse(line: &str) -> PerfArgs {
        let words = format!("perf {line}");
        Whole::try_parse_from(words.split_whitespace()).unwrap().command
    }

    fn client(line: &str) -> client::ClientOptions {
        match parse(line) {
            PerfArgs { what: None, client } => client.options(),
            PerfArgs { what: Some(PerfCommand::Client(client)), .. } => client.options(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_host_is_all_it_takes() {
        for line in ["192.0.2.1", "client 192.0.2.1"] {
            let options = client(line);
            let test = &options.tests[0];
            assert_eq!((options.host.as_str(), options.port), ("192.0.2.1", PORT));
            assert_eq!((test.operation, test.bytes), (TestOperation::Write, SIZE));
            assert_eq!(test.amount, TestAmount::Seconds(10.0));
            test.check().unwrap();
        }
    }

    #[test]
    fn an_ipv6_address_may_have_brackets() {
        for line in ["[::1]", "::1"] {
            assert_eq!(client(line).host, "::1");
        }
    }

    #[test]
    fn options_make_tests_that_can_be_done() {
        for line in [
            "h --latency",
            "h --latency --op atomic",
            "h --latency --op write -s 2,4K",
            "h -a",
            "h -b -P 256",
            "h -R -q 3 --op send --verify -n 7 -e",
            "h --op atomic -t 0.5 -O 1 -i 0.1",
        ] {
            let tests = client(line).tests;
            assert!(!tests.is_empty());
            tests.iter().for_each(|test| test.check().unwrap());
        }
        assert_eq!(client("h -a").tests.len(), 23);
        assert_eq!(client("h --latency").tests[0].operation, TestOperation::Send);
    }

    #[test]
    fn a_server_needs_nothing() {
        let PerfArgs { what: Some(PerfCommand::Server(server)), .. } = parse("server -1 -p 0")
        else {
            panic!("no server");
        };
        let options = server.options();
        assert!(options.one_off && options.port == 0 && options.patience == SILENT_MAX);
        assert!(parse("server").surroundings(None).variables.is_empty());
    }

    #[test]
    fn devices_lead_to_transports() {
        let around = |line: &str, name| parse(line).surroundings(name);
        let transport = |name: &str| vec![("WEFT_TRANSPORT", name.to_owned())];
        assert_eq!(around("h -d weft0", None).variables, transport("shuttle"));
        assert_eq!(around("h -d mlx5_0", Some("mlx5_0")).variables, transport("shuttle"));
        assert_eq!(around("server -d weft_iw0", None).variables, transport("iwarp"));
        assert_eq!(around("h --transport auto", None).variables, transport("auto"));
        assert!(!around("h -d mlx5_0", None).weft);
        let key = around("h --key k", None).variables;
        let secret = [("WEFT_KEY", "file:k"), ("WEFT_INSECURE", "0")];
        assert_eq!(key, secret.map(|(name, value)| (name, value.to_owned())));
    }
}
