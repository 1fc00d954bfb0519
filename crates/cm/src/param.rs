//! Connection parameters: how they are checked, what "all the device has" means, and how the two
//! sides' numbers cross over.

use crate::error::CmMisuse;

/// In a [`ConnParam`], as many as the device has.
pub const DEPTH_DEVICE_MAX: u8 = 0xFF;

/// The most retries that a queue pair can have, a number of three bits; after receiver-not-ready it
/// means without limit.
pub const RETRIES_MAX: u8 = 7;

/// Bytes of private data that can be sent, whatever the peer: the RFC allows 512 with the 4 of
/// RFC 6581, Linux's siw takes 256 with them and counts in a single byte when it sends.
pub const PRIVATE_DATA_MAX: usize = 251;

/// How many RDMA Reads may be outstanding: towards this side, and from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Depths {
    /// Inbound (IRD): what the peer may have outstanding here.
    pub ird: u16,
    /// Outbound (ORD): what this side may have outstanding at the peer.
    pub ord: u16,
}

/// Conventions of an id: which events it raises, and what their status means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CmConvention {
    /// iWARP, where the status of an event is an errno.
    #[default]
    Iwarp,
    /// InfiniBand and RoCE, where a rejection has a reason.
    InfiniBand,
    /// Those where datagrams are concerned: who refuses is unreachable, with the status of a
    /// service ID resolution (SIDR).
    Datagrams,
}

/// Properties of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceProperties {
    /// Largest depths.
    pub depths: Depths,
    /// Conventions of its events.
    pub manner: CmConvention,
}

/// Properties of a queue pair told to the peer's application; nothing here depends on them, and
/// iWARP does not carry them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QpTerms {
    /// Number of the queue pair; 0 if it is not known.
    pub qp_num: u32,
    /// Key of a queue pair that takes datagrams.
    pub qkey: u32,
    /// Flow control is available.
    pub flow_control: bool,
    /// Receives come from a shared queue.
    pub srq: bool,
    /// Retransmissions of a request: those of both sides follow the one that connects.
    pub retry_count: u8,
    /// Retransmissions of the other side's messages that find no receive here.
    pub rnr_retry_count: u8,
}

impl QpTerms {
    /// Has the queue pair of the side that answers repeat its requests as often as the side that
    /// asked, `asker`, has said (`rdma_connect(3)`).
    pub fn take_retries(&mut self, asker: QpTerms) {
        self.retry_count = asker.retry_count;
        self.rnr_retry_count = asker.rnr_retry_count;
    }
}

/// Parameters of connect and accept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnParam {
    /// Inbound read depth, or [`DEPTH_DEVICE_MAX`].
    pub responder_resources: u8,
    /// Outbound read depth, or [`DEPTH_DEVICE_MAX`].
    pub initiator_depth: u8,
    /// Private data, at most [`PRIVATE_DATA_MAX`] bytes.
    pub private_data: Vec<u8>,
    /// Properties of this side's queue pair.
    pub terms: QpTerms,
}

impl ConnParam {
    /// What stands for parameters that were not given: all the device has, the most retries, no
    /// private data.
    pub fn device_max() -> ConnParam {
        ConnParam {
            responder_resources: DEPTH_DEVICE_MAX,
            initiator_depth: DEPTH_DEVICE_MAX,
            private_data: Vec::new(),
            terms: QpTerms {
                retry_count: RETRIES_MAX,
                rnr_retry_count: RETRIES_MAX,
                ..QpTerms::default()
            },
        }
    }

    /// Checks the parameters against the device.
    ///
    /// # Errors
    /// [`CmMisuse::PrivateDataTooLong`], [`CmMisuse::DepthTooLarge`].
    pub fn check(&self, device: Depths) -> Result<(), CmMisuse> {
        check_private_data(&self.private_data)?;
        check_depth(self.responder_resources, device.ird)?;
        check_depth(self.initiator_depth, device.ord)
    }

    /// The depths these parameters ask for, where `most` is what "all" stands for.
    pub(crate) fn depths(&self, most: Depths) -> Depths {
        Depths {
            ird: depth(self.responder_resources, most.ird),
            ord: depth(self.initiator_depth, most.ord),
        }
    }
}

/// Checks the length of private data that this side wants to send.
///
/// # Errors
/// [`CmMisuse::PrivateDataTooLong`].
pub(crate) fn check_private_data(data: &[u8]) -> Result<(), CmMisuse> {
    if data.len() > PRIVATE_DATA_MAX {
        return Err(CmMisuse::PrivateDataTooLong(data.len()));
    }
    Ok(())
}

fn check_depth(asked: u8, device: u16) -> Result<(), CmMisuse> {
    if asked != DEPTH_DEVICE_MAX && u16::from(asked) > device {
        return Err(CmMisuse::DepthTooLarge { asked, device });
    }
    Ok(())
}

fn depth(asked: u8, most: u16) -> u16 {
    if asked == DEPTH_DEVICE_MAX { most } else { u16::from(asked) }
}

impl Depths {
    /// The other side's view: what is inbound there is outbound here.
    pub fn crossed(self) -> Depths {
        Depths { ird: self.ord, ord: self.ird }
    }

    /// Limits each depth to the device's.
    pub fn within(self, device: Depths) -> Depths {
        Depths { ird: self.ird.min(device.ird), ord: self.ord.min(device.ord) }
    }
}

/// A depth as an event carries it: one byte, and below the value that means "all".
pub(crate) fn event_depth(depth: u16) -> u8 {
    depth.min(u16::from(DEPTH_DEVICE_MAX - 1)) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICE: Depths = Depths { ird: 16, ord: 8 };

    #[test]
    fn all_means_what_the_device_has() {
        let param = ConnParam::device_max();
        assert_eq!(param.check(DEVICE), Ok(()));
        assert_eq!(param.depths(DEVICE), DEVICE);
    }

    #[test]
    fn every_depth_is_checked_against_its_own_limit() {
        for asked in 0..=u8::MAX {
            let inbound = ConnParam { responder_resources: asked, ..ConnParam::default() };
            let outbound = ConnParam { initiator_depth: asked, ..ConnParam::default() };
            let all = asked == DEPTH_DEVICE_MAX;
            assert_eq!(inbound.check(DEVICE).is_ok(), asked <= 16 || all, "inbound {asked}");
            assert_eq!(outbound.check(DEVICE).is_ok(), asked <= 8 || all, "outbound {asked}");
        }
    }

    #[test]
    fn private_data_ends_at_251_octets() {
        let param = |len| ConnParam { private_data: vec![7; len], ..ConnParam::default() };
        assert_eq!(param(251).check(DEVICE), Ok(()));
        assert_eq!(param(252).check(DEVICE), Err(CmMisuse::PrivateDataTooLong(252)));
    }

    #[test]
    fn an_event_depth_never_means_all() {
        assert_eq!(event_depth(3), 3);
        assert_eq!(event_depth(255), 254);
        assert_eq!(event_depth(0x3FFF), 254);
    }
}
