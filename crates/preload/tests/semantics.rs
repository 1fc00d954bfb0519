//! What verbs mean, one behaviour after the other, on both devices: docs/semantics.md has the list.

mod common;

use std::path::{Path, PathBuf};
use std::thread;

use common::{behind, plain, preloaded};
use weft_testkit::{Dir, library, limited, succeed};

const DEVICES: [&str; 2] = ["weft0", "weft_iw0"];

/// Each behaviour is a program, which is told the device and fails where it does not hold.
macro_rules! behaviours {
    ($($name:ident = $program:literal)*) => {
        const PROGRAMS: &[&str] = &[$($program),*];
        $(
            #[test]
            fn $name() {
                hold($program);
            }
        )*
    };
}

fn hold(name: &str) {
    hold_over(name, &["on", "copy"]);
}

fn hold_over(name: &str, lanes: &[&str]) {
    let (_dir, program) = build("semantics", name, &["-libverbs"]);
    for device in DEVICES {
        for lane in lanes {
            succeed(preloaded(&program).arg(device).env("WEFT_LANE", lane));
        }
    }
}

fn build(purpose: &str, name: &str, flags: &[&str]) -> (Dir, PathBuf) {
    let dir = common::dir(&format!("{purpose}-{name}"));
    let program = dir.build(&format!("semantics/{name}.c"), name, flags);
    (dir, program)
}

behaviours! {
    requests_complete_in_their_order = "completion_order"
    a_send_is_complete_before_its_peers_reply = "replies"
    slots_return_with_a_polled_completion = "send_queue_slots"
    failures_complete_and_say_whose_they_are = "error_completions"
    a_failed_queue_pair_flushes_what_is_and_what_comes = "flush"
    inline_data_is_copied_when_it_is_posted = "inline_data"
    objects_are_as_large_as_asked_and_no_larger_than_advertised = "limits"
    a_fence_waits_for_reads = "fence"
    solicited_completions_and_errors_wake = "solicited"
    a_message_without_a_receive_waits_alone = "receiver_not_ready"
    a_shared_receive_queue_tells_when_it_runs_low = "shared_receives"
    a_completion_queue_without_room_fails_and_its_queue_pairs_too = "overflow"
    what_is_in_use_stays = "busy"
    a_destroyed_queue_pair_shows_no_flush = "destroyed"
    an_arm_gives_one_event = "completion_events"
    who_only_polls_learns_of_failures = "polled"
    polling_an_empty_queue_does_not_ask_who_polls = "empty_polls"
    an_empty_queue_is_not_open_for_reading = "extended_polling"
    regions_are_what_was_registered = "registration"
    regions_come_and_go_while_the_peer_writes = "deregistration"
    chunks_are_registered_anew_while_the_whole_is_written = "chunks"
    windows_open_and_close_with_their_keys = "windows"
    refusals_are_told_on_both_sides = "remote_errors"
    atomics_are_atomic_for_all = "atomics"
    states_say_what_may_be_posted = "states"
    data_may_come_before_the_receiver_sends = "early_data"
    who_ends_early_leaves_its_peer_a_completion = "early_end"
    a_signal_handler_may_end_the_process = "interrupted_end"
    a_child_of_a_fork_can_make_its_own_connections = "forks"
    a_child_of_a_fork_may_not_post_on_its_parents_queues = "inherited"
    a_child_that_fails_a_queue_pair_leaves_its_parents_as_it_is = "inherited_loans"
    a_child_of_a_fork_may_end_its_parents_queues = "inherited_ends"
    a_child_of_a_fork_takes_and_waits_for_nothing_of_its_parents = "inherited_polled"
    immediate_data_comes_with_sends_and_writes = "immediates"
    the_answer_to_a_read_goes_where_it_may_be_written = "read_sinks"
    many_threads_share_a_completion_queue = "threads"
    a_write_completes_although_other_connections_were_used_since = "many_writes"
    a_builder_holds_its_own_queue_only = "builders"
    descriptors_are_out_of_the_way = "descriptors"
    a_queue_pair_that_was_reset_comes_again = "comes_again"
    queue_pairs_that_were_reset_find_other_peers = "other_peers"
    closed_descriptors_end_their_connections_and_are_left_alone = "closed_descriptors"
    a_killed_peer_ends_its_own_requests_and_no_others = "killed_peers"
    errors_are_told_as_each_call_always_did = "errnos"
    requests_may_lie_at_any_address = "unaligned"
    buffers_hold_regions_of_their_domain = "buffers"
    what_is_not_offered_says_so = "not_offered"
    verbs_that_are_not_there_are_no_function = "empty_slots"
    memory_that_went_away_fails_its_request = "gone"
    long_messages_are_what_was_posted = "long_messages"
}

#[test]
fn a_thread_that_polls_many_connections_serves_each_of_them() {
    hold_over("crowd", &["on", "copy", "off"]);
}

#[test]
fn what_precedes_a_refused_request_is_answered() {
    hold_over("answered_first", &["on", "copy", "off"]);
}

#[test]
fn a_thread_that_often_sleeps_for_events_is_woken_and_interrupted_as_any() {
    hold_over("event_waits", &["on", "copy", "off"]);
}

#[test]
fn a_message_without_a_receive_waits_alone_by_the_network_too() {
    let (_dir, program) = build("network", "receiver_not_ready", &["-libverbs"]);
    for device in DEVICES {
        succeed(preloaded(&program).arg(device).env("WEFT_LANE", "off"));
    }
}

#[test]
fn whoever_makes_progress_requests_complete() {
    for (program, mode) in ["completion_order", "fence", "send_queue_slots"]
        .into_iter()
        .flat_map(|program| ["engine", "inline"].map(|mode| (program, mode)))
    {
        let (_dir, program) = build(&format!("progress-{mode}"), program, &["-libverbs"]);
        for (device, lane) in
            DEVICES.into_iter().flat_map(|d| ["on", "copy", "off"].map(|l| (d, l)))
        {
            let mut command = preloaded(&program);
            succeed(command.arg(device).env("WEFT_LANE", lane).env("WEFT_PROGRESS", mode));
        }
    }
}

/// Programs with memory that they never give back: children of theirs end in the middle, or what
/// knew the number of a descriptor must not close it.
const LEAVES: [&str; 8] = [
    "early_end",
    "forks",
    "killed_peers",
    "closed_descriptors",
    "inherited",
    "inherited_ends",
    "inherited_polled",
    "interrupted_end",
];

/// A child of it frees at once what its parent had, and may find the sanitizer's own lock taken:
/// its parent's other thread had it at the fork.
const FREES_IN_CHILD: &str = "inherited_ends";

/// Both devices, with the sanitizer's library before ours.
fn sanitized(name: &str) {
    let both = behind("libasan.so");
    let (_dir, program) = build("asan", name, &["-fsanitize=address", "-libverbs"]);
    for device in DEVICES {
        let mut command = plain(&program);
        if LEAVES.contains(&name) {
            command.env("ASAN_OPTIONS", "detect_leaks=0");
        }
        succeed(command.arg(device).env("LD_PRELOAD", &both));
    }
}

/// Calls `check` with each of the programs, in two threads.
fn check_all(programs: &[&str], check: impl Fn(&str) + Sync) {
    let (one, other) = programs.split_at(programs.len() / 2);
    thread::scope(|scope| {
        scope.spawn(|| one.iter().for_each(|name| check(name)));
        other.iter().for_each(|name| check(name));
    });
}

#[test]
fn address_sanitizer_finds_nothing() {
    let programs: Vec<_> =
        PROGRAMS.iter().copied().filter(|name| *name != FREES_IN_CHILD).collect();
    check_all(&programs, sanitized);
}

/// How long valgrind may take for one program, which it makes some fifty times slower.
const PATIENCE_SECONDS: u32 = 300;

fn under_valgrind(name: &str) {
    if !Path::new("/usr/bin/valgrind").exists() {
        eprintln!("there is no valgrind");
        return;
    }
    let (_dir, program) = build("valgrind", name, &["-libverbs"]);
    for device in DEVICES {
        let mut command = limited(Path::new("valgrind"), PATIENCE_SECONDS);
        let leaks = if LEAVES.contains(&name) { "no" } else { "full" };
        command.args(["-q", "--error-exitcode=9", "--errors-for-leak-kinds=definite"]);
        command.arg(format!("--leak-check={leaks}")).arg(&program).arg(device);
        succeed(command.env("LD_PRELOAD", library()));
    }
}

/// Those that take valgrind a few seconds.
const WATCHED: [&str; 7] =
    ["flush", "windows", "busy", "limits", "errnos", "inline_data", "extended_polling"];

#[test]
fn valgrind_finds_nothing() {
    check_all(&WATCHED, under_valgrind);
}

/// They look at all descriptors, of which valgrind has some of its own; or reach for memory that is
/// not there.
const UNWATCHED: [&str; 3] = ["descriptors", "closed_descriptors", "gone"];

/// `make soak-valgrind`.
#[test]
#[ignore = "minutes"]
fn valgrind_finds_nothing_anywhere() {
    for name in PROGRAMS.iter().filter(|name| !UNWATCHED.contains(name)) {
        under_valgrind(name);
        println!("{name}: nothing");
    }
}
