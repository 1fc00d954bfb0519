//! The file of a capture: opened when the first packet comes, begun anew when it is full.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;
use std::process;
use std::sync::Arc;

use weft_os::{clock, own_file};
use weft_sync::Mutex;
use weft_wire::tap::TapDirection;

use crate::names::{claim, create_anew, numbered, program_name};
use crate::pcapng::{LinkType, PacketBlock, interface, section};
use crate::spec::CaptureSpec;
use crate::tap::{CaptureTap, CapturedQp};

/// What a process captures.
pub struct PacketCapture {
    spec: CaptureSpec,
    output: Mutex<Output>,
}

enum Output {
    /// No packet came yet.
    Waiting,
    Open(OpenFile),
    /// It could not be written.
    Ended,
}

struct OpenFile {
    file: File,
    /// The process that opened it: a forked child has a file of its own.
    process: u32,
    /// What all names of a ring begin with, and which of them this is.
    base: PathBuf,
    number: u32,
    written_bytes: u64,
    interfaces: HashMap<(String, LinkType), u32>,
}

/// A packet that is to be written.
pub(crate) struct CapturedPacket<'a> {
    pub interface: (&'a str, LinkType),
    pub direction: TapDirection,
    pub bytes: &'a [u8],
    pub comment: &'a str,
}

impl PacketCapture {
    /// A capture as `spec` says. Its file is made when there is something to write.
    pub fn new(spec: CaptureSpec) -> Arc<Self> {
        Arc::new(Self { spec, output: Mutex::new(Output::Waiting) })
    }

    /// What it captures.
    pub fn spec(&self) -> &CaptureSpec {
        &self.spec
    }

    /// What sees the packets of a connection of `qp`; none if that queue pair is not wanted.
    pub fn tap(self: &Arc<Self>, qp: CapturedQp) -> Option<CaptureTap> {
        let wanted = self.spec.qp.is_none_or(|wanted| wanted == qp.ordinal);
        wanted.then(|| CaptureTap::new(Arc::clone(self), qp))
    }

    /// Writes `packet`. If that fails, it says so once, and nothing is written any more.
    pub(crate) fn write(&self, packet: &CapturedPacket<'_>) {
        let mut output = self.output.lock();
        if let Err(error) = self.try_write(&mut output, packet) {
            *output = Output::Ended;
            let path = self.spec.path.display();
            log::warn!("the capture into {path} ends: {error}");
        }
    }

    fn try_write(&self, output: &mut Output, packet: &CapturedPacket<'_>) -> io::Result<()> {
        let stale = match output {
            Output::Waiting => true,
            Output::Open(open) => open.process != process::id(),
            Output::Ended => return Ok(()),
        };
        if stale {
            *output = Output::Open(OpenFile::begin(&self.spec)?);
        }
        let Output::Open(open) = output else { return Ok(()) };
        if self.spec.size_bytes.is_some_and(|size| open.written_bytes >= size) {
            open.turn(self.spec.files)?;
        }
        open.put(packet)
    }
}

impl OpenFile {
    /// The first file of this process.
    fn begin(spec: &CaptureSpec) -> io::Result<Self> {
        let process = process::id();
        let (base, file) = claim(&spec.path, spec.size_bytes.is_some(), process)?;
        let interfaces = HashMap::new();
        let mut open = Self { file, process, base, number: 1, written_bytes: 0, interfaces };
        open.put_section()?;
        Ok(open)
    }

    /// Goes on in the next file of the ring, of which `files` are kept.
    fn turn(&mut self, files: u32) -> io::Result<()> {
        if let Some(oldest) = self.number.checked_sub(files.saturating_sub(1)).filter(|n| *n > 0) {
            match fs::remove_file(numbered(&self.base, oldest)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        self.number += 1;
        self.file = create_anew(&numbered(&self.base, self.number))?;
        self.written_bytes = 0;
        self.interfaces.clear();
        self.put_section()
    }

    fn put_section(&mut self) -> io::Result<()> {
        self.put_block(&section(&format!("{}, process {}", program_name(), self.process)))
    }

    fn put(&mut self, packet: &CapturedPacket<'_>) -> io::Result<()> {
        let (name, link) = packet.interface;
        let key = (name.to_owned(), link);
        let next = self.interfaces.len() as u32;
        let number = self.interfaces.get(&key).copied().unwrap_or(next);
        if number == next {
            self.put_block(&interface(name, link))?;
            self.interfaces.insert(key, number);
        }
        let block = PacketBlock {
            interface: number,
            time_ns: clock::time_of_day_ns(),
            direction: packet.direction,
            bytes: packet.bytes,
            comment: packet.comment,
        };
        self.put_block(&block.encode())
    }

    fn put_block(&mut self, block: &[u8]) -> io::Result<()> {
        self.written_bytes += block.len() as u64;
        own_file::writing(|| self.file.write_all(block))
    }
}
