//! `weft run` is transparent: children, output and exit status are those of the program.

use weft_testkit::{Lab, free_port};

#[test]
fn children_of_a_shell_have_the_device() {
    let Some(lab) = Lab::with(&["sh", "rping"]) else { return };
    let port = free_port();
    let rping = format!("rping -a 127.0.0.1 -p {port} -C 5 -V");
    let server = lab.program("sh").arg("-c").arg(format!("{rping} -s; echo $?"));
    let server = server.start().listening(port);
    let client = lab.program("sh").arg("-c").arg(format!("({rping} -c) && echo done | cat"));
    assert_eq!(client.run().success().stdout, "done\n");
    assert_eq!(server.wait().success().stdout, "0\n");
}

#[test]
fn programs_without_rdma_write_what_they_always_write() {
    let Some(lab) = Lab::with(&["sh", "ls", "sort", "date"]) else { return };
    // Nobody changes this directory meanwhile; the links of `/proc` are the processes of all.
    let own = concat!("ls -l ", env!("CARGO_MANIFEST_DIR"), "/src");
    for line in [own, "sort < /etc/passwd", "date -u -d @0; echo oops >&2; exit 7", "exec false"] {
        let program = lab.program("sh").arg("-c").arg(line);
        let (bare, over_weft) = (program.clone().on_its_own().run(), program.run());
        assert_eq!(over_weft.status, bare.status, "{over_weft}");
        assert_eq!((over_weft.stdout, over_weft.stderr), (bare.stdout, bare.stderr));
    }
}

#[test]
fn programs_with_rdma_write_only_what_is_theirs() {
    let Some(lab) = Lab::with(&["rping"]) else { return };
    let port = free_port();
    let rping = |role| lab.program("rping").args(&format!("{role} -a 127.0.0.1 -p {port} -C 3"));
    let server = rping("-s").start().listening(port);
    for end in [rping("-c").run(), server.wait()] {
        let end = end.success();
        assert_eq!(end.stdout, "");
        assert!(!end.stderr.contains("weft"), "{end}");
    }
}

#[test]
fn usage_and_failures_are_those_of_the_program() {
    let Some(lab) = Lab::with(&["rping", "ucmatose", "ib_write_bw"]) else { return };
    let nobody = free_port();
    let lines = [
        ("rping", String::from("-Z")),
        ("ib_write_bw", String::from("--no-such-option")),
        ("ucmatose", String::from("-Z")),
    ];
    for (name, line) in lines {
        let program = lab.program(name).args(&line);
        let (bare, over_weft) = (program.clone().on_its_own().run(), program.run());
        assert_eq!(over_weft.status, bare.status, "{over_weft}");
        assert_eq!((over_weft.stdout, over_weft.stderr), (bare.stdout, bare.stderr));
    }
    let alone = lab.program("rping").args(&format!("-c -a 127.0.0.1 -p {nobody}")).run();
    assert!(alone.status.code().is_some_and(|code| code != 0), "{alone}");
    assert!(alone.stderr.contains("RDMA_CM_EVENT_REJECTED"), "{alone}");
}
