//! Servers that many programs are built on.

use std::path::Path;
use std::process::{Command, Stdio};

use libtest_mimic::Failed;
use weft_testkit::is_root;

use crate::common::{Dir, Program, dir, library};
use crate::{Ours, content, free_port, judge, path, program, same, serve};

/// The user that has no rights.
const NOBODY: &str = "65534";

pub fn redis(ours: Ours) -> Result<(), Failed> {
    let (dir, port) = (dir(&format!("redis-{ours:?}")), free_port());
    let mut command = program("redis-server", ours.server());
    command.args(["--port", &port, "--bind", "127.0.0.1", "--save", ""]).dir(&dir.path(""));
    let server = serve(command.stdout(Stdio::null()), &port, ours.server());
    let mut caller = program("redis-benchmark", ours.caller());
    caller.args(["-p", &port, "-n", "2000", "-c", "10", "-t", "set,get,lrange_100", "-q"]);
    let said = caller.stdout(Stdio::null()).start().end();
    judge(&server.stop(), &said, ours)
}

fn run(command: &mut Command) {
    let done = command.output().expect("it starts");
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
}

/// A key of SSH without a passphrase.
fn new_key(at: &Path) {
    run(Command::new(path("ssh-keygen")).args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(at));
}

fn sshd_conf(port: &str, home: &Path) -> String {
    let home = home.display();
    format!(
        "Port {port}\nListenAddress 127.0.0.1\nHostKey {home}/host\n
         AuthorizedKeysFile {home}/user.pub\nPidFile none\nStrictModes no\n
         PasswordAuthentication no\nSubsystem sftp internal-sftp\n"
    )
}

/// sshd. Run by root it separates its rights, for which it must find a user of that name, and an
/// empty directory: it is given both in a file system of its own.
fn sshd(dir: &Dir, ours: bool, conf: &Path) -> Program {
    if !is_root() {
        let mut command = program("sshd", ours);
        command.args(["-D", "-e", "-f"]).args([conf]);
        return command;
    }
    let users = dir.path("users");
    let mut known = std::fs::read_to_string("/etc/passwd").expect("a table of users");
    if !known.lines().any(|line| line.starts_with("sshd:")) {
        known.push_str("sshd:x:65533:65534::/run/sshd:/usr/sbin/nologin\n");
    }
    std::fs::write(&users, known).expect("a file");
    let script = "mount --bind $0 /etc/passwd && mount -t tmpfs -o mode=755 none /run &&
        mkdir /run/sshd && exec $1 -D -e -f $2";
    let mut command = program("unshare", ours);
    command.args(["-m", "sh", "-c", script]).args([&users, &path("sshd"), conf]);
    command
}

pub fn ssh(ours: Ours) -> Result<(), Failed> {
    let (dir, port) = (dir(&format!("ssh-{ours:?}")), free_port());
    let (file, bytes) = content(&dir);
    let (conf, user, copy) = (dir.path("conf"), dir.path("user"), dir.path("copy"));
    new_key(&dir.path("host"));
    new_key(&user);
    std::fs::write(&conf, sshd_conf(&port, &dir.path("")))?;
    let server = serve(&mut sshd(&dir, ours.server(), &conf), &port, ours.server());
    let common = ["-F", "none", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no"];
    let call = |name: &str| {
        let mut caller = program(name, ours.caller());
        caller.args(common).args(["-o", "UserKnownHostsFile=/dev/null", "-i"]).args([&user]);
        caller
    };
    let mut caller = call("ssh");
    caller.args(["-p", &port, "127.0.0.1", "cat"]).stdin(std::fs::File::open(&file)?.into());
    let said = caller.stdout(std::fs::File::create(&copy)?.into()).start().end();
    same(&copy, &bytes)?;
    let second = dir.path("second");
    let remote = |path: &Path| format!("127.0.0.1:{}", path.display());
    call("scp").args(["-q", "-P", &port]).args([&file]).args([remote(&second)]).start().end();
    same(&second, &bytes)?;
    let third = dir.path("third");
    call("scp").args(["-q", "-P", &port]).args([remote(&second)]).args([&third]).start().end();
    same(&third, &bytes)?;
    judge(&server.stop(), &said, ours)
}

/// A program of PostgreSQL's server, which refuses root. Who has no rights may not reach the
/// library where it was built, so it has a copy.
fn unprivileged(name: &str, ours: bool, dir: &Dir) -> Program {
    let mut command = if is_root() {
        let mut command = program("setpriv", ours);
        command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]).args([path(name)]);
        command
    } else {
        program(name, ours)
    };
    if ours {
        let copy = dir.path("libweft_sockets.so");
        std::fs::copy(library(), &copy).expect("a copy");
        command.env("LD_PRELOAD", &copy.to_string_lossy());
    }
    command.dir(&dir.path("")).stdout(Stdio::null());
    command
}

pub fn postgresql(ours: Ours) -> Result<(), Failed> {
    let (dir, port) = (dir(&format!("postgres-{ours:?}")), free_port());
    if is_root() {
        run(Command::new("chown").arg(NOBODY).arg(dir.path("")));
    }
    let mut init = unprivileged("initdb", false, &dir);
    init.args(["-D", "data", "-U", "weft", "-A", "trust", "-N"]).start().end();
    let mut command = unprivileged("postgres", ours.server(), &dir);
    command.args(["-D", "data", "-p", &port, "-c", "listen_addresses=127.0.0.1", "-F"]);
    let server = serve(command.args(["-c", "unix_socket_directories="]), &port, ours.server());
    let call = |arguments: &[&str]| {
        let mut caller = program("pgbench", ours.caller());
        caller.args(["-h", "127.0.0.1", "-p", &port, "-U", "weft"]).args(arguments);
        caller.args(["postgres"]).stdout(Stdio::piped()).start().end()
    };
    call(&["-i", "-q"]);
    let said = call(&["-c", "4", "-t", "100"]);
    judge(&server.stop(), &said, ours)?;
    let whole = "number of transactions actually processed: 400/400";
    if said.contains(whole) { Ok(()) } else { Err(said.into()) }
}
