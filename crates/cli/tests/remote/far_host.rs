//! A far host: an sshd of this user on loopback or in a network of its own, at a port that the
//! kernel chooses, with keys of its own.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use weft_testkit::{
    Dir, Program, Running, Translator, find, free_port, skip, text, without_settings,
};

/// An sshd and all that it needs, gone with this.
pub struct FarHost {
    pub dir: Dir,
    _sshd: Running,
    ssh: String,
    weft: PathBuf,
    /// What starts programs where the near end is.
    near: String,
}

impl FarHost {
    /// A far host; nothing, and a line on stderr, where there is no sshd.
    pub fn start(name: &str) -> Option<Self> {
        let listening = |sshd: Program, port| sshd.start().listening(port);
        Self::at("127.0.0.1", name, "env", listening)
    }

    /// The same outside of a box that translates addresses, the near end inside.
    pub fn beyond(box_between: &Translator, name: &str) -> Option<Self> {
        let outside = box_between.outside();
        let listening = |sshd: Program, port| {
            let sshd = sshd.started_by(&outside).start();
            sshd.until("listened", |_| box_between.outside_listens(port))
        };
        Self::at(Translator::OUTSIDE, name, &box_between.inside(), listening)
    }

    fn at(
        address: &str,
        name: &str,
        near: &str,
        start: impl FnOnce(Program, u16) -> Running,
    ) -> Option<Self> {
        let (Some(sshd), Some(keygen)) = (find("sshd"), find("ssh-keygen")) else {
            skip("openssh-server is not installed");
            return None;
        };
        let dir = Dir::new(name);
        for key in ["host-key", "user-key"] {
            let mut command = Command::new(&keygen);
            command.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(dir.path(key));
            assert!(command.status().unwrap().success(), "ssh-keygen works");
        }
        if weft_testkit::is_root() {
            // sshd of root insists on it.
            std::fs::create_dir_all("/run/sshd").unwrap();
        }
        let port = free_port();
        let root = dir.root().display();
        dir.write(
            "sshd_config",
            format!(
                "Port {port}\nListenAddress {address}\nHostKey {root}/host-key\nPidFile none\n\
                 AuthorizedKeysFile {root}/user-key.pub\nUsePAM no\nStrictModes no\n\
                 MaxStartups 100\nSetEnv XDG_CACHE_HOME={root}/cache PATH=/usr/bin:/bin \
                 WEFT_PATHS=off\n"
            ),
        );
        dir.write(
            "ssh_config",
            format!(
                "Host far far2\nHostName {address}\nPort {port}\nIdentityFile {root}/user-key\n\
                 IdentitiesOnly yes\nUserKnownHostsFile {root}/known\nStrictHostKeyChecking no\n\
                 LogLevel ERROR\nBatchMode yes\n"
            ),
        );
        let config = dir.text_path("sshd_config");
        let running = start(Program::at(&sshd).words(["-D", "-e", "-f", &config]), port);
        let ssh = format!("ssh -F {}", dir.text_path("ssh_config"));
        // Under a name of this test's, by which its processes are found.
        let weft = dir.path("weft-there");
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_weft"), &weft).unwrap();
        Some(Self { dir, _sshd: running, ssh, weft, near: near.to_owned() })
    }

    /// The same, with a limit of prlimit(1) for the near end.
    pub fn limiting(self, limit: &str) -> Self {
        Self { near: format!("prlimit {limit} {}", self.near), ..self }
    }

    /// `weft` with a command that reaches this host, which looks for a weft by itself.
    pub fn bare(&self, command: &str) -> Command {
        // Whatever goes wrong, a test does not hang.
        let mut words = self.near.split(' ');
        let mut weft = Command::new(words.next().unwrap_or("env"));
        weft.args(words).args([
            "timeout",
            "-s",
            "KILL",
            "100",
            env!("CARGO_BIN_EXE_weft"),
            command,
        ]);
        without_settings(&mut weft);
        weft.env("WEFT_PATHS", "off");
        weft.args(["-e", &self.ssh]).current_dir(self.dir.root());
        weft.stdin(Stdio::null());
        weft
    }

    /// The same with the weft of this build at the far end, at a port that its kernel chooses.
    pub fn weft(&self, command: &str) -> Command {
        let mut weft = self.bare(command);
        weft.args(["--port", "0", "--remote-weft"]).arg(&self.weft);
        weft
    }

    /// Copies with these arguments, and gives what became of it.
    pub fn cp(&self, arguments: &[&str]) -> Output {
        self.weft("cp").args(arguments).output().expect("weft starts")
    }

    /// The same, which must succeed.
    pub fn copied(&self, arguments: &[&str]) {
        let output = self.cp(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    }

    /// `far:` and the path of `name` in the directory of this test.
    pub fn far(&self, name: &str) -> String {
        format!("far:{}", self.dir.text_path(name))
    }

    /// Process ids of far ends of this host.
    pub fn far_ends(&self) -> Vec<i32> {
        let wanted = self.weft.as_os_str().as_encoded_bytes();
        let ids = std::fs::read_dir("/proc").unwrap().flatten();
        let ids = ids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let is_it = |id: &i32| {
            let line = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
            line.split(|byte| *byte == 0).next() == Some(wanted)
        };
        ids.filter(is_it).collect()
    }
}

/// The counts of the last event of `--json`.
pub fn last_event(stdout: &[u8]) -> serde_json::Value {
    let out = text(stdout);
    let last = out.lines().last().expect("there are events");
    let event: serde_json::Value = serde_json::from_str(last).expect("events are JSON");
    assert_eq!(event["event"], "end");
    event["data"].clone()
}

/// Bytes that no compression makes smaller, from a seed.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        out.extend((state ^ state >> 29).to_le_bytes());
    }
    out.truncate(len);
    out
}

/// Whether two files have the same bytes.
pub fn assert_same(a: &Path, b: &Path) {
    let (a, b) = (std::fs::read(a).unwrap(), std::fs::read(b).unwrap());
    assert!(a == b, "{} and {} bytes, not the same", a.len(), b.len());
}
