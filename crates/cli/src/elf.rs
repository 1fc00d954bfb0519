//! As much of ELF as tells whether a program can be intercepted, and what it must be linked with.
//!
//! Only files of this machine's own kind are read past their first bytes; nothing is trusted, a
//! file that does not add up is an error.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// What an ELF file asks of the dynamic linker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Elf {
    /// The program interpreter; none for a static program and for a library.
    pub interpreter: Option<Vec<u8>>,
    /// The names of the libraries it needs.
    pub needed: Vec<Vec<u8>>,
    /// It was built by Go.
    pub go: bool,
}

/// What a file turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BinaryKind {
    /// An ELF file for this machine.
    Native(Elf),
    /// An ELF file for another machine or word size.
    Foreign,
    /// Something else.
    NotElf,
}

const HEADER_LEN: usize = 64;
const PROGRAM_HEADER_LEN: usize = 56;
const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
/// The section that every Go program has, stripped or not.
const GO_SECTION: &[u8] = b".go.buildinfo";
const SECTION_HEADER_LEN: usize = 64;
/// More than any real file has of anything: what a damaged length may cost.
const TABLE_MAX: usize = 1 << 20;
const NAME_MAX: usize = 4096;

/// Looks at the file `path`.
///
/// # Errors
/// The file cannot be read, or is damaged.
pub fn read(path: &Path) -> io::Result<BinaryKind> {
    let file = File::open(path)?;
    let mut header = [0; HEADER_LEN];
    if let Err(error) = file.read_exact_at(&mut header, 0) {
        return if error.kind() == io::ErrorKind::UnexpectedEof {
            Ok(BinaryKind::NotElf)
        } else {
            Err(error)
        };
    }
    if !header.starts_with(b"\x7fELF") {
        return Ok(BinaryKind::NotElf);
    }
    let (class_64, little_endian) = (header[4] == 2, header[5] == 1);
    if !class_64 || !little_endian || Some(u16_at(&header, 18)) != own_machine() {
        return Ok(BinaryKind::Foreign);
    }
    let segments = segments(&file, &header)?;
    Ok(BinaryKind::Native(Elf {
        interpreter: interpreter(&file, &segments)?,
        needed: needed(&file, &segments)?,
        // Sections are for tools: a program runs without them, and with damaged ones.
        go: has_section(&file, &header, GO_SECTION).unwrap_or(false),
    }))
}

fn own_machine() -> Option<u16> {
    match std::env::consts::ARCH {
        "x86_64" => Some(62),
        "aarch64" => Some(183),
        "riscv64" => Some(243),
        "loongarch64" => Some(258),
        _ => None,
    }
}

#[derive(Clone, Copy, Debug)]
struct ElfSegment {
    kind: u32,
    offset: u64,
    address: u64,
    length: u64,
}

fn segments(file: &File, header: &[u8]) -> io::Result<Vec<ElfSegment>> {
    let (offset, count) = (u64_at(header, 32), usize::from(u16_at(header, 56)));
    if usize::from(u16_at(header, 54)) != PROGRAM_HEADER_LEN {
        return Err(damaged());
    }
    let table = bytes_at(file, offset, count * PROGRAM_HEADER_LEN)?;
    let parse = |entry: &[u8]| ElfSegment {
        kind: u32_at(entry, 0),
        offset: u64_at(entry, 8),
        address: u64_at(entry, 16),
        length: u64_at(entry, 32),
    };
    Ok(table.chunks_exact(PROGRAM_HEADER_LEN).map(parse).collect())
}

fn interpreter(file: &File, segments: &[ElfSegment]) -> io::Result<Option<Vec<u8>>> {
    let Some(segment) = segments.iter().find(|segment| segment.kind == PT_INTERP) else {
        return Ok(None);
    };
    name_at(file, segment.offset).map(Some)
}

fn needed(file: &File, segments: &[ElfSegment]) -> io::Result<Vec<Vec<u8>>> {
    let Some(dynamic) = segments.iter().find(|segment| segment.kind == PT_DYNAMIC) else {
        return Ok(Vec::new());
    };
    let length = usize::try_from(dynamic.length).map_err(|_| damaged())?;
    let table = bytes_at(file, dynamic.offset, length)?;
    let entries: Vec<(u64, u64)> =
        table.chunks_exact(16).map(|entry| (u64_at(entry, 0), u64_at(entry, 8))).collect();
    let Some((_, strings)) = entries.iter().find(|(tag, _)| *tag == DT_STRTAB) else {
        return Ok(Vec::new());
    };
    let strings = file_offset(segments, *strings).ok_or_else(damaged)?;
    let names = entries.iter().filter(|(tag, _)| *tag == DT_NEEDED);
    names.map(|(_, at)| name_at(file, strings.checked_add(*at).ok_or_else(damaged)?)).collect()
}

fn has_section(file: &File, header: &[u8], name: &[u8]) -> io::Result<bool> {
    let (offset, count) = (u64_at(header, 40), usize::from(u16_at(header, 60)));
    let of_names = usize::from(u16_at(header, 62));
    if usize::from(u16_at(header, 58)) != SECTION_HEADER_LEN || of_names >= count {
        return Ok(false);
    }
    let table = bytes_at(file, offset, count * SECTION_HEADER_LEN)?;
    let names = u64_at(&table, of_names * SECTION_HEADER_LEN + 24);
    for entry in table.chunks_exact(SECTION_HEADER_LEN) {
        let at = names.checked_add(u32_at(entry, 0).into()).ok_or_else(damaged)?;
        if name_at(file, at)? == name {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Where in the file the byte stands that is loaded at `address`.
fn file_offset(segments: &[ElfSegment], address: u64) -> Option<u64> {
    let loaded = segments.iter().filter(|segment| segment.kind == PT_LOAD);
    loaded.into_iter().find_map(|segment| {
        let inside = address.checked_sub(segment.address)?;
        (inside < segment.length).then(|| segment.offset.checked_add(inside))?
    })
}

fn bytes_at(file: &File, offset: u64, length: usize) -> io::Result<Vec<u8>> {
    if length > TABLE_MAX {
        return Err(damaged());
    }
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}

/// The bytes up to the next NUL.
fn name_at(file: &File, offset: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; NAME_MAX];
    let length = file.read_at(&mut bytes, offset)?;
    let end = bytes[..length].iter().position(|&b| b == 0).ok_or_else(damaged)?;
    bytes.truncate(end);
    Ok(bytes)
}

fn damaged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a damaged ELF file")
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own_bytes() -> Vec<u8> {
        std::fs::read(std::env::current_exe().unwrap()).unwrap()
    }

    /// Reads `bytes` as a file of their own; `name` keeps tests apart that run at once.
    fn kind_of(name: &str, bytes: &[u8]) -> io::Result<BinaryKind> {
        let path = std::env::temp_dir().join(format!("weft-elf-{}-{name}", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        let kind = read(&path);
        std::fs::remove_file(&path).unwrap();
        kind
    }

    #[test]
    fn this_test_is_a_dynamic_program() {
        let BinaryKind::Native(elf) = read(&std::env::current_exe().unwrap()).unwrap() else {
            panic!("not native");
        };
        assert!(elf.interpreter.unwrap().starts_with(b"/"));
        assert!(elf.needed.iter().any(|name| name.starts_with(b"libc.so")));
        assert!(!elf.go);
    }

    #[test]
    fn other_files_are_told_apart() {
        assert_eq!(kind_of("text", b"#!/bin/sh\n").unwrap(), BinaryKind::NotElf);
        assert_eq!(kind_of("long", &[b'x'; 4096]).unwrap(), BinaryKind::NotElf);
        let mut narrow = own_bytes();
        narrow[4] = 1;
        assert_eq!(kind_of("narrow", &narrow).unwrap(), BinaryKind::Foreign);
        let mut machine = own_bytes();
        machine[18] ^= 1;
        assert_eq!(kind_of("machine", &machine).unwrap(), BinaryKind::Foreign);
        assert!(read(Path::new("/nonexistent/file")).is_err());
    }

    #[test]
    fn sections_are_found_by_name() {
        let path = std::env::current_exe().unwrap();
        let (file, header) = (File::open(&path).unwrap(), own_bytes()[..HEADER_LEN].to_vec());
        assert!(has_section(&file, &header, b".text").unwrap());
        assert!(!has_section(&file, &header, GO_SECTION).unwrap());
    }

    #[test]
    fn damage_is_an_error_and_never_a_panic() {
        let whole = own_bytes();
        assert!(kind_of("cut", &whole[..100]).is_err());
        for at in 16..1024 {
            let mut bytes = whole[..4096].to_vec();
            bytes[at] ^= 0xff;
            let _ = kind_of("flip", &bytes);
        }
    }
}
