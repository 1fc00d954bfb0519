//! Storage and virtual machines: iSER between tgt and libiscsi, memory by librpma, fio, and a
//! migration of QEMU.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use weft_interop::source;
use weft_testkit::{
    LIMIT, Lab, Namespaces, Running, SHUTTLE, free_port, now, own_address, pair, peer,
};

use crate::{Client, counted, debian, operations, said_version};

pub const ISER: Client = Client {
    name: "tgt with libiscsi (iSER)",
    version: || {
        let tgtd = said_version(&peer(TGT)?.join("tgtd"), "--version")?;
        Some(format!("{tgtd}, {}", debian("libiscsi-bin")?))
    },
    does: "reads of 4 KiB and 256 KiB for two seconds",
    refuses: None,
    run: iser,
};

pub const RPMA: Client = Client {
    name: "librpma",
    version: || debian("librpma-dev"),
    does: "a peer's memory written, flushed and read, atomically too; messages; checked",
    refuses: None,
    run: |lab| {
        if debian("librpma-dev").is_none() {
            weft_testkit::skip("no librpma-dev: scripts/deps.sh");
            return None;
        }
        // It takes an id's device, and rdma-cm gives an adapter's none on loopback.
        let (address, port) = (own_address()?, free_port());
        let program = counted(lab.compile(Path::new("cc"), &source("rpma"), &["-lrpma"]));
        let end = |role: &str| program.clone().args(&format!("{role} {address} {port}"));
        let (server, client) = pair(&end("server"), &end("client"), port);
        let ends = [server, client].map(|end| end.said("all right"));
        Some(ends.into_iter().map(|end| operations(lab, end)).sum())
    },
};

/// `make soak-fio` has each verb, and looks at what was written and read.
pub const FIO: Client = Client {
    name: "fio",
    version: || debian("fio"),
    does: "its `rdma` engine: Sends of 64 KiB, checked",
    refuses: None,
    run: |lab| {
        let port = free_port();
        let common = |name: &str| {
            let fio = counted(lab.program("fio")).args(&format!("--name={name} --ioengine=rdma"));
            let fio = fio.args(&format!("--port={port} --bs=65536 --size=8388608 --iodepth=8"));
            fio.args("--verify=crc32c --verify_fatal=1")
        };
        let client = common("client").args("--hostname=127.0.0.1 --rw=write --do_verify=0");
        let server = common("server").args("--rw=read");
        let (server, client) = pair(&server, &client.args("--verb=send"), port);
        assert!(!server.stderr.contains("verify"), "{server}");
        Some(operations(lab, server) + operations(lab, client))
    },
};

pub const QEMU: Client = Client {
    name: "QEMU",
    version: || debian("qemu-system-x86"),
    does: "a migration",
    refuses: None,
    run: migration,
};

const TGT: &str = "servers/usr/sbin";
const NAME: &str = "iqn.2026-01.test:disk";
const INITIATOR: &str = "iqn.2026-01.test:initiator";

/// tgtd takes no other port: its option for one looks at an errno that nobody has cleared.
const PORT: u16 = 3260;

/// libiscsi 1.19 has one buffer of 256 KiB for each request, and refuses larger ones itself.
const SIZES_BLOCKS: [u32; 2] = [8, 512];

/// In a namespace of its own, for the sake of the port.
fn iser(lab: &Lab) -> Option<u64> {
    let (Some(tgt), Some(_)) = (peer(TGT), debian("libiscsi-bin")) else {
        weft_testkit::skip("no tgt or no libiscsi: scripts/deps.sh, scripts/servers.sh");
        return None;
    };
    // Says by itself why there are none.
    let spaces = Namespaces::new()?;
    let socket = lab.path("tgtd");
    let tgtd =
        lab.program(&tgt.join("tgtd").to_string_lossy()).args("-f --iscsi portal=127.0.0.1:1");
    let tgtd = counted(tgtd).env("TGT_IPC_SOCKET", &socket).started_by(&spaces.in_first());
    let tgtd = tgtd.start().until("listened", |_| spaces.first_listens(PORT));
    let disk = lab.write("disk", vec![0; 16 << 20]);
    for line in [
        format!("--op new --mode target --tid 1 -T {NAME}"),
        format!("--op new --mode logicalunit --tid 1 --lun 1 -b {}", disk.display()),
        "--op bind --mode target --tid 1 -I ALL".to_owned(),
        format!("--op bind --mode target --tid 1 -Q {INITIATOR}"),
    ] {
        let admin = lab.program(&tgt.join("tgtadm").to_string_lossy()).on_its_own();
        let admin = admin.env("TGT_IPC_SOCKET", &socket).args("--lld iser").args(&line);
        admin.run().success();
    }
    let run = |blocks: &u32| {
        let perf = counted(lab.program("iscsi-perf")).started_by(&spaces.in_first());
        let perf = perf.args(&format!("-i {INITIATOR} -t 2 -m 4 -b {blocks}"));
        let perf = perf.arg(format!("iser://127.0.0.1:{PORT}/{NAME}/1"));
        operations(lab, perf.run().said("finished."))
    };
    let counts = SIZES_BLOCKS.iter().map(run).sum();
    drop(tgtd);
    Some(counts)
}

/// A machine that has memory and nothing else is moved to another process.
fn migration(lab: &Lab) -> Option<u64> {
    if debian("qemu-system-x86").is_none() {
        weft_testkit::skip("no QEMU: scripts/deps.sh");
        return None;
    }
    let (address, port) = (own_address()?, free_port());
    let at = format!("rdma:{address}:{port}");
    let machine = |name: &str| {
        let qemu = counted(lab.program("qemu-system-x86_64"));
        let qemu = qemu.args("-machine pc,accel=tcg -m 64 -nodefaults -display none -monitor");
        qemu.arg(format!("unix:{},server=on,wait=off", lab.path(name).display()))
    };
    let to = machine("to").args(&format!("-incoming {at}")).start().listening(port);
    let from = machine("from").start();
    let mut monitor = Monitor::of(lab, "from", &from);
    monitor.says(&format!("migrate {at}"));
    let said = monitor.says("info migrate");
    assert!(said.contains("status: completed"), "{said}\n{}\n{}", from.end(), to.end());
    let mut other = Monitor::of(lab, "to", &to);
    // The source is done once all has left; the destination then still takes up the machine.
    let deadline = now() + LIMIT;
    loop {
        let said = other.says("info status");
        if said.contains("running") {
            break;
        }
        assert!(now() < deadline, "{said}\n{}\n{}", from.end(), to.end());
    }
    other.quit();
    monitor.quit();
    Some(operations(lab, from.wait()) + operations(lab, to.wait()))
}

/// QEMU's monitor, for people: it prints a prompt once a command is done.
struct Monitor(UnixStream);

impl Monitor {
    fn of(lab: &Lab, name: &str, qemu: &Running) -> Self {
        let path = lab.path(name);
        let stream = loop {
            match UnixStream::connect(&path) {
                Ok(stream) => break stream,
                Err(_) if !qemu.ends_within(Duration::from_millis(20)) => {}
                Err(error) => panic!("no monitor: {error}"),
            }
        };
        stream.set_read_timeout(Some(LIMIT)).expect("a limit is not zero");
        let mut this = Self(stream);
        this.prompt();
        this
    }

    fn says(&mut self, command: &str) -> String {
        writeln!(self.0, "{command}").expect("QEMU reads its monitor");
        self.prompt()
    }

    fn quit(mut self) {
        writeln!(self.0, "quit").expect("QEMU reads its monitor");
        // It does not read what was written before a hang-up.
        let end = self.0.read_to_end(&mut Vec::new());
        assert!(end.is_ok(), "QEMU does not end: {end:?}");
    }

    /// What comes before the next prompt.
    fn prompt(&mut self) -> String {
        let mut text = Vec::new();
        while !text.ends_with(b"(qemu) ") {
            let mut byte = [0];
            match self.0.read(&mut byte) {
                Ok(1) => text.extend(byte),
                end => panic!("{end:?} after {}", String::from_utf8_lossy(&text)),
            }
        }
        String::from_utf8_lossy(&text).into_owned()
    }
}

#[test]
fn remote_memory_by_librpma() {
    RPMA.holds();
}

#[test]
fn disks_by_iser() {
    ISER.holds();
}

/// On `weft0` alone: on `weft_iw0`, which `make peer-suites` has too, one migration of ten ended
/// with its connection on a busy machine.
#[test]
fn a_machine_moves() {
    let Some(lab) = Lab::with(&[]) else { return };
    migration(&lab.over(SHUTTLE));
}
