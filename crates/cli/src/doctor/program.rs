//! Checks of CMD: reasons why it does not reach Weft.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use crate::doctor::local;
use crate::doctor::report::{CheckResult, DoctorReport};
use crate::program::Executable;
use crate::{preload, stubs, sys, variables};

/// Room for the extended attribute of a file with capabilities.
const CAPABILITIES_MAX: usize = 64;
/// The libraries that Weft stands in for.
const RDMA: [&str; 2] = ["libibverbs.so", "librdmacm.so"];

/// Programs that start others and do not hand their environment on.
const STARTERS: [(&str, &str); 9] = [
    ("sudo", "sudo clears the environment"),
    ("doas", "doas clears the environment"),
    ("su", "su runs as another user, where LD_PRELOAD is not obeyed"),
    ("pkexec", "pkexec clears the environment"),
    ("ssh", "ssh runs the program on another machine"),
    ("docker", "docker runs the program in a container, with its own files and environment"),
    ("podman", "podman runs the program in a container, with its own files and environment"),
    ("kubectl", "kubectl runs the program in a container, with its own files and environment"),
    ("systemd-run", "systemd-run has the program started by systemd, in another environment"),
];

/// Looks at CMD.
pub fn examine(
    command: &OsStr,
    arguments: &[OsString],
    library: Option<&Path>,
    report: &mut DoctorReport,
) {
    let name = command.display();
    starter(command, arguments, report);
    if let Some(finding) = local::not_executable(command) {
        report.add(finding);
        return;
    }
    let Some(program) = Executable::find(command, std::env::var_os("PATH").as_deref()) else {
        let text = format!("{name} is not there, or is nothing that the kernel can run");
        report
            .add(CheckResult::wrong("program", text).advise("check the path, and the first line"));
        return;
    };
    match obstacle(&program) {
        Some(finding) => report.add(finding),
        None => linked(&program, library, report),
    }
}

/// A program that starts another one without what `weft run` gave it.
fn starter(command: &OsStr, arguments: &[OsString], report: &mut DoctorReport) {
    let base = Path::new(command).file_name().unwrap_or(command);
    let scrubs = arguments.iter().any(|word| word == "-i" || word == "--ignore-environment");
    let why = match STARTERS.iter().find(|(name, _)| base == *name) {
        Some((_, why)) => *why,
        None if base == "env" && scrubs => "env -i clears the environment",
        None => return,
    };
    let text = format!("{why}, so Weft does not get into what it starts");
    let advice = format!("put weft run behind it: {} ... weft run CMD", base.display());
    report.add(CheckResult::wrong("environment", text).advise(advice));
}

/// Why the dynamic linker will not put anything before this program.
fn obstacle(program: &Executable) -> Option<CheckResult> {
    let path = program.path().display();
    let wrong =
        |text: String, advice: &str| Some(CheckResult::wrong("program", text).advise(advice));
    let Some(elf) = program.elf() else {
        let text = format!("{path} is for another kind of machine, or has another word size");
        return wrong(text, "use a build for this machine; Weft has 64 bits, as its libweft.so");
    };
    match &elf.interpreter {
        None if elf.go => {
            let text = format!("{path} is a Go program without cgo: statically linked");
            return wrong(text, "build it with CGO_ENABLED=1; only cgo reaches libibverbs at all");
        }
        // The dynamic linker: what it loads is its own business.
        None if elf.is_library => return None,
        None => {
            let text = format!("{path} is statically linked, so nothing can be put before it");
            return wrong(text, "link it dynamically, at least libibverbs, librdmacm and libc");
        }
        Some(linker) if linker.windows(4).any(|part| part == b"musl") => {
            let text = format!("{path} is linked with musl, and libweft.so with glibc");
            return wrong(text, "build it for glibc: Debian, Ubuntu, Fedora and their kin");
        }
        Some(_) => {}
    }
    let (user, group) = sys::user_and_group();
    if let Some(text) = program.obstacle(user, group) {
        let advice = "run it as that user, or from a copy without the set-user-ID bit";
        return wrong(format!("{text}, where the system does not obey LD_PRELOAD"), advice);
    }
    if user != 0 && has_capabilities(program.path()) {
        let text = format!("{path} has file capabilities, so LD_PRELOAD is not obeyed");
        return wrong(text, "run a copy without them (cp drops them), or run it as root");
    }
    None
}

fn has_capabilities(path: &Path) -> bool {
    let mut room = [0; CAPABILITIES_MAX];
    rustix::fs::getxattr(path, "security.capability", &mut room[..]).is_ok()
}

/// What the dynamic linker says about a program that nothing keeps Weft out of.
fn linked(program: &Executable, library: Option<&Path>, report: &mut DoctorReport) {
    let path = program.path().display();
    if program.elf().is_some_and(|elf| elf.go) {
        let text =
            "a Go program: what it calls by cgo reaches Weft, system calls of its own do not";
        report.add(CheckResult::note("program", text));
    }
    if let Some(sanitizer) = program.sanitizer() {
        let text = format!("is linked with {}: weft run puts that first", sanitizer.display());
        let advice = "a child of CMD that has a sanitizer needs its runtime in LD_PRELOAD too";
        report.add(CheckResult::note("sanitizer", text).advise(advice));
    }
    let Some(library) = library else { return };
    let sanitizer = program.sanitizer();
    let Ok(list) = preload::with(OsStr::new(""), library, sanitizer.as_deref()) else {
        let text = format!("{} has a space or a colon in its path", library.display());
        report.add(CheckResult::wrong("library", text).advise("install Weft elsewhere"));
        return;
    };
    let found = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let stubs = stubs::needed(library, &found, Some(program));
    if !stubs.is_empty() {
        let names = stubs.iter().filter_map(|dir| dir.file_name()?.to_str());
        let text = format!("not installed: {}", names.collect::<Vec<_>>().join(", "));
        let advice = "nothing: weft run supplies a stub, and Weft serves its verbs";
        report.add(CheckResult::note("libraries", text).advise(advice));
    }
    let Ok(output) = program.trace(&list, &stubs::extended(&found, &stubs)) else {
        report.add(CheckResult::note(
            "program",
            format!("{path}: its dynamic linker cannot be asked"),
        ));
        return;
    };
    let listed = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    for finding in judge(&path.to_string(), &listed, &complaint) {
        report.add(finding);
    }
}

/// What follows from the dynamic linker's list.
fn judge(path: &str, listed: &str, complaint: &str) -> Vec<CheckResult> {
    let missing: Vec<&str> = listed
        .lines()
        .filter_map(|line| line.trim().strip_suffix(" => not found"))
        .chain(complaint.lines().filter_map(missing_in))
        .collect();
    if let Some(first) = missing.first() {
        let text = format!("{path} needs {}, which is not installed", missing.join(", "));
        let debian = match *first {
            name if name.starts_with(RDMA[0]) => "apt-get install libibverbs1",
            name if name.starts_with(RDMA[1]) => "apt-get install librdmacm1",
            _ => "install it, or set LD_LIBRARY_PATH",
        };
        return vec![CheckResult::wrong("program", text).advise(debian)];
    }
    if !listed.contains("libweft.so") {
        let why = complaint.lines().next().unwrap_or("the dynamic linker does not say why");
        let text = format!("{path} is started without libweft.so: {why}");
        return vec![CheckResult::wrong("program", text).advise("see the dynamic linker's words")];
    }
    let uses: Vec<&str> = RDMA.into_iter().filter(|name| listed.contains(name)).collect();
    if uses.is_empty() {
        let text = format!("{path} gets Weft, but links neither libibverbs nor librdmacm");
        let advice = "verbs reach Weft if it opens them later, or has children or plugins that do";
        return vec![CheckResult::note("program", text).advise(advice)];
    }
    vec![CheckResult::fine("program", format!("{path} gets Weft, and uses {}", uses.join(" and ")))]
}

/// The library in a complaint `PROGRAM: error while loading shared libraries: LIBRARY: ...`.
fn missing_in(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once("error while loading shared libraries: ")?;
    let (library, why) = rest.split_once(": ")?;
    why.contains("No such file").then_some(library)
}

/// Looks at the variables that CMD would find.
pub fn environment(report: &mut DoctorReport) {
    let all: Vec<_> = std::env::vars_os().collect();
    for warning in variables::warnings(&all) {
        report.add(CheckResult::note("environment", warning.text));
    }
    if variables::switched_off(std::env::var_os("WEFT").as_deref()) {
        let finding = CheckResult::wrong("environment", "WEFT=off: programs run without Weft");
        report.add(finding.advise("unset WEFT"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::report::Severity;

    fn findings(command: &str, arguments: &[&str]) -> Vec<CheckResult> {
        let mut report = DoctorReport::default();
        let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
        examine(OsStr::new(command), &arguments, None, &mut report);
        report.findings().to_vec()
    }

    fn is_wrong(findings: &[CheckResult], words: &str) -> bool {
        let wrong = |f: &CheckResult| f.outcome == Severity::Wrong && f.text.contains(words);
        findings.iter().any(wrong)
    }

    #[test]
    fn starters_are_told_where_to_put_weft() {
        assert!(is_wrong(&findings("env", &["-i", "true"]), "clears the environment"));
        assert!(!is_wrong(&findings("env", &["true"]), "environment"));
        assert!(is_wrong(&findings("/usr/bin/sudo", &["true"]), "sudo clears"));
        assert!(is_wrong(&findings("/nonexistent/program", &[]), "not there"));
    }

    #[test]
    fn the_linkers_list_decides() {
        let one = |listed: &str, complaint: &str| judge("/p", listed, complaint).remove(0);
        let linked = "\t/w/libweft.so (0x1)\n\tlibibverbs.so.1 => /l/libibverbs.so.1 (0x2)\n";
        assert_eq!(one(linked, "").outcome, Severity::Ok);
        assert_eq!(one("\t/w/libweft.so (0x1)\n", "").outcome, Severity::Note);
        let missing = one("\t/w/libweft.so (0x1)\n\tlibibverbs.so.1 => not found\n", "");
        assert_eq!(missing.outcome, Severity::Wrong);
        assert_eq!(missing.advice.as_deref(), Some("apt-get install libibverbs1"));
        let complaint = "/p: error while loading shared libraries: librdmacm.so.1: cannot open \
            shared object file: No such file or directory\n";
        assert!(one("", complaint).text.contains("needs librdmacm.so.1"));
        let refused = "ERROR: ld.so: object '/w/libweft.so' from LD_PRELOAD cannot be preloaded";
        assert!(one("\tlibc.so.6 => /l/libc.so.6 (0x1)\n", refused).text.contains(refused));
    }
}
