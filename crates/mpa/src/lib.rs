//! MPA over a byte stream: negotiation, FPDU framing, CRC, markers.
