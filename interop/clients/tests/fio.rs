//! fio's rdma engine: every verb, and the data checked.
//!
//! fio itself checks what it receives, by CRC. Of remote memory it checks nothing, so here its
//! buffers are files: after the run each block of them must be one that the other side had.

use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use weft_testkit::{Lab, Program, free_port, now, pair};

/// What one client does to one server.
#[derive(Clone, Copy, Debug)]
struct Transfer {
    verb: &'static str,
    /// Bytes of a block, a multiple of 4096.
    block: usize,
    /// How many are under way at a time.
    depth: usize,
    blocks: usize,
}

impl fmt::Display for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { verb, block, depth, blocks } = self;
        write!(f, "{verb}: {blocks} blocks of {block} bytes, {depth} at a time")
    }
}

impl Transfer {
    /// Runs it; what arrived must be what was sent, written or read.
    fn run(&self, lab: &Lab) {
        let port = free_port();
        let size = self.block * self.blocks;
        let common = |name: &str| {
            let fio = lab.program("fio").option("--require-traffic");
            let fio = fio.args(&format!("--name={name} --ioengine=rdma --port={port}"));
            fio.args(&format!("--bs={} --size={size} --iodepth={}", self.block, self.depth))
        };
        let client = common("client").args("--hostname=127.0.0.1 --rw=write --do_verify=0");
        let client = client.arg(format!("--verb={}", self.verb));
        let server = common("server").args("--rw=read");
        match self.verb {
            "send" => self.send(server, client, port),
            "write" => self.write(lab, server, client, port),
            _ => self.read(lab, server, client, port),
        }
    }

    fn send(&self, server: Program, client: Program, port: u16) {
        let check = "--verify=crc32c --verify_fatal=1";
        let (server, client) = pair(&server.args(check), &client.args(check), port);
        assert!(!server.stderr.contains("verify"), "{server}");
        let amount =
            |output: &str| Some(output.rsplit_once(" io=")?.1.split(' ').next()?.to_owned());
        let sent = amount(&client.stdout);
        assert!(sent.is_some() && sent == amount(&server.stdout), "{server}\n{client}");
    }

    /// Each block that is written says its offset all over.
    fn write(&self, lab: &Lab, server: Program, client: Program, port: u16) {
        let memory = self.memory(lab, |_| 0);
        let server = server.arg(format!("--mem=mmapshared:{}", memory.display()));
        let client = client.args("--verify=pattern --verify_pattern=%o");
        pair(&server, &client, port);
        let found = words(&memory, self.block);
        for offset in &found {
            let offset = offset.unwrap_or_else(|| panic!("a mixed block: {self} {found:x?}"));
            let (number, rest) = (offset / self.block as u64, offset % self.block as u64);
            assert!(rest == 0 && number < self.blocks as u64, "{self} {found:x?}");
        }
        assert!(found.iter().any(|offset| *offset != Some(0)), "{self}: nothing was written");
    }

    /// The server's blocks say their number all over, and so must all that the client has then.
    fn read(&self, lab: &Lab, server: Program, client: Program, port: u16) {
        let theirs = self.memory(lab, |block| 0x5EED_0000 + block as u64);
        let ours = self.memory(lab, |_| 0);
        let server = server.arg(format!("--mem=mmapshared:{}", theirs.display()));
        let client = client.arg(format!("--mem=mmapshared:{}", ours.display()));
        pair(&server, &client, port);
        let (had, found) = (words(&theirs, self.block), words(&ours, self.block));
        let known = |word: &Option<u64>| word.is_some() && had.contains(word);
        assert!(found[..self.depth].iter().all(known), "{self} {found:x?}");
    }

    /// A file for the blocks of one side, each full of what `content` says.
    fn memory(&self, lab: &Lab, content: impl Fn(usize) -> u64) -> PathBuf {
        let name = format!("memory-{}", free_port());
        let words = |block| vec![content(block).to_le_bytes(); self.block / 8].concat();
        lab.write(&name, (0..self.depth).flat_map(words).collect::<Vec<u8>>())
    }
}

/// The word that each block of the file is full of, or nothing where there are several.
fn words(file: &PathBuf, block: usize) -> Vec<Option<u64>> {
    let content = fs::read(file).expect("the file that was made is there");
    let word = |block: &[u8]| {
        let (words, _) = block.as_chunks::<8>();
        words.iter().all(|word| *word == words[0]).then(|| u64::from_le_bytes(words[0]))
    };
    content.chunks_exact(block).map(word).collect()
}

/// A lab whose fio has the engine.
fn labs(test: impl Fn(&Lab)) {
    Lab::over_each(&["fio"], |lab| {
        let engines = lab.program("fio").on_its_own().arg("--enghelp").run();
        match engines.stdout.split_whitespace().any(|engine| engine == "rdma") {
            true => test(lab),
            false => weft_testkit::skip("this fio has no rdma engine"),
        }
    });
}

fn quick(verb: &'static str, depth: usize) {
    labs(|lab| Transfer { verb, block: 64 << 10, depth, blocks: 128 }.run(lab));
}

#[test]
fn writes() {
    quick("write", 4);
}

#[test]
fn reads() {
    quick("read", 4);
}

#[test]
fn sends() {
    quick("send", 4);
}

#[test]
fn sends_with_a_single_receive() {
    quick("send", 1);
}

/// Bytes of one transfer of the long run; a few seconds each.
const ROUND: usize = 1 << 30;

/// One transfer after the other, for as long as `SECONDS` says.
fn for_long(lab: &Lab, limit: Duration) {
    let begun = now();
    let verbs = ["send", "write", "read"].into_iter().cycle();
    let blocks = [64 << 10, 4 << 10, 1 << 20, 16 << 10].into_iter().cycle();
    let depths = [4, 1, 32, 8, 2].into_iter().cycle();
    let mut bytes = 0;
    for (count, ((verb, block), depth)) in verbs.zip(blocks).zip(depths).enumerate() {
        if begun.elapsed() >= limit {
            println!("{:?}: {count} transfers, {bytes} bytes, all right", lab.transport());
            return;
        }
        // Small blocks are slow: they get fewer bytes.
        let size = if block < 64 << 10 { ROUND / 8 } else { ROUND };
        let transfer = Transfer { verb, block, depth, blocks: size / block };
        transfer.run(lab);
        bytes += size;
        println!("{:6} s {}: {transfer}", begun.elapsed().as_secs(), lab.transport().unwrap_or(""));
    }
}

/// `make soak-fio`: half of the time for each transport.
#[test]
#[ignore = "an hour"]
fn for_an_hour() {
    let seconds = std::env::var("SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    let limit = Duration::from_secs(seconds.unwrap_or(3600)) / 2;
    labs(|lab| for_long(lab, limit));
}
