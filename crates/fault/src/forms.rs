//! Every fault: its name, how it is written, and the settings that it takes.

/// What selects the objects of a fault, besides devices and processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selectable {
    /// Nothing: it is the seed.
    Nothing,
    /// Nothing: it is for calls, of every device.
    Calls,
    /// The device alone.
    Device,
    /// An object by its place.
    Object,
    /// A queue pair, by its place or number.
    QueuePair,
}

impl Selectable {
    /// The settings that select.
    pub fn keys(self) -> &'static [&'static str] {
        match self {
            Self::Nothing => &[],
            Self::Calls | Self::Device => &["dev", "process", "rank"],
            Self::Object => &["only", "dev", "process", "rank"],
            Self::QueuePair => &["only", "qpn", "dev", "process", "rank"],
        }
    }
}

/// How a fault is written.
pub struct FaultForm {
    pub name: &'static str,
    pub form: &'static str,
    /// Whether something may be behind `=`.
    pub takes_value: bool,
    /// The settings it takes, without those that select.
    pub settings: &'static [&'static str],
    pub on: Selectable,
}

const fn form(
    name: &'static str,
    form: &'static str,
    takes_value: bool,
    settings: &'static [&'static str],
    on: Selectable,
) -> FaultForm {
    FaultForm { name, form, takes_value, settings, on }
}

/// Every fault, and the seed.
pub const FORMS: [FaultForm; 20] = [
    form(
        "qp-error",
        "qp-error[=SHARE][:after=N|at=TIME][,status=STATUS][,ON]",
        true,
        &["after", "at", "status"],
        Selectable::QueuePair,
    ),
    form("rnr", "rnr:TIMES[,after=N][,ON]", false, &["times", "after"], Selectable::QueuePair),
    form("hang", "hang[:after=N][,ON]", false, &["after"], Selectable::QueuePair),
    form(
        "slow-ack",
        "slow-ack=TIME[:jitter=TIME][,at=TIME][,until=TIME][,ON]",
        true,
        &["jitter", "at", "until"],
        Selectable::QueuePair,
    ),
    form("cq-overflow", "cq-overflow[:after=N][,ON]", false, &["after"], Selectable::Object),
    form("cq-overrun", "cq-overrun[:after=N][,ON]", false, &["after"], Selectable::Object),
    form(
        "mr-invalid",
        "mr-invalid[:after=N|at=TIME][,ON]",
        false,
        &["after", "at"],
        Selectable::Object,
    ),
    form(
        "fail",
        "fail=VERB[:errno=ERRNO][,after=N][,times=N][,ON]",
        true,
        &["errno", "after", "times"],
        Selectable::Calls,
    ),
    form(
        "alloc-fail",
        "alloc-fail=KIND[:nth=N|after=N][,times=N][,ON]",
        true,
        &["nth", "after", "times"],
        Selectable::Calls,
    ),
    form("device-fatal", "device-fatal=TIME[:at=TIME][,ON]", true, &["at"], Selectable::Device),
    form("port-down", "port-down=TIME[:at=TIME][,ON]", true, &["at"], Selectable::Device),
    form("gid-change", "gid-change[:at=TIME][,ON]", false, &["at"], Selectable::Device),
    form("addr-gone", "addr-gone=TIME[:at=TIME][,ON]", true, &["at"], Selectable::Device),
    form("pkey-change", "pkey-change=KEY[:at=TIME][,ON]", true, &["at"], Selectable::Device),
    form("lid-change", "lid-change=LID[:at=TIME][,ON]", true, &["at"], Selectable::Device),
    form(
        "peer-gone",
        "peer-gone[:after=N|at=TIME][,ON]",
        false,
        &["after", "at"],
        Selectable::QueuePair,
    ),
    form(
        "drop",
        "drop=SHARE[:way=in|out][,at=TIME][,until=TIME][,ON]",
        true,
        &["way", "at", "until"],
        Selectable::QueuePair,
    ),
    form(
        "corrupt",
        "corrupt=SHARE[:crc=bad|good][,at=TIME][,until=TIME][,ON]",
        true,
        &["crc", "at", "until"],
        Selectable::QueuePair,
    ),
    form(
        "delay",
        "delay=TIME[:jitter=TIME][,at=TIME][,until=TIME][,ON]",
        true,
        &["jitter", "at", "until"],
        Selectable::QueuePair,
    ),
    form("seed", "seed=NUMBER", true, &[], Selectable::Nothing),
];

/// How every fault is written.
pub fn forms() -> impl Iterator<Item = &'static str> {
    FORMS.iter().map(|form| form.form)
}

/// The names of all faults, for messages.
pub fn names() -> String {
    FORMS.map(|form| form.name).join(", ")
}
