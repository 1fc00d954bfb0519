//! What a layer does itself, what the CPU or the kernel does for it, and what is off.
//!
//! Every layer below a consumer states this in the same way, so that the consumer leaves out what
//! is done below it already (Balaji et al., section 3: iWARP parts in hardware or software).

use std::fmt;

/// Who performs a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Nobody: it is off.
    Nobody,
    /// This library, with general instructions.
    Software,
    /// This library, with instructions of the CPU made for it.
    Cpu,
    /// The kernel's TCP.
    Kernel,
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nobody => "off",
            Self::Software => "software",
            Self::Cpu => "cpu",
            Self::Kernel => "kernel",
        })
    }
}

/// The functions of an iWARP stack that may live in different places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offloads {
    /// A CRC over each frame.
    pub crc: By,
    /// Markers in what is sent.
    pub markers_out: By,
    /// Markers in what is received.
    pub markers_in: By,
    /// Finding the buffer of each segment.
    pub demultiplexing: By,
    /// Cutting messages to what the path carries.
    pub segmentation: By,
    /// Sending again what was lost.
    pub reliability: By,
    /// Holding back a sender that is too fast.
    pub flow_control: By,
}

impl fmt::Display for Offloads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "crc {}, markers out {} in {}, demultiplexing {}, segmentation {}, reliability {}, \
             flow control {}",
            self.crc,
            self.markers_out,
            self.markers_in,
            self.demultiplexing,
            self.segmentation,
            self.reliability,
            self.flow_control
        )
    }
}
