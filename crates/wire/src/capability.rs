//! Who does what below a consumer: one statement that each lower layer makes in the same way, so
//! that the consumer leaves out what is done below it already (Balaji et al., sections 3 and 6).
//!
//! The functions are CRC, demultiplexing, markers, segmentation, buffering, flow control, ordering
//! and encryption; each is done by the CPU, the kernel, the layer itself or nobody. `weft info`
//! prints them, and `sdp` leaves out what is done below it.

use std::fmt;

/// Something that has to be done between two ends, by somebody or nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Component {
    /// A check over what travels.
    Crc,
    /// Finding the connection of what arrives.
    Demultiplexing,
    /// Marks in the stream from which frames are found again.
    Markers,
    /// Cutting messages to what the path carries.
    Segmentation,
    /// Keeping what was sent until the peer has it.
    Buffering,
    /// Holding back a sender that is too fast for its receiver.
    FlowControl,
    /// Messages in the order that they were sent in.
    Ordering,
    /// Hiding what travels from others.
    Encryption,
}

impl Component {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 8] = [
        Self::Crc,
        Self::Demultiplexing,
        Self::Markers,
        Self::Segmentation,
        Self::Buffering,
        Self::FlowControl,
        Self::Ordering,
        Self::Encryption,
    ];

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Crc => "crc",
            Self::Demultiplexing => "demultiplexing",
            Self::Markers => "markers",
            Self::Segmentation => "segmentation",
            Self::Buffering => "buffering",
            Self::FlowControl => "flow control",
            Self::Ordering => "ordering",
            Self::Encryption => "encryption",
        }
    }
}

/// Who does something, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// Nobody: it is off, or not needed.
    #[default]
    Nobody,
    /// The layer itself, with general instructions.
    Layer(&'static str),
    /// This CPU, with instructions made for it.
    Cpu(&'static str),
    /// The kernel, or the network card that it leaves it to.
    Kernel(&'static str),
}

impl By {
    /// Who.
    pub fn who(self) -> &'static str {
        match self {
            Self::Nobody => "nobody",
            Self::Layer(_) => "layer",
            Self::Cpu(_) => "cpu",
            Self::Kernel(_) => "kernel",
        }
    }

    /// How; empty for nobody.
    pub fn how(self) -> &'static str {
        match self {
            Self::Nobody => "",
            Self::Layer(how) | Self::Cpu(how) | Self::Kernel(how) => how,
        }
    }

    /// Whether anybody does it.
    pub fn is_done(self) -> bool {
        self != Self::Nobody
    }
}

/// What a layer, with all that is below it, does for whoever is above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    layer: &'static str,
    by: [By; Component::ALL.len()],
}

impl Capabilities {
    /// A layer with this name that does nothing yet.
    pub const fn of_layer(layer: &'static str) -> Self {
        Self { layer, by: [By::Nobody; Component::ALL.len()] }
    }

    /// The same with `component` done by `by`.
    #[must_use]
    pub const fn with(mut self, component: Component, by: By) -> Self {
        self.by[component as usize] = by;
        self
    }

    /// The name of the layer.
    pub fn layer(&self) -> &'static str {
        self.layer
    }

    /// Who does `component`.
    pub fn by(&self, component: Component) -> By {
        self.by[component as usize]
    }

    /// Every component, and who does it.
    pub fn iter(&self) -> impl Iterator<Item = (Component, By)> {
        Component::ALL.into_iter().map(|component| (component, self.by(component)))
    }
}

impl fmt::Display for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.layer)?;
        let parts = self.iter().enumerate();
        parts.into_iter().try_for_each(|(at, (component, by))| {
            let between = if at == 0 { ": " } else { ", " };
            write!(f, "{between}{} {}", component.name(), by.who())
        })
    }
}

/// CRC32C as this CPU computes it.
pub fn crc32c() -> By {
    if crate::crc::by_cpu() {
        By::Cpu("CRC32C, by its carry-less multiplication")
    } else {
        By::Layer("CRC32C, by tables")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_component_has_its_own_answer() {
        let layer = Capabilities::of_layer("x")
            .with(Component::Crc, By::Cpu("fast"))
            .with(Component::Encryption, By::Layer("slow"));
        assert_eq!(layer.by(Component::Crc).how(), "fast");
        assert!(!layer.by(Component::Ordering).is_done());
        let who: Vec<_> = layer.iter().map(|(_, by)| by.who()).collect();
        let nobody = ["nobody"; 6];
        assert_eq!(who, [&["cpu"][..], &nobody, &["layer"]].concat());
        assert!(layer.to_string().starts_with("x: crc cpu, demultiplexing nobody, "));
    }

    #[test]
    fn numbers_are_places() {
        for (at, component) in Component::ALL.into_iter().enumerate() {
            assert_eq!(component as usize, at);
        }
    }
}
