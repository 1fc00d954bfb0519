//! What is to be captured, in words: `FILE[,KEY=VALUE]...`.

use std::path::{Path, PathBuf};

use weft_units::Malformed;

/// What is written of a connection over Shuttle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CaptureView {
    /// As RoCE v2.
    #[default]
    Roce,
    /// As it is.
    Shuttle,
    /// Both, on two interfaces.
    Both,
}

impl CaptureView {
    /// Whether it has RoCE v2.
    pub(crate) fn has_roce(self) -> bool {
        self != Self::Shuttle
    }

    /// Whether it has Shuttle's packets.
    pub(crate) fn has_shuttle(self) -> bool {
        self != Self::Roce
    }
}

/// What is to be captured, and where it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaptureSpec {
    /// The file; `%p` in its name is the process id.
    pub path: PathBuf,
    /// Bytes after which the next file begins.
    pub size_bytes: Option<u64>,
    /// Files that are kept, if there is a size.
    pub files: u32,
    /// The only queue pair, counted from 1 within a process.
    pub qp: Option<u32>,
    /// What is written of Shuttle.
    pub view: CaptureView,
}

/// Why a text is no [`CaptureSpec`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CaptureSpecError {
    /// There is no file.
    #[error("a file is missing: FILE[,size=BYTES][,files=N][,qp=N][,view=roce|shuttle|both]")]
    NoFile,
    /// A part has a key that nobody knows.
    #[error("'{0}' is not one of size=BYTES, files=N, qp=N and view=roce|shuttle|both")]
    Unknown(String),
    /// A size that is none.
    #[error("size: {0}")]
    Size(#[from] Malformed),
    /// A number that is none, or 0.
    #[error("{0} is no number from 1 on")]
    Number(String),
    /// Files without the size of one.
    #[error("files=N needs size=BYTES, after which the next file begins")]
    FilesWithoutSize,
}

/// Files that are kept unless the text says how many.
const FILES: u32 = 10;

impl CaptureSpec {
    /// Reads `FILE[,size=BYTES][,files=N][,qp=N][,view=roce|shuttle|both]`.
    ///
    /// # Errors
    /// What of it cannot be.
    pub fn parse(text: &str) -> Result<Self, CaptureSpecError> {
        let mut parts = text.split(',').map(str::trim);
        let path = parts.next().filter(|path| !path.is_empty()).ok_or(CaptureSpecError::NoFile)?;
        let (size_bytes, qp, view) = Default::default();
        let mut spec = Self { path: Path::new(path).into(), size_bytes, files: 0, qp, view };
        for part in parts {
            spec.set(part)?;
        }
        match (spec.size_bytes, spec.files) {
            (None, 1..) => return Err(CaptureSpecError::FilesWithoutSize),
            (Some(_), 0) => spec.files = FILES,
            _ => {}
        }
        Ok(spec)
    }

    fn set(&mut self, part: &str) -> Result<(), CaptureSpecError> {
        let number = |value: &str| {
            let parsed = value.parse().ok().filter(|number| *number > 0);
            parsed.ok_or_else(|| CaptureSpecError::Number(part.into()))
        };
        match part.split_once('=') {
            Some(("size", size)) => {
                let bytes = weft_units::parse_bytes(size)?;
                if bytes == 0 {
                    return Err(CaptureSpecError::Number(part.into()));
                }
                self.size_bytes = Some(bytes);
            }
            Some(("files", value)) => self.files = number(value)?,
            Some(("qp", value)) => self.qp = Some(number(value)?),
            Some(("view", "roce")) => self.view = CaptureView::Roce,
            Some(("view", "shuttle")) => self.view = CaptureView::Shuttle,
            Some(("view", "both")) => self.view = CaptureView::Both,
            _ => return Err(CaptureSpecError::Unknown(part.into())),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_says_file_ring_queue_pair_and_view() {
        let spec = CaptureSpec::parse("out.pcapng, size=10M,files=3,qp=2,view=both").unwrap();
        assert_eq!(spec.path, Path::new("out.pcapng"));
        assert_eq!((spec.size_bytes, spec.files, spec.qp), (Some(10 << 20), 3, Some(2)));
        assert_eq!(spec.view, CaptureView::Both);
        let spec = CaptureSpec::parse("x").unwrap();
        assert_eq!((spec.size_bytes, spec.files, spec.view), (None, 0, CaptureView::Roce));
        assert_eq!(CaptureSpec::parse("x,size=1M").unwrap().files, FILES);
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        let error = |text: &str| CaptureSpec::parse(text).unwrap_err().to_string();
        assert!(error("").starts_with("a file is missing"));
        assert!(error("x,colour=red").contains("'colour=red' is not one of"));
        assert!(error("x,size=much").starts_with("size: "));
        assert!(error("x,size=0").contains("size=0"));
        assert_eq!(error("x,qp=0"), "qp=0 is no number from 1 on");
        assert!(error("x,files=3").contains("needs size"));
    }
}
