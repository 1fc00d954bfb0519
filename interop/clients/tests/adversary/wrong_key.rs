//! Peers with another key or none, by an unmodified program.

use crate::kit::{Scene, keyed};

const OTHER: &str = "weft1:ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff";

#[test]
fn a_peer_with_another_key_is_not_announced() {
    let Some(scene) = Scene::with(&["rping"]) else { return };
    scene.rping_outlives(keyed, |port| {
        let refused = scene.rping_client(port, |program| program.env("WEFT_KEY", OTHER));
        assert!(!refused.status.success(), "{refused}");
    });
}

#[test]
fn a_peer_that_means_clear_text_is_not_announced() {
    let Some(scene) = Scene::with(&["rping"]) else { return };
    for transport in ["auto", "shuttle", "iwarp"] {
        scene.rping_outlives(keyed, |port| {
            let refused = scene.rping_client(port, |program| {
                program.env("WEFT_INSECURE", "1").env("WEFT_TRANSPORT", transport)
            });
            assert!(!refused.status.success(), "{transport}: {refused}");
        });
    }
}
