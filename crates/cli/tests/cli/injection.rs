//! What `weft run` puts before CMD, and what it says about it.

use std::process::Output;

use crate::common::{Dir, run, text, weft};

/// The shared objects in a process, in the order in which the dynamic linker searches them.
const LIST_OBJECTS: &str = "
#define _GNU_SOURCE
#include <link.h>
#include <stdio.h>
static int show(struct dl_phdr_info *info, size_t size, void *data) {
    (void)size;
    (void)data;
    puts(info->dlpi_name);
    return 0;
}
int main(void) { return dl_iterate_phdr(show, NULL); }
";

const OVERFLOW: &str = "
#include <stdlib.h>
int main(int argc, char **argv) {
    (void)argv;
    volatile char *p = malloc(4);
    return p[argc + 3];
}
";

fn loads_weft(output: &Output) -> bool {
    text(&output.stdout).contains("libweft.so")
}

/// Weft and a sanitizer's runtime among the listed objects, in their order.
fn order(output: &Output) -> Vec<&'static str> {
    let names = text(&output.stdout);
    let known = |path: &str| ["libweft", "libasan"].into_iter().find(|name| path.contains(name));
    names.lines().filter_map(|path| known(path.rsplit('/').next().unwrap_or_default())).collect()
}

#[test]
fn the_library_is_in_cmd_and_in_its_children() {
    assert!(loads_weft(&run(&["cat", "/proc/self/maps"])));
    assert!(loads_weft(&run(&["sh", "-c", "cat /proc/self/maps; true"])));
}

#[test]
fn the_library_is_found_by_option_and_by_variable() {
    let scratch = Dir::new("lib");
    let copy = scratch.text_path("libweft.so");
    let library = std::path::Path::new(env!("CARGO_BIN_EXE_weft")).with_file_name("libweft.so");
    std::fs::copy(library, &copy).unwrap();
    let maps = ["cat", "/proc/self/maps"];
    let by_option = run(&[&["--lib", &copy][..], &maps].concat());
    assert!(text(&by_option.stdout).contains(&copy));
    let by_variable = weft().arg("run").args(maps).env("WEFT_LIB", &copy).output().unwrap();
    assert!(text(&by_variable.stdout).contains(&copy));
}

#[test]
fn what_was_preloaded_stays_and_twice_is_once() {
    let mut command = weft();
    let own = env!("CARGO_BIN_EXE_weft");
    let show = "echo $LD_PRELOAD";
    command.args(["run", own, "run", "sh", "-c", show]).env("LD_PRELOAD", "libm.so.6");
    let list = text(&command.output().unwrap().stdout);
    let entries: Vec<&str> = list.trim().split(':').collect();
    assert_eq!(entries.len(), 2, "{list}");
    assert!(entries[0].ends_with("/libweft.so"), "{list}");
    assert_eq!(entries[1], "libm.so.6");
}

#[test]
fn a_sanitized_program_gets_its_runtime_first() {
    let scratch = Dir::new("asan");
    let objects = scratch.compile("objects", LIST_OBJECTS, &["-fsanitize=address"]);
    let output = run(&[&objects]);
    assert_eq!(text(&output.stderr), "");
    assert_eq!(order(&output), ["libasan", "libweft"]);
    let script = scratch.script("script", &format!("#!{objects}\n"));
    assert_eq!(order(&run(&[&script])), ["libasan", "libweft"]);
    let plain = scratch.compile("plain", LIST_OBJECTS, &[]);
    assert_eq!(order(&run(&[&plain])), ["libweft"]);
}

#[test]
fn a_sanitizer_still_finds_what_it_looks_for() {
    let scratch = Dir::new("overflow");
    let program = scratch.compile("overflow", OVERFLOW, &["-fsanitize=address"]);
    let output = run(&[&program]);
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("heap-buffer-overflow"), "{}", text(&output.stderr));
}

#[test]
fn off_means_off() {
    let maps = ["run", "cat", "/proc/self/maps"];
    let output = weft().args(maps).env("WEFT", "off").output().unwrap();
    assert!(output.status.success() && !loads_weft(&output));
    let own = env!("CARGO_BIN_EXE_weft");
    let nested = run(&["env", "WEFT=off", own, "run", "sh", "-c", "echo ${LD_PRELOAD-unset}"]);
    assert_eq!(text(&nested.stdout), "unset\n");
    let missing = weft().args(["run", "--lib", "/nonexistent", "true"]).env("WEFT", "off").output();
    assert!(missing.unwrap().status.success());
}

#[test]
fn the_log_level_reaches_the_library() {
    let output = run(&["--log", "debug", "sh", "-c", "echo $WEFT_LOG"]);
    assert_eq!(text(&output.stdout), "debug\n");
}

#[test]
fn unknown_variables_are_warned_about() {
    let command = |level: &str| {
        let mut command = weft();
        command.args(["run", "true"]).env("WEFT_LGO", "debug").env("WEFT_LOG", level);
        command.output().unwrap()
    };
    let output = command("warn");
    assert!(output.status.success());
    assert_eq!(text(&output.stdout), "");
    assert!(
        text(&output.stderr).starts_with("weft: warning: WEFT_LGO"),
        "{}",
        text(&output.stderr)
    );
    assert_eq!(text(&command("error").stderr), "");
}

#[test]
fn a_static_program_runs_with_a_warning() {
    let scratch = Dir::new("static");
    let program = scratch.compile("still", "int main(void) { return 7; }\n", &["-static"]);
    let output = run(&[&program]);
    assert_eq!(output.status.code(), Some(7));
    assert!(text(&output.stderr).contains("statically linked"), "{}", text(&output.stderr));
}

#[test]
fn programs_of_sockets_get_the_other_library() {
    let own = env!("CARGO_BIN_EXE_weft");
    let show = "echo $LD_PRELOAD $WEFT_SOCKETS_VERBOSE";
    let alone = text(&run(&["--sockets", "-v", "sh", "-c", show]).stdout);
    assert!(alone.trim().ends_with("/libweft_sockets.so on"), "{alone}");
    // What a program was run with last counts.
    let inner = text(&run(&["--sockets", own, "run", "sh", "-c", show]).stdout);
    assert!(inner.trim().ends_with("/libweft.so") && !inner.contains("libweft_sockets"), "{inner}");
    assert_eq!(run(&["-v", "true"]).status.code(), Some(125));
}
