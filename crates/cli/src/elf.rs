//! ELF, as far as needed to tell whether a program can be intercepted and what it is linked with.
//!
//! Only files of this machine's own kind are read past their first bytes; nothing is trusted, a
//! file that does not add up is an error.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use object::LittleEndian;
use object::elf::{
    DT_NEEDED, DT_SONAME, DT_STRSZ, DT_STRTAB, Dyn64, ELFCLASS64, ELFDATA2LSB, ELFMAG, EM_AARCH64,
    EM_LOONGARCH, EM_RISCV, EM_X86_64, FileHeader64, Machine, ProgramHeader64,
};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::read::{ReadCache, Result, StringTable};
use weft_os::plain_file;

/// Requirements of an ELF file on the dynamic linker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Elf {
    /// The program interpreter; none for a static program and for a library.
    pub interpreter: Option<Vec<u8>>,
    /// The names of the libraries it needs.
    pub needed: Vec<Vec<u8>>,
    /// Whether it is a library by its own account. The dynamic linker is one, and a program too.
    pub is_library: bool,
    /// Whether it was built by Go.
    pub go: bool,
    /// Which of Weft's libraries it is, by its mark: one of [`MARKS`].
    pub mark: Option<&'static str>,
}

/// Kind of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BinaryKind {
    /// An ELF file for this machine.
    Native(Elf),
    /// An ELF file for another machine or word size.
    Foreign,
    /// Something else.
    NotElf,
}

/// The sections by which Weft's libraries are known: with the verbs devices, and for sockets.
pub const MARKS: [&str; 2] = [".note.weft.verbs", ".note.weft.sockets"];
/// The section that every Go program has, stripped or not.
const GO_SECTION: &[u8] = b".go.buildinfo";

type ElfHeader = FileHeader64<LittleEndian>;
type LoadSegment = ProgramHeader64<LittleEndian>;
type DynamicEntry = Dyn64<LittleEndian>;
type Data<'a> = &'a ReadCache<File>;

/// Looks at the file `path`.
///
/// # Errors
/// The file cannot be read, or is damaged.
pub fn read(path: &Path) -> io::Result<BinaryKind> {
    let (file, _) = plain_file::open(path)?;
    let mut ident = [0; 6];
    match file.read_exact_at(&mut ident, 0) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            return Ok(BinaryKind::NotElf);
        }
        other => other?,
    }
    if ident[..4] != ELFMAG {
        return Ok(BinaryKind::NotElf);
    }
    let is_narrow = ident[4..] != [ELFCLASS64.0, ELFDATA2LSB.0];
    let kind = if is_narrow { Ok(BinaryKind::Foreign) } else { parse(&ReadCache::new(file)) };
    kind.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

fn parse(data: Data<'_>) -> Result<BinaryKind> {
    let header = ElfHeader::parse(data)?;
    if Some(header.e_machine(LittleEndian)) != own_machine() {
        return Ok(BinaryKind::Foreign);
    }
    let segments = header.program_headers(LittleEndian, data)?;
    let mut interpreters = segments.iter().map(|segment| segment.interpreter(LittleEndian, data));
    Ok(BinaryKind::Native(Elf {
        interpreter: interpreters.find_map(Result::transpose).transpose()?.map(<[u8]>::to_vec),
        needed: needed(segments, data)?,
        is_library: dynamic(segments, data)?
            .iter()
            .any(|entry| entry.tag(LittleEndian) == DT_SONAME),
        // Sections are for tools: a program runs without them, and with damaged ones.
        go: has_section(header, data, GO_SECTION).unwrap_or(false),
        mark: MARKS
            .into_iter()
            .find(|mark| has_section(header, data, mark.as_bytes()).unwrap_or(false)),
    }))
}

fn own_machine() -> Option<Machine> {
    match std::env::consts::ARCH {
        "x86_64" => Some(EM_X86_64),
        "aarch64" => Some(EM_AARCH64),
        "riscv64" => Some(EM_RISCV),
        "loongarch64" => Some(EM_LOONGARCH),
        _ => None,
    }
}

/// What the file tells the dynamic linker.
fn dynamic<'a>(segments: &[LoadSegment], data: Data<'a>) -> Result<&'a [DynamicEntry]> {
    let mut tables = segments.iter().map(|segment| segment.dynamic(LittleEndian, data));
    Ok(tables.find_map(Result::transpose).transpose()?.unwrap_or_default())
}

fn needed(segments: &[LoadSegment], data: Data<'_>) -> Result<Vec<Vec<u8>>> {
    let entries = dynamic(segments, data)?;
    let value = |tag| {
        let entry = entries.iter().find(|entry| entry.tag(LittleEndian) == tag);
        entry.map(|entry| entry.val(LittleEndian))
    };
    let (Some(at), Some(size)) = (value(DT_STRTAB), value(DT_STRSZ)) else { return Ok(Vec::new()) };
    let mut places =
        segments.iter().map(|segment| segment.data_range(LittleEndian, data, at, size));
    let strings = places.find_map(|place| place.ok().flatten()).unwrap_or_default();
    let strings = StringTable::new(strings, 0, strings.len() as u64);
    let names = entries.iter().filter(|entry| entry.tag(LittleEndian) == DT_NEEDED);
    names.map(|name| Ok(name.string(LittleEndian, strings)?.to_vec())).collect()
}

fn has_section(header: &ElfHeader, data: Data<'_>, name: &[u8]) -> Result<bool> {
    let sections = header.sections(LittleEndian, data)?;
    Ok(sections.section_by_name(LittleEndian, name).is_some())
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
    fn a_pipe_is_refused_and_not_waited_for() {
        let path = std::env::temp_dir().join(format!("weft-elf-{}-pipe", std::process::id()));
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let kind = read(&path);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(kind.unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn sections_are_found_by_name() {
        let file = ReadCache::new(File::open(std::env::current_exe().unwrap()).unwrap());
        let header = ElfHeader::parse(&file).unwrap();
        assert!(has_section(header, &file, b".text").unwrap());
        assert!(!has_section(header, &file, GO_SECTION).unwrap());
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
