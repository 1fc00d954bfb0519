//! `weft info`: the functions of each device, and who does them.
//!
//! The layers state it themselves ([`weft_host::capability`]); this only sets it out, for the
//! devices that `WEFT_DEVICES` leaves.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::IpAddr;

use serde::Serialize;
use weft_host::capability::{Capabilities, capabilities};
use weft_host::{DeviceId, DeviceKind, Devices, Host};
use weft_net::secrecy::read_key;

use crate::args::Info;
use crate::variables;

/// A layer, as a program reads it.
#[derive(Serialize)]
struct Layer {
    device: String,
    /// The addresses that it was given by `WEFT_DEVICES`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    addresses: Vec<IpAddr>,
    layer: &'static str,
    components: BTreeMap<&'static str, LayerFunction>,
}

/// Function and who does it.
#[derive(Serialize)]
struct LayerFunction {
    by: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    how: &'static str,
}

/// Prints all layers on stdout.
///
/// # Errors
/// The key cannot be used, or stdout cannot be written.
pub fn main(options: &Info) -> anyhow::Result<()> {
    let all: Vec<_> = std::env::vars_os().collect();
    for warning in variables::warnings(&all) {
        // Without a stderr there is nobody to tell.
        let _ = writeln!(std::io::stderr(), "weft: warning: {}", warning.text);
    }
    if let Some(value) = std::env::var_os("WEFT_KEY").filter(|value| !value.is_empty()) {
        read_key(&value)?;
    }
    let host = Host::from_environment();
    let devices = host.devices();
    for complaint in devices.complaints() {
        // Without a stderr there is nobody to tell.
        let _ = writeln!(std::io::stderr(), "weft: {complaint}");
    }
    let mut layers = capabilities(&host);
    layers.retain(|(kind, _)| devices.first(*kind).is_some());
    let text = if options.json {
        to_json(host.devices(), &layers)?
    } else {
        to_text(host.devices(), &layers)
    };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

fn to_json(devices: &Devices, layers: &[(DeviceKind, Capabilities)]) -> anyhow::Result<String> {
    let of = |id: DeviceId, capabilities: &Capabilities| Layer {
        device: devices.name(id).to_owned(),
        addresses: devices.addresses(id).to_vec(),
        layer: capabilities.layer(),
        components: capabilities
            .iter()
            .map(|(component, by)| {
                (component.name(), LayerFunction { by: by.who(), how: by.how() })
            })
            .collect(),
    };
    let layers: Vec<_> = layers
        .iter()
        .flat_map(|(kind, layer)| shown(devices, *kind).map(move |id| of(id, layer)))
        .collect();
    Ok(serde_json::to_string_pretty(&layers)? + "\n")
}

/// The devices of a kind that are to be seen.
fn shown(devices: &Devices, kind: DeviceKind) -> impl Iterator<Item = DeviceId> {
    devices.visible().iter().copied().filter(move |device| device.kind == kind)
}

/// A device, and the addresses that it was given.
fn heading(devices: &Devices, id: DeviceId) -> String {
    let addresses: Vec<String> = devices.addresses(id).iter().map(IpAddr::to_string).collect();
    match addresses.is_empty() {
        true => devices.name(id).to_owned(),
        false => format!("{}={}", devices.name(id), addresses.join("+")),
    }
}

/// A heading for each layer with the devices that have it, and a line for each component.
fn to_text(devices: &Devices, layers: &[(DeviceKind, Capabilities)]) -> String {
    let mut text = String::new();
    for (kind, capabilities) in layers {
        let gap = if text.is_empty() { "" } else { "\n" };
        let names: Vec<String> = shown(devices, *kind).map(|id| heading(devices, id)).collect();
        let _ = writeln!(text, "{gap}{}, {}", names.join(" "), capabilities.layer());
        for (component, by) in capabilities.iter() {
            let line = format!("  {:<16}{:<8}{}", component.name(), by.who(), by.how());
            let _ = writeln!(text, "{}", line.trim_end());
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_layer_says_all_eight() {
        let host = Host::from_environment();
        let layers = capabilities(&host);
        let text = to_text(host.devices(), &layers);
        assert_eq!(text.lines().filter(|line| line.starts_with("  ")).count(), 5 * 8);
        let json: serde_json::Value =
            serde_json::from_str(&to_json(host.devices(), &layers).unwrap()).unwrap();
        assert_eq!(json.as_array().unwrap().len(), 5);
        assert_eq!(json[2]["device"], "weft_iw0");
        assert_eq!(json[2]["components"]["ordering"]["by"], "kernel");
    }
}
