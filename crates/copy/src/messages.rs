//! What the two ends of a copy say to each other.
//!
//! A message is a head and, behind it, the bytes of the pieces that the head names, one behind the
//! other ([`weft_session::send_message`]). What the receiver says is short, so that a head of its
//! has several of it ([`send_replies`]): with one in each message 20,000 small files would wait for
//! room to say so, since the channel grants messages.
//!
//! Invariant: nothing is taken from a message that does not parse as a whole. What parses may still
//! be nonsense; who uses it checks.
//!
//! Order: [`Begin`](ToReceiver::Begin), then entries, pieces and failures as they come,
//! [`Listed`](ToReceiver::Listed); [`Finished`](ToSender::Finished), once all files are closed, is
//! the last word.

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};
use weft_session::ChannelSender;
pub use weft_session::{parse_message, send_message};

/// Bytes of a file that go in one piece, at most.
pub const PIECE_MAX: u64 = 256 * 1024;
/// Pieces in a message, at most.
pub const PIECES_MAX: usize = 96;
/// Files that are listed and not closed, at most. The sender holds to it, the receiver insists.
pub const OPEN_FILES_MAX: usize = 8192;
/// The same for files of more than one piece, each of which takes a descriptor.
pub const OPEN_LARGE_MAX: usize = 384;
/// Ranges that are wanted of a file, at most; one of a single piece has one. The receiver holds to
/// it, the sender insists.
pub const RANGES_MAX: usize = 4096;
/// Bytes of the receiver's words that go in one message, at most; one that is longer goes alone.
const REPLIES_BYTES_MAX: usize = 32 * 1024;
/// Bytes that one range or one word without a text takes, at most.
const WORD_BYTES_MAX: usize = 24;

/// A time of a source file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceTime {
    /// Seconds since 1970.
    pub secs: i64,
    /// Nanoseconds in that second.
    pub nanos: u32,
}

/// What the far end is asked for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum CopyRequest {
    /// To receive into this place.
    Receive {
        /// The path, as the user named it.
        destination: Vec<u8>,
        /// How.
        options: CopyOptions,
    },
    /// To receive one stream into a file.
    ReceiveStream {
        /// The path, as the user named it.
        destination: Vec<u8>,
    },
    /// To send what is in a file as a stream.
    SendStream {
        /// The path, as the user named it.
        source: Vec<u8>,
        /// The most to send, in bits per second.
        limit_bps: Option<u64>,
    },
    /// To send these.
    Send {
        /// The paths, as the user named them, with wildcards.
        sources: Vec<Vec<u8>>,
        /// How.
        options: CopyOptions,
    },
}

/// What both ends have to know.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyOptions {
    /// Directories with all that is in them.
    pub recursive: bool,
    /// Compare content instead of size and time.
    pub checksum: bool,
    /// Read back from the disk what was written.
    pub read_back: bool,
    /// Write nothing.
    pub dry_run: bool,
    /// Extended attributes too.
    pub xattrs: bool,
    /// The most to send, in bits per second.
    pub limit_bps: Option<u64>,
}

/// A name and a value of an extended attribute.
pub type Xattr = (Vec<u8>, Vec<u8>);

/// Something that is to be there at the end. Its number is how many were listed before it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedEntry {
    /// Its path below the destination, with `/` between names; empty for the destination itself.
    pub path: Vec<u8>,
    /// What it is.
    pub kind: ListedKind,
    /// Permissions.
    pub mode: u32,
    /// When it was changed last.
    pub modified: SourceTime,
    /// Numbers of its user and its group.
    pub owner: (u32, u32),
    /// Extended attributes.
    pub xattrs: Vec<Xattr>,
}

/// What an entry is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ListedKind {
    /// A file.
    File {
        /// Bytes.
        size: u64,
        /// BLAKE3 of all of it, if content is to be compared.
        digest: Option<[u8; 32]>,
    },
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink {
        /// Where it leads.
        target: Vec<u8>,
    },
    /// Another name of a file that was listed before, under this path.
    Hardlink {
        /// That path.
        to: Vec<u8>,
    },
}

/// Bytes of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilePiece {
    /// Number of the file.
    pub file: u64,
    /// Where they begin.
    pub offset: u64,
    /// How many they are.
    pub len: u64,
    /// Their BLAKE3, if they follow; otherwise they are zeros, a hole.
    pub hash: Option<[u8; 32]>,
    /// All of the file has been sent now, and it has not changed meanwhile.
    pub is_last: bool,
}

/// What the sender says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToReceiver {
    /// How many sources there are, and whether a directory is among them.
    Begin {
        /// Sources.
        sources: u32,
        /// Whether one of them is a directory.
        has_directory: bool,
    },
    /// What there is; directories before what is in them.
    Entries(Vec<ListedEntry>),
    /// Bytes of files.
    Pieces(Vec<FilePiece>),
    /// A file cannot be read, or has changed.
    Failed {
        /// Number of the file.
        file: u64,
        /// Its name and the reason.
        why: String,
    },
    /// Something that is no file cannot be copied.
    Problem(String),
    /// All was listed: so many files, and bytes in them.
    Listed {
        /// Files.
        files: u64,
        /// Bytes in them.
        bytes: u64,
    },
}

/// Whether a copy that [began](ToReceiver::Begin) so is of a single file, which may have another
/// name here than at its source.
pub fn is_single(sources: u32, has_directory: bool) -> bool {
    sources == 1 && !has_directory
}

/// What became of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileOutcome {
    /// It is there, whole.
    Complete,
    /// It was there already.
    Skipped,
    /// It is not there.
    Failed(String),
}

/// What the receiver says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToSender {
    /// It wants these ranges (start and end) of a file.
    Wants {
        /// Number of the file.
        file: u64,
        /// Start and end of each range, in order.
        ranges: Vec<(u64, u64)>,
    },
    /// A file needs nothing more.
    Closed {
        /// Number of the file.
        file: u64,
        /// What became of it.
        outcome: FileOutcome,
    },
    /// Something that is no file could not be made.
    Problem(String),
    /// The copy cannot go on.
    Fatal(String),
    /// All files are closed, and all that could be done is done and durable.
    Finished,
}

impl ToSender {
    /// Bytes that it takes in a message, at most.
    fn bytes_max(&self) -> usize {
        let more = match self {
            Self::Wants { ranges, .. } => ranges.len() * WORD_BYTES_MAX,
            Self::Closed { outcome: FileOutcome::Failed(why), .. }
            | Self::Problem(why)
            | Self::Fatal(why) => why.len(),
            Self::Closed { .. } | Self::Finished => 0,
        };
        WORD_BYTES_MAX + more
    }
}

/// Sends `replies` in as few messages as hold them.
///
/// # Errors
/// The channel has failed.
pub fn send_replies(to: &ChannelSender, replies: &[ToSender]) -> Result<()> {
    let mut rest = replies;
    while !rest.is_empty() {
        let mut bytes = 0;
        let fits = |reply: &&ToSender| {
            let is_first = bytes == 0;
            bytes += reply.bytes_max();
            is_first || bytes <= REPLIES_BYTES_MAX
        };
        let (now, later) = rest.split_at(rest.iter().take_while(fits).count());
        send_message(to, &now, &[])?;
        rest = later;
    }
    Ok(())
}

/// What the receiver said in a message: something, and no bytes behind it.
///
/// # Errors
/// It is no such message.
pub fn parse_replies(bytes: &[u8]) -> Result<Vec<ToSender>> {
    let (replies, payload) = parse_message::<Vec<ToSender>>(bytes)?;
    ensure!(payload.is_empty() && !replies.is_empty(), "a message of the receiver that is none");
    Ok(replies)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use weft_session::MESSAGE_MAX;

    use super::*;

    fn framed<T: Serialize>(head: &T, payload: &[u8]) -> Vec<u8> {
        let head = postcard::to_allocvec(head).unwrap();
        [&u32::try_from(head.len()).unwrap().to_le_bytes()[..], &head, payload].concat()
    }

    #[test]
    fn the_largest_message_of_pieces_fits() {
        let piece = FilePiece {
            file: u64::MAX,
            offset: u64::MAX,
            len: u64::MAX,
            hash: Some([7; 32]),
            is_last: true,
        };
        let head = ToReceiver::Pieces(vec![piece; PIECES_MAX]);
        let bytes = framed(&head, &vec![0; PIECE_MAX as usize]);
        assert!(bytes.len() <= MESSAGE_MAX, "{}", bytes.len());
        let (read, payload) = parse_message::<ToReceiver>(&bytes).unwrap();
        assert_eq!((read, payload.len() as u64), (head, PIECE_MAX));
    }

    #[test]
    fn replies_share_messages_that_are_not_too_long() {
        let (near_in, far_out) = std::io::pipe().unwrap();
        let (far_in, near_out) = std::io::pipe().unwrap();
        let near = weft_session::MessageChannel::through(near_in, near_out);
        let far = weft_session::MessageChannel::through(far_in, far_out);
        let closed = |file| ToSender::Closed { file, outcome: FileOutcome::Complete };
        let long = ToSender::Problem("x".repeat(2 * REPLIES_BYTES_MAX));
        let mut replies: Vec<_> = (0..1000).map(closed).collect();
        replies.extend([long, ToSender::Finished]);
        let expected = replies.clone();
        let sending = std::thread::spawn(move || send_replies(&near.sender(), &replies).unwrap());
        let (mut said, mut messages) = (Vec::new(), 0);
        while said.len() < expected.len() {
            let message = far.receiver().recv().unwrap().unwrap().into_bytes().unwrap();
            said.extend(parse_replies(&message).unwrap());
            messages += 1;
        }
        sending.join().unwrap();
        assert_eq!((said, messages), (expected, 3));
    }

    #[test]
    fn a_word_takes_no_more_than_is_reckoned() {
        let far = u64::MAX;
        for word in [
            ToSender::Wants { file: far, ranges: vec![(far, far); 200] },
            ToSender::Closed { file: far, outcome: FileOutcome::Failed("x".repeat(300)) },
            ToSender::Fatal("y".repeat(70_000)),
            ToSender::Finished,
        ] {
            assert!(postcard::to_allocvec(&word).unwrap().len() <= word.bytes_max(), "{word:?}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse_message::<ToReceiver>(&bytes);
            let _ = parse_replies(&bytes);
            let _ = parse_message::<CopyRequest>(&framed(&bytes, &[]));
        }
    }
}
