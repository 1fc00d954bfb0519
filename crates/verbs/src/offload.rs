//! What a layer does itself, what the layer below or the CPU does for it, and what is off.
//!
//! Upper layers ask every lower layer in this one way and leave out their own copy of a function
//! that is done below (Balaji et al., section 3: hybrid stacks).

/// Who performs a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Nobody: it is switched off or not part of this layer.
    Nobody,
    /// This layer, in software on the calling core.
    Software,
    /// This layer, with instructions of the CPU made for it.
    Cpu,
    /// The kernel's transport.
    Kernel,
}

/// The functions of an iWARP stack that may live in different places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offloads {
    /// CRC over each frame.
    pub crc: By,
    /// Markers in the stream.
    pub markers: By,
    /// Demultiplexing of segments to buffers.
    pub demultiplexing: By,
    /// Segmentation to what the path carries.
    pub segmentation: By,
    /// Retransmission.
    pub reliability: By,
    /// Holding a sender back.
    pub flow_control: By,
}
