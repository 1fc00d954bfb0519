//! The mark by which `weft` tells its preloaded libraries from any other shared library.

/// An ELF note of the owner `Weft` without a description (System V ABI, chapter 5, Note Section).
/// Linkers and `strip` keep notes.
#[repr(C, align(4))]
pub struct LibraryMark {
    name_bytes: u32,
    description_bytes: u32,
    kind: u32,
    name: [u8; 8],
}

impl LibraryMark {
    /// The note.
    pub const NOTE: Self =
        Self { name_bytes: 5, description_bytes: 0, kind: 1, name: *b"Weft\0\0\0\0" };
}

/// Has a function called when the library is loaded, once in a library. It runs before `main`, and
/// before most of the program is there: it makes no thread and no descriptor.
#[macro_export]
macro_rules! at_load {
    ($function:path) => {
        // SAFETY: a section of functions without arguments, which the loader calls once each.
        #[used]
        #[unsafe(link_section = ".init_array")]
        static AT_LOAD: extern "C" fn() = $function;
    };
}

/// Puts the mark into the section that is named, once in a library.
#[macro_export]
macro_rules! mark_library {
    ($section:literal) => {
        // SAFETY: a section of notes, which nothing runs or writes.
        #[used]
        #[unsafe(link_section = $section)]
        static LIBRARY_MARK: $crate::mark::LibraryMark = $crate::mark::LibraryMark::NOTE;
    };
}
