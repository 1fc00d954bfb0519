//! The arguments, and the help that is made of them.

mod sections;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use clap_complete::Shell;
use weft_capture::{CaptureSpec, CaptureSpecError};
use weft_fault::FaultPlan;

use crate::doctor::DoctorPeer;
use crate::scenario::SeedRange;

use sections::{DOCTOR_SECTIONS, INFO_SECTIONS, KEY_NEW_SECTIONS, RUN_SECTIONS, SEE_ALSO};

/// RDMA over any IP network, in user space.
#[derive(Debug, Parser)]
#[command(name = "weft", version = env!("WEFT_VERSION"), after_long_help = SEE_ALSO)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: WeftCommand,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum WeftCommand {
    /// Run a program with an RDMA device in it
    ///
    /// CMD finds two devices: weft0, a channel adapter over UDP, and weft_iw0, an iWARP RNIC over
    /// TCP. They use the machine's own IP addresses. LD_PRELOAD loads libweft.so into CMD and its
    /// children. Then this process becomes CMD: its process id, signals, exit status, stdin and
    /// stdout are CMD's own. No root, no kernel module, nothing to configure.
    Run(RunOptions),
    /// Find out why a program does not use Weft, and what on this machine prevents it
    ///
    /// Looks at CMD as `weft run` and the dynamic linker will: is it static, for another machine,
    /// setuid, started by something that clears the environment, linked with a sanitizer, written
    /// in Go, or missing a library? Then at this machine: limits, ports, MTU, offloads, buffers,
    /// hardware, namespaces. CMD does not run.
    Doctor(Doctor),
    /// Say what each device does for its programs, and who does it
    ///
    /// Checks, demultiplexing, markers, segmentation, buffering, flow control, ordering and
    /// encryption: each is done by this CPU's own instructions, by the kernel (or the card that it
    /// leaves it to), by the layer itself, or by nobody. This is for the present environment; a
    /// connection may negotiate less with its peer.
    Info(Info),
    /// Run a program across an emulated wide area network
    ///
    /// CMD runs on the near side of a path, and --server on its far side. SPEC gives the path its
    /// delay, loss, rate and more. Each side is a network namespace on this machine, and real
    /// packets travel between them. No root where the kernel allows user namespaces.
    Wan(Box<degen::command::DegenArgs>),
    /// Make the key by which hosts encrypt
    ///
    /// Hosts with the same key in WEFT_KEY connect over weft0, and all that they send is sealed.
    /// Without a key weft0 connects within this machine only.
    Key(KeyArgs),
    /// Measure Weft against its peers, in figures after those of the papers
    ///
    /// Each suite measures Weft over iWARP and over Shuttle against kernel TCP, in turn, and writes
    /// the results to a file. --list names the suites.
    #[cfg(feature = "bench")]
    Bench(Box<weft_bench::command::BenchArgs>),
    /// Measure bandwidth and latency between two hosts, over any device
    ///
    /// `weft perf server` waits on one host, `weft perf HOST` measures from another one. The
    /// options of the client say what is measured. Both use Weft's devices unless -d names an
    /// adapter.
    Perf(Box<weft_perf::command::PerfArgs>),
    /// `weft perf` with what it needs around it
    #[command(hide = true)]
    PerfInside(Box<weft_perf::command::PerfArgs>),
    /// Copy files to and from other hosts, fast where paths are long or lossy
    ///
    /// ssh logs in and starts weft at the far end. The files go over Shuttle, sealed under a fresh
    /// key, to one UDP port. Each piece is hashed as it is read and as it is written. The same
    /// command resumes a copy that was interrupted, and skips files that are there already.
    Cp(Box<weft_copy::command::CpArgs>),
    /// Run a program on another host, with stdin and stdout through Shuttle
    ///
    /// As `ssh HOST CMD`, but fast where paths are long or lossy: ssh logs in, and the bytes use
    /// one UDP port, sealed. The exit status is CMD's.
    Pipe(Box<weft_streams::command::PipeArgs>),
    /// Forward TCP connections to another host through Shuttle
    ///
    /// As ssh -L and -R, but fast where paths are long or lossy, for programs that cannot be run
    /// over Weft: static ones, in Go or Java, or in another container.
    Forward(Box<weft_streams::command::ForwardArgs>),
    /// What ssh starts at the far end of `weft cp`, `weft pipe` and `weft forward`
    #[command(hide = true)]
    FarEnd(FarEndArgs),
    /// Simulate Shuttle and the rate control of TCP over any path
    Sim(weft_sim::command::SimArgs),
    /// Hand Weft to containers as a device
    Cdi {
        /// What to do
        #[command(subcommand)]
        command: CdiCommand,
    },
    /// Write the libraries that this file carries into a directory
    ///
    /// The weft of a release carries them, and finds them by itself wherever it is copied to. They
    /// are needed as files where something else than `weft run` loads them, as LD_PRELOAD in an
    /// image does.
    Unpack {
        /// Made if it is not there
        #[arg(value_hint = ValueHint::DirPath)]
        dir: PathBuf,
    },
    /// Write the manual pages of all commands into a directory, or docs/commands.md
    #[command(hide = true)]
    Man {
        /// An existing directory
        #[arg(value_hint = ValueHint::DirPath, required_unless_present = "markdown")]
        dir: Option<PathBuf>,
        /// Write all of them into this page of Markdown
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        markdown: Option<PathBuf>,
    },
    /// List the connections of every process, once
    Ss(crate::observe::SsOptions),
    /// Show the connections of every process, each second, and what limits them
    Top(crate::observe::TopOptions),
    /// Write the counters of devices and connections as OpenMetrics text, or serve them
    Metrics(crate::observe::MetricsOptions),
    /// Draw what `weft run --trace` has written
    Trace(crate::trace::TraceArgs),
    /// Print the completions of a shell
    Completions {
        /// The shell
        shell: Shell,
    },
}

/// The arguments of `weft run`.
#[derive(Debug, Default, Args)]
#[command(after_long_help = RUN_SECTIONS)]
pub struct RunOptions {
    /// How much Weft says on stderr [default: warn, or what WEFT_LOG says]
    #[arg(long, value_name = "LEVEL")]
    pub log: Option<Level>,

    /// Use this library instead of looking for libweft.so, or libweft_sockets.so
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub lib: Option<PathBuf>,

    /// Inject a fault: `drop=1%`, `qp-error:after=1000`, `peer-gone:at=2s` and others
    ///
    /// May be given several times, or several faults with `;` between them. The random seed is
    /// printed on stderr; `seed=N` repeats it. docs/faults.md has them all.
    #[arg(long, value_name = "FAULT", value_parser = FaultPlan::parse)]
    pub fault: Vec<FaultPlan>,

    /// Inject faults into the machine's own devices (siw0, rxe0, mlx5_0) instead of Weft's
    ///
    /// CMD finds the devices that it finds without Weft. Faults that need the wire, such as `drop`,
    /// are refused. docs/faults.md says what each does there.
    #[arg(
        long,
        conflicts_with_all = ["sockets", "pcap", "trace", "stats", "require_traffic", "fuzz_faults"]
    )]
    pub passthrough: bool,

    /// Write CMD's packets in clear into FILE, as pcapng for Wireshark and tshark
    ///
    /// iWARP is shown as it is; Shuttle as RoCE v2, or as it is with `view=shuttle` or
    /// `view=both`. `size=10M` makes a ring of `files=N`, `qp=N` takes the Nth queue pair of a
    /// process alone. `%p` in the name is the process id. It turns shared memory off.
    /// docs/observe.md says more.
    #[arg(
        long,
        value_name = "FILE[,KEY=VALUE...]",
        value_hint = ValueHint::FilePath,
        value_parser = capture_spec
    )]
    pub pcap: Option<String>,

    /// Write what happens to CMD's connections and requests into FILE, as qlog in JSON-SEQ
    ///
    /// Packets, round trips, windows and losses, each post and completion, changes of state. `%p`
    /// in the name is the process id. `weft trace show FILE` draws it.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub trace: Option<PathBuf>,

    /// Run CMD under the faults of a scenario file, and judge it by what the file expects
    ///
    /// The exit status is 0 if all is as expected, else 1; a timeline is written to stderr.
    /// docs/scenarios.md says what such a file has in it; docs/gallery.md has examples.
    #[arg(
        long,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        conflicts_with_all = ["require_traffic", "stats"]
    )]
    pub scenario: Option<PathBuf>,

    /// Run CMD under the random faults of many seeds, until one makes it crash or hang
    ///
    /// That plan is then reduced to the smallest one that still fails, and printed. With --scenario
    /// the expectations of the file say what a failure is. What CMD writes is discarded.
    #[arg(
        long,
        value_name = "SEED..SEED",
        value_parser = SeedRange::parse,
        conflicts_with_all = ["fault", "require_traffic", "stats", "json"]
    )]
    pub fuzz_faults: Option<SeedRange>,

    /// With --scenario, write what happened as one line of JSON instead of a timeline
    #[arg(long, requires = "scenario")]
    pub json: bool,

    /// Fail with status 123 if CMD succeeds and no RDMA operation ran
    #[arg(long)]
    pub require_traffic: bool,

    /// Say on stderr at the end which devices, connections, operations and bytes there were
    #[arg(long)]
    pub stats: bool,

    /// Carry CMD's TCP sockets by RDMA where the peer does too, instead of giving it devices
    ///
    /// Other peers are reached by TCP, as without Weft. docs/sockets.md says what CMD sees.
    #[arg(long)]
    pub sockets: bool,

    /// With --sockets, print on stderr what carries each connection
    #[arg(short, long, requires = "sockets")]
    pub verbose: bool,

    /// The program and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        value_name = "CMD",
        value_hint = ValueHint::CommandWithArguments
    )]
    pub command: Vec<OsString>,
}

/// Checks what is to be captured, and leaves it as it is for CMD's processes.
fn capture_spec(text: &str) -> Result<String, CaptureSpecError> {
    CaptureSpec::parse(text).map(|_| text.to_owned())
}

/// The arguments of `weft doctor`.
#[derive(Debug, Args)]
#[command(after_long_help = DOCTOR_SECTIONS)]
pub struct Doctor {
    /// Say it in JSON: one object, with `ok` and `findings`
    #[arg(long)]
    pub json: bool,

    /// Use this libweft.so instead of looking for one
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub lib: Option<PathBuf>,

    /// Check the path to HOST too, where `weft doctor --serve` runs
    ///
    /// TCP and UDP in both directions, loss and round trip by a second of probes, path MTU, address
    /// translation, versions, keys and clocks.
    #[arg(
        long,
        value_name = "HOST[:PORT]",
        value_hint = ValueHint::Hostname,
        value_parser = DoctorPeer::parse
    )]
    pub peer: Option<DoctorPeer>,

    /// Answer `weft doctor --peer` from other hosts, until interrupted
    #[arg(long, conflicts_with_all = ["peer", "command", "json"])]
    pub serve: bool,

    /// With --serve, the port of TCP and UDP [default: 18522]
    #[arg(long, requires = "serve")]
    pub port: Option<u16>,

    /// The program to look at, and its arguments
    #[arg(
        trailing_var_arg = true,
        value_name = "CMD",
        value_hint = ValueHint::CommandWithArguments
    )]
    pub command: Vec<OsString>,
}

/// The arguments of `weft info`.
#[derive(Debug, Args)]
#[command(after_long_help = INFO_SECTIONS)]
pub struct Info {
    /// Say it in JSON: a list of layers, each with `device`, `layer` and `components`
    #[arg(long)]
    pub json: bool,
}

/// The arguments of `weft far-end`.
#[derive(Debug, Args)]
pub struct FarEndArgs {
    /// Print which protocol this far end speaks
    #[arg(long)]
    pub protocol: bool,
    /// Print the BLAKE3 of this program
    #[arg(long)]
    pub hash: bool,
}

/// What there is to do for containers.
#[derive(Debug, Subcommand)]
pub enum CdiCommand {
    /// Write a Container Device Interface file for this installation
    ///
    /// Container engines that find it in /etc/cdi, or in the directory that they are told, mount
    /// Weft into unmodified images: `podman run --device weft/rdma=all IMAGE ibv_devinfo`. It takes
    /// no privilege and no capability. For images based on Fedora that have no rdma-core, add
    /// `--device weft/rdma=stubs`.
    Generate(CdiGenerate),
}

/// The arguments of `weft cdi generate`.
#[derive(Debug, Args)]
pub struct CdiGenerate {
    /// Write it to this file, such as /etc/cdi/weft.json [default: stdout]
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,

    /// Set a variable in the containers too, such as WEFT_PORTS=4000-4099
    #[arg(short, long, value_name = "NAME=VALUE")]
    pub env: Vec<String>,
}

/// The arguments of `weft key`.
#[derive(Debug, Args)]
pub struct KeyArgs {
    /// What to do with a key
    #[command(subcommand)]
    pub command: KeyCommand,
}

/// What there is to do with a key.
#[derive(Debug, Subcommand)]
pub enum KeyCommand {
    /// Make a new key
    #[command(after_long_help = KEY_NEW_SECTIONS)]
    New {
        /// Write it to this file, which must not exist, for its owner only [default: stdout]
        #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
        file: Option<PathBuf>,
    },
    /// Print the name of a key, to compare it with that of another host
    ///
    /// The name says whether two keys are the same, and nothing else about them. Messages about
    /// keys that differ show it too.
    Name {
        /// The key file [default: the key in WEFT_KEY]
        #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
        file: Option<PathBuf>,
    },
}

/// How much is said on stderr.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Level {
    /// Nothing
    Off,
    /// What failed
    Error,
    /// What works, but not as asked
    Warn,
    /// Connections coming and going
    Info,
    /// Every change of state
    Debug,
    /// Everything but the data path
    Trace,
}

impl Level {
    /// The value of WEFT_LOG that means this level.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_doctor_takes_a_program_or_none() {
        let doctor = |line: &str| match Cli::try_parse_from(line.split_whitespace()).unwrap() {
            Cli { command: WeftCommand::Doctor(doctor) } => doctor,
            other => panic!("{other:?}"),
        };
        assert!(doctor("weft doctor").command.is_empty());
        let whole = doctor("weft doctor --json ls --json");
        assert!(whole.json);
        assert_eq!(whole.command, ["ls", "--json"]);
    }

    fn parse(line: &str) -> RunOptions {
        let cli = Cli::try_parse_from(line.split_whitespace()).unwrap();
        match cli.command {
            WeftCommand::Run(run) => run,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn options_after_cmd_are_its_own() {
        assert_eq!(parse("weft run ls --log -l -- x").command, ["ls", "--log", "-l", "--", "x"]);
        assert_eq!(parse("weft run --log debug -- ls -l").command, ["ls", "-l"]);
        assert_eq!(parse("weft run -- --help").command, ["--help"]);
    }

    #[test]
    fn levels_are_named_as_the_library_reads_them() {
        for level in Level::value_variants() {
            assert_eq!(level.to_possible_value().unwrap().get_name(), level.name());
        }
    }

    #[test]
    fn the_help_and_the_page_have_every_fault() {
        let page = include_str!("../../../docs/faults.md").replace("\\|", "|");
        for form in weft_fault::forms() {
            assert!(RUN_SECTIONS.contains(form), "{form}");
            assert!(form.starts_with("seed") || page.contains(form), "{form}");
        }
    }

    #[test]
    fn the_help_names_every_variable() {
        for variable in &crate::variables::KNOWN {
            assert!(RUN_SECTIONS.contains(variable.name), "{}", variable.name);
        }
    }
}
