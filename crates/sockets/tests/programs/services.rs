//! Servers that many programs are built on.

use std::path::Path;
use std::process::Command;

use libtest_mimic::Failed;
use weft_testkit::is_root;

use crate::common::{Dir, Program, dir, library, run};
use crate::{Ours, content, free_port, judge, path, program, same, serve, stop};

/// The user that has no rights.
const NOBODY: &str = "65534";

pub fn redis(ours: Ours) -> Result<(), Failed> {
    let (dir, port) = (dir(&format!("redis-{ours:?}")), free_port());
    let server = program("redis-server", ours.server()).args("--bind 127.0.0.1 --port");
    let server = server.words([&port, "--save", ""]).within(dir.root());
    let server = serve(&server, &port, ours.server());
    let caller = program("redis-benchmark", ours.caller()).args("-n 2000 -c 10 -q -p").arg(&port);
    let said = run(&caller.args("-t set,get,lrange_100"));
    judge(&stop(server), &said, ours)
}

fn do_first(command: &mut Command) {
    let done = command.output().expect("it starts");
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
}

/// A key of SSH without a passphrase.
fn new_key(at: &Path) {
    do_first(
        Command::new(path("ssh-keygen")).args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(at),
    );
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
        return program("sshd", ours).args("-D -e -f").arg(conf);
    }
    let mut known = std::fs::read_to_string("/etc/passwd").expect("a table of users");
    if !known.lines().any(|line| line.starts_with("sshd:")) {
        known.push_str("sshd:x:65533:65534::/run/sshd:/usr/sbin/nologin\n");
    }
    let users = dir.write("users", known);
    let script = "mount --bind $0 /etc/passwd && mount -t tmpfs -o mode=755 none /run &&
        mkdir /run/sshd && exec $1 -D -e -f $2";
    let unshare = program("unshare", ours).words(["-m", "sh", "-c", script]);
    unshare.arg(users).arg(path("sshd")).arg(conf)
}

pub fn ssh(ours: Ours) -> Result<(), Failed> {
    let (dir, port) = (dir(&format!("ssh-{ours:?}")), free_port());
    let (file, bytes) = content(&dir);
    let (user, copy) = (dir.path("user"), dir.path("copy"));
    new_key(&dir.path("host"));
    new_key(&user);
    let conf = dir.write("conf", sshd_conf(&port, dir.root()));
    let server = serve(&sshd(&dir, ours.server(), &conf), &port, ours.server());
    let options = "-F none -o BatchMode=yes -o StrictHostKeyChecking=no";
    let call = |name: &str| {
        let caller = program(name, ours.caller()).args(options);
        caller.args("-o UserKnownHostsFile=/dev/null -i").arg(&user)
    };
    let caller = call("ssh").words(["-p", &port, "127.0.0.1", "cat"]);
    let said = run(&caller.input(&file).output(&copy));
    same(&copy, &bytes)?;
    let second = dir.path("second");
    let remote = |path: &Path| format!("127.0.0.1:{}", path.display());
    run(&call("scp").words(["-q", "-P", &port]).arg(&file).arg(remote(&second)));
    same(&second, &bytes)?;
    let third = dir.path("third");
    run(&call("scp").words(["-q", "-P", &port]).arg(remote(&second)).arg(&third));
    same(&third, &bytes)?;
    judge(&stop(server), &said, ours)
}

/// A program of PostgreSQL's server, which refuses root. Who has no rights may not reach the
/// library where it was built, so it has a copy.
fn unprivileged(name: &str, ours: bool, dir: &Dir) -> Program {
    let program = if is_root() {
        let rights = ["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"];
        program("setpriv", ours).words(rights).arg(path(name))
    } else {
        program(name, ours)
    };
    let program = program.within(dir.root());
    if !ours {
        return program;
    }
    let copy = dir.path("libweft_sockets.so");
    std::fs::copy(library(), &copy).expect("a copy");
    program.env("LD_PRELOAD", copy)
}

pub fn postgresql(ours: Ours) -> Result<(), Failed> {
    let (dir, port) = (dir(&format!("postgres-{ours:?}")), free_port());
    if is_root() {
        do_first(Command::new("chown").arg(NOBODY).arg(dir.path("")));
    }
    run(&unprivileged("initdb", false, &dir).args("-D data -U weft -A trust -N"));
    let server = unprivileged("postgres", ours.server(), &dir).args("-D data -p").arg(&port);
    let server = server.args("-F -c listen_addresses=127.0.0.1 -c unix_socket_directories=");
    let server = serve(&server, &port, ours.server());
    let call = |arguments: &str| {
        let caller = program("pgbench", ours.caller()).args("-h 127.0.0.1 -U weft -p").arg(&port);
        run(&caller.args(arguments).arg("postgres"))
    };
    call("-i -q");
    let said = call("-c 4 -t 100");
    judge(&stop(server), &said, ours)?;
    let whole = "number of transactions actually processed: 400/400";
    if said.contains(whole) { Ok(()) } else { Err(said.into()) }
}
