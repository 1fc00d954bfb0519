//! Sends `weft` to a far end that has none, into the user's cache directory: a static build for
//! that machine if there is one here, else the program that runs, to a machine of the same kind.
//!
//! What the program carries behind its end stays here, since the far end needs none of it.
//!
//! A static build is a file `weft-static-ARCH-linux` in the directory that [`STATIC_DIR`] names,
//! beside this program, in `../lib/weft` from there, or in `lib/weft` of the usual places.
//!
//! Invariant: the file has its name only once its BLAKE3 is right, as the sent program itself says,
//! so that one that does not run on that machine is not kept.
//!
//! Order: [`own_hash`] names it; [`send`] sends it; then the far end is started again.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::process::ChildStdin;

use anyhow::{Context, Result, bail, ensure};

use crate::carried::without_carried;
use crate::client::KilledChild;
use crate::hello::find_line;
use crate::ssh::{SshArgs, cached};

/// The variable that names a directory with static builds.
pub const STATIC_DIR: &str = "WEFT_STATIC";

/// What the script prints when the program is in its place.
const KEPT: &str = "weft-session-kept";

/// BLAKE3 of the program that runs, in hexadecimal.
///
/// # Errors
/// It cannot be read.
pub fn own_hash() -> Result<String> {
    hash_of(own()?)
}

fn hash_of(program: File) -> Result<String> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(without_carried(program)?).context("reading weft itself")?;
    Ok(hasher.finalize().to_hex().to_string())
}

fn own() -> Result<File> {
    // By this name it is found also when the file was replaced since.
    File::open("/proc/self/exe").context("opening weft itself")
}

/// The program to send to a `machine` (`uname -sm`).
///
/// # Errors
/// There is none for it, or it cannot be read.
fn program_for(machine: &str, host: &str) -> Result<File> {
    for dir in static_dirs() {
        let Some(path) = static_build(&dir, machine) else { continue };
        match File::open(&path) {
            Ok(file) => return Ok(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(|| path.display().to_string()),
        }
    }
    let here = here();
    ensure!(
        machine == here,
        "{host} has no weft of this version, and is a {machine}: this weft is for {here}, and \
         there is no static build for the other in its directory. Install weft there, name it with \
         --remote-weft PATH, or name a directory with weft-static-ARCH-linux here by {STATIC_DIR}"
    );
    own()
}

/// Where static builds are looked for, in this order.
fn static_dirs() -> Vec<PathBuf> {
    let named = std::env::var_os(STATIC_DIR).map(PathBuf::from);
    let program = std::env::current_exe().ok();
    let beside = program.as_deref().and_then(Path::parent).map(Path::to_path_buf);
    let library = beside.as_ref().map(|dir| dir.join("../lib/weft"));
    let own = std::env::var_os("HOME").map(|home| Path::new(&home).join(".local"));
    let prefixes = own.into_iter().chain(["/usr/local", "/usr"].map(PathBuf::from));
    let installed = prefixes.map(|prefix| prefix.join("lib/weft"));
    named.into_iter().chain(beside).chain(library).chain(installed).collect()
}

/// The name of the static build for a machine, which a far end names: only those that are known.
fn static_build(dir: &Path, machine: &str) -> Option<PathBuf> {
    let arch = match machine {
        "Linux x86_64" => "x86_64",
        "Linux aarch64" => "aarch64",
        _ => return None,
    };
    Some(dir.join(format!("weft-static-{arch}-linux")))
}

/// Sends a program to `host`, a machine like `machine` (`uname -sm`), where it is kept by the hash
/// of the one that runs here.
pub(crate) fn send(args: &SshArgs, host: &str, hash: &str, machine: &str) -> Result<()> {
    ensure!(
        !args.no_push,
        "{host} has no weft of this version, and --no-push forbids sending one: install weft there"
    );
    let mut program = program_for(machine, host)?;
    let sent = hash_of(program.try_clone().context("opening weft itself")?)?;
    program.rewind().context("reading weft itself")?;
    let child = args.command(host, &script(hash, &sent))?.spawn().context("starting ssh")?;
    let mut child = KilledChild(child);
    let stdin = child.0.stdin.take().context("ssh has no stdin")?;
    let stdout = child.0.stdout.take().context("ssh has no stdout")?;
    let written = copy(program, stdin);
    let is_kept = is_kept(stdout)?;
    child.0.wait().context("waiting for ssh")?;
    if is_kept {
        return Ok(());
    }
    written?;
    bail!(
        "this weft was sent to {host}, and does not run there. Install weft there, or name it \
         with --remote-weft PATH"
    )
}

/// Whether the script says so, after whatever a login shell prints.
fn is_kept(stdout: impl Read) -> Result<bool> {
    let said = find_line(&mut BufReader::new(stdout), |line| line.trim_end() == KEPT)?;
    Ok(said.is_some())
}

/// This machine, as `uname -sm` says.
fn here() -> String {
    let name = rustix::system::uname();
    format!("{} {}", name.sysname().to_string_lossy(), name.machine().to_string_lossy())
}

/// Puts what comes to the place of `hash` if its own is `sent`.
fn script(hash: &str, sent: &str) -> String {
    format!(
        "{}; umask 077; mkdir -p \"$d\" && t=\"$d/new.$$\" && cat >\"$t\" && chmod 700 \"$t\" && \
         [ \"$(\"$t\" far-end --hash)\" = {sent} ] && mv -f \"$t\" \"$p\" && echo {KEPT}; \
         rm -f \"$t\"",
        cached(hash)
    )
}

fn copy(program: File, mut stdin: ChildStdin) -> Result<()> {
    io::copy(&mut without_carried(program)?, &mut stdin).context("sending weft through ssh")?;
    stdin.flush().context("sending weft through ssh")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_without_an_end_is_refused() {
        let said = format!("Welcome!\n\n{KEPT}\n");
        assert!(is_kept(said.as_bytes()).unwrap());
        assert!(!is_kept("no\n".as_bytes()).unwrap());
        let error = is_kept(io::repeat(b'x').take(1 << 20)).unwrap_err();
        assert_eq!(error.to_string(), "the far end prints too much before weft begins there");
    }
}
