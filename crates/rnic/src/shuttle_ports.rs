//! The queue pair as a Shuttle connection sees it: where segments come from, and go to.

use weft_rdmap::{self as rdmap, RxPort, StreamFault, TxPort};
use weft_verbs::Qp;
use weft_verbs::mr::RegionReader;
use weft_wire::shuttle::StreamId;

/// The queue pair as the connection sees it.
pub(crate) struct QpPorts<'a> {
    rdmap: &'a mut rdmap::RdmapStream,
    qp: &'a Qp,
    pub regions: Option<&'a RegionReader<'a>>,
    pub heard: PlacementOutcome,
    /// Segments go through shared memory: the connection has none to carry.
    is_silent: bool,
}

/// What came of the segments that were placed.
#[derive(Clone, Copy, Default)]
pub(crate) struct PlacementOutcome {
    /// A message found no receive.
    pub held: bool,
    /// A Write ended that left something in memory.
    pub written: bool,
}

impl<'a> QpPorts<'a> {
    /// Without the regions nothing can be sent.
    pub fn mute(rdmap: &'a mut rdmap::RdmapStream, qp: &'a Qp, is_silent: bool) -> Self {
        Self { rdmap, qp, regions: None, heard: PlacementOutcome::default(), is_silent }
    }
}

impl weft_shuttle::Ports for QpPorts<'_> {
    type Fault = StreamFault;
    type Source<'a>
        = TxPort<'a>
    where
        Self: 'a;
    type Sink<'a>
        = PlacementSink<'a>
    where
        Self: 'a;

    fn source(&mut self, _: StreamId) -> Option<TxPort<'_>> {
        (!self.is_silent).then(|| TxPort::new(self.rdmap, self.qp, self.qp.sq(), self.regions))
    }

    fn sink(&mut self, _: StreamId) -> Option<PlacementSink<'_>> {
        if self.is_silent {
            return None;
        }
        Some(PlacementSink { port: RxPort::new(self.rdmap, self.qp, true), heard: &mut self.heard })
    }
}

/// The receiving side, which notes what came of it.
pub(crate) struct PlacementSink<'a> {
    port: RxPort<'a>,
    heard: &'a mut PlacementOutcome,
}

impl weft_wire::llp::UlpduSink for PlacementSink<'_> {
    type Fault = StreamFault;

    fn place(&mut self, seq: u64, ulpdu: &[u8]) -> Result<weft_wire::llp::Placed, StreamFault> {
        let placed = self.port.place(seq, ulpdu);
        self.heard.held |= self.port.held();
        self.heard.written |= self.port.written();
        placed
    }

    fn deliver(&mut self, frontier: u64) -> Result<(), StreamFault> {
        self.port.deliver(frontier)
    }
}
