//! The byte-exact vectors and who decides them: `vectors.json` holds name, octets and the fields
//! they mean; here are the names that layers above the headers answer for.
#![allow(dead_code, reason = "each test that includes this uses a part of it")]

use serde_json::Value;

/// Vectors that need MPA's framing or negotiation; tested with that crate.
pub const MPA: [&str; 10] = [
    "marker_send_rfc5044_fig5",
    "marker_write_1000",
    "marker_between_pad_and_crc",
    "marker_none_ends_on_boundary",
    "marker_between_fpdus",
    "marker_send_rfc5044_fig6",
    "send_nocrc",
    "neg_bad_crc",
    "neg_mpa_req_bad_key",
    "neg_mpa_req_rev2_short",
];

/// Vectors whose refusal needs registered memory or the state of queues; tested with RDMAP.
pub const RDMAP: [&str; 4] =
    ["neg_write_to_wrap", "neg_send_bad_msn", "neg_send_bad_mo", "neg_atomic_unaligned"];

/// One vector.
pub struct Vector {
    pub name: String,
    pub octets: Vec<u8>,
    pub fields: Vec<(String, Value)>,
}

impl Vector {
    /// The expected field `key` as a number.
    pub fn number(&self, key: &str) -> Option<u64> {
        self.fields.iter().find(|(k, _)| k == key).map(|(_, value)| number(value))
    }

    /// The ULPDU of an FPDU without markers.
    pub fn ulpdu(&self) -> &[u8] {
        let len = usize::from(u16::from_be_bytes([self.octets[0], self.octets[1]]));
        &self.octets[2..2 + len]
    }
}

/// All vectors.
pub fn load() -> Vec<Vector> {
    let all: Vec<Value> = serde_json::from_str(include_str!("../vectors.json")).unwrap();
    all.iter()
        .map(|vector| {
            let octets = from_hex(vector["hex"].as_str().unwrap());
            assert_eq!(octets.len() as u64, vector["length"].as_u64().unwrap());
            let fields = vector["fields"].as_object().unwrap().clone().into_iter().collect();
            Vector { name: vector["name"].as_str().unwrap().to_owned(), octets, fields }
        })
        .collect()
}

/// The vector called `name`.
pub fn find(name: &str) -> Vector {
    load().into_iter().find(|vector| vector.name == name).unwrap()
}

/// The number that a field means: a number, hexadecimal, the number in `Name(3)`, or all ones.
pub fn number(value: &Value) -> u64 {
    let Value::String(text) = value else { return value.as_u64().unwrap() };
    if text.starts_with("all ones") {
        return u64::MAX;
    }
    let (digits, radix) = if let Some((_, hex)) = text.split_once("0x") {
        (hex, 16)
    } else if text.starts_with(|c: char| c.is_ascii_digit()) {
        (text.as_str(), 10)
    } else {
        (text.split_once('(').unwrap().1, 10)
    };
    let end = digits.find(|c: char| !c.is_digit(radix)).unwrap_or(digits.len());
    u64::from_str_radix(&digits[..end], radix).unwrap_or_else(|_| panic!("number {text:?}"))
}

/// The octets that a field describes: quoted text, `24x00`, `00..3f`, `(empty)`, or hexadecimal.
pub fn octets(value: &Value) -> Vec<u8> {
    let text = value.as_str().unwrap().trim_start_matches("bytes ");
    if text == "(empty)" {
        Vec::new()
    } else if text.starts_with("i mod 256") {
        let last: u32 = text.rsplit('.').next().unwrap().parse().unwrap();
        (0..=last).map(|i| i as u8).collect()
    } else if let Some(quoted) = text.strip_prefix('"') {
        quoted.trim_end_matches('"').into()
    } else if let Some((count, octet)) = text.split_once('x') {
        vec![from_hex(octet)[0]; count.parse().unwrap()]
    } else if let Some((first, last)) = text.split_once("..") {
        (from_hex(first)[0]..=from_hex(last)[0]).collect()
    } else {
        from_hex(text)
    }
}

fn from_hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}
