//! `weft run` becomes CMD: nothing of it is left between CMD and its caller.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use crate::common::{Dir, run, text, weft};

#[test]
fn the_status_is_cmds_own() {
    for status in [0, 1, 42, 125, 255] {
        let output = run(&["sh", "-c", &format!("exit {status}")]);
        assert_eq!(output.status.code(), Some(status));
        assert_eq!(text(&output.stderr), "");
    }
}

#[test]
fn our_own_failures_are_125() {
    for args in [&[][..], &["--bogus", "true"], &["--lib", "/nonexistent/libweft.so", "true"]] {
        let output = run(args);
        assert_eq!(output.status.code(), Some(125), "{args:?}");
        assert_eq!(text(&output.stdout), "");
        assert_ne!(text(&output.stderr), "");
    }
}

#[test]
fn an_empty_key_is_said_to_be_none() {
    for (key, said) in
        [(Some(""), "weft: warning: WEFT_KEY is empty: there is no key\n"), (None, "")]
    {
        let mut command = weft();
        if let Some(key) = key {
            command.env("WEFT_KEY", key);
        }
        let output = command.args(["run", "true"]).output().expect("weft starts");
        assert_eq!(output.status.code(), Some(0));
        assert_eq!(text(&output.stderr), said);
    }
}

#[test]
fn a_value_is_not_repeated_whatever_its_length() {
    for name in ["WEFT_CRC", "WEFT_FAULT", "WEFT_MULTIPATH", "WEFT_PCAP"] {
        let mut command = weft();
        let value = format!("a,{}", "x".repeat(100_000));
        let output = command.env(name, value).args(["run", "true"]).output().expect("weft starts");
        let said = text(&output.stderr);
        assert!(said.contains(name) && said.len() < 2000, "{said}");
    }
}

#[test]
fn what_is_not_executable_is_126() {
    let scratch = Dir::new("126");
    let file = scratch.text_path("text");
    std::fs::write(&file, "true\n").unwrap();
    for command in [file.as_str(), "/"] {
        let output = run(&[command]);
        assert_eq!(output.status.code(), Some(126), "{command}");
        assert!(text(&output.stderr).contains("Permission denied"), "{}", text(&output.stderr));
    }
}

#[test]
fn a_missing_interpreter_is_said_to_be_one() {
    let scratch = Dir::new("interpreter");
    let file = scratch.text_path("script");
    std::fs::write(&file, "#!/nonexistent/interpreter\n").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    let output = run(&[file.as_str()]);
    assert_eq!(output.status.code(), Some(127));
    assert!(text(&output.stderr).contains("the interpreter"), "{}", text(&output.stderr));
}

#[test]
fn what_does_not_exist_is_127() {
    for command in ["/nonexistent/program", "no-program-is-called-this"] {
        let output = run(&[command]);
        assert_eq!(output.status.code(), Some(127), "{command}");
        assert!(text(&output.stderr).contains(command), "{}", text(&output.stderr));
    }
}

#[test]
fn the_process_is_the_same() {
    let child = weft().args(["run", "sh", "-c", "echo $$"]).stdout(Stdio::piped()).spawn().unwrap();
    let pid = child.id();
    let output = child.wait_with_output().unwrap();
    assert_eq!(text(&output.stdout).trim(), pid.to_string());
}

#[test]
fn a_signal_ends_cmd_visibly() {
    assert_eq!(run(&["sh", "-c", "kill -TERM $$"]).status.signal(), Some(15));
    let mut child = weft().args(["run", "sleep", "60"]).spawn().unwrap();
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(9));
}

#[test]
fn streams_pass_untouched() {
    let mut child = weft()
        .args(["run", "cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let bytes: Vec<u8> = (0..=255).cycle().take(60_000).collect();
    child.stdin.take().unwrap().write_all(&bytes).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.stdout, bytes);
    assert_eq!(text(&output.stderr), "");
}

/// Runs a shell line with and without `weft run` in the place of `WEFT`; stdout must not differ.
fn assert_same(line: &str) {
    let weft_run = format!("{} run", env!("CARGO_BIN_EXE_weft"));
    let with = line.replace("WEFT", &weft_run);
    let without = line.replace("WEFT", "env");
    let shell = |line: &str| {
        let output = Command::new("sh").args(["-c", line]).env_remove("LD_PRELOAD").output();
        text(&output.unwrap().stdout)
    };
    let expected = shell(&without);
    assert_ne!(expected, "", "{line}");
    assert_eq!(shell(&with), expected, "{line}");
}

#[test]
fn closed_streams_stay_closed() {
    assert_same("WEFT sh -c 'test -e /proc/self/fd/0; echo $?' <&-");
    assert_same("WEFT sh -c 'test -e /proc/self/fd/2; echo $?' 2>&-");
}

#[test]
fn dispositions_of_signals_stay() {
    assert_same("WEFT grep ^Sig[BIC] /proc/self/status");
    assert_same("trap '' PIPE INT; WEFT grep ^Sig[BIC] /proc/self/status");
}

#[test]
fn arguments_and_environment_pass_untouched() {
    let output = weft()
        .args([
            "run",
            "--",
            "sh",
            "-c",
            "printf '<%s>' \"$@\" \"$WORD\"",
            "sh",
            "-x",
            "--",
            "",
            "a b",
        ])
        .env("WORD", "one two")
        .output()
        .unwrap();
    assert_eq!(text(&output.stdout), "<-x><--><><a b><one two>");
}

#[test]
fn a_text_without_interpreter_runs_in_the_shell() {
    let scratch = Dir::new("bare");
    let script = scratch.script("bare", "echo ran\n");
    assert_eq!(text(&run(&[&script]).stdout), "ran\n");
}

#[test]
fn a_script_whose_interpreter_is_missing_is_127() {
    let scratch = Dir::new("orphan");
    let script = scratch.script("orphan", "#!/nonexistent/interpreter\n");
    assert_eq!(run(&[&script]).status.code(), Some(127));
}

#[test]
fn completions_come_out_for_every_shell() {
    for shell in ["bash", "zsh", "fish"] {
        let output = weft().args(["completions", shell]).output().unwrap();
        assert!(output.status.success());
        assert!(text(&output.stdout).contains("completions"), "{shell}");
        let said = text(&output.stdout);
        // The last are of `weft wan` and `weft bench`.
        for hidden in ["perf-inside", "far-end", "enter", "floor"] {
            let mut words = said.split(|c: char| !c.is_alphanumeric() && c != '-');
            assert!(!words.any(|word| word == hidden), "{shell}: {hidden}");
        }
    }
    assert_eq!(weft().args(["completions", "tea"]).output().unwrap().status.code(), Some(125));
}

#[test]
fn help_is_an_answer() {
    let help = weft().args(["run", "--help"]).output().unwrap();
    assert!(help.status.success());
    for section in ["EXAMPLES", "FAULTS", "EXIT STATUS", "ENVIRONMENT", "--lib", "--log"] {
        assert!(text(&help.stdout).contains(section), "{section}");
    }
    assert_eq!(text(&help.stderr), "");
}

#[test]
fn each_line_of_its_own_is_an_object_where_json_is_asked_for() {
    let dir = Dir::new("log-format");
    let scenario =
        dir.write("some.toml", "name = \"some\"\n[expect]\nexit = 0\n").display().to_string();
    for (line, level, message) in [
        ("--fault drop=1%;seed=3 true", "info", "going wrong on purpose: drop=1%; seed=3"),
        ("--stats true", "info", "no RDMA device was opened"),
        ("--require-traffic true", "info", "no RDMA operation ran, as --require-traffic asks"),
        ("/nonexistent/program", "error", "cannot run /nonexistent/program: No such file"),
        ("--lib /nosuch.so true", "error", "cannot use the library /nosuch.so"),
        (&format!("--scenario {scenario} true"), "info", "scenario some: passed"),
        ("true", "warning", "WEFT_BOGUS is not a variable of Weft"),
    ] {
        let mut command = weft();
        command.env("WEFT_LOG_FORMAT", "json").env("WEFT_BOGUS", "1");
        let output = command.arg("run").args(line.split(' ')).output().unwrap();
        let said = text(&output.stderr);
        let objects = said.lines().map(|line| {
            serde_json::from_str::<serde_json::Value>(line)
                .unwrap_or_else(|error| panic!("{error}: {line}"))
        });
        let is_it = |object: &serde_json::Value| {
            object["level"] == level && object["message"].as_str().unwrap().starts_with(message)
        };
        assert_eq!(objects.filter(is_it).count(), 1, "{line}: {message} is not in\n{said}");
    }
}
