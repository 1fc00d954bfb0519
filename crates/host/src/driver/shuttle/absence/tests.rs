//! An attempt to connect, of which the test does the reactor's work at times that it invents.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Weak};

use weft_net::udp::UdpPort;
use weft_reactor::Pollable;
use weft_rnic::shuttle::{Route, ShuttleConfig};
use weft_rnic::{Binding, ShuttleQp, WhenClosed};
use weft_verbs::{QpCap, QpType, Wake};

use super::*;
use crate::conn_slot::ConnSlot;
use crate::driver::cm_hook::CmHook;
use crate::driver::{AnySocket, Beginning, Driver, LinkWatcher, todo};
use crate::managed::{config, identity};
use crate::{Context, DeviceKind, Host, HostQp, HostQpInit, HostSetup};

/// Time between two looks, shorter than the pauses of the connection.
const STEP: Duration = Duration::from_millis(50);

struct Silent;
impl Wake for Silent {
    fn wake(&self) {}
}
impl LinkWatcher for Silent {
    fn established(&self) {}
    fn disconnected(&self) {}
}

fn queue_pair() -> Arc<HostQp> {
    let host = Host::new(HostSetup::default());
    let context = Context::open(&host, DeviceKind::Roce, Box::new(Silent)).unwrap();
    let cq = || context.create_cq(1, None, 0).unwrap();
    let qp = context.create_qp(HostQpInit {
        kind: QpType::Rc,
        pd: context.alloc_pd(),
        send_cq: cq(),
        recv_cq: cq(),
        srq: None,
        xrcd: None,
        cap: QpCap::default(),
        sq_sig_all: false,
        cookie: 0,
    });
    qp.unwrap()
}

/// An attempt to connect to a peer that has answered a Probe.
struct Attempt {
    driver: Driver,
    /// The peer's socket, which hears nothing of the attempt: that its port is unreachable is what
    /// the kernel says to it.
    peer: UdpSocket,
    here: SocketAddr,
    began: Moment,
    now: Moment,
    _qp: Arc<HostQp>,
}

impl Attempt {
    fn begin() -> Self {
        let [peer, own] = [(); 2].map(|()| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
        let (here, there) = (own.local_addr().unwrap(), peer.local_addr().unwrap());
        peer.connect(there).unwrap();
        own.connect(there).unwrap();
        let qp = queue_pair();
        let route = Route { local: here, remote: there };
        let config = ShuttleConfig { cookie: vec![7; 16], ..config(qp.host(), &route) };
        let (identity, when_closed) = (identity(), WhenClosed::Stay);
        let binding = Binding { config, identity, route, when_closed };
        let began = clock::now();
        let queues = Arc::clone(qp.queues());
        let shuttle = Box::new(ShuttleQp::connect(queues, binding, b"", ns_at(began)).unwrap());
        let hook = CmHook::new(Arc::new(Silent), shuttle.connection().cid(), None);
        let beginning = Beginning::Managed { shuttle, hook, mentioned: true };
        let port = Arc::new(UdpPort::adopt(own.into()).unwrap());
        let driver = Driver::shuttle(qp.host(), qp.slot.woken(qp.inner()), port, beginning);
        Self { driver, peer, here, began, now: began, _qp: qp }
    }

    /// Goes on for this long; how the attempt has ended by then, and after how long.
    fn run(&mut self, time: Duration) -> Option<(Answer, Duration)> {
        let (end, nobody) = (self.now + time, Weak::<ConnSlot>::new());
        let nobody: Weak<dyn Pollable> = nobody;
        while self.now < end {
            self.now += STEP;
            self.driver.work(todo::RECEIVE | todo::SEND | todo::TIME, self.now);
            if let Some((_, answer)) = self.driver.finish_step(self.now, &nobody).answered {
                return Some((answer, self.now - self.began));
            }
        }
        None
    }

    fn is_to_be_mentioned(&self) -> bool {
        let AnySocket::Shuttle(socket) = &self.driver.socket else { return false };
        socket.silence.as_ref().is_some_and(|silence| silence.due().is_some())
    }
}

#[test]
fn an_attempt_ends_once_the_host_has_said_for_a_while_that_its_peer_is_no_more() {
    let (answer, after) = Attempt::begin().run(UNANSWERED_FAR).unwrap();
    assert!(matches!(answer, Answer::Nobody), "{answer}");
    assert!((UNANSWERED..UNANSWERED + 4 * ASK_PAUSE).contains(&after), "{after:?}");
}

#[test]
fn an_application_that_is_there_again_may_take_its_time_for_the_answer() {
    let mut attempt = Attempt::begin();
    assert!(attempt.run(UNANSWERED / 2).is_none());
    attempt.peer.connect(attempt.here).unwrap();
    assert!(attempt.run(2 * UNANSWERED_FAR).is_none());
}

#[test]
fn a_peer_that_has_answered_is_not_mentioned_as_silent() {
    let mut attempt = Attempt::begin();
    attempt.peer.connect(attempt.here).unwrap();
    assert!(attempt.is_to_be_mentioned());
    assert!(attempt.run(STEP).is_none());
    assert!(!attempt.is_to_be_mentioned());
}
