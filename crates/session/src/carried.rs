//! Files that a program carries behind its own end, as the `weft` of a release carries its
//! libraries, so that it can be copied alone.
//!
//! `scripts/carry.sh` writes them: the files one after another, as one stream of xz; a list, whose
//! first line is the length of that stream, with a line `SHA-256 LEN NAME` for each file; and a
//! last line with the length of the list and its SHA-256. A program is run without looking behind
//! its end, so that one that carries files is an ordinary one.
//!
//! Order: [`CarriedFiles::of_this_program`], then [`CarriedFiles::unpack`].

use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use aws_lc_rs::digest::{SHA256, digest};

/// How the last line begins; what follows are `LEN SHA-256` and its end.
const MARK: &str = "weft carries ";
/// Digits of the length of the list, and of a SHA-256, both in hexadecimal.
const DIGITS: [usize; 2] = [8, 64];
/// Bytes of the last line.
const LAST_LINE: usize = MARK.len() + DIGITS[0] + 1 + DIGITS[1] + 1;
/// Bytes of a list, at most.
const LIST_MAX: u64 = 65_536;
/// Bytes of all files, at most.
const BYTES_MAX: u64 = 256 << 20;

/// What a program carries.
#[derive(Debug)]
pub struct CarriedFiles {
    program: File,
    id: String,
    /// Where the program itself ends, and the stream begins.
    own_len: u64,
    stream_len: u64,
    files: Vec<CarriedFile>,
}

#[derive(Debug, PartialEq, Eq)]
struct CarriedFile {
    name: PathBuf,
    sha256: String,
    len: u64,
}

impl CarriedFiles {
    /// What the program that runs carries, if it carries something.
    ///
    /// # Errors
    /// It cannot be read, or what is behind its end is damaged.
    pub fn of_this_program() -> Result<Option<Self>> {
        // By this name it is found also when the file was replaced since.
        let program = File::open("/proc/self/exe").context("opening weft itself")?;
        Self::of(program).context("reading what weft carries")
    }

    fn of(program: File) -> Result<Option<Self>> {
        let len = program.metadata()?.len();
        let Some(list_end) = len.checked_sub(LAST_LINE as u64) else { return Ok(None) };
        let mut last = [0; LAST_LINE];
        program.read_exact_at(&mut last, list_end)?;
        let Some((list_len, id)) = parse_last_line(&last) else { return Ok(None) };
        ensure!(list_len <= LIST_MAX.min(list_end), "its list of files is too long");
        let mut list = vec![0; list_len as usize];
        program.read_exact_at(&mut list, list_end - list_len)?;
        ensure!(hex_sha256(&list) == id, "its list of files is damaged");
        let list = std::str::from_utf8(&list).context("its list of files is no text")?;
        let (stream_len, files) = parse_list(list)?;
        let own_len = (list_end - list_len).checked_sub(stream_len);
        let own_len = own_len.context("its list names more bytes than it has")?;
        Ok(Some(Self { program, id, own_len, stream_len, files }))
    }

    /// What tells these files from those of any other program: 64 hexadecimal digits.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Puts the files into `dir`, which exists. One that is there and right is left alone; any
    /// other is replaced by rename, so that nobody ever finds half of one.
    ///
    /// # Errors
    /// A file or directory cannot be written.
    pub fn unpack(&self, dir: &Path) -> Result<()> {
        let lacking = |file: &&CarriedFile| !file.is_in(dir);
        let lacking: Vec<&CarriedFile> = self.files.iter().filter(lacking).collect();
        if lacking.is_empty() {
            return Ok(());
        }
        let all = self.read().context("reading what weft carries")?;
        let mut rest = &all[..];
        for file in &self.files {
            let (bytes, after) = rest.split_at(file.len as usize);
            rest = after;
            if lacking.contains(&file) {
                let to = dir.join(&file.name);
                put(&to, bytes).with_context(|| format!("cannot write {}", to.display()))?;
            }
        }
        Ok(())
    }

    /// The bytes of all files.
    fn read(&self) -> Result<Vec<u8>> {
        let mut program = &self.program;
        program.seek(SeekFrom::Start(self.own_len))?;
        let mut stream = BufReader::new(program.take(self.stream_len));
        let len: u64 = self.files.iter().map(|file| file.len).sum();
        let mut all = Vec::with_capacity(len as usize);
        if let Err(error) = lzma_rs::xz_decompress(&mut stream, &mut all) {
            bail!("its files are damaged: {error:?}");
        }
        ensure!(all.len() as u64 == len, "its files are not as long as its list says");
        Ok(all)
    }
}

impl CarriedFile {
    /// Whether the file is in `dir`, as it should be.
    fn is_in(&self, dir: &Path) -> bool {
        let path = dir.join(&self.name);
        let is_long =
            fs::symlink_metadata(&path).is_ok_and(|is| is.is_file() && is.len() == self.len);
        is_long && fs::read(&path).is_ok_and(|bytes| hex_sha256(&bytes) == self.sha256)
    }
}

fn hex_sha256(bytes: &[u8]) -> String {
    digest(&SHA256, bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn put(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    let new = path.with_extension(format!("new.{}", std::process::id()));
    let written = File::create(&new).and_then(|mut file| {
        file.write_all(bytes)?;
        fs::rename(&new, path)
    });
    if written.is_err() {
        // What is left of it is of no use; the first error is the one to tell.
        let _ = fs::remove_file(&new);
    }
    written
}

/// The length of the list and its SHA-256.
fn parse_last_line(line: &[u8]) -> Option<(u64, String)> {
    let line = std::str::from_utf8(line).ok()?.strip_prefix(MARK)?.strip_suffix('\n')?;
    let (len, id) = line.split_once(' ')?;
    let well_formed = [len, id].map(str::len) == DIGITS;
    let len = u64::from_str_radix(len, 16).ok()?;
    well_formed.then(|| (len, id.to_owned()))
}

/// The length of the stream, and the files in it.
fn parse_list(list: &str) -> Result<(u64, Vec<CarriedFile>)> {
    let (stream_len, lines) = list.split_once('\n').context("its list is empty")?;
    let stream_len = stream_len.parse().context("its list begins with no length")?;
    let files = lines.lines().map(parse_file).collect::<Result<Vec<_>>>()?;
    let sum = files.iter().try_fold(0, |sum: u64, file| sum.checked_add(file.len));
    ensure!(sum.is_some_and(|sum| sum <= BYTES_MAX), "its list names too many bytes");
    Ok((stream_len, files))
}

fn parse_file(line: &str) -> Result<CarriedFile> {
    let mut words = line.splitn(3, ' ');
    let mut word = || words.next().context("a line of its list has no length and name");
    let (sha256, len, name) = (word()?.to_owned(), word()?, PathBuf::from(word()?));
    let len = len.parse().context("a line of its list has no length")?;
    let is_below = name.components().all(|part| matches!(part, Component::Normal(_)));
    ensure!(is_below, "{} in its list is no place below a directory", name.display());
    Ok(CarriedFile { name, sha256, len })
}

/// Reads a program up to its own end, from where it is now.
pub(crate) fn without_carried(program: File) -> Result<impl Read> {
    let carried = CarriedFiles::of(program.try_clone().context("opening weft itself")?)?;
    let len = carried.map_or(u64::MAX, |carried| carried.own_len);
    Ok(program.take(len))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHA256_OF_ONE: &str = "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed";
    const SHA256_OF_THREE: &str =
        "8b5b9db0c13db24256c829aa364aa90c6d2eba318b9232a4ab9313b954d3555f";

    fn dir(test: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("weft-carried-{}-{test}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        dir
    }

    /// A program in `dir` with this behind it.
    fn program(dir: &Path, behind: &[u8]) -> File {
        fs::write(dir.join("program"), [b"itself", behind].concat()).unwrap();
        File::open(dir.join("program")).unwrap()
    }

    /// These bytes as a stream, with a list of these lines.
    fn behind(bytes: &str, lines: &str) -> Vec<u8> {
        let mut stream = Vec::new();
        lzma_rs::xz_compress(&mut bytes.as_bytes(), &mut stream).unwrap();
        let list = format!("{}\n{lines}", stream.len());
        let last = format!("{MARK}{:08x} {}\n", list.len(), hex_sha256(list.as_bytes()));
        [&stream[..], list.as_bytes(), last.as_bytes()].concat()
    }

    #[test]
    fn what_is_carried_is_unpacked_and_repaired() {
        let dir = dir("unpacked");
        let lines = format!("{SHA256_OF_ONE} 3 lib.so\n{SHA256_OF_THREE} 5 stubs/a/b.so.1\n");
        let behind = behind("onethree", &lines);
        let carried = CarriedFiles::of(program(&dir, &behind)).unwrap().unwrap();
        let [first, second] = ["lib.so", "stubs/a/b.so.1"].map(|name| dir.join(name));
        carried.unpack(&dir).unwrap();
        let read = || [&first, &second].map(|path| fs::read_to_string(path).unwrap());
        assert_eq!(read(), ["one", "three"]);
        let before = fs::metadata(&second).unwrap().modified().unwrap();
        fs::write(&first, "oNe").unwrap();
        carried.unpack(&dir).unwrap();
        assert_eq!(read(), ["one", "three"]);
        assert_eq!(fs::metadata(&second).unwrap().modified().unwrap(), before, "left alone");
        let mut own = String::new();
        without_carried(program(&dir, &behind)).unwrap().read_to_string(&mut own).unwrap();
        assert_eq!(own, "itself");
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn other_programs_carry_nothing() {
        let dir = dir("nothing");
        for behind in ["", &"x".repeat(200), &format!("{MARK}zzzzzzzz {SHA256_OF_ONE}\n")] {
            let carried = CarriedFiles::of(program(&dir, behind.as_bytes())).unwrap();
            assert!(carried.is_none(), "{behind}");
        }
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn what_is_damaged_is_told_of() {
        let dir = dir("damaged");
        for (lines, why) in [
            (format!("{SHA256_OF_ONE} 3 ../lib.so\n"), "no place"),
            (format!("{SHA256_OF_ONE} 3 /lib.so\n"), "no place"),
            (format!("{SHA256_OF_ONE} 999999999999 lib.so\n"), "too many bytes"),
            (format!("{SHA256_OF_ONE} x lib.so\n"), "no length"),
            (String::from("lib.so\n"), "no length"),
        ] {
            let error = CarriedFiles::of(program(&dir, &behind("one", &lines))).unwrap_err();
            assert!(error.to_string().contains(why), "{lines}: {error}");
        }
        let long = format!("{MARK}ffffffff {SHA256_OF_ONE}\n");
        let error = CarriedFiles::of(program(&dir, long.as_bytes())).unwrap_err();
        assert!(error.to_string().contains("too long"), "{error}");
        let mut changed = behind("one", &format!("{SHA256_OF_ONE} 3 lib.so\n"));
        let name = changed.len() - LAST_LINE - 2;
        changed[name] ^= 1;
        let error = CarriedFiles::of(program(&dir, &changed)).unwrap_err();
        assert!(error.to_string().contains("list of files is damaged"), "{error}");
        let longer = behind("one", &format!("{SHA256_OF_ONE} 4 lib.so\n"));
        let carried = CarriedFiles::of(program(&dir, &longer)).unwrap().unwrap();
        let error = format!("{:#}", carried.unpack(&dir).unwrap_err());
        assert!(error.contains("not as long"), "{error}");
        fs::remove_dir_all(dir).unwrap();
    }
}
