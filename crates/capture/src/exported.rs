//! Packets of Shuttle as they are, for the dissector `weft.shuttle` of `shuttle.lua`: behind
//! tags that name it and the addresses (Wireshark's `wsutil/exported_pdu_tlvs.h`).

use std::net::IpAddr;

use crate::ip::PacketPath;

const DISSECTOR: u16 = 12;
const IPV4_FROM: u16 = 20;
const IPV4_TO: u16 = 21;
const IPV6_FROM: u16 = 22;
const IPV6_TO: u16 = 23;
const PORT_KIND: u16 = 24;
const PORT_FROM: u16 = 25;
const PORT_TO: u16 = 26;
const END: u16 = 0;

/// The ports are UDP's.
const UDP: u32 = 3;

/// The name of the dissector.
pub(crate) const SHUTTLE: &str = "weft.shuttle";

/// `packet` behind the tags.
pub(crate) fn exported(path: PacketPath, packet: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(packet.len() + 96);
    put_tag(&mut out, DISSECTOR, SHUTTLE.as_bytes());
    put_address(&mut out, path.from.ip(), (IPV4_FROM, IPV6_FROM));
    put_address(&mut out, path.to.ip(), (IPV4_TO, IPV6_TO));
    put_tag(&mut out, PORT_KIND, &UDP.to_be_bytes());
    put_tag(&mut out, PORT_FROM, &u32::from(path.from.port()).to_be_bytes());
    put_tag(&mut out, PORT_TO, &u32::from(path.to.port()).to_be_bytes());
    put_tag(&mut out, END, &[]);
    out.extend(packet);
    out
}

fn put_address(out: &mut Vec<u8>, ip: IpAddr, (v4_tag, v6_tag): (u16, u16)) {
    match ip.to_canonical() {
        IpAddr::V4(v4) => put_tag(out, v4_tag, &v4.octets()),
        IpAddr::V6(v6) => put_tag(out, v6_tag, &v6.octets()),
    }
}

/// Tag and length are big-endian; values are padded to four bytes.
fn put_tag(out: &mut Vec<u8>, tag: u16, value: &[u8]) {
    let length = value.len().next_multiple_of(4);
    out.extend(tag.to_be_bytes());
    out.extend((length as u16).to_be_bytes());
    out.extend(value);
    out.resize(out.len() + length - value.len(), 0);
}
