//! The devices of a host: their names, which of them applications see, and whose addresses they
//! have.
//!
//! [`list`] reads `WEFT_DEVICES`.

mod list;

use std::net::IpAddr;

use self::list::ListItem;
use crate::CmTransport;
use crate::device_kind::{DEVICES_MAX, DeviceId, DeviceKind};

/// What names of iWARP devices begin with; a number follows.
const IWARP_SERIES: &str = "weft_iw";
/// The name of the first channel adapter, unless `WEFT_DEV` gives it another one.
const ADAPTER_NAME: &str = "weft0";

/// Longest name of a device in bytes: `IBV_SYSFS_NAME_MAX` less the NUL.
const NAME_MAX: usize = 63;

/// The devices of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Devices {
    /// Those that are visible, adapters before RNICs.
    shown: Vec<ShownDevice>,
    visible: Vec<DeviceId>,
    /// The name of each device that nobody has named, by its slot.
    usual_names: Vec<String>,
    complaints: Vec<String>,
}

/// A device that applications see.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ShownDevice {
    id: DeviceId,
    name: String,
    /// Its addresses; if there are none it has those that no device of its kind is given.
    addresses: Vec<IpAddr>,
}

impl Devices {
    /// The devices, by `WEFT_DEV` and `WEFT_DEVICES`.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Self {
        let mut complaints = Vec::new();
        let adapter_name = match variable("WEFT_DEV") {
            Some(name) if is_name(&name) && number_in(IWARP_SERIES, &name).is_none() => name,
            Some(name) => {
                complaints.push(format!("WEFT_DEV={name} is not a free device name; ignored"));
                ADAPTER_NAME.into()
            }
            None => ADAPTER_NAME.into(),
        };
        let mut devices = Self {
            shown: Vec::new(),
            visible: Vec::new(),
            usual_names: usual_names(&adapter_name),
            complaints,
        };
        match variable("WEFT_DEVICES").filter(|list| !list.trim().is_empty()) {
            Some(list) => devices.show_only(&list),
            None => {
                for kind in [DeviceKind::Roce, DeviceKind::Iwarp] {
                    devices.show(kind.into(), None);
                }
            }
        }
        devices.shown.sort_by_key(|device| device.id.kind == DeviceKind::Iwarp);
        devices.visible = devices.shown.iter().map(|device| device.id).collect();
        devices.check_transport(variable("WEFT_TRANSPORT").as_deref());
        devices
    }

    fn check_transport(&mut self, wanted: Option<&str>) {
        let (hidden, transport) = match wanted {
            Some("iwarp") => (DeviceKind::Iwarp, CmTransport::Iwarp),
            Some("shuttle") => (DeviceKind::Roce, CmTransport::Shuttle),
            _ => return,
        };
        if let Some(first) = self.shown.first()
            && self.transport(transport) != transport
        {
            let complaint = format!(
                "WEFT_TRANSPORT={} needs {}, which WEFT_DEVICES hides; rdma-cm uses {}",
                wanted.unwrap_or_default(),
                self.name(hidden),
                first.name
            );
            self.complaints.push(complaint);
        }
    }

    fn show_only(&mut self, list: &str) {
        let (items, complaints) = list::parse(list, &self.usual_names);
        self.complaints.extend(complaints);
        // Numbers of a series are what the names say; others take what is left.
        let (series, named): (Vec<_>, Vec<_>) =
            items.into_iter().partition(|item| item.index.is_some());
        for item in series.into_iter().chain(named) {
            if let Err(complaint) = self.add(item) {
                self.complaints.push(format!("WEFT_DEVICES: {complaint}"));
            }
        }
        if self.shown.is_empty() {
            self.complaints.push("WEFT_DEVICES leaves no device".into());
        }
    }

    fn add(&mut self, item: ListItem) -> Result<(), String> {
        let ListItem { name, kind, index, addresses } = item;
        let known = self.shown.iter().find(|device| device.name == name).map(|device| device.id);
        if known.is_some_and(|id| id.kind != kind) {
            return Err(format!("two devices are named {name}"));
        }
        let taken = |index: &usize| self.shown.iter().any(|d| d.id == DeviceId::new(kind, *index));
        let free = || index.or_else(|| (0..DEVICES_MAX).find(|index| !taken(index)));
        let id = match known {
            Some(id) => id,
            None => DeviceId::new(kind, free().ok_or_else(|| too_many(&name))?),
        };
        for address in &addresses {
            let mut others = self.shown.iter().filter(|d| d.id.kind == kind && d.id != id);
            if let Some(other) = others.find(|device| device.addresses.contains(address)) {
                return Err(format!("{address} is given to {} and to {name}", other.name));
            }
        }
        self.show(id, Some(name)).addresses.extend(addresses);
        Ok(())
    }

    /// The device, which is visible from now on.
    fn show(&mut self, id: DeviceId, name: Option<String>) -> &mut ShownDevice {
        let at = self.shown.iter().position(|device| device.id == id).unwrap_or_else(|| {
            let name = name.unwrap_or_else(|| self.usual_name(id).to_owned());
            self.shown.push(ShownDevice { id, name, addresses: Vec::new() });
            self.shown.len() - 1
        });
        &mut self.shown[at]
    }

    fn usual_name(&self, id: DeviceId) -> &str {
        self.usual_names.get(id.slot()).map_or(ADAPTER_NAME, String::as_str)
    }

    fn of(&self, id: DeviceId) -> Option<&ShownDevice> {
        self.shown.iter().find(|device| device.id == id)
    }

    /// The devices that are to be seen, in the order of the list, of which applications take the
    /// first that serves them.
    pub fn visible(&self) -> &[DeviceId] {
        &self.visible
    }

    /// Those, and the first of each kind of which none is to be seen: what a process can have used.
    pub fn used(&self) -> Vec<DeviceId> {
        let mut used = self.visible.clone();
        for kind in [DeviceKind::Roce, DeviceKind::Iwarp] {
            if self.first(kind).is_none() {
                used.push(kind.into());
            }
        }
        used
    }

    /// The first device of a kind that is to be seen.
    pub fn first(&self, kind: DeviceKind) -> Option<DeviceId> {
        self.visible.iter().copied().find(|device| device.kind == kind)
    }

    /// The name of a device, visible or not.
    pub fn name(&self, device: impl Into<DeviceId>) -> &str {
        let id = device.into();
        self.of(id).map_or_else(|| self.usual_name(id), |device| &device.name)
    }

    /// The addresses that a device was given. Without any it has those that no device of its kind
    /// was given.
    pub fn addresses(&self, id: DeviceId) -> &[IpAddr] {
        self.of(id).map_or(&[], |device| &device.addresses)
    }

    /// Whether a visible device has an address of this host.
    pub fn serves(&self, id: DeviceId, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let given = |device: &&ShownDevice| device.addresses.contains(&address);
        let mut of_kind = self.shown.iter().filter(|device| device.id.kind == id.kind);
        match self.of(id) {
            None => false,
            Some(device) if device.addresses.is_empty() => !of_kind.any(|other| given(&other)),
            Some(device) => given(&device),
        }
    }

    /// The device of a kind that has a local address: the first where several have it, and for
    /// loopback's addresses also where none has.
    pub fn at(&self, kind: DeviceKind, address: IpAddr) -> Option<DeviceId> {
        let mut of_kind = self.visible.iter().copied().filter(|device| device.kind == kind);
        let open = address.to_canonical().is_loopback() || address.is_unspecified();
        let first = self.first(kind).filter(|_| open);
        of_kind.find(|device| self.serves(*device, address)).or(first)
    }

    /// What in the environment has no meaning, in words for the user.
    pub fn complaints(&self) -> &[String] {
        &self.complaints
    }

    /// The transport of rdma-cm where `wanted` is asked for: that of a device which is visible.
    pub(crate) fn transport(&self, wanted: CmTransport) -> CmTransport {
        match [DeviceKind::Roce, DeviceKind::Iwarp].map(|kind| self.first(kind).is_some()) {
            [true, false] => CmTransport::Shuttle,
            [false, true] => CmTransport::Iwarp,
            _ => wanted,
        }
    }

    /// Of the transports that may be used, those that a device with this local address has; none
    /// if there is no such device.
    pub fn transport_at(&self, wanted: CmTransport, address: IpAddr) -> Option<CmTransport> {
        let by = |kind| self.at(kind, address).is_some();
        match (wanted, by(DeviceKind::Roce), by(DeviceKind::Iwarp)) {
            (CmTransport::Auto, true, true) => Some(CmTransport::Auto),
            (CmTransport::Auto, true, false) => Some(CmTransport::Shuttle),
            (CmTransport::Auto, false, true) => Some(CmTransport::Iwarp),
            (CmTransport::Auto, false, false) => None,
            (CmTransport::Shuttle, ..) => self.permits(DeviceKind::Roce, address).then_some(wanted),
            (CmTransport::Iwarp, ..) => self.permits(DeviceKind::Iwarp, address).then_some(wanted),
        }
    }

    /// Whether connections of a device of this kind may begin or end at a local address. Who asks
    /// for a kind that applications do not see is not one of them, and is served.
    pub fn permits(&self, kind: DeviceKind, address: IpAddr) -> bool {
        self.first(kind).is_none() || self.at(kind, address).is_some()
    }
}

/// The names of all devices that there can be, by slot. Adapters count on from the number at the
/// end of the first one's name.
fn usual_names(adapter: &str) -> Vec<String> {
    let series = adapter.trim_end_matches(|c: char| c.is_ascii_digit());
    let first: Option<u32> = adapter[series.len()..].parse().ok();
    let adapter_name = |index: usize| match (index, first) {
        (0, _) => adapter.to_owned(),
        (_, first) => format!("{series}{}", first.unwrap_or(0).saturating_add(index as u32)),
    };
    (0..DEVICES_MAX).flat_map(|i| [adapter_name(i), format!("{IWARP_SERIES}{i}")]).collect()
}

fn number_in(series: &str, name: &str) -> Option<usize> {
    name.strip_prefix(series)?.parse().ok()
}

fn too_many(name: &str) -> String {
    format!("{name} is one device too many; there are at most {DEVICES_MAX} of a transport")
}

fn is_name(name: &str) -> bool {
    let plain = |c: u8| c.is_ascii_alphanumeric() || b"_-.".contains(&c);
    // The name is that of a directory in sysfs.
    let is_entry = name != "." && name != "..";
    (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(plain) && is_entry
}

#[cfg(test)]
mod tests;
