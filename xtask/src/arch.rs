//! Crate graph: the permitted dependencies, compared with `cargo metadata`.
//!
//! Invariant: [`HOUSE`] is the only statement of the graph. A crate that is not in it, an edge
//! that is not in it, and a path dependency that leaves the workspace are all faults. Tests may
//! use any crate of a lower layer.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::circles;
use crate::finding::Finding;
use crate::licences;
use crate::purity;
use crate::tree;

/// A crate's place in the graph.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// The package's name without `weft-`.
    pub name: &'static str,
    layer: u8,
    uses: &'static [&'static str],
    /// What its root says about unsafe code; a `deny` is lifted in the files of
    /// [`purity::UNSAFE_FILES`].
    pub unsafe_code: Option<&'static str>,
    /// Whether it sees neither sockets, threads nor the clock.
    pub sans_io: bool,
}

/// The graph, from the lowest layer up.
pub const HOUSE: [Room; 39] = [
    room("units", 0, &[], "forbid").sans_io(),
    room("degen", 1, &["units"], "deny"),
    room("chart", 0, &[], "forbid"),
    room("testkit", 0, &[], "forbid"),
    room("sync", 0, &[], "forbid").sans_io(),
    room("guard", 0, &[], "").sans_io(),
    room("wire", 0, &[], "forbid").sans_io(),
    room("memory", 0, &[], ""),
    room("os", 1, &["guard"], "deny"),
    room("reactor", 2, &["os", "sync", "memory"], "forbid"),
    room("fault", 1, &["units"], "forbid").sans_io(),
    room("observe", 2, &["os"], "forbid"),
    room("capture", 2, &["os", "sync", "units", "wire"], "forbid"),
    room("verbs", 1, &["wire", "sync", "guard"], "deny").sans_io(),
    room("mpa", 1, &["wire"], "forbid").sans_io(),
    room("shuttle", 1, &["wire", "memory"], "forbid").sans_io(),
    room("cm", 1, &["wire"], "forbid").sans_io(),
    room("verbs-abi", 2, &["verbs"], ""),
    room("rdmap", 2, &["wire", "verbs"], "forbid").sans_io(),
    room("rnic", 3, &["wire", "sync", "verbs", "rdmap", "mpa", "shuttle", "cm"], "forbid")
        .sans_io(),
    room("sdp", 4, &["wire", "verbs"], "forbid").sans_io(),
    room("sim", 4, &["wire", "verbs", "shuttle", "rnic", "degen", "units", "chart"], "forbid"),
    room("net", 4, &["os", "reactor", "sync", "guard", "memory", "verbs", "rnic"], "deny"),
    room("host", 5, HOST, "forbid"),
    room("rdmacm", 6, RDMACM, "forbid"),
    room("rdma", 7, &["host", "net", "os", "rdmacm", "reactor", "sync", "verbs"], "forbid"),
    room("preload", 7, PRELOAD, ""),
    room("sockets", 7, SOCKETS, ""),
    room("bench", 7, &["chart", "units"], "deny"),
    room("perf", 7, &["host", "os", "rdmacm", "units", "verbs", "verbs-abi"], "deny"),
    room("session", 8, &["os", "rdma", "sync"], "forbid"),
    room("copy", 9, &["os", "session", "sync", "units"], "forbid"),
    room("streams", 9, &["os", "session", "sync"], "forbid"),
    room("cli", 10, CLI, "deny"),
    room("interop", 8, &["testkit"], "forbid"),
    room("filters", 8, &[], "forbid"),
    room("microscope", 9, &["filters"], "forbid"),
    room("isosurface", 9, &["filters"], "forbid"),
    room("xtask", 9, &[], "forbid"),
];

const CLI: &[&str] = &[
    "degen", "sim", "host", "net", "os", "fault", "bench", "perf", "session", "copy", "streams",
    "observe", "capture", "chart", "units",
];
const HOST: &[&str] =
    &["os", "reactor", "net", "rnic", "sync", "verbs", "fault", "memory", "observe", "capture"];
const PRELOAD: &[&str] = &[
    "host",
    "rdmacm",
    "os",
    "reactor",
    "net",
    "sync",
    "guard",
    "verbs",
    "verbs-abi",
    "fault",
    "memory",
    "observe",
];
const RDMACM: &[&str] = &["host", "os", "reactor", "net", "rnic", "sync", "verbs", "memory"];
const SOCKETS: &[&str] =
    &["host", "rdmacm", "os", "reactor", "net", "sync", "verbs", "sdp", "memory"];

/// Libraries that bring a runtime or a constructor into the process of an unmodified program. That
/// of aws-lc looks what the CPU can do, and is let in.
const UNWELCOME: [&str; 4] = ["tokio", "mio", "nix", "ctor"];

const fn room(
    name: &'static str,
    layer: u8,
    uses: &'static [&'static str],
    unsafe_code: &'static str,
) -> Room {
    let unsafe_code = if unsafe_code.is_empty() { None } else { Some(unsafe_code) };
    Room { name, layer, uses, unsafe_code, sans_io: false }
}

impl Room {
    const fn sans_io(mut self) -> Self {
        self.sans_io = true;
        self
    }
}

/// The entry of a package.
pub fn find_room(package: &str) -> Option<&'static Room> {
    let name = package.strip_prefix("weft-").unwrap_or(package);
    HOUSE.iter().find(|room| room.name == name)
}

/// Checks the graph, then the sources: what they may name, and circles among their files.
pub fn check(root: &Path) -> Result<Vec<Finding>> {
    let packages = packages(&metadata(root)?)?;
    let mut findings = check_graph(root, &packages);
    findings.extend(licences::check(root, &packages));
    let files = tree::text_files(root)?;
    findings.extend(purity::check(&packages, &files));
    findings.extend(circles::check(&packages, &files));
    Ok(findings)
}

/// A package of the workspace.
#[derive(Clone, Debug)]
pub struct Package {
    /// Its name as in `Cargo.toml`.
    pub name: String,
    /// Its directory, relative to the workspace.
    pub dir: PathBuf,
    /// The files where its lib and bins begin, relative to the workspace.
    pub roots: Vec<PathBuf>,
    /// Whether others get it from a registry.
    pub is_published: bool,
    dependencies: Vec<Dependency>,
}

#[cfg(test)]
impl Package {
    /// A package with a lib and no dependencies.
    pub fn for_tests(name: &str, dir: &str) -> Self {
        let dir = PathBuf::from(dir);
        let roots = vec![dir.join("src/lib.rs")];
        Self { name: name.to_owned(), dir, roots, is_published: false, dependencies: Vec::new() }
    }
}

#[derive(Clone, Debug)]
struct Dependency {
    name: String,
    for_tests: bool,
    path: Option<PathBuf>,
}

fn metadata(root: &Path) -> Result<Value> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root)
        .output()
        .context("running cargo metadata")?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cargo metadata: {stderr}");
    serde_json::from_slice(&output.stdout).context("reading cargo metadata's answer")
}

fn packages(metadata: &Value) -> Result<Vec<Package>> {
    let root = text(metadata, "workspace_root")?;
    let list = metadata["packages"].as_array().context("metadata without packages")?;
    list.iter().map(|package| parse_package(Path::new(root), package)).collect()
}

fn parse_package(root: &Path, package: &Value) -> Result<Package> {
    let relative = |path: &str| Path::new(path).strip_prefix(root).map(Path::to_path_buf);
    let manifest = relative(text(package, "manifest_path")?)?;
    let targets = package["targets"].as_array().context("a package without targets")?;
    let roots = targets.iter().filter(|target| is_product(target));
    let dependencies = package["dependencies"].as_array().context("no dependencies")?;
    Ok(Package {
        name: text(package, "name")?.to_owned(),
        dir: manifest.parent().context("a manifest without a directory")?.to_path_buf(),
        roots: roots.map(|t| Ok(relative(text(t, "src_path")?)?)).collect::<Result<_>>()?,
        is_published: package["publish"].is_null(),
        dependencies: dependencies.iter().map(parse_dependency).collect::<Result<_>>()?,
    })
}

fn is_product(target: &Value) -> bool {
    let product = ["lib", "rlib", "cdylib", "bin"];
    let kinds = target["kind"].as_array().into_iter().flatten().filter_map(Value::as_str);
    kinds.into_iter().any(|kind| product.contains(&kind))
}

fn parse_dependency(dependency: &Value) -> Result<Dependency> {
    Ok(Dependency {
        name: text(dependency, "name")?.to_owned(),
        for_tests: dependency["kind"].as_str() == Some("dev"),
        path: dependency["path"].as_str().map(PathBuf::from),
    })
}

fn text<'a>(value: &'a Value, field: &str) -> Result<&'a str> {
    value[field].as_str().with_context(|| format!("metadata without {field}"))
}

fn check_graph(root: &Path, packages: &[Package]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in packages {
        let manifest = package.dir.join("Cargo.toml");
        let text = std::fs::read_to_string(root.join(&manifest)).unwrap_or_default();
        for (about, message) in faults(packages, package) {
            findings.push(Finding::new(&manifest, line_naming(&text, &about), message));
        }
    }
    findings
}

/// The line of a manifest where a key begins with `name`; the first line if none does.
fn line_naming(manifest: &str, name: &str) -> usize {
    let key =
        |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['.', ' ', '=']));
    manifest.lines().position(|line| key(&line)).map_or(1, |at| at + 1)
}

/// What is wrong with a package's edges: the dependency in question, and the fault.
fn faults(packages: &[Package], package: &Package) -> Vec<(String, String)> {
    let Some(room) = find_room(&package.name) else {
        let message = format!("{} has no room in xtask's table of crates", package.name);
        return vec![(String::from("name"), message)];
    };
    let wrong = |dependency: &Dependency| {
        let fault = fault(packages, room, dependency)?;
        Some((dependency.name.clone(), fault))
    };
    package.dependencies.iter().filter_map(wrong).collect()
}

fn fault(packages: &[Package], room: &Room, dependency: &Dependency) -> Option<String> {
    let name = &dependency.name;
    if UNWELCOME.contains(&name.as_str()) {
        return Some(format!("{name} does not belong into other people's processes"));
    }
    if !packages.iter().any(|package| package.name == *name) {
        let out = dependency.path.is_some();
        return out.then(|| format!("{name} is a path that leaves the workspace"));
    }
    let Some(other) = find_room(name) else {
        return Some(format!("{name} has no room in xtask's table of crates"));
    };
    let allowed = match dependency.for_tests {
        true => other.layer < room.layer || room.uses.contains(&other.name),
        false => room.uses.contains(&other.name),
    };
    let why = if dependency.for_tests { "not below it, even for tests" } else { "not its to use" };
    (!allowed).then(|| format!("{} may not depend on {}: {why}", room.name, other.name))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn graph(edges: &[(&str, &str, Option<&str>)]) -> Vec<String> {
        let mut names: Vec<&str> = edges.iter().flat_map(|e| [e.0, e.1]).collect();
        names.sort_unstable();
        names.dedup();
        let package = |name: &&str| {
            let own = edges.iter().filter(|e| e.0 == *name);
            let deps: Vec<Value> =
                own.map(|e| json!({ "name": e.1, "kind": e.2, "path": "/w/x" })).collect();
            json!({ "name": name, "manifest_path": format!("/w/{name}/Cargo.toml"),
                    "targets": [], "dependencies": deps })
        };
        let list: Vec<Value> = names.iter().map(package).collect();
        let metadata = json!({ "workspace_root": "/w", "packages": list });
        let packages = packages(&metadata).unwrap();
        check_graph(Path::new("/w"), &packages).into_iter().map(|f| f.message).collect()
    }

    #[test]
    fn the_edges_of_the_house_pass() {
        for room in &HOUSE {
            for other in room.uses {
                let (a, b) = (format!("weft-{}", room.name), format!("weft-{other}"));
                assert_eq!(graph(&[(&a, &b, None)]), Vec::<String>::new(), "{a} -> {b}");
            }
        }
    }

    #[test]
    fn every_edge_goes_down() {
        for room in &HOUSE {
            for other in room.uses {
                let below = find_room(other).unwrap();
                assert!(below.layer < room.layer, "{} -> {other}", room.name);
            }
        }
    }

    #[test]
    fn an_edge_that_is_not_in_the_table_fails() {
        let found = graph(&[("weft-mpa", "weft-verbs", None)]);
        assert_eq!(found, ["mpa may not depend on verbs: not its to use"]);
        assert_eq!(graph(&[("weft-host", "weft-wire", None)]).len(), 1);
        assert_eq!(graph(&[("weft-wire", "weft-host", Some("build"))]).len(), 1);
    }

    #[test]
    fn tests_may_look_down_but_not_up_or_aside() {
        assert!(graph(&[("weft-host", "weft-wire", Some("dev"))]).is_empty());
        assert_eq!(graph(&[("weft-wire", "weft-host", Some("dev"))]).len(), 1);
        assert_eq!(graph(&[("weft-mpa", "weft-verbs", Some("dev"))]).len(), 1);
    }

    #[test]
    fn strangers_fail() {
        assert!(graph(&[("weft-attic", "weft-wire", None)])[0].contains("weft-attic"));
        assert!(graph(&[("weft-host", "tokio", None)])[0].contains("tokio"));
        let metadata = json!({ "workspace_root": "/w", "packages": [{
            "name": "weft-host", "manifest_path": "/w/host/Cargo.toml", "targets": [],
            "dependencies": [{ "name": "elsewhere", "kind": null, "path": "/elsewhere" }] }] });
        let packages = packages(&metadata).unwrap();
        assert!(faults(&packages, &packages[0])[0].1.contains("leaves the workspace"));
    }

    #[test]
    fn a_fault_points_at_its_line() {
        let manifest = "[dependencies]\nweft-verbs-extra = 1\nweft-verbs.workspace = true\n";
        assert_eq!(line_naming(manifest, "weft-verbs"), 3);
        assert_eq!(line_naming(manifest, "weft-host"), 1);
    }
}
