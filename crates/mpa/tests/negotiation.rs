//! The exchange of start frames: our two ends against each other in every combination, and each
//! against frames made byte by byte, as Linux siw and other peers send them.

use weft_mpa::negotiate::{Initiator, MAX_PRIVATE_DATA, MpaReply, Responder, frame_len};
use weft_mpa::{Agreed, MpaError, MpaOffer, Rtr};
use weft_wire::mpa::{StartError, StartKind};

const BOOLS: [bool; 2] = [false, true];
const DEPTHS: [u16; 7] = [0, 1, 3, 16, 128, 300, 0x3fff];
const M: u8 = 0x80;
const C: u8 = 0x40;
const R: u8 = 0x20;
const S: u8 = 0x10;

fn frame(kind: StartKind, flags: u8, revision: u8, private_data: &[u8]) -> Vec<u8> {
    let mut bytes = kind.key().to_vec();
    bytes.extend([flags, revision]);
    bytes.extend((private_data.len() as u16).to_be_bytes());
    bytes.extend(private_data);
    bytes
}

/// The block of RFC 6581: `ab` and `cd` are two flags each, as the highest bits.
fn block(ab: u16, ird: u16, cd: u16, ord: u16) -> [u8; 4] {
    let [a, b] = (ab << 14 | ird).to_be_bytes();
    let [c, d] = (cd << 14 | ord).to_be_bytes();
    [a, b, c, d]
}

fn request(flags: u8, revision: u8, private_data: &[u8]) -> Vec<u8> {
    frame(StartKind::Request, flags, revision, private_data)
}

fn reply(flags: u8, revision: u8, private_data: &[u8]) -> Vec<u8> {
    frame(StartKind::Reply, flags, revision, private_data)
}

fn respond(bytes: &[u8], offer: &MpaOffer) -> (Vec<u8>, Agreed) {
    Responder::handle_request(bytes).unwrap().accept(offer).unwrap()
}

fn accepted(initiator: &Initiator, reply: &[u8]) -> Agreed {
    match initiator.handle_reply(reply) {
        Ok(MpaReply::Accepted(agreed)) => agreed,
        other => panic!("{other:?}"),
    }
}

fn offers() -> Vec<MpaOffer> {
    let mut offers = Vec::new();
    for flags in 0..16 {
        for (ird, ord) in [(0, 0), (1, 16), (3, 5), (16, 1), (128, 128), (500, 500)] {
            offers.push(MpaOffer {
                crc: flags & 1 != 0,
                markers: flags & 2 != 0,
                peer_to_peer: flags & 4 != 0,
                enhanced: flags & 8 != 0,
                private_data: vec![flags; usize::from(flags)],
                ..MpaOffer::new(ird, ord)
            });
        }
    }
    offers
}

#[test]
fn our_two_ends_agree_whatever_they_offer() {
    for ours in offers() {
        let initiator = Initiator::new(ours.clone()).unwrap();
        for theirs in offers() {
            let (bytes, responder) = respond(&initiator.request(), &theirs);
            let initiator = accepted(&initiator, &bytes);
            let context = format!("{ours:?} {theirs:?}");
            assert_eq!(initiator.crc, ours.crc || theirs.crc, "{context}");
            assert_eq!(responder.crc, initiator.crc, "{context}");
            assert_eq!(
                (initiator.markers_in, responder.markers_in),
                (ours.markers, theirs.markers)
            );
            assert_eq!(initiator.markers_in, responder.markers_out);
            assert_eq!(responder.markers_in, initiator.markers_out);
            assert_eq!(initiator.private_data, theirs.private_data);
            assert_eq!(responder.private_data, ours.private_data);
            assert_eq!(initiator.rtr, responder.rtr, "{context}");
            let rtr = ours.enhanced && ours.peer_to_peer;
            assert_eq!(initiator.rtr, rtr.then_some(Rtr::Write));
            assert_eq!(initiator.peer_ird.is_some(), ours.enhanced);
            if ours.enhanced {
                assert!(initiator.ord <= responder.ird, "{context}");
                assert!(responder.ord <= initiator.ird, "{context}");
                assert!(responder.ord <= theirs.ord && initiator.ord <= ours.ord);
                assert_eq!(initiator.peer_ird, Some(responder.ird));
                let asked = ours.ord.max(u16::from(ours.peer_to_peer));
                assert_eq!(responder.peer_ord, Some(asked));
            }
        }
    }
}

#[test]
fn a_responder_answers_every_request() {
    let offer = MpaOffer::new(4, 4);
    for flags in 0..=u8::MAX {
        for revision in 0..4 {
            let enhanced = revision == 2 && flags & S != 0;
            let bytes = request(flags, revision, &block(0, 16, 0, 16));
            let result = Responder::handle_request(&bytes);
            if !(1..=2).contains(&revision) {
                assert_eq!(result.err(), Some(MpaError::Revision(revision)));
                continue;
            }
            let responder = result.unwrap();
            assert_eq!(responder.ird(), enhanced.then_some(16));
            assert_eq!(responder.private_data().len(), if enhanced { 0 } else { 4 });
            let (reply, agreed) = responder.accept(&offer).unwrap();
            // The same revision; CRC because we want it; nothing else that was not asked for.
            let expected = C | if enhanced { S } else { 0 };
            assert_eq!((reply[16], reply[17]), (expected, revision), "{flags:02x}");
            assert_eq!(agreed.markers_out, flags & M != 0);
            let quiet = MpaOffer { crc: false, ..offer.clone() };
            let (reply, agreed) = respond(&bytes, &quiet);
            assert_eq!((reply[16] & C, agreed.crc), (flags & C, flags & C != 0));
        }
    }
}

#[test]
fn a_responder_settles_depths_and_indications() {
    for ab in 0..4_u16 {
        for cd in 0..4_u16 {
            for ird in DEPTHS {
                for ord in DEPTHS {
                    let bytes = request(S, 2, &block(ab, ird, cd, ord));
                    let (reply, agreed) = respond(&bytes, &MpaOffer::new(2, 20));
                    let peer_to_peer = ab & 2 != 0;
                    // A: copied; C unless only D was offered; B never.
                    let rtr = match (peer_to_peer, cd) {
                        (false, _) => None,
                        (true, 1) => Some(Rtr::Read),
                        (true, _) => Some(Rtr::Write),
                    };
                    assert_eq!(agreed.rtr, rtr);
                    let bits = rtr.map_or(0, |rtr| if rtr == Rtr::Write { 2 } else { 1 });
                    let own_ird = match ord {
                        0..=2 | 0x3fff => 2,
                        3 => 4,
                        16 => 16,
                        _ => 128,
                    };
                    let reply_ird = if ord == 0x3fff { 0x3fff } else { own_ird };
                    let reply_ord = if ird == 0x3fff { 0x3fff } else { ird.min(20) };
                    let expected = block(ab & 2, reply_ird, bits, reply_ord);
                    assert_eq!(reply[20..], expected, "{ab} {cd} {ird} {ord}");
                    assert_eq!((agreed.ird, agreed.ord), (own_ird, ird.min(20)));
                    assert_eq!((agreed.peer_ird, agreed.peer_ord), (Some(ird), Some(ord)));
                }
            }
        }
    }
}

#[test]
fn a_read_as_indication_needs_a_depth_of_one() {
    let (reply, agreed) = respond(&request(S, 2, &block(2, 0, 1, 0)), &MpaOffer::new(0, 0));
    assert_eq!(reply[20..], block(2, 1, 1, 0));
    assert_eq!(agreed.ird, 1);
}

#[test]
fn an_initiator_takes_every_acceptance() {
    let initiator = Initiator::new(MpaOffer::new(4, 8)).unwrap();
    for ab in 0..4_u16 {
        for cd in 0..4_u16 {
            for ird in DEPTHS {
                for ord in DEPTHS {
                    let bytes = reply(S, 2, &block(ab, ird, cd, ord));
                    let own_ord = if ird == 0x3fff { 8 } else { ird.min(8) };
                    let rtr = match (ab & 2 != 0, cd) {
                        (true, 2 | 3) => Some(Rtr::Write),
                        (true, 1) if own_ord > 0 => Some(Rtr::Read),
                        _ => None,
                    };
                    let refusal = if ord == 300 {
                        Some(MpaError::InsufficientIrd)
                    } else if ab & 2 != 0 && rtr.is_none() {
                        Some(MpaError::NoRtr)
                    } else {
                        None
                    };
                    match (initiator.handle_reply(&bytes).unwrap(), refusal) {
                        (MpaReply::Accepted(agreed), None) => {
                            let own_ird = if ord == 0x3fff { 4 } else { ord.max(4) };
                            assert_eq!((agreed.ird, agreed.ord), (own_ird, own_ord));
                            assert_eq!((agreed.rtr, agreed.peer_ird), (rtr, Some(ird)));
                        }
                        (MpaReply::Unacceptable { error, .. }, Some(refusal)) => {
                            assert_eq!(error, refusal);
                        }
                        (other, refusal) => panic!("{ab} {cd} {ird} {ord} {other:?} {refusal:?}"),
                    }
                }
            }
        }
    }
}

#[test]
fn an_initiator_refuses_what_it_did_not_ask_for() {
    let enhanced = Initiator::new(MpaOffer::new(1, 1)).unwrap();
    let plain = Initiator::new(MpaOffer { enhanced: false, ..MpaOffer::new(1, 1) }).unwrap();
    for flags in 0..=u8::MAX {
        for revision in 0..4 {
            let bytes = reply(flags, revision, &block(2, 1, 2, 1));
            let rejected = flags & R != 0;
            for (initiator, fits) in
                [(&enhanced, revision == 2 && flags & S != 0), (&plain, revision == 1)]
            {
                match initiator.handle_reply(&bytes) {
                    Ok(MpaReply::Rejected { .. }) => assert!(rejected),
                    Ok(MpaReply::Accepted(agreed)) => {
                        assert!(fits && !rejected);
                        assert_eq!(agreed.markers_out, flags & M != 0);
                        assert!(agreed.crc);
                    }
                    Err(MpaError::Revision(r)) => assert!(r == revision && !fits && !rejected),
                    other => panic!("{other:?}"),
                }
            }
        }
    }
    let no_block = enhanced.handle_reply(&reply(S, 2, &[0; 3]));
    assert_eq!(no_block, Err(MpaError::Start(StartError::NoBlock)));
    let request = enhanced.request();
    assert_eq!(enhanced.handle_reply(&request), Err(MpaError::Start(StartError::Key)));
}

#[test]
fn without_blocks_each_end_keeps_its_own_depths() {
    let initiator = Initiator::new(MpaOffer { enhanced: false, ..MpaOffer::new(16, 5) }).unwrap();
    let agreed = accepted(&initiator, &reply(C, 1, b""));
    assert_eq!((agreed.ird, agreed.ord), (16, 5));
    let (_, agreed) = respond(&initiator.request(), &MpaOffer::new(8, 3));
    assert_eq!((agreed.ird, agreed.ord), (8, 3));
}

#[test]
fn crc_of_the_reply_counts_when_we_did_not_ask() {
    let initiator = Initiator::new(MpaOffer { crc: false, ..MpaOffer::new(1, 1) }).unwrap();
    for crc in BOOLS {
        let bytes = reply(S | if crc { C } else { 0 }, 2, &block(2, 1, 2, 1));
        assert_eq!(accepted(&initiator, &bytes).crc, crc);
    }
}

/// Replies of Linux siw 6.1 to requests like ours.
#[test]
fn replies_of_siw() {
    let initiator = Initiator::new(MpaOffer::new(16, 16)).unwrap();
    let agreed = accepted(&initiator, &reply(0x50, 2, &[0x80, 16, 0x80, 16]));
    assert_eq!((agreed.crc, agreed.rtr), (true, Some(Rtr::Write)));
    assert_eq!((agreed.ird, agreed.ord), (16, 16));
    // It refuses a block that it finds too short with a frame that announces one and has none.
    let refusal = MpaReply::Rejected { private_data: Vec::new(), peer_ird: None, peer_ord: None };
    assert_eq!(initiator.handle_reply(&reply(0x30, 2, &[])), Ok(refusal.clone()));
    // It refuses markers without the announcement.
    assert_eq!(initiator.handle_reply(&reply(0x60, 1, &[])), Ok(refusal));
    // A block is looked for only where it is announced and the revision knows of it.
    let whole = |words: &[u8]| MpaReply::Rejected {
        private_data: words.to_vec(),
        peer_ird: None,
        peer_ord: None,
    };
    for (flags, revision) in [(R | S, 1), (R, 2)] {
        let refused = initiator.handle_reply(&reply(flags, revision, b"words"));
        assert_eq!(refused, Ok(whole(b"words")), "{revision}");
    }
    // Reserved flags come back from it.
    accepted(&initiator, &reply(0x5f, 2, &[0x80, 16, 0x80, 16]));
}

#[test]
fn siw_gets_an_inbound_depth_that_it_cannot_round_up() {
    let asks = |offer| Initiator::new(offer).unwrap().request()[20..].to_vec();
    assert_eq!(asks(MpaOffer::new(3, 3)), block(2, 4, 3, 3));
    // No depth is none; the largest has a meaning of its own, so no end asks for it.
    assert_eq!(asks(MpaOffer::new(0, 0)), block(2, 0, 3, 1));
    assert_eq!(asks(MpaOffer::new(1, u16::MAX)), block(2, 1, 3, 0x3ffe));
    let (bytes, agreed) = respond(&request(S, 2, &block(0, 3, 0, 5)), &MpaOffer::new(3, 3));
    assert_eq!((&bytes[20..], agreed.ird), (&block(0, 8, 0, 3)[..], 8));
}

#[test]
fn a_request_whose_length_siw_wrapped_is_read_in_full() {
    for user in 252..256 {
        let mut private_data = block(0, 3, 0, 5).to_vec();
        private_data.extend((0..user).map(|i| i as u8));
        let mut bytes = request(S, 2, &private_data);
        bytes[18] = 0;
        let header = bytes.first_chunk().unwrap();
        assert_eq!(frame_len(header, StartKind::Request), Ok(bytes.len()));
        let responder = Responder::handle_request(&bytes).unwrap();
        assert_eq!(responder.private_data(), &private_data[4..]);
        assert_eq!((responder.ird(), responder.ord()), (Some(3), Some(5)));
    }
}

#[test]
fn private_data_has_a_limit() {
    let offer = |len| MpaOffer { private_data: vec![1; len], ..MpaOffer::new(1, 1) };
    let initiator = Initiator::new(offer(MAX_PRIVATE_DATA)).unwrap();
    let responder = Responder::handle_request(&initiator.request()).unwrap();
    assert_eq!(responder.private_data().len(), 251);
    let too_long = Some(MpaError::PrivateDataTooLong(252));
    assert_eq!(Initiator::new(offer(252)).err(), too_long);
    assert_eq!(responder.reject(&[1; 252]).err(), too_long);
    assert_eq!(responder.accept(&offer(252)).err(), too_long);
    // A peer may use all that the RFC gives.
    let all = Responder::handle_request(&request(C, 1, &[7; 512])).unwrap();
    assert_eq!(all.private_data(), [7; 512]);
}

#[test]
fn a_refusal_has_the_form_of_its_request() {
    for (bytes, refusal) in [
        (request(C, 1, b"x"), reply(C | R, 1, b"no")),
        (request(0, 2, b"x"), reply(R, 2, b"no")),
        (request(S, 2, &block(3, 5, 3, 7)), {
            let mut private_data = block(2, 7, 2, 5).to_vec();
            private_data.extend(b"no");
            reply(S | R, 2, &private_data)
        }),
    ] {
        assert_eq!(Responder::handle_request(&bytes).unwrap().reject(b"no"), Ok(refusal));
    }
}

#[test]
fn every_cut_of_a_request_is_malformed() {
    let bytes = Initiator::new(MpaOffer::new(1, 1)).unwrap().request();
    for len in 0..bytes.len() {
        let cut = Responder::handle_request(&bytes[..len]);
        assert_eq!(cut.err(), Some(MpaError::Start(StartError::Length(len))));
    }
}
