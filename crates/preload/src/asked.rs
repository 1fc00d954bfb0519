//! Whether the application was told to use a device that is not here: it would end, or go on over
//! TCP, and say of the reason nothing that leads to Weft.

use std::sync::Once;

use weft_io::Devices;

use crate::log::{self, Level};

/// What the names of devices of the kernel's drivers begin with, before a number.
const KNOWN: [&str; 16] = [
    "mlx4_",
    "mlx5_",
    "bnxt_re",
    "irdma",
    "siw",
    "rxe",
    "hns_",
    "efa_",
    "qedr",
    "cxgb4_",
    "erdma_",
    "mana_",
    "vmw_pvrdma",
    "rocep",
    "ibp",
    "iwp",
];
/// Where applications look for the name of their device, besides their arguments.
const VARIABLES: [&str; 3] = ["UCX_NET_DEVICES", "NCCL_IB_HCA", "FI_VERBS_DEVICE_NAME"];

/// Says once, when devices are listed, which one is asked for and not among them.
pub fn warn_of_absent() {
    static LOOKED: Once = Once::new();
    LOOKED.call_once(|| {
        let arguments = std::fs::read("/proc/self/cmdline").unwrap_or_default();
        let arguments = String::from_utf8_lossy(&arguments).into_owned();
        let values = VARIABLES.iter().filter_map(|name| std::env::var(name).ok());
        let devices = Devices::get();
        let names: Vec<&str> = devices.visible().iter().map(|d| devices.name(*d)).collect();
        let mut all = arguments.split('\0').skip(1).map(str::to_owned).chain(values);
        if let Some(absent) = all.find_map(|text| absent(&text, &names)) {
            let here = if names.is_empty() { "none".into() } else { names.join(" and ") };
            let line = format_args!(
                "the device {absent} is asked for and not here; of Weft's there are: {here} \
                 (WEFT_DEV={absent} gives weft0 that name)"
            );
            log::write(Level::Warn, line);
        }
    });
}

/// The first device of some driver in `text` that is none of `names`.
fn absent(text: &str, names: &[&str]) -> Option<String> {
    let inside = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split(|c: char| !inside(c)).filter(|word| !names.contains(word));
    let device = |word: &&str| {
        let number = KNOWN.iter().find_map(|known| word.strip_prefix(known));
        number.is_some_and(|number| number.starts_with(|c: char| c.is_ascii_digit()))
    };
    words.into_iter().find(device).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_devices_are_found_among_other_words() {
        let found = |text| absent(text, &["weft0", "mlx5_7"]);
        for text in ["mlx5_0", "--ib-dev=mlx5_0", "^mlx5_7,mlx5_0:1", "=mlx5_0"] {
            assert_eq!(found(text).as_deref(), Some("mlx5_0"), "{text}");
        }
        for text in ["", "-d", "weft0", "mlx5_7", "eth0", "mlx5_", "siwx", "/dev/sda"] {
            assert_eq!(found(text), None, "{text}");
        }
    }
}
