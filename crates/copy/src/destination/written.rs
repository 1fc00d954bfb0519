//! The file systems that were written to, each of which is flushed at the end: another one may be
//! mounted anywhere below the destination.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use weft_sync::Mutex;

use super::{DestinationTree, DirFd};

/// File systems of which a descriptor is kept, at most. Beyond that all of the machine's are
/// flushed.
const SYSTEMS_MAX: usize = 64;

/// A directory of each file system that was written to, by the number of its device.
#[derive(Default)]
pub(super) struct WrittenSystems {
    by_device: Mutex<HashMap<u64, DirFd>>,
}

impl WrittenSystems {
    /// One more than is kept says that there are more.
    fn add(&self, device: u64, dir: &DirFd) {
        let mut by_device = self.by_device.lock();
        if by_device.len() <= SYSTEMS_MAX {
            by_device.entry(device).or_insert_with(|| Arc::clone(dir));
        }
    }

    fn flush(&self) -> io::Result<()> {
        let by_device = self.by_device.lock();
        if by_device.len() > SYSTEMS_MAX {
            rustix::fs::sync();
        }
        // This one tells of errors.
        by_device.values().try_for_each(|dir| Ok(rustix::fs::syncfs(&**dir)?))
    }
}

impl DestinationTree {
    /// Something is written in `dir`, or to it, that is not flushed by itself.
    ///
    /// # Errors
    /// The system refuses.
    pub fn writes_in(&self, dir: &DirFd) -> io::Result<()> {
        let device = rustix::fs::fstat(&**dir)?.st_dev;
        self.written.add(device, dir);
        Ok(())
    }

    /// Makes durable what was [written](DestinationTree::writes_in).
    ///
    /// # Errors
    /// A disk has failed.
    pub fn flush_written(&self) -> io::Result<()> {
        self.written.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;

    use super::*;
    use crate::messages::{ListedEntry, ListedKind, SourceTime};
    use crate::received_file::write_small;
    use crate::rel_path::RelPath;

    #[test]
    fn each_file_system_that_was_written_to_is_flushed() {
        let dir = weft_testkit::Dir::new("written");
        let here = dir.root().canonicalize().unwrap();
        let mount = Path::new("/dev/shm").join(format!("weft-written-{}", std::process::id()));
        let device = |path: &Path| fs::metadata(path).map(|it| it.dev());
        if fs::create_dir(&mount).is_err() {
            return weft_testkit::skip("/dev/shm cannot be written to");
        }
        let is_other = device(&here).unwrap() != device(&mount).unwrap();
        // One of its directories is on one file system, and one on another.
        let tree = DestinationTree::open(b"/", 1, true, false).unwrap();
        for path in [here.join("a"), mount.join("b"), here.join("c")] {
            let path = path.as_os_str().as_bytes();
            let entry = ListedEntry {
                path: path.to_vec(),
                kind: ListedKind::File { size: 0, digest: None },
                mode: 0o644,
                modified: SourceTime::default(),
                owner: (u32::MAX, u32::MAX),
                xattrs: Vec::new(),
            };
            let place = tree.place(&RelPath::parse(&path[1..]).unwrap()).unwrap().unwrap();
            write_small(&tree, &place, &entry, None, false).unwrap();
        }
        let mut flushed: Vec<_> = tree.written.by_device.lock().keys().copied().collect();
        let mut expected = [&here, &mount].map(|path| device(path).unwrap()).to_vec();
        fs::remove_dir_all(&mount).unwrap();
        if !is_other {
            return weft_testkit::skip("/dev/shm is no file system of its own");
        }
        flushed.sort_unstable();
        expected.sort_unstable();
        assert_eq!(flushed, expected);
        tree.flush_written().unwrap();
    }

    #[test]
    fn not_more_descriptors_are_kept_than_said() {
        let dir = weft_testkit::Dir::new("written-many");
        let tree = DestinationTree::open(dir.root().as_os_str().as_bytes(), 1, true, false);
        let written = WrittenSystems::default();
        let root = tree.unwrap().directory(&RelPath::default()).unwrap().unwrap();
        (0..1000).for_each(|device| written.add(device, &root));
        assert_eq!(written.by_device.lock().len(), SYSTEMS_MAX + 1);
    }
}
