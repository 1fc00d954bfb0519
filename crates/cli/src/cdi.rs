//! `weft cdi generate`: Weft as a device that container engines hand to unmodified images, by the
//! Container Device Interface (CNCF), in the oldest version that has what it needs: 0.3.0.
//!
//! The device is files and a variable, nothing that needs a privilege. Stubs of rdma-core's
//! libraries go where Debian's dynamic linker looks last, so that an image's own are found first;
//! images of Fedora's kin have no such place, and for them there is a device of its own.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::args::CdiGenerate;
use crate::library;

/// Where Weft lies in containers.
const HOME: &str = "/opt/weft";
/// Where the dynamic linker of Debian's kin looks last.
const LAST_PLACE: &str = "/usr/lib";

/// Writes the specification to where it is wanted.
///
/// # Errors
/// The libraries are not found, a variable is none, or the file cannot be written.
pub fn generate(options: &CdiGenerate) -> Result<()> {
    let weft = std::env::current_exe().context("finding weft itself")?;
    let own_dir = weft.parent().unwrap_or(Path::new("/"));
    let verbs = library::find(library::VERBS, None, own_dir)?;
    let lib = verbs.parent().unwrap_or(Path::new("/"));
    let text = format!("{:#}\n", specification(&weft, lib, &options.env)?);
    let Some(path) = &options.output else {
        return std::io::stdout().write_all(text.as_bytes()).context("writing to stdout");
    };
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    }
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn specification(weft: &Path, lib: &Path, variables: &[String]) -> Result<Value> {
    for variable in variables {
        let well_formed = variable.split_once('=').is_some_and(|(name, _)| !name.is_empty());
        ensure!(well_formed, "`{variable}` is no NAME=VALUE");
    }
    let stubs = stub_files(&lib.join("stubs"))?;
    let in_container = |file: &Path| format!("{HOME}/lib/weft/{}", file.display());
    let mut env = vec![format!("LD_PRELOAD={}", in_container(Path::new(library::VERBS)))];
    env.extend(variables.iter().cloned());
    let mut mounts =
        vec![mount(weft, format!("{HOME}/bin/weft")), mount(lib, format!("{HOME}/lib/weft"))];
    let last = |file: &PathBuf| {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        mount(&lib.join("stubs").join(file), format!("{LAST_PLACE}/{name}"))
    };
    mounts.extend(stubs.iter().map(last));
    let dirs = stubs.iter().filter_map(|file| file.parent());
    let dirs: Vec<_> = dirs.map(|dir| in_container(&Path::new("stubs").join(dir))).collect();
    Ok(json!({
        "cdiVersion": "0.3.0",
        "kind": "weft/rdma",
        "devices": [
            { "name": "all", "containerEdits": { "env": env, "mounts": mounts } },
            { "name": "stubs", "containerEdits": {
                "env": [format!("LD_LIBRARY_PATH={}", dirs.join(":"))]
            } },
        ],
    }))
}

fn mount(from: &Path, to: String) -> Value {
    json!({ "hostPath": from, "containerPath": to, "options": ["ro", "bind"] })
}

/// The stubs below `dir`, as paths in it.
fn stub_files(dir: &Path) -> Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", dir.display())),
    };
    let mut files = Vec::new();
    for entry in entries {
        let name = PathBuf::from(entry?.file_name());
        let file = name.join(format!("{}.so.1", name.display()));
        if dir.join(&file).is_file() {
            files.push(file);
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_is_files_and_variables() {
        let dir = std::env::temp_dir().join(format!("weft-cdi-{}", std::process::id()));
        fs::create_dir_all(dir.join("stubs/libefa")).unwrap();
        fs::write(dir.join("stubs/libefa/libefa.so.1"), "").unwrap();
        let made = specification(Path::new("/w/weft"), &dir, &["WEFT_LOG=info".into()]).unwrap();
        fs::remove_dir_all(&dir).unwrap();
        let edits = &made["devices"][0]["containerEdits"];
        assert_eq!(
            edits["env"],
            json!(["LD_PRELOAD=/opt/weft/lib/weft/libweft.so", "WEFT_LOG=info"])
        );
        assert_eq!(edits["mounts"][0]["hostPath"], "/w/weft");
        assert_eq!(edits["mounts"][2]["containerPath"], "/usr/lib/libefa.so.1");
        let path = &made["devices"][1]["containerEdits"]["env"][0];
        assert_eq!(path, "LD_LIBRARY_PATH=/opt/weft/lib/weft/stubs/libefa");
    }

    #[test]
    fn a_variable_has_a_name_and_a_value() {
        for wrong in ["WEFT_LOG", "=info"] {
            let made = specification(Path::new("/w/weft"), Path::new("/w"), &[wrong.into()]);
            assert!(made.unwrap_err().to_string().contains("NAME=VALUE"), "{wrong}");
        }
    }
}
