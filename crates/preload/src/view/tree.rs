//! What is at a path: one list of files, from which the directories follow.

use std::ffi::{CStr, CString, c_char};
use std::fmt::Write;

use weft_io::Personality;

use crate::abi::IBV_PORT_ACTIVE;
use crate::env;
use crate::ibv::device::{guid, name, personalities, system_guid};
use crate::ibv::gid;
use crate::ibv::query::{port_attr, version};
use crate::net::{self, Interface};

/// What a path that is ours leads to.
#[derive(Debug, PartialEq, Eq)]
pub enum Node {
    /// Names in it.
    Directory(Vec<String>),
    /// Its text.
    File(String),
    /// A character device that everybody may read and write, in the way of `/dev/null`.
    Device,
    /// Another path, which the kernel knows.
    Elsewhere(CString),
    /// Nothing.
    Nothing,
}

/// The kinds of files.
#[derive(Clone, Debug)]
enum Leaf {
    Text(String),
    Device,
    Elsewhere(String),
}

/// Where the view begins.
const CLASSES: &str = "/sys/class/infiniband";
const VERBS: &str = "/sys/class/infiniband_verbs";
const NODES: &str = "/dev/infiniband";

/// What `path` leads to, without its detours too; `None` if it is not ours.
///
/// # Safety
/// `path` is NULL or NUL-terminated.
pub unsafe fn at(path: *const c_char) -> Option<(String, Node)> {
    if path.is_null() {
        return None;
    }
    // SAFETY: NUL-terminated by contract.
    let bytes = unsafe { CStr::from_ptr(path) }.to_bytes();
    let maybe = bytes.starts_with(CLASSES.as_bytes()) || bytes.starts_with(NODES.as_bytes());
    if !maybe || env::off_now() {
        return None;
    }
    let path = plain(std::str::from_utf8(bytes).ok()?);
    let below =
        |root: &str| path.strip_prefix(root).is_some_and(|r| r.is_empty() || r.starts_with('/'));
    let ours = [CLASSES, VERBS, NODES].into_iter().any(below);
    ours.then(|| find(&path, &leaves())).map(|node| (path, node))
}

/// The path without repeated and trailing slashes, `.` and `..`.
fn plain(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.iter().fold(String::new(), |path, part| path + "/" + part)
}

fn find(path: &str, leaves: &[(String, Leaf)]) -> Node {
    let mut names: Vec<String> = Vec::new();
    for (place, leaf) in leaves {
        if let (Some(rest), Leaf::Elsewhere(target)) = (path.strip_prefix(place.as_str()), leaf)
            && (rest.is_empty() || rest.starts_with('/'))
        {
            return CString::new(format!("{target}{rest}")).map_or(Node::Nothing, Node::Elsewhere);
        }
        if place == path {
            return match leaf {
                Leaf::Text(text) => Node::File(text.clone()),
                _ => Node::Device,
            };
        }
        if let Some(rest) = place.strip_prefix(path).and_then(|rest| rest.strip_prefix('/')) {
            let name = rest.split('/').next().unwrap_or(rest);
            if !names.iter().any(|n| n == name) {
                names.push(name.to_owned());
            }
        }
    }
    if names.is_empty() { Node::Nothing } else { Node::Directory(names) }
}

fn leaves() -> Vec<(String, Leaf)> {
    let mut all = Leaves::default();
    let interfaces = net::interfaces();
    all.text(format!("{VERBS}/abi_version"), "6");
    all.0.push((format!("{NODES}/rdma_cm"), Leaf::Device));
    for (index, personality) in personalities().into_iter().enumerate() {
        let name = name(personality).to_string_lossy();
        let verbs = format!("uverbs_{name}");
        all.0.push((format!("{NODES}/{verbs}"), Leaf::Device));
        all.text(format!("{VERBS}/{verbs}/ibdev"), &name);
        all.text(format!("{VERBS}/{verbs}/abi_version"), "1");
        all.text(format!("{VERBS}/{verbs}/dev"), &format!("{MAJOR}:{}", MINOR + index));
        all.device(&format!("{CLASSES}/{name}"), personality, &interfaces);
    }
    all.0
}

/// The kernel's numbers for the nodes of verbs, of which it uses the first few.
const MAJOR: usize = 231;
const MINOR: usize = 250;

#[derive(Default)]
struct Leaves(Vec<(String, Leaf)>);

impl Leaves {
    /// A file with a line of text.
    fn text(&mut self, path: String, line: &str) {
        self.0.push((path, Leaf::Text(format!("{line}\n"))));
    }

    fn device(&mut self, root: &str, personality: Personality, interfaces: &[Interface]) {
        let kind = match personality {
            Personality::Iwarp => "4: RNIC",
            Personality::Roce => "1: CA",
        };
        let files = [
            ("node_type", kind.to_owned()),
            ("node_guid", grouped(&guid(personality).to_ne_bytes())),
            ("sys_image_guid", grouped(&system_guid().to_ne_bytes())),
            ("node_desc", "weft".to_owned()),
            ("board_id", "weft".to_owned()),
            ("hca_type", "weft".to_owned()),
            ("fw_ver", version().to_owned()),
            ("device/numa_node", "-1".to_owned()),
        ];
        for (name, line) in files {
            self.text(format!("{root}/{name}"), &line);
        }
        if let Some(main) = interfaces.first() {
            let main = String::from_utf8_lossy(&main.name);
            let target = Leaf::Elsewhere(format!("/sys/class/net/{main}"));
            self.0.push((format!("{root}/device/net/{main}"), target));
        }
        self.port(&format!("{root}/ports/1"), personality, interfaces);
    }

    fn port(&mut self, root: &str, personality: Personality, interfaces: &[Interface]) {
        let attr = port_attr(personality);
        let active = attr.state == IBV_PORT_ACTIVE;
        let files = [
            ("state", if active { "4: ACTIVE" } else { "1: DOWN" }.to_owned()),
            ("phys_state", if active { "5: LinkUp" } else { "3: Disabled" }.to_owned()),
            ("link_layer", "Ethernet".to_owned()),
            ("rate", "100 Gb/sec (4X EDR)".to_owned()),
            ("cap_mask", format!("{:#010x}", attr.port_cap_flags)),
            ("lid", "0x0".to_owned()),
            ("lid_mask_count", "0".to_owned()),
            ("sm_lid", "0x0".to_owned()),
            ("sm_sl", "0".to_owned()),
            ("pkeys/0", "0xffff".to_owned()),
        ];
        for (name, line) in files {
            self.text(format!("{root}/{name}"), &line);
        }
        let kind = match personality {
            Personality::Iwarp => "IB/RoCE v1",
            Personality::Roce => "RoCE v2",
        };
        for (row, gid) in gid::table(personality).into_iter().enumerate() {
            self.text(format!("{root}/gids/{row}"), &grouped(&gid.raw));
            self.text(format!("{root}/gid_attrs/types/{row}"), kind);
            if let Some(owner) = interfaces.iter().find(|i| i.index == gid.interface) {
                let owner = String::from_utf8_lossy(&owner.name);
                self.text(format!("{root}/gid_attrs/ndevs/{row}"), &owner);
            }
        }
    }
}

/// The octets in groups of two, as the kernel writes GUIDs and GIDs.
fn grouped(octets: &[u8]) -> String {
    let mut text = String::new();
    for pair in octets.chunks(2) {
        let colon = if text.is_empty() { "" } else { ":" };
        let _ = write!(text, "{colon}{:02x}{:02x}", pair[0], pair[1]);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    fn node(path: &CStr) -> Option<Node> {
        // SAFETY: NUL-terminated.
        unsafe { at(path.as_ptr()) }.map(|(_, node)| node)
    }

    fn text(path: &CStr) -> String {
        match node(path) {
            Some(Node::File(text)) => text,
            other => panic!("{path:?} is {other:?}"),
        }
    }

    #[test]
    fn files_tell_what_the_verbs_tell() {
        assert_eq!(text(c"/sys/class/infiniband/weft0/node_type"), "1: CA\n");
        assert_eq!(text(c"/sys/class/infiniband/weft_iw0/node_type"), "4: RNIC\n");
        assert_eq!(text(c"/sys/class/infiniband/weft0/ports/1/gid_attrs/types/0"), "RoCE v2\n");
        let gid = text(c"/sys/class/infiniband/weft0/ports/1/gids/0");
        let parsed: Ipv6Addr = gid.trim().parse().unwrap();
        assert_eq!(parsed.octets(), gid::table(Personality::Roce)[0].raw);
        assert_eq!(text(c"/sys/class/infiniband_verbs/uverbs_weft0/ibdev"), "weft0\n");
        assert_eq!(node(c"/dev/infiniband/uverbs_weft0"), Some(Node::Device));
    }

    #[test]
    fn directories_hold_what_is_below_them_and_nothing_else_is_there() {
        let Some(Node::Directory(mut names)) = node(c"/sys/class/infiniband/") else {
            panic!("no directory");
        };
        names.sort();
        assert_eq!(names, ["weft0", "weft_iw0"]);
        assert_eq!(node(c"/sys/class/infiniband/mlx5_0"), Some(Node::Nothing));
        assert_eq!(node(c"/dev/infiniband/uverbs0"), Some(Node::Nothing));
        assert_eq!(node(c"/sys/class/infiniband/weft0/ports/2"), Some(Node::Nothing));
        let elsewhere = node(c"/sys/class/infiniband//./weft0/device/net/../net");
        assert!(matches!(elsewhere, Some(Node::Directory(names)) if names.len() == 1));
    }

    #[test]
    fn other_paths_are_not_ours() {
        for path in [c"/sys/class/infinibandx", c"/sys/class/net", c"/dev/infiniband_x", c"", c"x"]
        {
            assert_eq!(node(path), None, "{path:?}");
        }
        assert_eq!(node(c"/sys/class/infiniband/../net"), None);
    }

    #[test]
    fn the_network_interface_is_the_kernels_own() {
        let Some(Node::Directory(names)) = node(c"/sys/class/infiniband/weft0/device/net") else {
            panic!("no directory");
        };
        let below = format!("/sys/class/infiniband/weft0/device/net/{}/mtu", names[0]);
        let real = format!("/sys/class/net/{}/mtu", names[0]);
        let expected = Node::Elsewhere(CString::new(real).unwrap());
        assert_eq!(node(&CString::new(below).unwrap()), Some(expected));
    }
}
