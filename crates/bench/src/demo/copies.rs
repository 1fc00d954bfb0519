//! Act 4: one file across the same WAN, by `weft cp` and by scp, to an sshd of this act's own on
//! the far side. Both copies are compared with the file.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use super::act::{DemoAct, DemoNumber, PATH};
use super::screen::DemoScreen;
use super::wan;
use crate::lab::{BenchLab, is_installed};
use crate::machine;
use crate::process::Spec;

/// How long a copy of the demonstration may take, in seconds; TCP with CUBIC would need ten
/// minutes.
const LIMIT_S: u64 = 10;
/// Where sshd of root wants a directory.
const PRIVILEGE_DIR: &str = "/run/sshd";

/// A program that copies a file to another host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyTool {
    /// `weft cp`.
    Weft,
    /// `scp`.
    Scp,
    /// `rsync` through ssh.
    Rsync,
}

/// What the copies need.
struct CopyStage<'a> {
    lab: &'a BenchLab,
    sshd: Spec,
    megabytes: u64,
    /// How long a copy may take, in seconds.
    limit_s: u64,
    /// Whether this act has made [`PRIVILEGE_DIR`].
    made_dir: bool,
}

/// How a copy ended.
enum CopyEnding {
    Seconds(f64),
    TooSlow,
}

/// Plays the act.
///
/// # Errors
/// `weft cp` failed, a copy was wrong, or the user interrupts.
pub fn play(lab: &BenchLab, screen: &mut DemoScreen, megabytes: u64) -> Result<DemoAct> {
    let mut act = DemoAct::new(4, "A file across the same WAN");
    screen.line("");
    screen.title(&format!("4  {megabytes} MB across the same WAN, to an sshd on its far side"));
    if let Some(why) = lack().or_else(|| wan::obstacle(lab)) {
        screen.line(&format!("   skipped: {why}"));
        act.skipped.push(why);
        return Ok(act);
    }
    let stage = CopyStage::new(lab, megabytes, LIMIT_S)?;
    if let Err(error) = stage.run("true", screen, &stage.number("log-in", false)) {
        let why = format!("sshd does not work on a path here: {error:#}");
        let why = why.lines().next().unwrap_or_default().to_owned();
        screen.line(&format!("   skipped: {why}"));
        act.skipped.push(why);
        return Ok(act);
    }
    let weft = stage.number("weft cp", true);
    let scp = stage.number(&format!("scp, TCP with {}", machine::default_congestion()), false);
    screen.line("   rate with log-in and all (more is better)");
    for (tool, number) in [(CopyTool::Weft, weft), (CopyTool::Scp, scp)] {
        let done = stage.copy(screen, tool, number)?;
        screen.bar(&done, 1000.0);
        if done.value.is_some() && !done.note.starts_with("ended") {
            act.verified.push(format!("{}: the copy is the file, byte for byte", done.label));
        }
        act.measured.push(done);
    }
    act.verified.iter().for_each(|line| screen.line(&format!("   {line}")));
    Ok(act)
}

/// The rate of a file of `megabytes` MB by a program across [`PATH`], in Mbit/s, log-in and all.
/// The copy is compared with the file; one that has not ended after `limit_s` seconds counts by
/// what is there.
///
/// # Errors
/// What the copy needs is missing, the copy failed, or it is not the file.
pub fn rate(lab: &BenchLab, tool: CopyTool, megabytes: u64, limit_s: u64) -> Result<f64> {
    if let Some(why) = lack().or_else(|| wan::obstacle(lab)) {
        bail!(why);
    }
    let stage = CopyStage::new(lab, megabytes, limit_s)?;
    let silent = DemoScreen::new(true, true);
    let done = stage.copy(&silent, tool, stage.number("copy", tool == CopyTool::Weft));
    // The next copy is of a stage of its own.
    stage.clear();
    done?.value.context("no rate")
}

fn lack() -> Option<String> {
    let absent = ["ssh", "scp", "ssh-keygen"].into_iter().find(|name| !is_installed(name));
    let absent = absent.or_else(|| find_sshd().is_none().then_some("sshd"));
    absent.map(|program| format!("{program} is not here; Debian has it in openssh-server"))
}

/// An sshd of the system, or one that `make demo` has unpacked beside the build.
fn find_sshd() -> Option<Spec> {
    let installed = ["/usr/sbin/sshd", "/usr/local/sbin/sshd", "/usr/bin/sshd"];
    if let Some(path) = installed.iter().map(Path::new).find(|path| path.is_file()) {
        return Some(Spec::at(path));
    }
    let own = std::env::current_exe().ok()?;
    let root = own.ancestors().nth(2)?.join("demo");
    let sshd = root.join("usr/sbin/sshd");
    let libraries = root.join("usr/lib/x86_64-linux-gnu");
    let libraries = libraries.to_str()?.to_owned();
    sshd.is_file().then(|| {
        let paths = format!("env LD_LIBRARY_PATH={libraries}");
        Spec::at(&sshd).under_tool(&paths)
    })
}

impl<'a> CopyStage<'a> {
    fn new(lab: &'a BenchLab, megabytes: u64, limit_s: u64) -> Result<Self> {
        let sshd = find_sshd().context("there is no sshd")?;
        let dir = Path::new(PRIVILEGE_DIR);
        let is_root = rustix::process::geteuid().is_root();
        let made_dir = is_root && !dir.exists();
        if made_dir {
            fs::create_dir(dir).context(PRIVILEGE_DIR)?;
        }
        let stage = Self { lab, sshd, megabytes, limit_s, made_dir };
        for key in ["host", "user"] {
            let file = stage.path(key);
            let spec = Spec::new("ssh-keygen").args("-q -t ed25519 -f").arg(&text(&file));
            lab.alone(&spec.arg("-N").arg(""))?;
        }
        let root = lab.dir().display();
        fs::write(
            stage.path("sshd_config"),
            format!(
                "Port 2022\nHostKey {root}/host\nAuthorizedKeysFile {root}/user.pub\n\
                 PidFile none\nUsePAM no\nStrictModes no\nSubsystem sftp internal-sftp\n"
            ),
        )?;
        fs::write(
            stage.path("ssh_config"),
            format!(
                "Host far\nHostName 10.77.0.2\nPort 2022\nIdentityFile {root}/user\n\
                 IdentitiesOnly yes\nUserKnownHostsFile {root}/known\n\
                 StrictHostKeyChecking no\nLogLevel ERROR\nBatchMode yes\n"
            ),
        )?;
        // What cannot be compressed.
        let mut noise = File::open("/dev/urandom")?.take(megabytes * 1_000_000);
        let mut file = File::create(stage.path("file")).context("the file to copy")?;
        io::copy(&mut noise, &mut file).context("the file to copy")?;
        Ok(stage)
    }

    /// Removes the files of this stage.
    fn clear(&self) {
        for name in ["host", "host.pub", "user", "user.pub", "known", "file", "out"] {
            // Some were never made.
            let _ = fs::remove_file(self.path(name));
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.lab.dir().join(name)
    }

    fn number(&self, label: &str, is_weft: bool) -> DemoNumber {
        let (label, note) = (label.to_owned(), String::new());
        DemoNumber { group: "copy", label, unit: "Mbit/s", value: None, is_weft, note }
    }

    /// The command of a copy.
    fn command(&self, tool: CopyTool) -> String {
        let [config, from, to] = ["ssh_config", "file", "out"].map(|name| text(&self.path(name)));
        let (to, ssh) = (format!("far:{to}"), format!("ssh -F {config}"));
        let spec = match tool {
            CopyTool::Scp => Spec::new("scp").args("-qF").arg(&config),
            CopyTool::Rsync => Spec::new("rsync").args("--inplace -e").arg(&ssh),
            CopyTool::Weft => {
                let weft = text(&self.lab.weft);
                let spec = Spec::at(&self.lab.weft).args("cp -q --udp-only -e").arg(&ssh);
                spec.arg("--remote-weft").arg(&weft)
            }
        };
        spec.arg(&from).arg(&to).shell()
    }

    fn copy(
        &self,
        screen: &DemoScreen,
        tool: CopyTool,
        mut number: DemoNumber,
    ) -> Result<DemoNumber> {
        let _ = fs::remove_file(self.path("out"));
        let ending = self.run(&self.command(tool), screen, &number)?;
        screen.clear_live();
        match ending {
            CopyEnding::Seconds(seconds) => {
                let [from, to] = ["file", "out"].map(|name| text(&self.path(name)));
                let same = Spec::new("cmp").arg(&from).arg(&to);
                self.lab.alone(&same).context("the copy is not the file")?;
                number.value = Some(self.megabytes as f64 * 8.0 / seconds);
                number.note = format!("{seconds:.1} s");
            }
            CopyEnding::TooSlow => {
                let bytes = fs::metadata(self.path("out")).map_or(0, |file| file.len());
                let megabytes = bytes as f64 / 1e6;
                number.value = Some(megabytes * 8.0 / self.limit_s as f64);
                number.note = format!("ended at {megabytes:.0} MB, {} s", self.limit_s);
            }
        }
        Ok(number)
    }

    /// Runs a shell command on the near side of a path with the sshd on its far side.
    fn run(&self, command: &str, screen: &DemoScreen, number: &DemoNumber) -> Result<CopyEnding> {
        let name = format!("demo-{}", std::process::id());
        let limit_s = self.limit_s;
        let script =
            format!("date +%s.%N; timeout {limit_s} {command}; s=$?; date +%s.%N; exit $s");
        let script = format!("({script}) || [ $? = 124 ] && echo ended");
        let server = self.sshd.clone().args("-D -f").arg(&text(&self.path("sshd_config")));
        let spec = Spec::at(&self.lab.weft).args("wan").args(PATH).args("--name").arg(&name);
        let spec = spec.arg("--server").arg(&format!("exec {}", server.shell()));
        let spec = spec.args("-- sh -c").arg(&script);
        let look = |seconds: f64, bytes: f64| {
            let mut shown = number.clone();
            shown.value = Some(bytes * 8.0 / 1e6 / seconds.max(0.001));
            shown.note = format!("{:.0} MB", bytes / 1e6);
            screen.live_bar(&shown, 1000.0);
        };
        let finished = wan::watched(self.lab, screen, &name, look, || self.lab.alone(&spec))?;
        let times = finished.stdout.lines().filter_map(|line| line.parse::<f64>().ok());
        let times: Vec<f64> = times.collect();
        ensure!(times.len() == 2, "no times in {}", finished.stdout);
        let seconds = times[1] - times[0];
        if seconds >= limit_s as f64 {
            return Ok(CopyEnding::TooSlow);
        }
        Ok(CopyEnding::Seconds(seconds))
    }
}

impl Drop for CopyStage<'_> {
    fn drop(&mut self) {
        if self.made_dir {
            // Another sshd may have put something there.
            let _ = fs::remove_dir(PRIVILEGE_DIR);
        }
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
