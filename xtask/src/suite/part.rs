//! The parts of the test suite, and the part that each test binary belongs to.
//!
//! Invariant: every binary belongs to one part. A new package is one of [`SuitePart::Clients`]
//! until it is listed here.

/// A part of the suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SuitePart {
    /// No real clock decides, and no network beyond loopback is used: right on a machine however
    /// busy.
    Units,
    /// Real applications, namespaces and devices of the kernel; time limits are generous.
    Clients,
    /// Rates, delays and losses on real clocks: they need CPUs that nobody else uses.
    Measurements,
}

/// All parts, in the order in which they are run.
pub const PARTS: [SuitePart; 3] = [SuitePart::Units, SuitePart::Clients, SuitePart::Measurements];

/// Packages whose integration tests are units too.
const UNIT_PACKAGES: [&str; 21] = [
    "weft-cm",
    "weft-fault",
    "weft-guard",
    "weft-host",
    "weft-memory",
    "weft-mpa",
    "weft-net",
    "weft-os",
    "weft-rdma",
    "weft-rdmacm",
    "weft-rdmap",
    "weft-reactor",
    "weft-rnic",
    "weft-sdp",
    "weft-shuttle",
    "weft-sim",
    "weft-sync",
    "weft-units",
    "weft-verbs",
    "weft-wire",
    "xtask",
];

/// Binaries of measurements.
const MEASUREMENTS: [&str; 4] =
    ["degen/measurements", "weft-bench/commands", "weft-bench/suites", "weft-bench/table"];

impl SuitePart {
    /// The part that is called so on the command line.
    pub fn named(name: &str) -> Option<Self> {
        PARTS.into_iter().find(|part| part.name() == name)
    }

    /// The name of the part.
    pub fn name(self) -> &'static str {
        match self {
            SuitePart::Units => "units",
            SuitePart::Clients => "clients",
            SuitePart::Measurements => "measurements",
        }
    }

    /// The part of the binary `PACKAGE/TARGET`; `is_product` says that it holds the unit tests of a
    /// library or program.
    pub fn of(binary: &str, is_product: bool) -> Self {
        let package = binary.split('/').next().unwrap_or_default();
        if MEASUREMENTS.contains(&binary) {
            SuitePart::Measurements
        } else if is_product || UNIT_PACKAGES.contains(&package) || binary == "degen/link" {
            SuitePart::Units
        } else {
            SuitePart::Clients
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_binary_has_its_part() {
        assert_eq!(SuitePart::of("weft-rdmacm/cm", false), SuitePart::Units);
        assert_eq!(SuitePart::of("weft-bench/weft_bench", true), SuitePart::Units);
        assert_eq!(SuitePart::of("weft-interop/perftest", false), SuitePart::Clients);
        assert_eq!(SuitePart::of("degen/paths", false), SuitePart::Clients);
        assert_eq!(SuitePart::of("degen/measurements", false), SuitePart::Measurements);
    }

    #[test]
    fn parts_are_called_by_name() {
        for part in PARTS {
            assert_eq!(SuitePart::named(part.name()), Some(part));
        }
        assert_eq!(SuitePart::named("quick"), None);
    }
}
