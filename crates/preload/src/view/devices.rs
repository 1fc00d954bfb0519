//! The files of Weft's devices, as the kernel would lay them out for PCI adapters.
//!
//! Scanners of the topology (hwloc, UCX, NCCL) resolve `/sys/class/infiniband/<device>` and read
//! the NUMA node and the PCI address off the path that they come to, so each device is in the
//! directory of a PCI function: in a domain of its own, where no hardware is.

use std::fmt::Write;
use std::sync::{Arc, Mutex};
use std::{fs, iter};

use weft_host::{DeviceId, DeviceKind, DeviceState};

use super::counters;
use super::tree::{Tree, ViewEntry};
use crate::ibv::device::{guid, name, system_guid, visible};
use crate::ibv::gid;
use crate::ibv::query::{port_attr, version};
use crate::net::{self, NetInterface};
use crate::rdma;
use weft_verbs_abi::IBV_PORT_ACTIVE;

/// The PCI domain of the devices and their vendor, "WF", which nobody has registered.
pub const PCI_DOMAIN: &str = "5746:";

const CLASS: &str = "/sys/class/infiniband";
const VERBS_CLASS: &str = "/sys/class/infiniband_verbs";
const NODES: &str = "/dev/infiniband";
const BUS: &str = "5746:00";
const HOST_BRIDGE: &str = "/sys/devices/pci5746:00";
const PCI_DEVICES: &str = "/sys/bus/pci/devices";
const PCI_BUSES: &str = "/sys/class/pci_bus";

/// Directories of the kernel's own that the devices are listed in. Not all PCI devices are, whose
/// scanners would ask for their configuration space.
#[cfg_attr(test, expect(dead_code, reason = "for the functions that tests do without"))]
pub const SHARED: [&str; 4] = ["/sys/class", "/sys/devices", PCI_BUSES, "/dev"];

/// The numbers that the kernel gives to the nodes of verbs, of which it uses the first few.
const VERBS_MAJOR: u32 = 231;
const VERBS_MINOR: u32 = 250;
/// Miscellaneous devices, and one that has no number of its own.
const MISC_MAJOR: u32 = 10;
const MISC_MINOR: u32 = 250;

/// Whether a canonical path is that of a PCI function.
#[cfg_attr(test, expect(dead_code, reason = "for the functions that tests do without"))]
pub fn is_function(path: &str) -> bool {
    let address = path.strip_prefix(HOST_BRIDGE).and_then(|rest| rest.strip_prefix('/'));
    address.is_some_and(|address| address.starts_with(PCI_DOMAIN) && !address.contains('/'))
}

/// The files as they are for the machine's interfaces now.
pub fn tree() -> Arc<Tree> {
    type Cached = (Arc<Vec<NetInterface>>, Vec<DeviceState>, Arc<Tree>);
    static CACHE: Mutex<Option<Cached>> = Mutex::new(None);
    let states = visible().iter().map(|id| rdma::host().device_state(*id)).collect::<Vec<_>>();
    let interfaces = net::interfaces();
    // Not waited for: a child of fork may find the lock held by a thread that it does not have.
    let Ok(mut cache) = CACHE.try_lock() else { return Arc::new(plant(&interfaces)) };
    match &*cache {
        Some((known, then, tree)) if *known == interfaces && *then == states => Arc::clone(tree),
        _ => {
            let tree = Arc::new(plant(&interfaces));
            *cache = Some((interfaces, states, Arc::clone(&tree)));
            tree
        }
    }
}

fn plant(interfaces: &[NetInterface]) -> Tree {
    let mut tree = Tree::default();
    for root in [CLASS, VERBS_CLASS, NODES, HOST_BRIDGE] {
        tree.add_root(root);
    }
    tree.add_line(format!("{VERBS_CLASS}/abi_version"), "6");
    let node = ViewEntry::Device { major: MISC_MAJOR, minor: MISC_MINOR };
    tree.add(format!("{NODES}/rdma_cm"), node);
    let bus = format!("{PCI_BUSES}/{BUS}");
    tree.add_root(bus.clone());
    tree.add_link(bus, format!("../../devices/pci{BUS}/pci_bus/{BUS}"));
    let affinity = Affinity::of(interfaces.first());
    tree.add_line(format!("{HOST_BRIDGE}/pci_bus/{BUS}/cpulistaffinity"), &affinity.cpulist);
    let there = |id: &DeviceId| !rdma::host().device_state(*id).resetting;
    for id in visible().iter().copied().filter(there) {
        let device = DeviceFiles::new(id, interfaces);
        device.add_function(&mut tree, &affinity);
        device.add_verbs(&mut tree);
        device.add_adapter(&mut tree);
        device.add_port(&mut tree, interfaces);
        device.add_network(&mut tree);
    }
    tree
}

/// CPUs and NUMA node near the adapters: they are in the CPU, so those of the network interface.
struct Affinity {
    numa_node: String,
    cpulist: String,
}

impl Affinity {
    fn of(interface: Option<&NetInterface>) -> Self {
        let read = |path: &str| {
            let text = fs::read_to_string(path).ok()?;
            Some(text.trim().to_owned()).filter(|text| !text.is_empty())
        };
        let near = |file: &str| {
            let name = String::from_utf8_lossy(&interface?.name).into_owned();
            read(&format!("/sys/class/net/{name}/device/{file}"))
        };
        let all = || read("/sys/devices/system/cpu/online");
        Self {
            numa_node: near("numa_node").unwrap_or_else(|| "-1".to_owned()),
            cpulist: near("local_cpulist").or_else(all).unwrap_or_else(|| "0".to_owned()),
        }
    }

    /// The CPUs as a bit mask in groups of 32, the highest first.
    fn mask(&self) -> String {
        let mut words: Vec<u32> = vec![0];
        for range in self.cpulist.split(',') {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (Ok(first), Ok(last)) = (first.parse::<u16>(), last.parse::<u16>()) else {
                continue;
            };
            for cpu in (first..=last).map(usize::from) {
                if words.len() <= cpu / 32 {
                    words.resize(cpu / 32 + 1, 0);
                }
                words[cpu / 32] |= 1 << (cpu % 32);
            }
        }
        let words: Vec<String> = words.iter().rev().map(|word| format!("{word:08x}")).collect();
        words.join(",")
    }
}

/// One device, and where its files are.
struct DeviceFiles {
    id: DeviceId,
    name: String,
    /// The name of its node of verbs.
    node: String,
    /// Its place among the devices, the same whichever of them are visible.
    place: u32,
    /// Its PCI address: domain, bus, device and function.
    address: String,
    /// The interface of its first GID.
    interface: Option<String>,
}

impl DeviceFiles {
    fn new(id: DeviceId, interfaces: &[NetInterface]) -> Self {
        let (name, place) = (name(id).to_owned(), id.slot() as u32);
        let first = gid::table(id).iter().find(|gid| !gid.is_empty()).map(|gid| gid.interface);
        let owner = first.and_then(|index| name_of(interfaces, index));
        Self {
            id,
            node: format!("uverbs_{name}"),
            name,
            place,
            address: format!("{BUS}:{place:02x}.0"),
            interface: owner,
        }
    }

    /// The directory of the PCI function.
    fn function(&self) -> String {
        format!("{HOST_BRIDGE}/{}", self.address)
    }

    fn adapter(&self) -> String {
        format!("{}/infiniband/{}", self.function(), self.name)
    }

    fn add_function(&self, tree: &mut Tree, affinity: &Affinity) {
        let (root, address) = (self.function(), &self.address);
        let product = format!("0x{:04x}", self.place + 1);
        let uevent = format!(
            "PCI_CLASS=20000\nPCI_ID=5746:{0}\nPCI_SUBSYS_ID=5746:{0}\nPCI_SLOT_NAME={address}",
            &product[2..]
        );
        // A link that carries the nominal rate of the port several times.
        let (speed, width) = ("16.0 GT/s PCIe", "16");
        let files = [
            ("vendor", "0x5746"),
            ("device", &product),
            ("subsystem_vendor", "0x5746"),
            ("subsystem_device", &product),
            ("class", "0x020000"),
            ("revision", "0x00"),
            ("numa_node", &affinity.numa_node),
            ("local_cpulist", &affinity.cpulist),
            ("local_cpus", &affinity.mask()),
            ("max_link_speed", speed),
            ("max_link_width", width),
            ("current_link_speed", speed),
            ("current_link_width", width),
            ("uevent", &uevent),
        ];
        for (file, line) in files {
            tree.add_line(format!("{root}/{file}"), line);
        }
        tree.add_link(format!("{root}/subsystem"), "../../../bus/pci");
        let listed = format!("{PCI_DEVICES}/{address}");
        tree.add_root(listed.clone());
        tree.add_link(listed, format!("../../../devices/pci{BUS}/{address}"));
    }

    fn add_verbs(&self, tree: &mut Tree) {
        let Self { node, address, .. } = self;
        let (major, minor) = (VERBS_MAJOR, VERBS_MINOR + self.place);
        tree.add(format!("{NODES}/{node}"), ViewEntry::Device { major, minor });
        let root = format!("{}/infiniband_verbs/{node}", self.function());
        tree.add_line(format!("{root}/ibdev"), &self.name);
        tree.add_line(format!("{root}/abi_version"), "1");
        tree.add_line(format!("{root}/dev"), &format!("{major}:{minor}"));
        let uevent = format!("MAJOR={major}\nMINOR={minor}\nDEVNAME=infiniband/{node}");
        tree.add_line(format!("{root}/uevent"), &uevent);
        tree.add_link(format!("{root}/device"), format!("../../../{address}"));
        tree.add_link(format!("{root}/subsystem"), "../../../../../class/infiniband_verbs");
        let target = format!("../../devices/pci{BUS}/{address}/infiniband_verbs/{node}");
        tree.add_link(format!("{VERBS_CLASS}/{node}"), target);
    }

    fn add_adapter(&self, tree: &mut Tree) {
        let Self { name, address, .. } = self;
        let root = self.adapter();
        let kind = match self.id.kind {
            DeviceKind::Iwarp => "4: RNIC",
            DeviceKind::Roce => "1: CA",
        };
        let files = [
            ("node_type", kind),
            ("node_guid", &grouped(&guid(self.id).to_ne_bytes())),
            ("sys_image_guid", &grouped(&system_guid().to_ne_bytes())),
            ("node_desc", "weft"),
            ("board_id", "weft"),
            ("hca_type", "weft"),
            ("fw_ver", version()),
            ("uevent", &format!("NAME={name}")),
        ];
        for (file, line) in files {
            tree.add_line(format!("{root}/{file}"), line);
        }
        tree.add_link(format!("{root}/device"), format!("../../../{address}"));
        tree.add_link(format!("{root}/subsystem"), "../../../../../class/infiniband");
        let target = format!("../../devices/pci{BUS}/{address}/infiniband/{name}");
        tree.add_link(format!("{CLASS}/{name}"), target);
    }

    fn add_port(&self, tree: &mut Tree, interfaces: &[NetInterface]) {
        let root = format!("{}/ports/1", self.adapter());
        let attr = port_attr(self.id);
        let active = attr.state == IBV_PORT_ACTIVE;
        let files = [
            ("state", if active { "4: ACTIVE" } else { "1: DOWN" }),
            ("phys_state", if active { "5: LinkUp" } else { "3: Disabled" }),
            ("link_layer", "Ethernet"),
            ("rate", "100 Gb/sec (4X EDR)"),
            ("cap_mask", &format!("{:#010x}", attr.port_cap_flags)),
            ("lid", &format!("{:#x}", attr.lid)),
            ("lid_mask_count", "0"),
            ("sm_lid", "0x0"),
            ("sm_sl", "0"),
            ("pkeys/0", &format!("{:#06x}", rdma::host().device_state(self.id).pkey)),
        ];
        for (file, line) in files {
            tree.add_line(format!("{root}/{file}"), line);
        }
        counters::add(tree, &root, self.id);
        let kind = match self.id.kind {
            DeviceKind::Iwarp => "IB/RoCE v1",
            DeviceKind::Roce => "RoCE v2",
        };
        let table = gid::table(self.id);
        for (row, gid) in table.iter().enumerate() {
            tree.add_line(format!("{root}/gids/{row}"), &grouped(&gid.raw));
            if gid.is_empty() {
                continue;
            }
            tree.add_line(format!("{root}/gid_attrs/types/{row}"), kind);
            if let Some(owner) = name_of(interfaces, gid.interface) {
                tree.add_line(format!("{root}/gid_attrs/ndevs/{row}"), &owner);
            }
        }
        // The kernel lists empty rows too, and has neither a type nor an interface for them.
        for row in table.len()..gid::table_len(self.id.kind) as usize {
            tree.add_line(format!("{root}/gids/{row}"), &grouped(&[0; 16]));
        }
    }

    /// The network interface below the PCI function, and the adapter below the interface.
    fn add_network(&self, tree: &mut Tree) {
        let Some(interface) = &self.interface else { return };
        let real = format!("/sys/class/net/{interface}");
        tree.add(
            format!("{}/net/{interface}", self.function()),
            ViewEntry::Elsewhere(real.clone()),
        );
        let adapters = format!("{real}/device/infiniband");
        tree.add_link(format!("{adapters}/{}", self.name), self.adapter());
        tree.add_root(adapters);
    }
}

fn name_of(interfaces: &[NetInterface], index: u32) -> Option<String> {
    let owner = interfaces.iter().find(|interface| interface.index == index)?;
    Some(String::from_utf8_lossy(&owner.name).into_owned())
}

/// The bytes in groups of two, as the kernel writes GUIDs and GIDs.
fn grouped(bytes: &[u8]) -> String {
    let mut text = String::new();
    let colons = iter::once("").chain(iter::repeat(":"));
    for (pair, colon) in bytes.chunks_exact(2).zip(colons) {
        let _ = write!(text, "{colon}{:02x}{:02x}", pair[0], pair[1]);
    }
    text
}
