//! The exchange of start frames, from the offers of two applications to what both ends keep to
//! (RFC 5044, section 7.1; RFC 6581, section 9).
//!
//! The advertised IRD is a power of two, because Linux siw rounds the depth that it was granted up.
//!
//! Initiator: [`Initiator::request`], then [`Initiator::handle_reply`]. Responder:
//! [`Responder::handle_request`], then [`Responder::accept`] or [`Responder::reject`]. Frames are
//! read from TCP one by one, see [`frame_len`].

use weft_wire::mpa::{ENHANCED_LEN, Enhanced, StartFrame, StartKind};

use crate::MpaError;

pub use weft_wire::mpa::{HEADER_LEN, frame_len};

/// The most private data an application may send: what Linux siw, which counts it together with
/// the connection block in eight bits, can take.
pub const MAX_PRIVATE_DATA: usize = 255 - ENHANCED_LEN;

/// The most inbound read depth that is agreed unless the offer says otherwise.
const DEFAULT_IRD_MAX: u16 = 128;

/// The largest power of two among depths, which have 14 bits.
const DEPTH_MAX: u16 = 1 << 13;

const REVISION: u8 = 1;
const REVISION_ENHANCED: u8 = 2;

/// Role in the exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MpaRole {
    /// Sends the Request.
    Initiator,
    /// Sends the Reply.
    Responder,
}

/// Offer of one end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MpaOffer {
    /// Reads and atomics of the peer that can be served at a time.
    pub ird: u16,
    /// Up to where `ird` may be raised when the peer wishes for more; a power of two.
    pub ird_max: u16,
    /// Reads and atomics that are wished to be outstanding at a time.
    pub ord: u16,
    /// Whether CRCs are wanted. They are in use if either end wants them; only an administrator
    /// may decide against them (RFC 5044, section 4.4).
    pub crc: bool,
    /// Whether the peer is to put markers into what it sends. Linux siw refuses that.
    pub markers: bool,
    /// Initiator: whether to confirm with a ready-to-receive indication, so that either side may
    /// be the first to send. A responder does as the initiator asks.
    pub peer_to_peer: bool,
    /// Initiator: whether to use RFC 6581. A responder does as the initiator asks.
    pub enhanced: bool,
    /// For the application at the other end, at most [`MAX_PRIVATE_DATA`] bytes.
    pub private_data: Vec<u8>,
}

impl MpaOffer {
    /// The usual offer: with CRCs and ready-to-receive indication, without markers.
    pub fn new(ird: u16, ord: u16) -> Self {
        Self {
            ird,
            ird_max: DEFAULT_IRD_MAX,
            ord,
            crc: true,
            markers: false,
            peer_to_peer: true,
            enhanced: true,
            private_data: Vec::new(),
        }
    }

    /// The depth to advertise for `ird`. Linux siw rounds depths up to powers of two and may have
    /// that many Reads outstanding, so a power of two is what it gets.
    fn advertised_ird(&self, ird: u16) -> u16 {
        let most = self.ird_max.min(DEPTH_MAX);
        match ird {
            0 => 0,
            _ => ird.min(most).next_power_of_two().min(most),
        }
    }

    fn check(&self) -> Result<(), MpaError> {
        check_private_data(&self.private_data)
    }
}

/// The first message of an initiator, which tells the responder that it may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rtr {
    /// A zero-length Write.
    Write,
    /// A zero-length Read.
    Read,
}

/// Result of the negotiation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Agreed {
    /// FPDUs carry valid CRCs, in both directions.
    pub crc: bool,
    /// The peer puts markers into what it sends.
    pub markers_in: bool,
    /// Markers go into what is sent to the peer.
    pub markers_out: bool,
    /// Reads and atomics of the peer to be ready for.
    pub ird: u16,
    /// Reads and atomics that may be outstanding.
    pub ord: u16,
    /// Initiator: what to send before anything else. Responder: what it will be.
    pub rtr: Option<Rtr>,
    /// The inbound depth that the peer told, if RFC 6581 is in use.
    pub peer_ird: Option<u16>,
    /// The outbound depth that the peer told, if RFC 6581 is in use.
    pub peer_ord: Option<u16>,
    /// What the application at the other end sent along.
    pub private_data: Vec<u8>,
    /// The Request and the Reply, as they travelled.
    pub frames: [Vec<u8>; 2],
}

/// A well-formed answer to a Request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MpaReply {
    /// Full operation begins.
    Accepted(Agreed),
    /// The responder does not want the connection.
    Rejected {
        /// What its application sent along.
        private_data: Vec<u8>,
        /// Its inbound depth, if told.
        peer_ird: Option<u16>,
        /// Its outbound depth, if told.
        peer_ord: Option<u16>,
    },
    /// The responder accepted on terms that cannot be met. It is told by a Terminate with the code
    /// of `error`, as the only message of a stream that keeps to `agreed` (RFC 6581, section 9).
    Unacceptable {
        /// How to frame the Terminate.
        agreed: Agreed,
        /// The error.
        error: MpaError,
    },
}

/// The end that sends the Request.
#[derive(Clone, Debug)]
pub struct Initiator {
    offer: MpaOffer,
}

impl Initiator {
    /// Starts an exchange.
    ///
    /// # Errors
    /// [`MpaError::PrivateDataTooLong`].
    pub fn new(offer: MpaOffer) -> Result<Self, MpaError> {
        offer.check()?;
        Ok(Self { offer })
    }

    /// The Request frame.
    pub fn request(&self) -> Vec<u8> {
        let offer = &self.offer;
        let block = offer.enhanced.then(|| Enhanced {
            peer_to_peer: offer.peer_to_peer,
            rtr_send: false,
            rtr_write: offer.peer_to_peer,
            rtr_read: offer.peer_to_peer,
            ird: offer.advertised_ird(offer.ird),
            ord: self.wanted_ord(),
        });
        let frame = StartFrame {
            kind: StartKind::Request,
            markers: offer.markers,
            crc: offer.crc,
            reject: false,
            enhanced: offer.enhanced,
            revision: if offer.enhanced { REVISION_ENHANCED } else { REVISION },
            private_data: &[],
        };
        encode(frame, block, &offer.private_data)
    }

    /// Takes the Reply, which `bytes` must be exactly.
    ///
    /// # Errors
    /// The connection is to be closed without another word.
    pub fn handle_reply(&self, bytes: &[u8]) -> Result<MpaReply, MpaError> {
        let frame = StartFrame::parse(bytes, StartKind::Reply)?;
        if frame.reject {
            return Ok(rejected(&frame));
        }
        let expected = if self.offer.enhanced { REVISION_ENHANCED } else { REVISION };
        let block_missing = self.offer.enhanced && !frame.enhanced;
        if frame.revision != expected || block_missing {
            return Err(MpaError::Revision(frame.revision));
        }
        let agreed = Agreed {
            crc: self.offer.crc || frame.crc,
            markers_in: self.offer.markers,
            markers_out: frame.markers,
            ird: self.offer.advertised_ird(self.offer.ird),
            ord: self.offer.ord,
            frames: [self.request(), bytes.to_vec()],
            ..Agreed::default()
        };
        if !self.offer.enhanced {
            return Ok(MpaReply::Accepted(Agreed {
                private_data: frame.private_data.to_vec(),
                ..agreed
            }));
        }
        let (block, private_data) = Enhanced::split(frame.private_data)?;
        Ok(self.settle(agreed, block, private_data))
    }

    /// Applies the responder's depths and indications (RFC 6581, sections 9.1 and 9.2).
    fn settle(&self, mut agreed: Agreed, block: Enhanced, private_data: &[u8]) -> MpaReply {
        agreed.private_data = private_data.to_vec();
        agreed.peer_ird = Some(block.ird);
        agreed.peer_ord = Some(block.ord);
        agreed.ord = match block.ird {
            Enhanced::UNSPECIFIED => self.wanted_ord(),
            ird => self.wanted_ord().min(ird),
        };
        if block.ord != Enhanced::UNSPECIFIED {
            agreed.ird = agreed.ird.max(block.ord);
        }
        if agreed.ird > self.offer.ird_max {
            return MpaReply::Unacceptable { agreed, error: MpaError::InsufficientIrd };
        }
        if self.offer.peer_to_peer && block.peer_to_peer {
            // A Write first: it needs no inbound read depth.
            agreed.rtr = if block.rtr_write {
                // What was asked for beyond the application's own was for a Read in its place.
                agreed.ord = agreed.ord.min(self.offer.ord);
                Some(Rtr::Write)
            } else if block.rtr_read && agreed.ord > 0 {
                Some(Rtr::Read)
            } else {
                return MpaReply::Unacceptable { agreed, error: MpaError::NoRtr };
            };
        }
        MpaReply::Accepted(agreed)
    }

    /// The outbound depth to ask for: a Read as ready-to-receive indication needs one.
    fn wanted_ord(&self) -> u16 {
        let least = if self.offer.peer_to_peer && self.offer.enhanced { 1 } else { 0 };
        self.offer.ord.clamp(least, Enhanced::UNSPECIFIED - 1)
    }
}

/// The end that sends the Reply.
#[derive(Clone, Debug)]
pub struct Responder {
    revision: u8,
    crc: bool,
    markers: bool,
    block: Option<Enhanced>,
    private_data: Vec<u8>,
    request: Vec<u8>,
}

impl Responder {
    /// Takes a Request, which `bytes` must be exactly.
    ///
    /// # Errors
    /// The connection is to be closed without a Reply.
    pub fn handle_request(bytes: &[u8]) -> Result<Self, MpaError> {
        let frame = StartFrame::parse(bytes, StartKind::Request)?;
        if !matches!(frame.revision, REVISION | REVISION_ENHANCED) {
            return Err(MpaError::Revision(frame.revision));
        }
        let (block, private_data) = match frame.revision == REVISION_ENHANCED && frame.enhanced {
            true => Enhanced::split(frame.private_data).map(|(b, data)| (Some(b), data))?,
            false => (None, frame.private_data),
        };
        Ok(Self {
            revision: frame.revision,
            crc: frame.crc,
            markers: frame.markers,
            block,
            private_data: private_data.to_vec(),
            request: bytes.to_vec(),
        })
    }

    /// What the initiator's application sent along.
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    /// The initiator's inbound depth, if RFC 6581 is in use.
    pub fn ird(&self) -> Option<u16> {
        self.block.map(|block| block.ird)
    }

    /// The outbound depth that the initiator wishes for, if RFC 6581 is in use.
    pub fn ord(&self) -> Option<u16> {
        self.block.map(|block| block.ord)
    }

    /// Accepts: the Reply to send, and what it settles.
    ///
    /// # Errors
    /// [`MpaError::PrivateDataTooLong`].
    pub fn accept(self, offer: &MpaOffer) -> Result<(Vec<u8>, Agreed), MpaError> {
        offer.check()?;
        let frame =
            StartFrame { markers: offer.markers, crc: offer.crc || self.crc, ..self.reply_frame() };
        let mut agreed = Agreed {
            crc: frame.crc,
            markers_in: offer.markers,
            markers_out: self.markers,
            ird: offer.advertised_ird(offer.ird),
            ord: offer.ord,
            peer_ird: self.ird(),
            peer_ord: self.ord(),
            ..Agreed::default()
        };
        let block = self.block.map(|request| settle_block(request, offer, &mut agreed));
        let bytes = encode(frame, block, &offer.private_data);
        agreed.private_data = self.private_data;
        agreed.frames = [self.request, bytes.clone()];
        Ok((bytes, agreed))
    }

    /// Refuses: the Reply to send. The connection is closed once TCP has taken it.
    ///
    /// # Errors
    /// [`MpaError::PrivateDataTooLong`].
    pub fn reject(&self, private_data: &[u8]) -> Result<Vec<u8>, MpaError> {
        check_private_data(private_data)?;
        let frame = StartFrame { crc: self.crc, reject: true, ..self.reply_frame() };
        let block = self.block.map(|request| Enhanced {
            ird: request.ord,
            ord: request.ird,
            ..indications(request)
        });
        Ok(encode(frame, block, private_data))
    }

    fn reply_frame(&self) -> StartFrame<'static> {
        StartFrame {
            kind: StartKind::Reply,
            markers: false,
            crc: false,
            reject: false,
            enhanced: self.block.is_some(),
            revision: self.revision,
            private_data: &[],
        }
    }
}

/// The responder's side of RFC 6581, sections 9.1 and 9.2: what to answer to `request`. An
/// unspecified depth is mirrored and leaves the own one as it is.
fn settle_block(request: Enhanced, offer: &MpaOffer, agreed: &mut Agreed) -> Enhanced {
    let mut reply = indications(request);
    agreed.rtr = match (reply.rtr_write, reply.rtr_read) {
        (true, _) => Some(Rtr::Write),
        (false, true) => Some(Rtr::Read),
        (false, false) => None,
    };
    let least = if agreed.rtr == Some(Rtr::Read) { 1 } else { 0 };
    let unspecified_ord = request.ord == Enhanced::UNSPECIFIED;
    let wished = if unspecified_ord { 0 } else { request.ord };
    agreed.ird = offer.advertised_ird(offer.ird.max(wished).max(least));
    reply.ird = if unspecified_ord { Enhanced::UNSPECIFIED } else { agreed.ird };
    reply.ord = match request.ird {
        Enhanced::UNSPECIFIED => Enhanced::UNSPECIFIED,
        ird => {
            agreed.ord = offer.ord.min(ird);
            agreed.ord
        }
    };
    reply
}

/// Which ready-to-receive indication to choose: a Write if it is among those offered or if none
/// that is understood here is.
fn indications(request: Enhanced) -> Enhanced {
    let read = request.rtr_read && !request.rtr_write;
    Enhanced {
        peer_to_peer: request.peer_to_peer,
        rtr_write: request.peer_to_peer && !read,
        rtr_read: request.peer_to_peer && read,
        ..Enhanced::default()
    }
}

/// A refusal; siw's may announce a block and have none.
fn rejected(frame: &StartFrame<'_>) -> MpaReply {
    let block = match frame.enhanced && frame.revision == REVISION_ENHANCED {
        true => Enhanced::split(frame.private_data).ok(),
        false => None,
    };
    MpaReply::Rejected {
        private_data: block.map_or(frame.private_data, |(_, data)| data).to_vec(),
        peer_ird: block.map(|(block, _)| block.ird),
        peer_ord: block.map(|(block, _)| block.ord),
    }
}

fn check_private_data(private_data: &[u8]) -> Result<(), MpaError> {
    match private_data.len() {
        0..=MAX_PRIVATE_DATA => Ok(()),
        len => Err(MpaError::PrivateDataTooLong(len)),
    }
}

/// `frame` with the block and the application's private data in it.
fn encode(frame: StartFrame<'_>, block: Option<Enhanced>, private_data: &[u8]) -> Vec<u8> {
    let mut content = block.map_or(Vec::new(), |block| block.to_bytes().to_vec());
    content.extend_from_slice(private_data);
    let mut bytes = Vec::with_capacity(HEADER_LEN + content.len());
    StartFrame { private_data: &content, ..frame }.encode(&mut bytes);
    bytes
}
