//! Finds the C library's own `dlsym` and `dlvsym` by reading its dynamic section.
//!
//! This library defines both names, and whoever asks the dynamic linker for them by name gets
//! the definitions here. The tables of the loaded C library are the one place that still tells
//! where the real ones are.

use std::ffi::{CStr, c_char, c_int};
use std::mem::size_of;

const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_GNU_HASH: i64 = 0x6fff_fef5;
const DT_VERSYM: i64 = 0x6fff_fff0;
const VERSYM_HIDDEN: u16 = 0x8000;
const UNDEFINED_SECTION: u16 = 0;

#[repr(C)]
#[derive(Clone, Copy)]
struct Dyn {
    tag: i64,
    value: usize,
}

/// The tables of one loaded object.
struct Tables {
    base: usize,
    strings: *const c_char,
    symbols: *const libc::Elf64_Sym,
    hash: *const u32,
    versions: *const u16,
}

/// A loaded object, as the dynamic linker shows it to debuggers (`link_map`).
#[repr(C)]
struct LinkMap {
    base: usize,
    name: *const c_char,
    dynamic: *const Dyn,
    next: *const LinkMap,
}

/// The beginning of what it tells them in all.
#[repr(C)]
struct Debug {
    version: c_int,
    objects: *const LinkMap,
}

unsafe extern "C" {
    /// Variables have no interceptors, which functions such as `dl_iterate_phdr` have in programs
    /// with a sanitizer's runtime; that looks up its names before any of them works.
    static _r_debug: Debug;
}

/// The address of the default version of `name` in the object whose file is called `file`, which is
/// never unloaded.
pub fn find(file: &CStr, name: &CStr) -> Option<usize> {
    // SAFETY: the dynamic linker has filled it in before any code of an object runs.
    let mut next = unsafe { (&raw const _r_debug.objects).read_volatile() };
    loop {
        // SAFETY: objects are in the list while they are loaded; those that come before the C
        // library are loaded with the program.
        let object = unsafe { next.as_ref() }?;
        if is_called(object, file) {
            return read_dynamic(object.base, object.dynamic)?.lookup(name);
        }
        next = object.next;
    }
}

fn is_called(object: &LinkMap, file: &CStr) -> bool {
    if object.name.is_null() {
        return false;
    }
    // SAFETY: object names are NUL-terminated.
    let path = unsafe { CStr::from_ptr(object.name) }.to_bytes();
    path.rsplit(|c| *c == b'/').next() == Some(file.to_bytes())
}

fn read_dynamic(base: usize, mut entry: *const Dyn) -> Option<Tables> {
    let (mut strings, mut symbols, mut hash, mut versions) = (0, 0, 0, 0);
    loop {
        // SAFETY: the dynamic section is mapped and ends with a null tag, where the loop ends.
        let Dyn { tag, value } = unsafe { *entry };
        // The dynamic linker relocates these in place, except where the section is read-only.
        let address = if value < base { base + value } else { value };
        match tag {
            0 => break,
            DT_STRTAB => strings = address,
            DT_SYMTAB => symbols = address,
            DT_GNU_HASH => hash = address,
            DT_VERSYM => versions = address,
            _ => {}
        }
        entry = entry.wrapping_add(1);
    }
    let complete = [strings, symbols, hash, versions].iter().all(|a| *a != 0);
    complete.then_some(Tables {
        base,
        strings: strings as *const c_char,
        symbols: symbols as *const libc::Elf64_Sym,
        hash: hash as *const u32,
        versions: versions as *const u16,
    })
}

impl Tables {
    /// A GNU hash table: bucket count, first hashed symbol, Bloom words (skipped), Bloom shift,
    /// then the buckets, then a chain whose entries end with a set lowest bit.
    fn lookup(&self, name: &CStr) -> Option<usize> {
        let hash = gnu_hash(name.to_bytes());
        let (buckets, first, bloom) = (self.word(0), self.word(1), self.word(2) as usize);
        let bucket_at = 4 + bloom * (size_of::<u64>() / size_of::<u32>());
        let chain_at = bucket_at + buckets as usize;
        let mut index = self.word(bucket_at + (hash % buckets) as usize);
        if index < first {
            return None;
        }
        loop {
            let link = self.word(chain_at + (index - first) as usize);
            if link | 1 == hash | 1
                && let Some(address) = self.definition(index as usize, name)
            {
                return Some(address);
            }
            if link & 1 == 1 {
                return None;
            }
            index += 1;
        }
    }

    fn word(&self, index: usize) -> u32 {
        // SAFETY: indices come from the table's own counts, which the linker wrote.
        unsafe { *self.hash.wrapping_add(index) }
    }

    /// The address of symbol `index` if it is a default definition of `name`.
    fn definition(&self, index: usize, name: &CStr) -> Option<usize> {
        // SAFETY: the hash table only names symbols of the symbol table.
        let symbol = unsafe { &*self.symbols.wrapping_add(index) };
        // SAFETY: there is a version for each symbol.
        let version = unsafe { *self.versions.wrapping_add(index) };
        let text = self.strings.wrapping_add(symbol.st_name as usize);
        // SAFETY: symbol names are NUL-terminated strings of the string table.
        let same = unsafe { CStr::from_ptr(text) } == name;
        let default = version & VERSYM_HIDDEN == 0 && symbol.st_shndx != UNDEFINED_SECTION;
        (same && default).then(|| self.base + symbol.st_value as usize)
    }
}

fn gnu_hash(name: &[u8]) -> u32 {
    name.iter().fold(5381, |h: u32, c| h.wrapping_mul(33).wrapping_add(u32::from(*c)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_the_dynamic_linker_finds() {
        for name in [c"dlsym", c"dlvsym", c"malloc", c"qsort"] {
            // SAFETY: the name is NUL-terminated.
            let expected = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
            assert_eq!(find(c"libc.so.6", name), Some(expected as usize), "{name:?}");
        }
        assert_eq!(find(c"libc.so.6", c"no_such_symbol"), None);
        assert_eq!(find(c"no_such_library", c"malloc"), None);
    }
}
