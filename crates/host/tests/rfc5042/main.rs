//! The attacks of RFC 5042 from a remote peer (section 6), each with real packets of a peer that
//! has the right to speak and makes its segments by hand. `docs/threat-model.md` has the table.

#[path = "../common/mod.rs"]
#[allow(dead_code, reason = "each test file uses its part")]
mod side;

mod denial;
mod disclosure;
mod peer;
mod spoofing;
mod tampering;
