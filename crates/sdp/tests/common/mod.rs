//! Two connections over the software RNIC's own queue pairs, and what their streams must be.
#![allow(dead_code)]

#[path = "../../../rnic/tests/common/mod.rs"]
pub mod rnic;

use rnic::{Memory, Side, agreed};
use weft_rnic::mpa::MpaRole;
use weft_sdp::{
    HelloRequest, Names, Opening, SdpCompletion, SdpConfig, SdpConnection, SdpEvent, SdpQueuePair,
    Stretch, Verbs,
};
use weft_verbs::Access;

/// Small buffers, so that everything that can run out does.
pub fn small() -> SdpConfig {
    SdpConfig {
        buffers: 8,
        buffer_octets: 256,
        buffer_octets_max: 256,
        high_octets: 600,
        low_octets: 200,
        ..SdpConfig::default()
    }
}

/// The same where the layer below holds senders back.
pub fn holding() -> SdpConfig {
    SdpConfig { holds: true, ..small() }
}

/// One end: a connection on a queue pair, and what came of it.
pub struct End {
    pub side: Side,
    _private: Memory,
    pub verbs: SdpQueuePair,
    pub connection: SdpConnection,
    pub events: Vec<SdpEvent>,
    /// Messages that it has received.
    pub messages: usize,
}

impl End {
    /// What has been completed goes to the connection.
    pub fn settle(&mut self) {
        // What waited for a receive may have one now.
        self.side.input(&[]);
        for wc in self.side.completions() {
            let completion = SdpCompletion::of(&wc).unwrap();
            self.messages += usize::from(wc.opcode >= 128 && completion.ok);
            self.connection.handle_completion(&mut self.verbs, completion);
        }
        self.events.extend(std::iter::from_fn(|| self.connection.poll_event()));
    }

    pub fn send(&mut self, data: &[u8]) -> usize {
        self.connection.send(&mut self.verbs, data).unwrap()
    }

    pub fn receive(&mut self, len: usize) -> Vec<u8> {
        let mut into = vec![0; len];
        let mut peeked = into.clone();
        let seen = self.connection.peek(&self.verbs, &mut peeked).unwrap();
        let copied = self.connection.receive(&mut self.verbs, &mut into).unwrap();
        assert_eq!((seen, &peeked), (copied, &into), "what is peeked at is read next");
        into.truncate(copied);
        into
    }

    /// Puts the bytes where they are sent from; in basic style there is no such place.
    pub fn put(&mut self, data: &[u8]) -> usize {
        let mut rest = data;
        for Stretch { at, len } in self.connection.vacant().collect::<Vec<_>>() {
            let (now, later) = rest.split_at(rest.len().min(len as usize));
            self.verbs.fill(at, now).unwrap();
            rest = later;
        }
        let put = data.len() - rest.len();
        self.connection.commit(&mut self.verbs, put as u32).unwrap();
        put
    }

    /// Takes bytes from where they have arrived; in basic style there is no such place.
    pub fn take(&mut self, len: usize) -> Vec<u8> {
        let mut taken = Vec::new();
        for stretch in self.connection.arrived() {
            let mut octets = vec![0; (len - taken.len()).min(stretch.len as usize)];
            self.verbs.fetch(stretch.at, &mut octets).unwrap();
            taken.append(&mut octets);
        }
        self.connection.consume(&mut self.verbs, taken.len()).unwrap();
        taken
    }

    pub fn shutdown(&mut self) {
        self.connection.shutdown(&mut self.verbs).unwrap();
    }

    pub fn took_event(&mut self, event: SdpEvent) -> bool {
        let before = self.events.len();
        self.events.retain(|e| *e != event);
        self.events.len() < before
    }
}

fn half(role: MpaRole, config: &SdpConfig, emss: u32) -> (Side, Memory, SdpQueuePair) {
    let mut side = Side::new(role, &agreed(), emss);
    side.mpa.wait_for_recv_forever();
    let octets = config.private_octets();
    let private = side.memory(octets, Access::LOCAL_WRITE);
    let entropy = rnic::entropy(if role == MpaRole::Initiator { 31 } else { 37 });
    let sge = private.sge(0, octets as u32);
    let verbs = SdpQueuePair::new(side.qp.clone(), side.pd.clone(), sge, entropy);
    (side, private, verbs)
}

/// Two ends with a connection.
pub fn pair_over(near: &SdpConfig, far: &SdpConfig, emss: u32) -> [End; 2] {
    let names = Names { ip_version: 4, port: 9, from: [1; 16], to: [2; 16] };
    let (side, private, mut verbs) = half(MpaRole::Initiator, near, emss);
    let opening = Opening::new(near, names, &mut verbs).unwrap();
    let (far_side, far_private, mut far_verbs) = half(MpaRole::Responder, far, emss);
    let request = HelloRequest::parse(&opening.hello()).unwrap();
    let (accepted, answer) = request.accept(far, &mut far_verbs).unwrap();
    let connection = opening.finish(&answer).unwrap();
    let end = |side, private, verbs, connection| End {
        side,
        _private: private,
        verbs,
        connection,
        events: Vec::new(),
        messages: 0,
    };
    let mut ends =
        [end(side, private, verbs, connection), end(far_side, far_private, far_verbs, accepted)];
    // A responder speaks once it has heard something.
    settle(&mut ends);
    ends
}

pub fn pair(config: &SdpConfig) -> [End; 2] {
    pair_over(config, config, 1460)
}

/// Carries at most `octets` of the wire from one end to the other; tells whether anything came of
/// it. TCP's window is closed while a message waits for a receive.
pub fn carry(ends: &mut [End; 2], from: usize, octets: usize) -> bool {
    let before = ends[1 - from].messages;
    let bytes =
        if ends[1 - from].side.mpa.is_held() { Vec::new() } else { ends[from].side.output(octets) };
    ends[1 - from].side.input(&bytes);
    ends[1 - from].settle();
    ends[from].settle();
    !bytes.is_empty() || ends[1 - from].messages > before
}

/// Carries everything both ways until nothing moves.
pub fn settle(ends: &mut [End; 2]) {
    for _ in 0..100_000 {
        if !(carry(ends, 0, usize::MAX) | carry(ends, 1, usize::MAX)) {
            return;
        }
    }
    panic!("the ends never come to rest");
}

/// What one direction's stream must be.
#[derive(Default)]
pub struct Stream {
    seed: u8,
    sent: usize,
    read: usize,
    /// Urgent bytes, and how many others were sent before each.
    urgent: Vec<(usize, u8)>,
    /// How many of these were taken, or passed over for later ones.
    taken: usize,
    /// Memory that is sent from, with its bytes, and memory that is read into.
    source: Option<(Memory, usize)>,
    sink: Option<Memory>,
    pub shut: bool,
}

impl Stream {
    pub fn new(seed: u8) -> Self {
        Self { seed, ..Self::default() }
    }

    fn octet(&self, at: usize) -> u8 {
        let mixed = (at as u32 ^ u32::from(self.seed) << 24).wrapping_mul(0x9e37_79b1);
        (mixed >> 24) as u8
    }

    pub fn send(&mut self, end: &mut End, len: usize) -> usize {
        self.send_by(end, len, End::send)
    }

    /// Sends by [`End::send`] or [`End::put`].
    pub fn send_by(
        &mut self,
        end: &mut End,
        len: usize,
        by: fn(&mut End, &[u8]) -> usize,
    ) -> usize {
        let data: Vec<u8> = (self.sent..self.sent + len).map(|at| self.octet(at)).collect();
        let taken = by(end, &data);
        assert!(taken <= len);
        self.sent += taken;
        taken
    }

    /// Has the peer read the next bytes, if that is possible now.
    pub fn send_from(&mut self, end: &mut End, len: usize) {
        if !end.connection.prefers_source(len as u64) {
            return;
        }
        let mut memory = end.side.memory(len as u64, Access::empty());
        for (at, word) in memory.bytes.iter_mut().enumerate() {
            let octets: Vec<u8> = (0..8).map(|i| self.octet(self.sent + 8 * at + i)).collect();
            *word = u64::from_ne_bytes(octets.try_into().unwrap());
        }
        end.connection.send_from(&mut end.verbs, memory.addr(), len as u32, 0).unwrap();
        self.source = Some((memory, len));
    }

    /// Fetches from the peer's memory, if that is possible now.
    pub fn receive_into(&mut self, end: &mut End, len: usize) {
        let idle = self.sink.is_none() && end.connection.readable() == 0;
        if end.connection.advertised() == 0 || !idle {
            return;
        }
        let memory = end.side.memory(len as u64, Access::empty());
        end.connection.receive_into(&mut end.verbs, memory.addr(), len as u32).unwrap();
        self.sink = Some(memory);
    }

    /// Has the peer write the next bytes, if that is possible now.
    pub fn invite(&mut self, end: &mut End, len: usize) {
        let memory = end.side.memory(len as u64, Access::empty());
        let invited = end.connection.invite(&mut end.verbs, memory.addr(), len as u32);
        if self.sink.is_none() && invited.is_ok() {
            self.sink = Some(memory);
        }
    }

    /// What `from` and `to` have been told of the memory in use.
    pub fn account(&mut self, from: &mut End, to: &mut End) {
        let sent = from.events.iter().position(|event| matches!(event, SdpEvent::Sent(_)));
        if let Some(SdpEvent::Sent(octets)) = sent.map(|at| from.events.remove(at)) {
            let (_, len) = self.source.take().expect("memory that is sent from");
            assert!(octets as usize <= len);
            self.sent += octets as usize;
        }
        let received = to.events.iter().position(|event| matches!(event, SdpEvent::Received(_)));
        let Some(SdpEvent::Received(octets)) = received.map(|at| to.events.remove(at)) else {
            return;
        };
        let memory = self.sink.take().expect("memory that is read into");
        for octet in &memory.octets()[..octets as usize] {
            assert_eq!(*octet, self.octet(self.read), "octet {} of the stream", self.read);
            self.read += 1;
        }
    }

    /// Sends one that no other is like.
    pub fn send_urgent(&mut self, end: &mut End) {
        let octet = self.urgent.len() as u8;
        if end.connection.send_urgent(&mut end.verbs, octet).unwrap() {
            self.urgent.push((self.sent, octet));
        }
    }

    /// Reads and checks; gives how many bytes there were.
    pub fn receive(&mut self, end: &mut End, len: usize) -> usize {
        self.receive_by(end, len, End::receive)
    }

    /// The same by [`End::receive`] or [`End::take`].
    pub fn receive_by(
        &mut self,
        end: &mut End,
        len: usize,
        by: fn(&mut End, usize) -> Vec<u8>,
    ) -> usize {
        let octets = by(end, len);
        for octet in &octets {
            assert_eq!(*octet, self.octet(self.read), "octet {} of the stream", self.read);
            self.read += 1;
        }
        let under_way = self.source.as_ref().map_or(0, |(_, len)| *len);
        assert!(self.read <= self.sent + under_way, "more was read than sent");
        let begun = self.read - octets.len();
        // A later one hides those before it, as in TCP.
        let passed = self.urgent.last().filter(|(at, _)| begun < *at && *at < self.read);
        assert_eq!(passed, None, "a read from {begun} to {} stops at the mark", self.read);
        octets.len()
    }

    pub fn receive_urgent(&mut self, end: &mut End) {
        let Some(octet) = end.connection.receive_urgent() else { return };
        let later = self.urgent[self.taken..].iter().position(|(_, sent)| *sent == octet);
        self.taken += later.expect("an urgent octet that was sent after the last") + 1;
    }

    /// Everything has arrived.
    pub fn check_whole(&mut self, end: &mut End) {
        assert!(self.source.is_none() && self.sink.is_none(), "memory is still in use");
        assert_eq!(self.read, self.sent, "octets of the stream");
        assert_eq!(end.connection.is_at_end(), self.shut, "the end of the stream");
        self.receive_urgent(end);
        assert_eq!(self.taken, self.urgent.len(), "the last urgent octet");
    }
}
