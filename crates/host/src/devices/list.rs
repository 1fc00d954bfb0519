//! The list in `WEFT_DEVICES`: items with commas between them, of which each is a number of channel
//! adapters or a device, `NAME[:TRANSPORT][=ADDRESS[+ADDRESS]...]`.

use std::net::IpAddr;

use super::is_name;
use crate::device_kind::{DEVICES_MAX, DeviceId, DeviceKind};

/// Complaints about one list at most.
const COMPLAINTS_MAX: usize = 8;
/// Characters of an item that a complaint repeats at most.
const REPEATED_MAX: usize = 80;

/// A device that the list names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListItem {
    /// Its name.
    pub name: String,
    /// Its kind, by the name or the transport.
    pub kind: DeviceKind,
    /// Its number among its kind, where the name says it.
    pub index: Option<usize>,
    /// The addresses that it is given.
    pub addresses: Vec<IpAddr>,
}

/// The devices of `list`, and what in it has no meaning. `usual` has the names of the devices that
/// there can be without a transport, by slot.
pub fn parse(list: &str, usual: &[String]) -> (Vec<ListItem>, Vec<String>) {
    let (mut items, mut complaints) = (Vec::new(), Vec::new());
    for item in list.split(',').map(str::trim).filter(|item| !item.is_empty()) {
        match parse_item(item, usual) {
            Ok(some) => items.extend(some),
            Err(complaint) if complaints.len() < COMPLAINTS_MAX => {
                complaints.push(format!("WEFT_DEVICES: {complaint}"));
            }
            Err(_) => {}
        }
    }
    (items, complaints)
}

fn parse_item(item: &str, usual: &[String]) -> Result<Vec<ListItem>, String> {
    if item.bytes().all(|c| c.is_ascii_digit()) {
        return count(item, usual);
    }
    let (device, addresses) = match item.split_once('=') {
        Some((device, addresses)) => (device.trim(), Some(addresses)),
        None => (item, None),
    };
    let (name, transport) = match device.split_once(':') {
        Some((name, transport)) => (name, Some(transport)),
        None => (device, None),
    };
    if !is_name(name) {
        return Err(format!(
            "{} is no name of a device: up to 63 letters, digits, _, - and .",
            shown(name)
        ));
    }
    let known = usual.iter().position(|usual| usual == name).map(DeviceId::of_slot);
    let kind = match (transport, known) {
        (None, Some(id)) => id.kind,
        (None, None) => return Err(unknown(name, usual)),
        (Some("shuttle"), _) => DeviceKind::Roce,
        (Some("iwarp"), _) => DeviceKind::Iwarp,
        (Some(other), _) => {
            return Err(format!("{} is no transport of {name}: shuttle or iwarp is", shown(other)));
        }
    };
    let index = known.filter(|id| id.kind == kind).map(DeviceId::index);
    let addresses = addresses.map_or(Ok(Vec::new()), |list| parse_addresses(name, list))?;
    Ok(vec![ListItem { name: name.to_owned(), kind, index, addresses }])
}

/// So many channel adapters.
fn count(digits: &str, usual: &[String]) -> Result<Vec<ListItem>, String> {
    match digits.parse() {
        Ok(number @ 1..=DEVICES_MAX) => {
            let of = |index| DeviceId::new(DeviceKind::Roce, index);
            let item = |index: usize| {
                let name = usual.get(of(index).slot()).cloned().unwrap_or_default();
                let (kind, index) = (DeviceKind::Roce, Some(index));
                ListItem { name, kind, index, addresses: Vec::new() }
            };
            Ok((0..number).map(item).collect())
        }
        _ => Err(format!("{} is no number of devices from 1 to {DEVICES_MAX}", shown(digits))),
    }
}

fn parse_addresses(name: &str, list: &str) -> Result<Vec<IpAddr>, String> {
    let mut addresses = Vec::new();
    for text in list.split('+').map(str::trim) {
        match text.parse::<IpAddr>().map(|address| address.to_canonical()) {
            Ok(address) if !address.is_unspecified() && !address.is_multicast() => {
                if !addresses.contains(&address) {
                    addresses.push(address);
                }
            }
            _ => {
                return Err(format!(
                    "{} is no IP address for {name}: write {name}=ADDRESS, or + between several",
                    shown(text)
                ));
            }
        }
    }
    Ok(addresses)
}

fn unknown(name: &str, usual: &[String]) -> String {
    let named = |slot: usize| usual.get(slot).map_or("", String::as_str);
    format!(
        "no device is named {name}; there are {} and {} up to {} and {}, and {name}:shuttle makes \
         one",
        named(0),
        named(1),
        named(DeviceId::SLOTS - 2),
        named(DeviceId::SLOTS - 1)
    )
}

/// What is repeated of a list: printable, and not too long.
fn shown(text: &str) -> String {
    let mut shown: String = text.chars().take(REPEATED_MAX).flat_map(char::escape_debug).collect();
    if text.chars().count() > REPEATED_MAX {
        shown.push_str("...");
    }
    if shown.is_empty() { "nothing".to_owned() } else { shown }
}
