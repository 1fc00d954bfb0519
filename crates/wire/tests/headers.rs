//! Every vector against the headers of this crate, both ways: parsed to the fields it states, and
//! encoded back octet by octet.

mod vectors;

use core::net::{IpAddr, Ipv4Addr};
use std::collections::BTreeMap;

use vectors::{MPA, RDMAP, Vector};
use weft_wire::crc::Crc32c;
use weft_wire::ddp::{DdpError, DdpHeader};
use weft_wire::mpa::{Enhanced, StartError, StartFrame, StartKind};
use weft_wire::rdmap::{
    AtomicRequest, AtomicResponse, ImmediateData, Opcode, ReadRequest, VERSION,
};
use weft_wire::terminate::{Terminate, TerminateCode, TerminatePhase};
use weft_wire::{iwpm, sdp};

/// What a field was parsed to.
enum Field {
    Number(u64),
    Octets(Vec<u8>),
}

#[derive(Default)]
struct Fields(BTreeMap<&'static str, Field>);

impl Fields {
    fn number(&mut self, key: &'static str, value: impl Into<u64>) {
        self.0.insert(key, Field::Number(value.into()));
    }

    fn octets(&mut self, key: &'static str, value: &[u8]) {
        self.0.insert(key, Field::Octets(value.to_vec()));
    }

    /// Compares with every field that the vector states; the framing is MPA's.
    fn check(&self, vector: &Vector) {
        const FRAMING: [&str; 3] = ["ULPDU_Length", "pad", "crc_wire"];
        for (key, expected) in &vector.fields {
            let context = format!("{}: {key}", vector.name);
            match self.0.get(key.as_str()) {
                Some(Field::Number(n)) => assert_eq!(*n, vectors::number(expected), "{context}"),
                Some(Field::Octets(o)) => assert_eq!(*o, vectors::octets(expected), "{context}"),
                None => assert!(FRAMING.contains(&key.as_str()), "{context} is not checked"),
            }
        }
    }
}

#[test]
fn every_vector_is_exercised() {
    let mut seen = 0;
    for vector in vectors::load() {
        let name = vector.name.as_str();
        seen += 1;
        if MPA.contains(&name) {
            continue;
        }
        match name.split('_').next().unwrap() {
            "crc32c" => check_crc(&vector),
            "mpa" => check_start_frame(&vector),
            "sdp" => check_sdp(&vector),
            "iwpm" => check_iwpm(&vector),
            "quirk" => check_siw_terminate(&vector),
            "neg" if name == "neg_mpa_req_pd513" => check_too_much_private_data(&vector),
            "neg" => check_refused(&vector),
            _ => check_segment(&vector),
        }
    }
    assert_eq!(seen, 66);
    let listed = MPA.iter().chain(&RDMAP);
    for name in listed {
        vectors::find(name);
    }
}

fn check_crc(vector: &Vector) {
    let input: Vec<u8> = match vector.name.as_str() {
        "crc32c_32_zero" => vec![0; 32],
        "crc32c_32_ff" => vec![0xff; 32],
        _ => (0..32).collect(),
    };
    assert_eq!(Crc32c::of(&input), *vector.octets, "{}", vector.name);
}

fn check_start_frame(vector: &Vector) {
    let reply = vector.name.contains("_rep_");
    let kind = if reply { StartKind::Reply } else { StartKind::Request };
    let frame = StartFrame::parse(&vector.octets, kind).unwrap();
    let mut fields = Fields::default();
    fields.number("M", frame.markers);
    fields.number("C", frame.crc);
    fields.number("R", frame.reject);
    fields.number("S", frame.enhanced);
    fields.number("Rev", frame.revision);
    fields.number("PD_Length", frame.private_data.len() as u64);
    fields.octets("private", frame.private_data);
    if frame.enhanced {
        let (block, private_data) = Enhanced::split(frame.private_data).unwrap();
        fields.number("A", block.peer_to_peer);
        fields.number("B", block.rtr_send);
        fields.number("C_flag", block.rtr_write);
        fields.number("D_flag", block.rtr_read);
        fields.number("IRD", block.ird);
        fields.number("ORD", block.ord);
        fields.octets("ulp_private", private_data);
        assert_eq!(block.to_bytes(), frame.private_data[..4]);
    }
    fields.check(vector);
    let mut bytes = Vec::new();
    frame.encode(&mut bytes);
    assert_eq!(bytes, vector.octets, "{}", vector.name);
}

fn check_segment(vector: &Vector) {
    let (header, rest) = DdpHeader::parse(vector.ulpdu()).unwrap();
    let opcode = header.opcode().unwrap();
    let mut fields = Fields::default();
    let mut bytes = describe_header(&header, &mut fields);
    describe_message(opcode, rest, &mut fields, &mut bytes);
    fields.number("opcode", opcode as u8);
    fields.check(vector);
    assert_eq!(bytes, vector.ulpdu(), "{}", vector.name);
}

/// Notes the fields of a DDP header and encodes it again.
fn describe_header(header: &DdpHeader, fields: &mut Fields) -> Vec<u8> {
    fields.number("L", header.last());
    fields.number("DV", 1_u8);
    fields.number("RV", VERSION);
    match header {
        DdpHeader::Tagged(tagged) => {
            fields.number("T", true);
            fields.number("STag", tagged.stag.0);
            fields.number("TO", tagged.to);
            tagged.to_bytes().to_vec()
        }
        DdpHeader::Untagged(untagged) => {
            fields.number("T", false);
            fields.number("QN", untagged.qn);
            fields.number("MSN", untagged.msn.0);
            fields.number("MO", untagged.mo);
            fields.number("inval_stag", untagged.ulp);
            untagged.to_bytes().to_vec()
        }
    }
}

/// Notes the fields after the DDP header and encodes them again.
fn describe_message(opcode: Opcode, rest: &[u8], fields: &mut Fields, bytes: &mut Vec<u8>) {
    match opcode {
        Opcode::ReadRequest => {
            let request = ReadRequest::parse(rest).unwrap();
            fields.number("SinkSTag", request.sink_stag.0);
            fields.number("SinkTO", request.sink_to);
            fields.number("RDMARDSZ", request.size);
            fields.number("SrcSTag", request.src_stag.0);
            fields.number("SrcTO", request.src_to);
            bytes.extend(request.to_bytes());
        }
        Opcode::AtomicRequest => {
            let request = AtomicRequest::parse(rest).unwrap();
            fields.number("AOpCode", request.op.unwrap() as u8);
            fields.number("ReqId", request.id);
            fields.number("RemoteSTag", request.stag.0);
            fields.number("RemoteTO", request.to);
            fields.number("AddData", request.data);
            fields.number("SwapData", request.data);
            fields.number("AddMask", request.mask);
            fields.number("SwapMask", request.mask);
            fields.number("CompareData", request.compare);
            fields.number("CompareMask", request.compare_mask);
            bytes.extend(request.to_bytes());
        }
        Opcode::AtomicResponse => {
            let response = AtomicResponse::parse(rest).unwrap();
            fields.number("OriginalReqId", response.id);
            fields.number("OriginalValue", response.value);
            bytes.extend(response.to_bytes());
        }
        Opcode::Immediate | Opcode::ImmediateSolicited => {
            let immediate = ImmediateData::parse(rest).unwrap();
            fields.octets("imm", &immediate.0);
            bytes.extend(immediate.0);
        }
        Opcode::Terminate => describe_terminate(rest, fields, bytes),
        _ => {
            fields.octets("payload", rest);
            bytes.extend(rest);
        }
    }
}

fn describe_terminate(rest: &[u8], fields: &mut Fields, bytes: &mut Vec<u8>) {
    let terminate = Terminate::parse(rest, TerminatePhase::Operation).unwrap();
    let word = terminate.code.to_word();
    fields.number("layer", word >> 12);
    fields.number("etype", word >> 8 & 0xf);
    fields.number("code", word & 0xff);
    fields.number("M", terminate.segment_len.is_some());
    fields.number("D", terminate.ddp.is_some());
    fields.number("R", terminate.rdmap.is_some());
    fields.number("DDP_seg_len", terminate.segment_len.unwrap_or(0));
    fields.octets("terminated_ddp_header", terminate.ddp.as_ref().map_or(&[], |d| d.as_bytes()));
    fields.octets("terminated_rdma_header", terminate.rdmap.as_ref().map_or(&[], |r| &r[..]));
    fields.octets("terminate_control", &rest[..4]);
    terminate.encode(bytes);
}

/// Segments that are well formed but must be refused; what a header alone decides is decided here,
/// the rest has to survive the way there and back.
fn check_refused(vector: &Vector) {
    let parsed = DdpHeader::parse(vector.ulpdu());
    let refusal = |code| assert_eq!(parsed.unwrap().0.opcode(), Err(code), "{}", vector.name);
    match vector.name.as_str() {
        "neg_ddp_version0" => {
            assert_eq!(parsed, Err(DdpError::UntaggedVersion(0)));
            assert_eq!(parsed.unwrap_err().terminate_code(), TerminateCode::UntaggedVersion);
        }
        "neg_fpdu_len_short" => {
            assert_eq!(parsed, Err(DdpError::Short(2)));
            assert_eq!(parsed.unwrap_err().terminate_code(), TerminateCode::LlpFraming);
        }
        "neg_send_bad_qn" => refusal(TerminateCode::UntaggedInvalidQn),
        "neg_rdmap_version0" => refusal(TerminateCode::RdmapVersion),
        "neg_opcode_c" | "neg_send_tagged" => refusal(TerminateCode::RdmapUnexpectedOpcode),
        name => {
            assert!(RDMAP.contains(&name), "{name}");
            let (header, rest) = parsed.unwrap();
            let mut fields = Fields::default();
            let mut bytes = describe_header(&header, &mut fields);
            describe_message(header.opcode().unwrap(), rest, &mut fields, &mut bytes);
            assert_eq!(bytes, vector.ulpdu(), "{name}");
        }
    }
}

fn check_too_much_private_data(vector: &Vector) {
    let parsed = StartFrame::parse(&vector.octets, StartKind::Request);
    assert_eq!(parsed, Err(StartError::TooMuchPrivateData(513)));
}

fn check_siw_terminate(vector: &Vector) {
    let (header, rest) = DdpHeader::parse(vector.ulpdu()).unwrap();
    assert_eq!(header.opcode(), Ok(Opcode::Terminate));
    let terminate = Terminate::parse(rest, TerminatePhase::Operation).unwrap();
    assert_eq!(terminate, Terminate::bare(TerminateCode::LlpCrc));
}

fn check_sdp(vector: &Vector) {
    let (base, message, payload) = sdp::parse(&vector.octets).unwrap();
    let mut fields = Fields::default();
    fields.number("mid", message.id() as u8);
    fields.number("flags", base.flags.0);
    fields.number("bufs", base.bufs);
    fields.number("len", vector.octets.len() as u64);
    fields.number("mseq", base.seq);
    fields.number("mseqack", base.ack);
    fields.number("inline_payload", payload.len() as u64);
    describe_sdp(&message, &mut fields);
    fields.check(vector);
    let mut bytes = Vec::new();
    sdp::encode(&base, &message, payload.len() as u32, &mut bytes);
    bytes.extend(payload);
    assert_eq!(bytes, vector.octets, "{}", vector.name);
}

fn describe_sdp(message: &sdp::SdpMessage, fields: &mut Fields) {
    match *message {
        sdp::SdpMessage::Hello(hello) => {
            fields.number("MajV_MinV", hello.version >> 4);
            fields.number("IPV", hello.ip_version_and_capabilities >> 4);
            fields.number("Cap", hello.ip_version_and_capabilities & 0xf);
            fields.number("MaxAdverts", hello.max_adverts);
            fields.number("DesRemRcvSz", hello.desired_remote_size);
            fields.number("LocalRcvSz", hello.local_size);
            fields.number("LocalPort", hello.local_port);
            fields.octets("src", &hello.src_ip[12..]);
            fields.octets("dst", &hello.dst_ip[12..]);
        }
        sdp::SdpMessage::HelloAck(ack) => {
            fields.number("MajV_MinV", ack.version >> 4);
            fields.number("MaxAdverts", ack.max_adverts);
            fields.number("ActRcvSz", ack.actual_size);
        }
        sdp::SdpMessage::SrcAvail(advert) => {
            fields.number("srcah_len", advert.size);
            fields.number("rkey", advert.rkey);
            fields.number("vaddr", advert.addr);
        }
        sdp::SdpMessage::SinkAvail { advert, non_discards } => {
            fields.number("size", advert.size);
            fields.number("rkey", advert.rkey);
            fields.number("vaddr", advert.addr);
            fields.number("NonDiscards", non_discards);
        }
        sdp::SdpMessage::RdmaRdCompl(octets) => fields.number("bytes", octets),
        sdp::SdpMessage::ModeChange { send_half, mode } => {
            fields.number("S", send_half);
            fields.number("mode", mode as u8);
        }
        _ => {}
    }
}

fn check_iwpm(vector: &Vector) {
    let message = iwpm::IwpmMessage::parse(&vector.octets).unwrap();
    let mut fields = Fields::default();
    fields.number("magic", message.kind as u8);
    fields.number("pmtime", message.time);
    fields.number("mapped_cpport", message.mapped_connecting_port);
    fields.number("apport", message.accepting_port);
    fields.number("cpport", message.connecting_port);
    fields.number("assochandle", message.handle);
    fields.check(vector);
    let connecting = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
    assert_eq!(message.connecting_ip, connecting);
    assert_eq!(message.mapped_connecting_ip, Some(connecting));
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    assert_eq!(bytes, vector.octets);
}
