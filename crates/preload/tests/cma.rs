//! Programs that link librdmacm: our own, function by function, and those of rdma-core.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Stdio};
use std::time::Duration;

use common::{behind, plain, preloaded};
use weft_testkit::{free_port, listens_to_tcp, stderr, succeed, text};

const TRANSPORTS: [&str; 2] = ["shuttle", "iwarp"];

#[test]
fn a_child_that_shares_its_parents_memory_changes_nothing_of_it() {
    let dir = common::dir("borrowed");
    let program = dir.build("borrowed.c", "borrowed", &["-libverbs"]);
    succeed(&mut preloaded(&program));
}

#[test]
fn event_channels_serve_a_linked_program() {
    let dir = common::dir("cma");
    let program = dir.build("cma.c", "cma", &["-lrdmacm", "-libverbs"]);
    for transport in TRANSPORTS {
        succeed(preloaded(&program).env("WEFT_TRANSPORT", transport));
    }
}

#[test]
fn who_has_no_descriptor_or_thread_left_is_told_so() {
    let dir = common::dir("exhausted");
    let program = dir.build("exhausted.c", "exhausted", &["-lrdmacm", "-libverbs"]);
    for how in ["id", "listens", "called"] {
        let mut command = preloaded(&program);
        command.arg(how).env("WEFT_TRANSPORT", "iwarp");
        let said = stderr(&succeed(&mut command));
        assert!(said.contains("this process may have no more than 0 descriptors open"), "{said}");
    }
    let said = stderr(&succeed(preloaded(&program).arg("threads")));
    assert!(said.contains("this process can have no other thread"), "{said}");
    let said = stderr(&succeed(preloaded(&program).arg("forbidden")));
    assert!(said.contains("start its thread in this process: Operation not"), "{said}");
    let said = stderr(&succeed(preloaded(&program).arg("denied").env("WEFT_TRANSPORT", "iwarp")));
    assert_eq!(said.matches("accept no connection over TCP: Operation not").count(), 1, "{said}");
}

#[test]
fn the_last_descriptor_is_for_who_calls() {
    let dir = common::dir("last");
    let program = dir.build("exhausted.c", "last", &["-lrdmacm", "-libverbs"]);
    succeed(preloaded(&program).arg("last").env("WEFT_TRANSPORT", "iwarp"));
}

#[test]
fn a_port_that_another_id_has_is_refused_as_the_kernel_refuses_it() {
    let dir = common::dir("bindings");
    let program = dir.build("bindings.c", "bindings", &["-lrdmacm", "-libverbs"]);
    for transport in ["shuttle", "iwarp", "auto"] {
        succeed(preloaded(&program).env("WEFT_TRANSPORT", transport));
    }
}

#[test]
fn a_listener_leaves_its_tcp_port_to_the_application() {
    let dir = common::dir("both_listeners");
    let program = dir.build("both_listeners.c", "both_listeners", &["-lrdmacm", "-libverbs"]);
    let said = stderr(&succeed(preloaded(&program).env("WEFT_TRANSPORT", "auto")));
    let (before, after) = said.split_once("elsewhere").unwrap();
    assert!(!before.contains("alone"), "{said}");
    assert_eq!(after.matches("by Shuttle (weft0) alone from now on").count(), 1, "{said}");
    let said = stderr(&succeed(preloaded(&program).env("WEFT_TRANSPORT", "shuttle")));
    assert!(!said.contains("alone"), "{said}");
}

#[test]
fn queue_pairs_are_told_of_their_connection() {
    let dir = common::dir("terms");
    let program = dir.build("terms.c", "terms", &["-lrdmacm", "-libverbs"]);
    succeed(preloaded(&program).env("WEFT_TRANSPORT", "shuttle"));
}

#[test]
fn endpoints_serve_a_linked_program() {
    let dir = common::dir("endpoint");
    let program = dir.build("endpoint.c", "endpoint", &["-lrdmacm", "-libverbs"]);
    for transport in TRANSPORTS {
        succeed(preloaded(&program).env("WEFT_TRANSPORT", transport));
    }
}

#[test]
fn names_are_resolved_while_the_program_goes_on() {
    let dir = common::dir("names");
    let program = dir.build("names.c", "names", &["-lrdmacm", "-libverbs", "-ldl"]);
    for transport in TRANSPORTS {
        succeed(preloaded(&program).env("WEFT_TRANSPORT", transport));
    }
}

#[test]
fn events_come_in_the_order_of_a_device() {
    let dir = common::dir("order");
    let program = dir.build("order.c", "order", &["-lrdmacm", "-libverbs"]);
    for (transport, lane) in
        TRANSPORTS.into_iter().flat_map(|t| ["on", "off"].map(|lane| (t, lane)))
    {
        let mut program = preloaded(&program);
        succeed(program.arg("500").env("WEFT_TRANSPORT", transport).env("WEFT_LANE", lane));
    }
}

#[test]
fn ids_of_adapters_have_a_path_once_their_route_is_resolved() {
    let dir = common::dir("paths");
    let program = dir.build("paths.c", "paths", &["-lrdmacm", "-libverbs"]);
    for (transport, device) in TRANSPORTS.into_iter().zip(["weft0", "weft_iw0"]) {
        succeed(preloaded(&program).arg(device).env("WEFT_TRANSPORT", transport));
    }
}

#[test]
fn an_id_for_datagrams_has_no_connection_to_end() {
    let dir = common::dir("datagram_ids");
    let program = dir.build("datagram_ids.c", "datagram_ids", &["-lrdmacm", "-libverbs"]);
    succeed(&mut preloaded(&program));
}

#[test]
fn private_data_is_as_long_as_the_messages_of_the_device_have_room_for() {
    let dir = common::dir("private_data");
    let program = dir.build("private_data.c", "private_data", &["-lrdmacm", "-libverbs"]);
    for (transport, connections) in TRANSPORTS.into_iter().zip([["56", "196", "148"], ["251"; 3]]) {
        let mut command = preloaded(&program);
        command.args(connections).args(["180", "136"]);
        succeed(command.env("WEFT_TRANSPORT", transport));
    }
}

#[test]
fn a_listener_hears_at_once_of_a_client_that_gives_up() {
    let dir = common::dir("withdrawn");
    let program = dir.build("withdrawn.c", "withdrawn", &["-lrdmacm", "-libverbs"]);
    for transport in TRANSPORTS {
        succeed(preloaded(&program).env("WEFT_TRANSPORT", transport));
    }
}

#[test]
fn functions_of_the_program_are_not_taken_for_system_calls() {
    let dir = common::dir("namesakes");
    let program = dir.build("namesakes.c", "namesakes", &["-lrdmacm", "-libverbs"]);
    for transport in ["shuttle", "iwarp", "auto"] {
        succeed(preloaded(&program).env("WEFT_TRANSPORT", transport));
    }
}

#[test]
fn a_client_hears_from_its_listener_that_this_ends() {
    let dir = common::dir("deserted");
    let program = dir.build("deserted.c", "deserted", &["-lrdmacm", "-libverbs"]);
    succeed(preloaded(&program).env("WEFT_TRANSPORT", "shuttle"));
}

#[test]
fn what_succeeded_is_seen_before_the_end_however_late_the_application_looks() {
    let dir = common::dir("unseen");
    let program = dir.build("unseen.c", "unseen", &["-lrdmacm", "-libverbs"]);
    for transport in TRANSPORTS {
        succeed(preloaded(&program).env("WEFT_TRANSPORT", transport));
    }
}

#[test]
fn a_thread_that_is_cancelled_ends_in_no_call_that_holds_locks() {
    let dir = common::dir("cancelled");
    let program = dir.build("cancelled.c", "cancelled", &["-lrdmacm", "-libverbs"]);
    for lane in ["on", "off"] {
        succeed(preloaded(&program).arg("weft0").env("WEFT_LANE", lane));
    }
}

#[test]
fn a_process_ends_with_the_last_thread_of_the_application() {
    let dir = common::dir("first_thread");
    let program = dir.build("first_thread.c", "first_thread", &["-libverbs"]);
    succeed(&mut preloaded(&program));
}

#[test]
fn what_a_process_sends_arrives_after_its_first_thread_has_ended() {
    let dir = common::dir("departed_thread");
    let libraries = ["-lrdmacm", "-libverbs"];
    let program = dir.build("departed_thread.c", "departed_thread", &libraries);
    for transport in TRANSPORTS {
        succeed(preloaded(&program).env("WEFT_TRANSPORT", transport));
    }
}

#[test]
fn a_message_behind_one_that_waited_for_a_receive_leaves_though_its_sender_sleeps() {
    let dir = common::dir("behind_unready");
    let program = dir.build("behind_unready.c", "behind_unready", &["-lrdmacm", "-libverbs"]);
    succeed(preloaded(&program).env("WEFT_TRANSPORT", "shuttle"));
}

#[test]
fn what_a_child_of_a_fork_makes_is_its_own() {
    let dir = common::dir("own_objects");
    let program = dir.build("own_objects.c", "own_objects", &["-lrdmacm", "-libverbs"]);
    for transport in TRANSPORTS {
        succeed(preloaded(&program).env("WEFT_TRANSPORT", transport));
    }
}

#[test]
fn a_refused_write_does_not_succeed_by_shared_memory() {
    let dir = common::dir("refused_write");
    let program = dir.build("refused_write.c", "refused_write", &["-lrdmacm", "-libverbs"]);
    for transport in TRANSPORTS {
        succeed(preloaded(&program).env("WEFT_TRANSPORT", transport));
    }
}

#[test]
fn who_gives_up_its_rights_is_not_told_of_success() {
    let dir = common::dir("lost_rights");
    let program = dir.build("lost_rights.c", "lost_rights", &["-lrdmacm", "-libverbs"]);
    for transport in TRANSPORTS {
        succeed(preloaded(&program).env("WEFT_TRANSPORT", transport));
    }
}

#[test]
fn children_use_the_device_while_threads_of_their_parent_do() {
    let dir = common::dir("forked");
    let program = dir.build("forked.c", "forked", &["-lrdmacm", "-libverbs"]);
    succeed(&mut preloaded(&program));
}

#[test]
fn ids_join_groups_and_leave_them() {
    let dir = common::dir("joined");
    let program = dir.build("joined.c", "joined", &["-lrdmacm", "-libverbs"]);
    succeed(&mut preloaded(&program));
}

#[test]
fn address_sanitizer_finds_nothing() {
    let dir = common::dir("cma-asan");
    for source in ["cma.c", "endpoint.c", "joined.c", "names.c"] {
        let flags = ["-fsanitize=address", "-lrdmacm", "-libverbs"];
        let program = dir.build(source, source, &flags);
        let both = behind("libasan.so");
        for transport in TRANSPORTS {
            let mut command = plain(&program);
            command.env("WEFT_TRANSPORT", transport).env("LD_PRELOAD", &both);
            // What lives as long as the process is reachable, and no leak; a sleeping thread's is.
            succeed(command.env("ASAN_OPTIONS", "detect_leaks=0"));
        }
    }
}

#[test]
fn off_leaves_librdmacm_alone() {
    let out = preloaded("rping".as_ref())
        .args(["-c", "-a", "127.0.0.1", "-p", "1"])
        .env("WEFT", "off")
        .output()
        .expect("the tool is installed");
    assert!(!out.status.success());
}

/// Both are said before the application hears of it: who waits is told why.
#[test]
fn a_port_of_tcp_where_nobody_speaks_iwarp_is_named() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let call = || {
        let mut rping = preloaded("rping".as_ref());
        rping.args(["-c", "-a", "127.0.0.1", "-p", &port]).env("WEFT_TRANSPORT", "iwarp");
        rping.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the tool is installed")
    };
    let mut silent = call();
    let (stream, _) = listener.accept().unwrap();
    let mut line = String::new();
    BufReader::new(silent.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("which TCP reaches"), "{line}");
    drop(stream);
    let wrong = call();
    // One that was reset may be called again, in an older way.
    let answers = std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let _ = stream.write_all(b"220 mail.example.org ESMTP Some Other Server\r\n");
            let _ = stream.read(&mut [0; 64]);
        }
    });
    let said = text(&wrong.wait_with_output().unwrap().stderr);
    assert!(said.contains("does not speak iWARP"), "{said}");
    let _ = silent.wait();
    drop(answers);
}

fn port() -> String {
    free_port().to_string()
}

/// A server that is killed when the test ends early.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // This is `timeout`, with the server below it, and can pass on only what it survives.
        // SAFETY: two integers; the child has not been waited for, so the number is still its own.
        unsafe { libc::kill(self.0.id() as libc::pid_t, libc::SIGTERM) };
        let _ = self.0.wait();
    }
}

/// Starts a server and waits until it listens on `port`.
fn serve(program: &str, args: &[&str], port: &str) -> Server {
    let mut command = preloaded(program.as_ref());
    command.args(args).stdout(Stdio::null()).stderr(Stdio::null());
    let server = Server(command.spawn().expect("the tool is installed"));
    let start = weft_os::clock::now();
    let number = port.parse().expect("a port");
    while !listens_to_tcp(number) {
        assert!(start.elapsed() < Duration::from_secs(20), "{program} does not listen");
        std::thread::yield_now();
    }
    server
}

fn ask(program: &str, args: &[&str]) {
    let out = preloaded(program.as_ref()).args(args).output().expect("the tool is installed");
    let (stdout, stderr) = (text(&out.stdout), text(&out.stderr));
    assert!(out.status.success(), "{program} {args:?}: {}\n{stdout}\n{stderr}", out.status);
}

/// Runs a server and a client to their ends.
fn pair(program: &str, port: &str, server: &[&str], client: &[&str]) {
    let mut served = serve(program, server, port);
    ask(program, client);
    let status = served.0.wait().expect("the server ends");
    assert!(status.success(), "{program} {server:?}: {status}");
}

#[test]
fn rping_pings() {
    for size in ["23", "4096", "65535"] {
        let port = port();
        let base = ["-a", "127.0.0.1", "-p", &port, "-C", "20", "-S", size, "-v", "-V"];
        pair("rping", &port, &[&["-s"][..], &base].concat(), &[&["-c"][..], &base].concat());
    }
    let port = port();
    let base = ["-a", "::1", "-p", &port, "-C", "3"];
    pair("rping", &port, &[&["-s"][..], &base].concat(), &[&["-c"][..], &base].concat());
}

#[test]
fn ucmatose_makes_many_connections_on_one_channel() {
    let port = port();
    let base = ["-p", &port, "-c", "16", "-C", "32", "-m", "-t", "8"];
    pair("ucmatose", &port, &base, &[&base[..], &["-s", "127.0.0.1"]].concat());
}

#[test]
fn rdma_client_talks_to_rdma_server() {
    let port = port();
    let mut served = serve("rdma_server", &["-p", &port], &port);
    ask("rdma_client", &["-s", "127.0.0.1", "-p", &port]);
    assert!(served.0.wait().expect("the server ends").success());
}

/// The rsocket code of the installed librdmacm looks into the ids that it gets. (The asynchronous
/// mode of rstream is left out: it takes a peer that has sent everything and left for an error,
/// if it sees both at once.)
#[test]
fn rsockets_of_the_real_library_run_over_weft() {
    for test in [&["-T", "b"][..], &["-T", "n"], &["-T", "r"], &["-T", "f"]] {
        let port = port();
        let mut base = vec!["-p", &port, "-S", "4096", "-I", "10", "-C", "100"];
        base.extend(test);
        pair("rstream", &port, &base, &[&base[..], &["-s", "127.0.0.1"]].concat());
    }
    let port = port();
    let base = ["-p", &port, "-S", "65536", "-I", "10", "-C", "20"];
    pair("riostream", &port, &base, &[&base[..], &["-s", "127.0.0.1"]].concat());
}

#[test]
fn rcopy_copies() {
    let dir = common::dir("rcopy");
    let (from, to) = (dir.path("from"), dir.path("to"));
    let content: Vec<u8> =
        (0..3_000_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    std::fs::write(&from, &content).expect("room for a file");
    let port = port();
    let _server = serve("rcopy", &["-p", &port], &port);
    let target = format!("127.0.0.1:{}", to.display());
    // The first argument decides: a file makes it the client.
    ask("rcopy", &[from.to_str().expect("a plain path"), &target, "-p", &port]);
    assert_eq!(std::fs::read(&to).expect("the copy"), content);
}
