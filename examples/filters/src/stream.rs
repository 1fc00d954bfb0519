//! The two ends of a stream: a TCP socket of the C library's kind, and nothing else.

use std::io::{BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use anyhow::{Context, Error, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::UnitSize;
use crate::chain::UnitSink;
use crate::failure::FilterFailure;
use crate::frame::{self, FrameKind, HEADER, LONGEST, frame};
use crate::report::{FilterTraffic, GroupReport};

/// What a stream begins with.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StreamHello {
    /// The program of the group.
    pub program: String,
    /// The filter that speaks.
    pub from: String,
    /// The size of the group's units.
    pub unit: UnitSize,
}

/// How long the reason for a broken stream may take to arrive.
const REASON: Duration = Duration::from_secs(1);

/// The end that units leave by.
pub(crate) struct Downstream {
    socket: TcpStream,
    to: &'static str,
    buffer: Vec<u8>,
}

impl Downstream {
    /// Connects to the filter `to`, which listens at `address`, as `hello`; and waits until it is
    /// connected to all after it.
    pub fn connect(address: &str, to: &'static str, hello: &StreamHello) -> Result<Self> {
        let about = || format!("connecting to {to} at {address}; is it there?");
        let socket = TcpStream::connect(address).with_context(about)?;
        // A unit is ready when it is full: there is nothing to wait for.
        socket.set_nodelay(true)?;
        let mut stream = Self { socket, to, buffer: Vec::new() };
        stream.send(FrameKind::Hello, &serde_json::to_vec(hello)?)?;
        stream.expect(FrameKind::Ready)?;
        Ok(stream)
    }

    fn send(&mut self, kind: FrameKind, content: &[u8]) -> Result<()> {
        self.write(&frame(kind, content)?)
    }

    fn write(&mut self, frame: &[u8]) -> Result<()> {
        self.socket.write_all(frame).map_err(|error| self.reason(&error.into()))
    }

    /// Why the stream broke: what the other end said before that, or else what was seen of it.
    fn reason(&mut self, seen: &Error) -> Error {
        // Without a limit it is the peer's silence that would be waited for.
        let limited = self.socket.set_read_timeout(Some(REASON)).is_ok();
        match limited.then(|| self.answer()) {
            Some(Ok(FrameKind::Failed)) => told(&self.buffer[HEADER..]).into(),
            _ => self.broken(seen),
        }
    }

    fn broken(&self, seen: &Error) -> Error {
        FilterFailure::elsewhere(format!("the stream to {}: {seen:#}", self.to)).into()
    }

    fn answer(&mut self) -> Result<FrameKind> {
        frame::read(&mut self.socket, &mut self.buffer)
    }

    /// Waits for an answer, which is in the buffer then.
    fn expect(&mut self, kind: FrameKind) -> Result<()> {
        match self.answer() {
            Ok(answer) if answer == kind => Ok(()),
            Ok(FrameKind::Failed) => Err(told(&self.buffer[HEADER..]).into()),
            Ok(other) => bail!("{} answers {other:?} instead of {kind:?}", self.to),
            Err(seen) => Err(self.broken(&seen)),
        }
    }
}

impl UnitSink for Downstream {
    fn query(&mut self, query: &[u8]) -> Result<()> {
        self.send(FrameKind::Query, query)
    }

    fn unit(&mut self, unit: &[u8]) -> Result<()> {
        self.write(unit)
    }

    fn end(&mut self, flows: Vec<FilterTraffic>) -> Result<()> {
        self.send(FrameKind::End, &serde_json::to_vec(&flows)?)
    }

    fn done(&mut self) -> Result<GroupReport> {
        self.send(FrameKind::Done, &[])?;
        self.expect(FrameKind::Done)?;
        Ok(serde_json::from_slice(&self.buffer[HEADER..])?)
    }

    fn fail(&mut self, why: &str) {
        // Who is not there any more need not be told.
        let _ = self.send(FrameKind::Failed, cut(why).as_bytes());
    }
}

/// The end that units come in by.
pub(crate) struct Upstream {
    socket: BufReader<TcpStream>,
    from: &'static str,
    frame: Vec<u8>,
}

impl Upstream {
    /// Takes the first caller, which has to be the filter `from` of `program`.
    pub fn accept(
        listener: &TcpListener,
        program: &str,
        from: &'static str,
    ) -> Result<(Self, StreamHello)> {
        let (socket, peer) = listener.accept().context("waiting for a caller")?;
        let socket = BufReader::with_capacity(LONGEST, socket);
        let mut stream = Self { socket, from, frame: Vec::new() };
        let hello = stream.hello().with_context(|| format!("the caller {peer}"))?;
        let right = hello.program == program && hello.from == from;
        ensure!(
            right,
            "the caller {peer} is {} of {}, not {from} of {program}",
            hello.from,
            hello.program
        );
        Ok((stream, hello))
    }

    fn hello(&mut self) -> Result<StreamHello> {
        let kind = frame::read(&mut self.socket, &mut self.frame)?;
        ensure!(kind == FrameKind::Hello, "it does not say who it is");
        let mut hello: StreamHello = serde_json::from_slice(self.content())?;
        hello.unit = hello.unit.checked()?;
        Ok(hello)
    }

    fn content(&self) -> &[u8] {
        &self.frame[HEADER..]
    }

    /// Tells the other end that the chain is there from here on.
    pub fn ready(&mut self) -> Result<()> {
        self.socket
            .get_mut()
            .write_all(&frame(FrameKind::Ready, &[])?)
            .map_err(|e| self.broken(&e.into()))
    }

    fn broken(&self, seen: &Error) -> Error {
        FilterFailure::elsewhere(format!("the stream from {}: {seen:#}", self.from)).into()
    }

    /// Gives everything that comes to `stage`, until the group has finished.
    pub fn pump(&mut self, stage: &mut dyn UnitSink) -> Result<GroupReport> {
        loop {
            let kind = frame::read(&mut self.socket, &mut self.frame);
            let kind = kind.map_err(|error| self.broken(&error))?;
            match kind {
                FrameKind::Query => stage.query(self.content())?,
                FrameKind::Unit => stage.unit(&self.frame)?,
                FrameKind::End => stage.end(serde_json::from_slice(self.content())?)?,
                FrameKind::Done => return stage.done(),
                FrameKind::Failed => return Err(told(self.content()).into()),
                FrameKind::Hello | FrameKind::Ready => {
                    bail!("{} says {kind:?} out of turn", self.from)
                }
            }
        }
    }

    /// Tells the other end how the group finished.
    pub fn answer(&mut self, result: &Result<GroupReport>) {
        let answer = match result {
            Ok(report) => serde_json::to_vec(report).map(|text| frame(FrameKind::Done, &text)),
            Err(why) => Ok(frame(FrameKind::Failed, cut(&format!("{why:#}")).as_bytes())),
        };
        // Who is not there any more need not be told.
        if let Ok(Ok(frame)) = answer {
            let _ = self.socket.get_mut().write_all(&frame);
        }
    }
}

fn told(why: &[u8]) -> FilterFailure {
    FilterFailure::elsewhere(String::from_utf8_lossy(why))
}

/// As much of a text as anybody wants to read.
fn cut(text: &str) -> String {
    text.chars().take(1000).collect()
}
