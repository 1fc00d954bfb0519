//! The names of the devices, and which of them this process is to see.

use crate::CmTransport;
use crate::device_kind::DeviceKind;

/// The name of the iWARP device.
pub const IWARP_NAME: &str = "weft_iw0";
/// The name of the channel adapter, unless `WEFT_DEV` gives it another one.
const ADAPTER_NAME: &str = "weft0";

/// Longest name of a device in bytes: `IBV_SYSFS_NAME_MAX` less the NUL.
const NAME_MAX: usize = 63;

/// The devices of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Devices {
    adapter_name: String,
    visible: Vec<DeviceKind>,
    complaints: Vec<String>,
}

impl Devices {
    /// The devices, by `WEFT_DEV` and `WEFT_DEVICES`.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Self {
        let mut complaints = Vec::new();
        let adapter_name = match variable("WEFT_DEV") {
            Some(name) if is_name(&name) && name != IWARP_NAME => name,
            Some(_) => {
                complaints.push("WEFT_DEV is not a free device name; ignored".into());
                ADAPTER_NAME.into()
            }
            None => ADAPTER_NAME.into(),
        };
        let mut devices = Self { adapter_name, visible: ORDER.to_vec(), complaints };
        match variable("WEFT_DEVICES") {
            Some(list) if !list.trim().is_empty() => devices.show_only(&list),
            _ => {}
        }
        let transport = variable("WEFT_TRANSPORT");
        if let ([only], Some(wanted)) = (&devices.visible[..], transport.as_deref()) {
            let hidden = match (only, wanted) {
                (DeviceKind::Roce, "iwarp") => IWARP_NAME,
                (DeviceKind::Iwarp, "shuttle") => &devices.adapter_name,
                _ => return devices,
            };
            let complaint = format!(
                "WEFT_TRANSPORT={wanted} needs {hidden}, which WEFT_DEVICES hides; rdma-cm uses {}",
                devices.name(*only)
            );
            devices.complaints.push(complaint);
        }
        devices
    }

    fn show_only(&mut self, list: &str) {
        let names: Vec<&str> =
            list.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
        for name in &names {
            if ORDER.iter().all(|device| self.name(*device) != *name) {
                let known = ORDER.map(|device| self.name(device)).join(" and ");
                let complaint =
                    format!("WEFT_DEVICES: no device is named {name}; there are {known}");
                self.complaints.push(complaint);
            }
        }
        let visible = ORDER.into_iter().filter(|device| names.contains(&self.name(*device)));
        self.visible = visible.collect();
        if self.visible.is_empty() {
            self.complaints.push("WEFT_DEVICES leaves no device".into());
        }
    }

    /// The devices that are to be seen, in the order of the list, of which applications take the
    /// first that serves them.
    pub fn visible(&self) -> &[DeviceKind] {
        &self.visible
    }

    /// The name of a device, visible or not.
    pub fn name(&self, device: DeviceKind) -> &str {
        match device {
            DeviceKind::Iwarp => IWARP_NAME,
            DeviceKind::Roce => &self.adapter_name,
        }
    }

    /// What in the environment has no meaning, in words for the user.
    pub fn complaints(&self) -> &[String] {
        &self.complaints
    }

    /// The transport of rdma-cm where `wanted` is asked for: that of a device which is visible.
    pub(crate) fn transport(&self, wanted: CmTransport) -> CmTransport {
        match self.visible[..] {
            [DeviceKind::Roce] => CmTransport::Shuttle,
            [DeviceKind::Iwarp] => CmTransport::Iwarp,
            _ => wanted,
        }
    }
}

/// All devices, in the order of the list.
const ORDER: [DeviceKind; 2] = [DeviceKind::Roce, DeviceKind::Iwarp];

fn is_name(name: &str) -> bool {
    let plain = |c: u8| c.is_ascii_alphanumeric() || b"_-.".contains(&c);
    (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(set: &[(&str, &str)]) -> Devices {
        Devices::read(|name| {
            let found = set.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn both_are_visible_unless_the_list_says_otherwise() {
        for set in [&[][..], &[("WEFT_DEVICES", "")], &[("WEFT_DEVICES", "weft_iw0, weft0")]] {
            let devices = read(set);
            assert_eq!(devices.visible(), ORDER);
            assert!(devices.complaints().is_empty());
            assert_eq!(devices.transport(CmTransport::Auto), CmTransport::Auto);
        }
    }

    #[test]
    fn a_list_hides_the_other_device_and_its_transport() {
        let one = read(&[("WEFT_DEVICES", "weft0")]);
        assert_eq!(one.visible(), [DeviceKind::Roce]);
        assert_eq!(one.transport(CmTransport::Auto), CmTransport::Shuttle);
        let one = read(&[("WEFT_DEVICES", "weft_iw0"), ("WEFT_TRANSPORT", "shuttle")]);
        assert_eq!(one.visible(), [DeviceKind::Iwarp]);
        assert_eq!(one.transport(CmTransport::Shuttle), CmTransport::Iwarp);
        assert!(one.complaints()[0].contains("weft0, which WEFT_DEVICES hides"));
        let named = read(&[("WEFT_DEVICES", "mlx5_7"), ("WEFT_DEV", "mlx5_7")]);
        assert_eq!(named.visible(), [DeviceKind::Roce]);
    }

    #[test]
    fn an_unknown_name_is_said_and_hides_nothing_by_itself() {
        let some = read(&[("WEFT_DEVICES", "weft0,mlx5_0")]);
        assert_eq!(some.visible(), [DeviceKind::Roce]);
        assert_eq!(some.complaints().len(), 1);
        assert!(some.complaints()[0].contains("mlx5_0; there are weft0 and weft_iw0"));
        let none = read(&[("WEFT_DEVICES", "mlx5_0")]);
        assert!(none.visible().is_empty());
        assert_eq!(none.complaints().len(), 2);
    }

    #[test]
    fn device_names_are_short_and_plain() {
        assert_eq!(read(&[("WEFT_DEV", "siw0")]).name(DeviceKind::Roce), "siw0");
        for bad in ["", "a/b", "a b", "weft_iw0", &"x".repeat(64)] {
            let devices = read(&[("WEFT_DEV", bad)]);
            assert_eq!(devices.name(DeviceKind::Roce), "weft0", "{bad}");
            assert_eq!(devices.complaints().len(), 1, "{bad}");
        }
    }
}
