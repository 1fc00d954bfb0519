//! A message that says nothing shows the peer that this side goes on (SD-6).

mod common;

use common::{holding, pair, settle, small};

#[test]
fn a_greeting_is_heard_and_gives_nothing_to_read() {
    for config in [small(), holding()] {
        let mut ends = pair(&config);
        settle(&mut ends);
        assert!(ends.iter().all(|end| !end.connection.has_heard()));
        let [caller, _] = &mut ends;
        caller.connection.greet(&mut caller.verbs).unwrap();
        caller.send(b"word");
        settle(&mut ends);
        assert!(ends[1].connection.has_heard() && !ends[0].connection.has_heard());
        assert_eq!((ends[1].messages, ends[1].receive(100)), (2, b"word".to_vec()));
    }
}

#[test]
fn who_has_ended_its_half_greets_nobody() {
    let mut ends = pair(&small());
    ends[0].shutdown();
    let [caller, _] = &mut ends;
    assert!(caller.connection.greet(&mut caller.verbs).is_err());
}
