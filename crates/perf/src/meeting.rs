//! Connects the streams of a test: the client connects all at once; private data shows which stream
//! each is, and by a token that it belongs to this test.

use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::control::{ControlConn, ControlMessage, wait_readable};
use crate::link::{self, StreamLink};
use crate::terms::{Happened, ReadDepth, Remote};
use crate::test::Test;
use crate::verbs::{Cm, OwnedCmId, VerbsDomain};

/// How long all streams together may take to be connected.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes of a token.
const TOKEN: usize = 16;
/// Bytes of an active side's private data: token, number, address, key.
const CARD: usize = TOKEN + 2 + 8 + 4;

/// Token: shows that a stream belongs to a test.
pub type StreamToken = [u8; TOKEN];

/// The connected streams of a test.
pub struct Meeting {
    /// Their ends on this side.
    pub links: Vec<StreamLink>,
    /// Their protection domain and completion queue.
    pub domain: Rc<VerbsDomain>,
    /// The device's name.
    pub device: String,
}

/// Parameters of connecting the streams.
pub struct Meet<'a> {
    /// Whether this side connects.
    pub calls: bool,
    /// Whether the side that answers has said that all streams are connected.
    pub announced: bool,
    /// The other side.
    pub control: &'a mut ControlConn,
    /// The test.
    pub test: &'a Test,
    /// Token of the test.
    pub token: StreamToken,
    /// The only device that will do.
    pub device: Option<&'a str>,
}

impl Meet<'_> {
    /// Connects all streams to a listening address.
    ///
    /// # Errors
    /// One of them cannot be connected.
    pub fn call(&mut self, cm: &Cm, to: std::net::SocketAddr) -> Result<Meeting> {
        let ends = self.test.ends();
        let mut calls = Vec::new();
        for active in ends {
            calls.push(MeetingAttempt {
                active,
                stage: MeetingStage::Resolving(cm.dial(to)?),
                connected: false,
            });
        }
        let mut domain = None;
        let until = Instant::now() + PATIENCE;
        while calls.iter().any(|call| !call.connected) {
            let (key, happened) = self.next(cm, until)?;
            let Some(index) = calls.iter().position(|call| call.stage.key() == key) else {
                continue;
            };
            self.go_on(&mut calls[index], index, happened, &mut domain)
                .with_context(|| format!("connecting to {to}"))?;
        }
        let links = calls.into_iter().filter_map(|call| call.stage.link()).collect();
        finish(links, domain)
    }

    fn go_on(
        &self,
        call: &mut MeetingAttempt,
        index: usize,
        happened: Happened<OwnedCmId>,
        domain: &mut Option<Rc<VerbsDomain>>,
    ) -> Result<()> {
        match (happened, std::mem::replace(&mut call.stage, MeetingStage::Gone)) {
            (Happened::AddressResolved, MeetingStage::Resolving(id)) => {
                self.must_be_wanted(&id)?;
                id.find_route()?;
                call.stage = MeetingStage::Resolving(id);
            }
            (Happened::RouteResolved, MeetingStage::Resolving(id)) => {
                let domain = self.domain(domain, &id)?;
                let link = StreamLink::new(id, &domain, self.test, index, call.active)?;
                link.connect(terms(&domain), &self.card(&link))?;
                call.stage = MeetingStage::Connecting(Box::new(link));
            }
            (Happened::Established(card), MeetingStage::Connecting(mut link)) => {
                link.meet(parse_memory(&card)?);
                call.connected = true;
                call.stage = MeetingStage::Connecting(link);
            }
            (Happened::Failed(why), _) => bail!("{why}"),
            (Happened::Disconnected, _) => bail!("the connection is over"),
            (_, stage) => call.stage = stage,
        }
        Ok(())
    }

    /// Grants all streams that come to a listener and belong to the test.
    ///
    /// # Errors
    /// Not all of them come, or one of them cannot be connected.
    pub fn answer(&mut self, cm: &Cm) -> Result<Meeting> {
        let ends = self.test.ends();
        let mut links: Vec<Option<StreamLink>> = ends.iter().map(|_| None).collect();
        let (mut domain, mut connected) = (None, 0);
        let until = Instant::now() + PATIENCE;
        while connected < ends.len() {
            match self.next(cm, until)? {
                (_, Happened::Request(id, card)) => {
                    let index = self
                        .parse_card(&card)
                        .filter(|(index, _)| links.get(*index).is_some_and(Option::is_none));
                    let Some((index, remote)) = index else {
                        id.reject();
                        continue;
                    };
                    self.must_be_wanted(&id).inspect_err(|_| id.reject())?;
                    let domain = self.domain(&mut domain, &id)?;
                    let mut link = StreamLink::new(id, &domain, self.test, index, !ends[index])?;
                    link.meet(remote);
                    link.accept(terms(&domain), &self.card(&link)[TOKEN + 2..])?;
                    links[index] = Some(link);
                }
                (_, Happened::Established(_)) => connected += 1,
                (_, Happened::Failed(why)) => bail!("{why}"),
                _ => {}
            }
        }
        finish(links.into_iter().flatten().collect(), domain)
    }

    /// The next event; an error if the other side has something else to say meanwhile.
    fn next(&mut self, cm: &Cm, until: Instant) -> Result<(usize, Happened<OwnedCmId>)> {
        loop {
            ensure!(Instant::now() < until, "not all streams were connected in time");
            wait_readable(&[cm.fd(), self.control.fd()], until)?;
            if wait_readable(&[cm.fd()], Instant::now())? {
                return cm.next();
            }
            match self.control.hear(Instant::now())? {
                None => {}
                // The other side saw it first.
                Some(ControlMessage::Connected) if self.calls => self.announced = true,
                Some(message) => bail!("the other side said {message:?} amid connecting"),
            }
        }
    }

    fn domain(
        &self,
        domain: &mut Option<Rc<VerbsDomain>>,
        id: &OwnedCmId,
    ) -> Result<Rc<VerbsDomain>> {
        if let Some(domain) = domain {
            return Ok(domain.clone());
        }
        let room = |active| {
            let sizes = link::sizes(self.test, active);
            u64::from(sizes.sends) + u64::from(sizes.receives)
        };
        let total: u64 = self.test.ends().iter().map(|_| room(true).max(room(false))).sum();
        let made = Rc::new(VerbsDomain::open(id, u32::try_from(total).unwrap_or(u32::MAX))?);
        *domain = Some(made.clone());
        Ok(made)
    }

    fn must_be_wanted(&self, id: &OwnedCmId) -> Result<()> {
        let (found, Some(wanted)) = (id.device(), self.device) else { return Ok(()) };
        ensure!(found == wanted, "the path to the other side uses {found}, not {wanted}");
        Ok(())
    }

    fn card(&self, link: &StreamLink) -> Vec<u8> {
        let Remote { address, key } = link.card();
        let mut card = self.token.to_vec();
        card.extend((link.index as u16).to_le_bytes());
        card.extend(address.to_le_bytes());
        card.extend(key.to_le_bytes());
        card
    }

    /// Which stream shows this, and its memory; nothing if it belongs elsewhere.
    fn parse_card(&self, card: &[u8]) -> Option<(usize, Remote)> {
        // InfiniBand pads private data to a fixed length.
        let card = card.get(..CARD)?;
        let (token, rest) = card.split_at(TOKEN);
        let (index, memory) = rest.split_first_chunk()?;
        let remote = parse_memory(memory).ok()?;
        (token == self.token).then_some((u16::from_le_bytes(*index).into(), remote))
    }
}

struct MeetingAttempt {
    active: bool,
    stage: MeetingStage,
    connected: bool,
}

enum MeetingStage {
    Resolving(OwnedCmId),
    Connecting(Box<StreamLink>),
    Gone,
}

impl MeetingStage {
    fn key(&self) -> usize {
        match self {
            Self::Resolving(id) => id.key(),
            Self::Connecting(link) => link.id().key(),
            Self::Gone => 0,
        }
    }

    fn link(self) -> Option<StreamLink> {
        match self {
            Self::Connecting(link) => Some(*link),
            _ => None,
        }
    }
}

fn terms(domain: &VerbsDomain) -> ReadDepth {
    ReadDepth { depth: domain.limits().reads }
}

fn parse_memory(bytes: &[u8]) -> Result<Remote> {
    let (address, rest) = bytes.split_first_chunk().context("the peer says not enough")?;
    let key = rest.first_chunk().context("the peer says not enough")?;
    Ok(Remote { address: u64::from_le_bytes(*address), key: u32::from_le_bytes(*key) })
}

fn finish(links: Vec<StreamLink>, domain: Option<Rc<VerbsDomain>>) -> Result<Meeting> {
    let device = links.first().map(|link| link.id().device()).unwrap_or_default();
    Ok(Meeting { links, domain: domain.context("there are no streams")?, device })
}
