//! Whether the application was told to use a device that is not here: it would end, or go on over
//! TCP, and say of the reason nothing that leads to Weft.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::log::{self, LogLevel};
use crate::rdma;

/// Prefixes of the device names of the kernel's drivers; a number follows.
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
/// Environment variables in which applications find the name of their device.
const VARIABLES: [&str; 3] = ["UCX_NET_DEVICES", "NCCL_IB_HCA", "FI_VERBS_DEVICE_NAME"];

/// Options by which applications are told the name of a device, whatever that looks like.
const OPTIONS: [&str; 5] = ["-d", "--ib-dev", "--ib_dev", "--device", "--dev"];

/// Whether a device was opened, or one that is absent was mentioned.
static SETTLED: AtomicBool = AtomicBool::new(false);
/// The process that listed devices.
static LISTED_BY: AtomicU32 = AtomicU32::new(0);

/// A device is opened: the application has what it asked for, or something else that it takes.
pub fn note_opened() {
    SETTLED.store(true, Ordering::Relaxed);
}

/// Says once, when devices are listed, which one is asked for and not among them.
pub fn warn_of_absent() {
    static LOOKED: Once = Once::new();
    LOOKED.call_once(|| {
        LISTED_BY.store(std::process::id(), Ordering::Relaxed);
        // SAFETY: the handler is a function that lives as long as the library.
        unsafe { libc::atexit(warn_of_unopened) };
        let arguments = arguments();
        let values = VARIABLES.iter().filter_map(|name| std::env::var(name).ok());
        let names = names();
        let mut all = arguments.split('\0').skip(1).map(str::to_owned).chain(values);
        if let Some(absent) = all.find_map(|text| absent(&text, &names)) {
            mention(&absent, &names);
        }
    });
}

/// The application ends. It may have looked for a device with a name that no driver gives, and have
/// said nothing of that.
extern "C" fn warn_of_unopened() {
    let is_own = LISTED_BY.load(Ordering::Relaxed) == std::process::id();
    if !is_own || SETTLED.load(Ordering::Relaxed) {
        return;
    }
    let (arguments, names) = (arguments(), names());
    let words: Vec<&str> = arguments.split('\0').skip(1).collect();
    if let Some(absent) = named(&words).filter(|name| !names.contains(name)) {
        mention(absent, &names);
    }
}

/// The command line, with a zero behind each word.
fn arguments() -> String {
    let arguments = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    String::from_utf8_lossy(&arguments).into_owned()
}

/// Names of the devices that the application sees.
fn names() -> Vec<&'static str> {
    let devices = rdma::host().devices();
    devices.visible().iter().map(|device| devices.name(*device)).collect()
}

fn mention(absent: &str, names: &[&str]) {
    SETTLED.store(true, Ordering::Relaxed);
    let here = if names.is_empty() { "none".into() } else { names.join(" and ") };
    let line = format_args!(
        "the device {absent} is asked for and not here; of Weft's there are: {here} \
         (WEFT_DEV={absent} gives weft0 that name)"
    );
    log::write(LogLevel::Warn, line);
}

/// The device that an option names: a word that begins with a letter and ends with a number, behind
/// which a port may stand.
fn named<'a>(words: &[&'a str]) -> Option<&'a str> {
    let value = |(at, word): (usize, &&'a str)| match word.split_once('=') {
        Some((option, value)) => OPTIONS.contains(&option).then_some(value),
        None => OPTIONS.contains(word).then(|| words.get(at + 1).copied()).flatten(),
    };
    let name = words.iter().enumerate().find_map(value)?.split(':').next()?;
    let inside = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    let begins = name.starts_with(|c: char| c.is_ascii_alphabetic());
    let ends = name.ends_with(|c: char| c.is_ascii_digit());
    (begins && ends && name.chars().all(inside)).then_some(name)
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
    fn options_name_devices_whatever_they_are_called() {
        let found = |line: &str| named(&line.split(' ').collect::<Vec<_>>()).map(str::to_owned);
        for line in ["-d nic-a1 -n 5", "-n 5 --ib-dev=nic-a1", "--ib_dev nic-a1:1"] {
            assert_eq!(found(line).as_deref(), Some("nic-a1"), "{line}");
        }
        for line in ["", "-d", "-d -v", "-d 192.0.2.1", "-d /dev/sda1", "nic-a1", "-x nic-a1"] {
            assert_eq!(found(line), None, "{line}");
        }
    }

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
