//! Keys do not stay in memory when they are dropped.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{FileExt, PermissionsExt};

use weft_net::secrecy::{Key, read_key_file};
use weft_rnic::shuttle::{Credentials, Opener, Sealer};
use weft_rnic::wire::datagram::Cipher;

/// What is looked for is kept as its complement, so that it is not found where it is described.
struct Needle(Vec<u8>);

/// Bytes of freed memory that the allocator overwrites itself.
const ALLOCATOR_BYTES: usize = 16;

impl Needle {
    fn of(bytes: &[u8]) -> Self {
        Self(bytes[ALLOCATOR_BYTES..].iter().map(|byte| !byte).collect())
    }

    fn stands_at(&self, start: &[u8]) -> bool {
        start.len() >= self.0.len() && start.iter().zip(&self.0).all(|(byte, not)| *byte == !*not)
    }

    /// How often it stands in memory that this process may write, but for stacks: what is passed
    /// by value leaves traces there, which the next calls overwrite.
    fn count(&self) -> usize {
        let on_stack = 0_u8;
        let here = &raw const on_stack as u64;
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let memory = File::open("/proc/self/mem").unwrap();
        let writable =
            maps.lines().filter(|line| line.contains(" rw") && !line.contains("[stack]"));
        let ranges = writable.filter_map(|line| {
            let (start, end) = line.split(' ').next()?.split_once('-')?;
            let address = |text| u64::from_str_radix(text, 16).ok();
            Some((address(start)?, address(end)?))
                .filter(|(start, end)| !(*start..*end).contains(&here))
        });
        ranges.map(|(start, end)| self.count_within(&memory, start, end)).sum()
    }

    fn count_within(&self, memory: &File, start: u64, end: u64) -> usize {
        let mut content = vec![0; (end - start) as usize];
        // Some of it may be gone since.
        if memory.read_exact_at(&mut content, start).is_err() {
            return 0;
        }
        let first = !self.0[0];
        let places = (0..content.len()).filter(|at| content[*at] == first);
        let found = places.filter(|at| self.stands_at(&content[*at..])).count();
        content.fill(0);
        found
    }
}

/// A key that only the heap knows, by its text in a file, and where that is found.
fn key_from_a_file() -> (Box<Key>, [Needle; 2]) {
    let mut bytes = Box::new([0_u8; 32]);
    File::open("/dev/urandom").unwrap().read_exact(bytes.as_mut_slice()).unwrap();
    let path = std::env::temp_dir().join(format!("weft-erased-{}", std::process::id()));
    let mut text = Key::new(*bytes).to_text().into_bytes();
    fs::write(&path, &text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let needles = [Needle::of(bytes.as_slice()), Needle::of(&text)];
    text.fill(0);
    bytes.fill(0);
    std::hint::black_box((&text, &bytes));
    let key = Box::new(read_key_file(&path).unwrap());
    fs::remove_file(&path).unwrap();
    (key, needles)
}

#[test]
fn keys_and_what_follows_from_them_are_overwritten() {
    let (key, [raw, text]) = key_from_a_file();
    assert!(raw.count() > 0, "the look is a good one");
    let credentials = Box::new(key.credentials());
    let Credentials::PreShared(shared) = &*credentials else { panic!("a key is shared") };
    let shared = Needle::of(shared);
    assert!(shared.count() > 0, "the look is a good one");
    let sealer = Box::new(Sealer::new(&key, Cipher::Aes128Gcm, 1, 2));
    let opener = Box::new(Opener::new(&key, 0, false));
    let copies = vec![key.clone(), key];
    drop((credentials, sealer, opener, copies));
    assert_eq!([raw, text, shared].map(|needle| needle.count()), [0; 3], "left in memory");
}
