//! Policy: who may be spoken to, and under which key.
//!
//! All hosts have one key. Queue pairs find each other without a registry, so there is none to ask
//! for a peer's public key, and a datagram has no handshake in which to agree on one. Connections
//! agree on keys of their own besides; datagrams cannot.
//!
//! Invariant: without a key nothing that is not meant for this machine leaves, and nothing from
//! elsewhere is taken, unless `WEFT_INSECURE=1` says that clear text is meant, or iWARP, which has
//! no other, was asked for by name. A key that cannot be used lets nothing pass at all.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use thiserror::Error;
use weft_os::{clock, plain_file, random, sys};
pub use weft_rnic::shuttle::Key;
use weft_rnic::shuttle::{
    KEY_FILE_OCTETS_MAX, KeyError, KeyName, Opener, Refusal, Sealer, ShuttleConfig,
};
use weft_rnic::wire::datagram::Cipher;
use weft_rnic::wire::shuttle::hello::protection;
use weft_verbs::Misuse;
use zeroize::Zeroizing;

mod notice;
mod refused;

pub use refused::Refused;

use crate::report;
use notice::Acquaintances;

/// Why a key cannot be used. Nothing of the key is told.
#[derive(Debug, Error)]
pub enum KeyFault {
    /// Its text is not one.
    #[error("WEFT_KEY is not a key: {0}; `weft key new` makes one, and file:PATH names a file")]
    Text(KeyError),
    /// The content of its file is not one.
    #[error("{} has no key: {why}; `weft key new` makes one", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: KeyError,
    },
    /// Its file has no name.
    #[error("the key is to be in a file without a name: write file: and its path")]
    NoPath,
    /// Its file cannot be read.
    #[error("the key {} cannot be read: {why}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        why: std::io::Error,
    },
    /// Others may read or change its file.
    #[error("the key {} is open to others: its mode is {mode:04o}, not 0600", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Who may do what with it.
        mode: u32,
    },
}

/// A new key, which nobody has.
pub fn new_key() -> Key {
    Key::new(random::random_octets())
}

/// Reads what `WEFT_KEY` says: a key, the content of a key file, `file:` and a path, or an absolute
/// path.
///
/// # Errors
/// If there is no key, or it is not kept as one.
pub fn read_key(value: &OsStr) -> Result<Key, KeyFault> {
    let octets = value.as_bytes();
    let path = octets.strip_prefix(b"file:").or(octets.starts_with(b"/").then_some(octets));
    if let Some(path) = path {
        return read_key_file(Path::new(OsStr::from_bytes(path)));
    }
    // The content of a key file, as `$(cat FILE)` has it.
    if octets.contains(&b'\n') {
        return Key::parse_file(octets).map_err(KeyFault::Text);
    }
    let text = value.to_str().ok_or(KeyError::Prefix);
    text.and_then(Key::parse).map_err(KeyFault::Text)
}

/// Reads a key file.
///
/// # Errors
/// As for [`read_key`].
pub fn read_key_file(path: &Path) -> Result<Key, KeyFault> {
    if path.as_os_str().is_empty() {
        return Err(KeyFault::NoPath);
    }
    let failed = |why| KeyFault::File { path: path.to_owned(), why };
    let (file, metadata) = plain_file::open(path).map_err(failed)?;
    let mode = metadata.mode() & 0o7777;
    if mode & closed_to(&metadata) != 0 {
        return Err(KeyFault::Open { path: path.to_owned(), mode });
    }
    let content = read_some(file).map_err(failed)?;
    Key::parse_file(&content).map_err(|why| KeyFault::Content { path: path.to_owned(), why })
}

/// What must be forbidden. The group may read a file that an administrator has made for it.
fn closed_to(metadata: &Metadata) -> u32 {
    if metadata.uid() == sys::user() { 0o077 } else { 0o027 }
}

fn read_some(file: File) -> std::io::Result<Zeroizing<Vec<u8>>> {
    // One that grew would leave copies behind.
    let mut content = Zeroizing::new(Vec::with_capacity(2 * KEY_FILE_OCTETS_MAX));
    file.take(KEY_FILE_OCTETS_MAX as u64 + 1).read_to_end(&mut content)?;
    Ok(content)
}

/// What the environment says about keys and clear text.
pub struct Secrecy {
    keys: Keys,
    insecure: bool,
    acquaintances: Acquaintances,
}

/// What carries the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerTransport {
    /// Shuttle, or single datagrams, over UDP: sealed where there is a key.
    Shuttle,
    /// iWARP over TCP, which has no encryption.
    Iwarp(Chosen),
    /// The kernel's TCP in place of SDP, where that is to stay on this machine whatever else is
    /// set.
    Sockets,
}

/// Who has decided that it is to be iWARP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chosen {
    /// The user or the application: `WEFT_TRANSPORT=iwarp`, or a queue pair of `weft_iw0` that the
    /// application connects by itself.
    ByName,
    /// Weft, because nobody has answered over UDP, or for a listener that serves both.
    ByDefault,
}

enum Keys {
    None,
    Shared(Key),
    /// One is meant and cannot be read, for this reason.
    Unusable(String),
}

impl Secrecy {
    /// Under `key`, if there is one; clear text with other hosts is meant if it is `insecure`.
    pub fn new(key: Option<Key>, insecure: bool) -> Self {
        Self::of(key.map_or(Keys::None, Keys::Shared), insecure)
    }

    fn of(keys: Keys, insecure: bool) -> Self {
        Self { keys, insecure, acquaintances: Acquaintances::default() }
    }

    /// What the environment says; told if it makes no sense.
    pub fn from_environment() -> Self {
        let insecure = std::env::var_os("WEFT_INSECURE").is_some_and(|value| value == "1");
        Self::from_value(std::env::var_os("WEFT_KEY"), insecure)
    }

    /// What `WEFT_KEY` says where it is `value`; told if it makes no sense.
    pub fn from_value(value: Option<OsString>, insecure: bool) -> Self {
        let value = value.filter(|value| !value.is_empty());
        let keys = match value.map(|value| read_key(&value)) {
            None => Keys::None,
            Some(Ok(key)) => Keys::Shared(key),
            Some(Err(fault)) => {
                let why = format!("{fault}; nothing is sent or received without it");
                report::error(why.clone());
                Keys::Unusable(why)
            }
        };
        Self::of(keys, insecure)
    }

    /// Whether what goes between `local` and `remote` by `lower` is permitted: everything that is
    /// decided by addresses and settings is decided here.
    ///
    /// # Errors
    /// Why not.
    pub fn decide(
        &self,
        lower: PeerTransport,
        local: IpAddr,
        remote: IpAddr,
    ) -> Result<(), Refused> {
        let is_clear_text_meant = || self.insecure || is_on_host(local, remote);
        match (lower, &self.keys) {
            (PeerTransport::Shuttle, Keys::Shared(_)) => Ok(()),
            (PeerTransport::Shuttle, Keys::Unusable(_)) => Err(Refused::KeyUnusable),
            (PeerTransport::Sockets, _) if is_on_host(local, remote) => Ok(()),
            (PeerTransport::Sockets, _) => Err(Refused::PlainSocket),
            _ if is_clear_text_meant() => Ok(()),
            (PeerTransport::Iwarp(_), Keys::Shared(_) | Keys::Unusable(_)) => {
                Err(Refused::StreamUnderKey)
            }
            (PeerTransport::Iwarp(Chosen::ByName), Keys::None) => Ok(()),
            (PeerTransport::Shuttle | PeerTransport::Iwarp(_), Keys::None) => {
                Err(Refused::ClearText)
            }
        }
    }

    /// Whether a peer at `remote` that has come to `local` is heard; says so if it is not.
    ///
    /// # Errors
    /// Why not. The peer is a stranger: the application hears nothing of it.
    pub fn admit(
        &self,
        lower: PeerTransport,
        local: IpAddr,
        remote: IpAddr,
    ) -> Result<(), Refused> {
        self.decide(lower, local, remote).inspect_err(|why| self.tell_of_stranger(*why, remote))
    }

    /// Whether there is a key, one that can be used or not: clear text is not meant then.
    pub fn has_key(&self) -> bool {
        !matches!(self.keys, Keys::None)
    }

    /// Why the key that is meant cannot be used, if so.
    pub fn key_fault(&self) -> Option<&str> {
        if let Keys::Unusable(why) = &self.keys { Some(why) } else { None }
    }

    /// Whether `local` may speak to `remote` over Shuttle.
    pub fn permits(&self, local: IpAddr, remote: IpAddr) -> bool {
        self.decide(PeerTransport::Shuttle, local, remote).is_ok()
    }

    /// How many hosts a datagram to a group may pass: those of this link, which is where the
    /// system's own groups are, or none but this machine where clear text must not leave it.
    pub fn group_hops(&self) -> u8 {
        match self.keys {
            Keys::Shared(_) => 1,
            Keys::None => u8::from(self.insecure),
            Keys::Unusable(_) => 0,
        }
    }

    /// Whether datagrams may go to groups; says so if they stay on this machine.
    ///
    /// # Errors
    /// [`Misuse::Refused`] under a key that cannot be used.
    pub fn permit_groups(&self) -> Result<(), Misuse> {
        if matches!(self.keys, Keys::Unusable(_)) {
            return Err(Misuse::Refused("the key cannot be used"));
        }
        if self.group_hops() == 0 {
            report::error(
                "datagrams to groups stay on this machine: set WEFT_KEY to the same key on all \
                 hosts (`weft key new` makes one), or WEFT_INSECURE=1 if clear text is meant"
                    .into(),
            );
        }
        Ok(())
    }

    /// Whether `local` may speak to `remote`; says so, with what to do, if it may not.
    ///
    /// # Errors
    /// [`Misuse::Refused`].
    pub fn permit(&self, local: IpAddr, remote: IpAddr) -> Result<(), Misuse> {
        self.permit_by(PeerTransport::Shuttle, local, remote)
    }

    /// As [`Secrecy::permit`], for a stream that knows no encryption; `chosen` says who has decided
    /// on it.
    ///
    /// # Errors
    /// [`Misuse::Refused`].
    pub fn permit_stream(
        &self,
        chosen: Chosen,
        local: IpAddr,
        remote: IpAddr,
    ) -> Result<(), Misuse> {
        self.permit_by(PeerTransport::Iwarp(chosen), local, remote)
    }

    fn permit_by(&self, lower: PeerTransport, local: IpAddr, remote: IpAddr) -> Result<(), Misuse> {
        self.decide(lower, local, remote).map_err(|why| {
            // That was said when the key was read.
            if why != Refused::KeyUnusable {
                report::error(why.line(remote, self.key_name()));
            }
            why.misuse()
        })
    }

    /// Has connections sealed, if there is a key.
    pub fn protect(&self, config: ShuttleConfig) -> ShuttleConfig {
        let credentials = match &self.keys {
            Keys::None => return config,
            Keys::Shared(key) => key.credentials(),
            // One that no peer has.
            Keys::Unusable(_) => new_key().credentials(),
        };
        ShuttleConfig { protection: ciphers(), credentials, ..config }
    }

    /// The protections of connections under the key, if there is one.
    pub fn protection(&self) -> Option<u8> {
        (!matches!(self.keys, Keys::None)).then(ciphers)
    }

    /// What seals and opens the datagrams of a queue pair, or of its membership in a group, if
    /// there is a key.
    pub fn sealed_datagrams(&self, group: bool) -> Option<(Sealer, Opener)> {
        let Keys::Shared(key) = &self.keys else { return None };
        let salt = u64::from_ne_bytes(random::random_octets());
        let now_ns = clock::time_of_day_ns();
        let opener = Opener::new(key, now_ns, group);
        Some((Sealer::new(key, best_cipher(), now_ns, salt), opener))
    }

    /// Whether clear text is exchanged, and on this machine only.
    pub fn is_clear_text_kept(&self) -> bool {
        matches!(self.keys, Keys::None) && !self.insecure
    }

    /// Says that this host and `peer`, which the application has named, have no connection because
    /// of `why`.
    pub fn report(&self, why: Refusal, peer: IpAddr) {
        let why = Refused::of_connection(why, self.has_key());
        report::error(why.line(peer, self.key_name()));
    }

    /// As [`Secrecy::report`], of a peer that has come by itself.
    pub fn report_stranger(&self, why: Refusal, peer: IpAddr) {
        // What this host refuses its peer is told in the peer's words.
        if why != Refusal::ClearText {
            self.tell_of_stranger(Refused::of_connection(why, self.has_key()), peer);
        }
    }

    /// Says why nothing of `peer`, which has come by itself, is taken.
    pub fn tell_of_stranger(&self, why: Refused, peer: IpAddr) {
        report::stranger(peer, || why.line(peer, self.key_name()));
    }

    fn key_name(&self) -> Option<KeyName> {
        match &self.keys {
            Keys::Shared(key) => Some(key.name()),
            Keys::None | Keys::Unusable(_) => None,
        }
    }
}

/// The protections that are offered: the cipher that is faster here is taken if both ends have it.
fn ciphers() -> u8 {
    match best_cipher() {
        Cipher::Aes128Gcm => protection::AES128GCM | protection::CHACHA20POLY1305,
        Cipher::ChaCha20Poly1305 => protection::CHACHA20POLY1305,
    }
}

/// The faster cipher on this processor. Peers know both.
fn best_cipher() -> Cipher {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("aes")
        && std::arch::is_x86_feature_detected!("pclmulqdq")
    {
        return Cipher::Aes128Gcm;
    }
    #[cfg(target_arch = "aarch64")]
    if std::arch::is_aarch64_feature_detected!("aes")
        && std::arch::is_aarch64_feature_detected!("pmull")
    {
        return Cipher::Aes128Gcm;
    }
    Cipher::ChaCha20Poly1305
}

/// Whether what passes between the two stays on this machine: one of them is a loopback address, or
/// both are this machine's. A sender could claim any address. Connections ask back where it leads;
/// for datagrams the kernel drops what comes from outside and claims an own address of IPv4, and
/// [`crate::udp::UdpPort::screen`] has it cut what comes from outside by IPv6.
fn is_on_host(local: IpAddr, remote: IpAddr) -> bool {
    let (local, remote) = (local.to_canonical(), remote.to_canonical());
    // The own link-local address of an interface is found by no route without its interface.
    local.is_loopback() || remote.is_loopback() || local == remote || is_own(remote)
}

/// Whether `address` is one of this machine's: what goes to those comes from them too.
fn is_own(address: IpAddr) -> bool {
    let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    // Connecting a datagram socket sends nothing; it only asks for the route.
    let source = UdpSocket::bind(any).and_then(|socket| {
        socket.connect((address, 9))?;
        socket.local_addr()
    });
    address != IpAddr::V4(Ipv4Addr::BROADCAST) && source.is_ok_and(|source| source.ip() == address)
}

#[cfg(test)]
mod tests {
    use weft_rnic::shuttle::Credentials;

    use super::*;

    const TEXT: &str = "weft1:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

    fn secrecy(keys: Keys, insecure: bool) -> Secrecy {
        Secrecy::of(keys, insecure)
    }

    fn shared() -> Keys {
        Keys::Shared(Key::parse(TEXT).unwrap())
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// A key file with the mode `mode`, in a directory that is removed.
    fn with_file(content: &str, mode: u32, check: impl FnOnce(Result<Key, KeyFault>)) {
        use std::os::unix::fs::PermissionsExt;
        let name = format!("weft-key-{}-{:08x}", std::process::id(), random::random());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        let value = format!("file:{}", path.display());
        let read = read_key(OsStr::new(&value));
        std::fs::remove_file(&path).unwrap();
        check(read);
    }

    #[test]
    fn keys_come_from_the_variable_and_from_files() {
        let key = Key::parse(TEXT).unwrap();
        assert_eq!(read_key(OsStr::new(TEXT)).unwrap(), key);
        assert_eq!(read_key(OsStr::new(&format!("# mine\n{TEXT}"))).unwrap(), key);
        with_file(&format!("# mine\n{TEXT}\n"), 0o600, |read| assert_eq!(read.unwrap(), key));
    }

    #[test]
    fn files_that_others_may_read_are_refused() {
        for mode in [0o644, 0o640, 0o604, 0o602] {
            with_file(TEXT, mode, |read| {
                let fault = read.unwrap_err().to_string();
                assert!(fault.contains(&format!("{mode:04o}")), "{fault}");
            });
        }
    }

    #[test]
    fn faults_say_where_and_never_what() {
        let digits = "00010203";
        with_file(&TEXT[..40], 0o600, |read| {
            let fault = read.unwrap_err().to_string();
            assert!(fault.contains("weft-key-") && !fault.contains(digits), "{fault}");
        });
        for value in [&TEXT[..40], &TEXT[6..], "file:/nonexistent/key", "/dev/null", "/", "x"] {
            let fault = read_key(OsStr::new(value)).unwrap_err().to_string();
            assert!(!fault.contains(digits), "{fault}");
        }
    }

    #[test]
    fn a_file_without_a_name_is_called_that() {
        let fault = read_key(OsStr::new("file:")).unwrap_err().to_string();
        assert!(fault.contains("a file without a name"), "{fault}");
    }

    #[test]
    fn clear_text_stays_on_the_host_unless_it_is_meant() {
        let clear = secrecy(Keys::None, false);
        let (here, there) = (ip("203.0.113.1"), ip("203.0.113.2"));
        for near in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"] {
            assert_eq!(clear.permit(here, ip(near)), Ok(()), "{near}");
        }
        for far in [
            "203.0.113.2",
            "10.0.0.1",
            "169.254.1.1",
            "fe80::1",
            "2001:db8::1",
            "239.1.1.1",
            "ff05::1",
            "255.255.255.255",
        ] {
            assert!(clear.permit(here, ip(far)).is_err(), "{far}");
        }
        assert_eq!(clear.permit(ip("127.0.0.1"), there), Ok(()), "it came to loopback");
        assert_eq!(clear.permit(there, there), Ok(()));
        assert_eq!(secrecy(Keys::None, true).permit(here, there), Ok(()));
        assert_eq!(secrecy(shared(), false).permit(here, there), Ok(()));
        assert!(secrecy(Keys::Unusable(String::new()), true).permit(here, ip("::1")).is_err());
    }

    #[test]
    fn streams_are_clear_where_they_were_asked_for_and_there_is_no_key() {
        use Chosen::{ByDefault, ByName};
        let (here, there, loopback) = (ip("203.0.113.1"), ip("203.0.113.2"), ip("127.0.0.1"));
        let decide = |keys, insecure, chosen, to| {
            secrecy(keys, insecure).decide(PeerTransport::Iwarp(chosen), here, to)
        };
        assert_eq!(decide(Keys::None, false, ByName, there), Ok(()));
        assert_eq!(decide(Keys::None, false, ByDefault, there), Err(Refused::ClearText));
        for chosen in [ByName, ByDefault] {
            assert_eq!(decide(shared(), false, chosen, there), Err(Refused::StreamUnderKey));
            for (keys, insecure, to) in
                [(Keys::None, true, there), (shared(), true, there), (shared(), false, loopback)]
            {
                assert_eq!(decide(keys, insecure, chosen, to), Ok(()));
            }
        }
    }

    #[test]
    fn sockets_without_sdp_stay_on_this_machine_where_they_must() {
        let (here, there, loopback) = (ip("203.0.113.1"), ip("203.0.113.2"), ip("127.0.0.1"));
        for (keys, insecure) in [(shared(), true), (shared(), false), (Keys::None, true)] {
            let secrecy = secrecy(keys, insecure);
            assert_eq!(
                secrecy.decide(PeerTransport::Sockets, here, there),
                Err(Refused::PlainSocket)
            );
            assert_eq!(secrecy.decide(PeerTransport::Sockets, loopback, loopback), Ok(()));
            assert_eq!(secrecy.decide(PeerTransport::Sockets, here, here), Ok(()));
        }
    }

    #[test]
    fn a_key_leaves_ciphers_only() {
        let clear = protection::NONE | protection::CRC32C;
        for keys in [shared(), Keys::Unusable(String::new())] {
            let config = secrecy(keys, false).protect(ShuttleConfig::default());
            assert!(config.protection & clear == 0 && config.protection != 0);
            assert!(matches!(config.credentials, Credentials::PreShared(_)));
        }
        let config = secrecy(Keys::None, true).protect(ShuttleConfig::default());
        assert_eq!(config.protection, ShuttleConfig::default().protection);
    }
}
