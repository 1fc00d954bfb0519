//! Sends this `weft` to a far end that has none, into the user's cache directory.
//!
//! Invariant: the file has its name only once its BLAKE3 is right, as the sent program itself says,
//! so that one that does not run on that machine is not kept.
//!
//! Order: [`own_hash`] names it; [`send`] sends it; then the far end is started again.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::process::ChildStdin;

use anyhow::{Context, Result, bail, ensure};

use crate::ssh::{SshArgs, cached};

/// What the script prints when the program is in its place.
const KEPT: &str = "weft-session-kept";

/// BLAKE3 of the program that runs, in hexadecimal.
///
/// # Errors
/// It cannot be read.
pub fn own_hash() -> Result<String> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(own()?).context("reading weft itself")?;
    Ok(hasher.finalize().to_hex().to_string())
}

fn own() -> Result<File> {
    // By this name it is found also when the file was replaced since.
    File::open("/proc/self/exe").context("opening weft itself")
}

/// Sends the program to `host`, a machine like `machine` (`uname -sm`).
pub(crate) fn send(args: &SshArgs, host: &str, hash: &str, machine: &str) -> Result<()> {
    ensure!(!args.no_push, "{host} has no weft of this version, and --no-push forbids to send one");
    let here = here();
    ensure!(
        machine == here,
        "{host} has no weft of this version, and is a {machine}: this weft is for {here}. Install \
         weft there, or name it with --remote-weft PATH"
    );
    let mut child = args.command(host, &script(hash))?.spawn().context("starting ssh")?;
    let stdin = child.stdin.take().context("ssh has no stdin")?;
    let stdout = child.stdout.take().context("ssh has no stdout")?;
    let written = copy(stdin);
    let is_kept = BufReader::new(stdout).lines().map_while(Result::ok).any(|line| line == KEPT);
    child.wait().context("waiting for ssh")?;
    if is_kept {
        return Ok(());
    }
    written?;
    bail!(
        "this weft was sent to {host}, and does not run there. Install weft there, or name it \
         with --remote-weft PATH"
    )
}

/// This machine, as `uname -sm` says.
fn here() -> String {
    let name = rustix::system::uname();
    format!("{} {}", name.sysname().to_string_lossy(), name.machine().to_string_lossy())
}

fn script(hash: &str) -> String {
    format!(
        "{}; umask 077; mkdir -p \"$d\" && t=\"$d/new.$$\" && cat >\"$t\" && chmod 700 \"$t\" && \
         [ \"$(\"$t\" far-end --hash)\" = {hash} ] && mv -f \"$t\" \"$p\" && echo {KEPT}; \
         rm -f \"$t\"",
        cached(hash)
    )
}

fn copy(mut stdin: ChildStdin) -> Result<()> {
    std::io::copy(&mut own()?, &mut stdin).context("sending weft through ssh")?;
    stdin.flush().context("sending weft through ssh")
}
