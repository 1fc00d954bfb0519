//! Clients in processes that run out of descriptors or threads: the verb that needed one says so,
//! and nothing aborts.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;

use weft_interop::source;
use weft_testkit::{Ended, Lab, Program, free_port};

/// Ends well or with a status of its own, never by a signal.
fn ends_by_itself(what: &str, end: &Ended) {
    // A shell tells of a signal by its status.
    let of_shell = end.status.code().is_some_and(|code| (129..160).contains(&code));
    assert!(end.status.signal().is_none() && !of_shell, "{what}: {end}");
    assert!(!end.stderr.contains("panicked"), "{what}: {end}");
}

/// A client that meets nobody, so that it ends as soon as it has what it needs, under a limit.
fn limited(lab: &Lab, limit: &str, command: &str) -> Program {
    lab.program("sh").arg("-c").arg(format!("{limit}; exec {command}"))
}

#[test]
fn few_descriptors_are_an_errno() {
    let Some(lab) = Lab::with(&["ibv_devinfo", "ibv_rc_pingpong", "rping"]) else { return };
    let port = free_port();
    for descriptors in (4..=24).step_by(2) {
        let limit = format!("ulimit -n {descriptors}");
        for command in [
            "ibv_devinfo".to_owned(),
            format!("ibv_rc_pingpong -d weft0 -g 0 -p {port} 127.0.0.1"),
            format!("ibv_rc_pingpong -d weft_iw0 -g 1 -p {port} 127.0.0.1"),
            format!("rping -c -a 127.0.0.1 -p {port} -C 1"),
        ] {
            let end = limited(&lab, &limit, &command).run();
            ends_by_itself(&format!("{limit}; {command}"), &end);
        }
    }
}

#[test]
fn too_few_descriptors_for_many_queue_pairs_are_an_errno() {
    let Some(lab) = Lab::with(&["ib_write_bw"]) else { return };
    for device in ["weft0", "weft_iw0"] {
        let port = free_port();
        let command = format!("ib_write_bw -d {device} -q 40 -p {port} -n 5 --report_gbits");
        let server = lab.program("sh").arg("-c").arg(&command).start().listening(port);
        let client = limited(&lab, "ulimit -n 48", &format!("{command} 127.0.0.1")).run();
        ends_by_itself(device, &client);
        drop(server);
    }
}

/// Streams that say nothing take a part of the descriptors only.
#[test]
fn silent_streams_leave_descriptors_to_a_server() {
    let Some(lab) = Lab::with(&["rping"]) else { return };
    let port = free_port();
    let rping = |role: &str| format!("rping {role} -a 127.0.0.1 -p {port} -C 10");
    let server = limited(&lab, "ulimit -n 64", &rping("-s")).env("WEFT_TRANSPORT", "iwarp");
    let server = server.start().listening(port);
    let silent: Vec<_> =
        (0..100).map(|_| std::net::TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
    let client = lab.program("sh").arg("-c").arg(rping("-c")).env("WEFT_TRANSPORT", "iwarp");
    client.run().success();
    server.wait().success();
    drop(silent);
}

/// No limit holds for root, so the system calls that make threads fail instead.
#[test]
fn a_device_that_can_have_no_thread_does_not_open() {
    let Some(lab) = Lab::with(&["ibv_devinfo", "rping", "cc"]) else { return };
    lab.compile("cc".as_ref(), &source("deny"), &[]);
    let deny = lab.path("deny");
    let errno = libc::EAGAIN;
    let denials = [
        format!("{} {errno} {} --", deny.display(), libc::SYS_clone3),
        format!("{} {} {} --", deny.display(), libc::EMFILE, libc::SYS_epoll_create1),
        format!("{} {} {} --", deny.display(), libc::ENFILE, libc::SYS_eventfd2),
    ];
    for denial in denials {
        for line in ["ibv_devinfo -d weft0", "rping -s -a 127.0.0.1 -p 0 -C 1"] {
            let (name, rest) = line.split_once(' ').expect("arguments");
            let end = lab.program(name).args(rest).started_by(&denial).run();
            ends_by_itself(&format!("{denial} {line}"), &end);
            assert!(!end.status.success(), "{denial} {line}: {end}");
        }
    }
}

/// What Weft writes for itself does not end a process whose files may not grow.
#[test]
fn files_that_may_not_grow_end_no_client() {
    let Some(lab) = Lab::with(&["rping"]) else { return };
    for limit in [0, 1] {
        let port = free_port();
        let rping = |role: &str| format!("rping {role} -a 127.0.0.1 -p {port} -C 3");
        let server = lab.program("sh").arg("-c").arg(rping("-s")).start().listening(port);
        // Not what the client prints, but what Weft writes, is to fail.
        let command = format!("{} > /dev/null 2>&1", rping("-c"));
        let client = limited(&lab, &format!("ulimit -f {limit}"), &command);
        let [packets, events] = ["packets", "events"].map(|n| lab.path(&format!("{n}-{limit}")));
        let client = client.env("WEFT_PCAP", &packets).env("WEFT_TRACE", &events).run();
        client.success();
        server.wait().success();
        assert!(packets.exists() && events.exists(), "nothing was to be written");
    }
}

/// A process that may not sleep (`clock_nanosleep`) waits for another one all the same.
#[test]
fn a_client_that_may_not_sleep_waits_at_its_end() {
    let Some(lab) = Lab::with(&["rping", "flock", "cc"]) else { return };
    lab.compile("cc".as_ref(), &source("deny"), &[]);
    let runtime = lab.path("runtime");
    fs::create_dir_all(runtime.join("weft")).unwrap();
    fs::set_permissions(runtime.join("weft"), fs::Permissions::from_mode(0o700)).unwrap();
    let sums = runtime.join("weft/ended");
    let lock = format!("flock {} -c 'echo locked >&2; exec sleep 20'", sums.display());
    let lock = lab.program("sh").arg("-c").arg(lock).on_its_own().start().complained("locked");
    let port = free_port();
    let rping = |role: &str| lab.program("rping").args(&format!("{role} -a 127.0.0.1 -p {port}"));
    let server = rping("-s -C 3").start().listening(port);
    let denial =
        format!("{} {} {} --", lab.path("deny").display(), libc::EPERM, libc::SYS_clock_nanosleep);
    let client = rping("-c -C 3").started_by(&denial).env("XDG_RUNTIME_DIR", &runtime).run();
    ends_by_itself("a client that may not sleep", &client);
    client.success();
    server.wait().success();
    drop(lock);
}
