//! Pre-shared key of the hosts: its text form and the secrets derived from it.
//!
//! Invariant: the key leaves this module as the text that it was made or read as, by
//! [`Key::to_text`], and in no other way: neither an error nor `Debug` shows any of it. Memory that
//! held it is overwritten when it is dropped.

use core::fmt;

use aws_lc_rs::hkdf::{HKDF_SHA256, Prk};
use thiserror::Error;
use zeroize::Zeroizing;

use crate::noise::Credentials;
use crate::seal::expand;

/// Prefix of the text form.
const PREFIX: &str = "weft1:";
/// Length of a key in bytes.
const LEN: usize = 32;
/// Largest size of a key file, in bytes.
pub const KEY_FILE_OCTETS_MAX: usize = 4096;

/// Secret shared by all hosts that may communicate.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(Zeroizing<[u8; LEN]>);

/// Parse error of a key; carries nothing of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum KeyError {
    /// The prefix `weft1:` is missing.
    #[error("a key begins with `weft1:`")]
    Prefix,
    /// Not 64 digits.
    #[error("a key has 64 digits, not {0}")]
    Length(usize),
    /// A character is not a hexadecimal digit.
    #[error("a key has hexadecimal digits only")]
    Digit,
    /// All digits are zero, as in a text that stands for a key.
    #[error("64 zeros are no secret")]
    Zeros,
    /// More than one line besides comments.
    #[error("a key file has one line with a key; other lines begin with #")]
    Lines,
    /// Longer than [`KEY_FILE_OCTETS_MAX`], or not UTF-8.
    #[error("a key file is a text of {KEY_FILE_OCTETS_MAX} octets at most")]
    File,
}

impl Key {
    /// A key of these 256 random bits.
    pub fn new(entropy: [u8; LEN]) -> Self {
        Self(Zeroizing::new(entropy))
    }

    /// Reads the text of a key: `weft1:` and 64 hexadecimal digits.
    ///
    /// # Errors
    /// If the text is anything else, or all digits are zero.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let digits = text.strip_prefix(PREFIX).ok_or(KeyError::Prefix)?.as_bytes();
        let (pairs, []) = digits.as_chunks::<2>() else {
            return Err(KeyError::Length(digits.len()));
        };
        let pairs: &[_; LEN] = pairs.try_into().map_err(|_| KeyError::Length(digits.len()))?;
        let mut key = Zeroizing::new([0; LEN]);
        for (octet, [high, low]) in key.iter_mut().zip(pairs) {
            *octet = value(*high)? << 4 | value(*low)?;
        }
        if *key == [0; LEN] {
            return Err(KeyError::Zeros);
        }
        Ok(Self(key))
    }

    /// Reads the content of a key file: one line with a key; empty lines and lines that begin with
    /// `#` do not count.
    ///
    /// # Errors
    /// If it is anything else.
    pub fn parse_file(content: &[u8]) -> Result<Self, KeyError> {
        if content.len() > KEY_FILE_OCTETS_MAX {
            return Err(KeyError::File);
        }
        let text = core::str::from_utf8(content).map_err(|_| KeyError::File)?;
        let lines = text.lines().map(str::trim);
        let mut lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        match (lines.next(), lines.next()) {
            (Some(line), None) => Self::parse(line),
            _ => Err(KeyError::Lines),
        }
    }

    /// The text that [`Key::parse`] reads.
    pub fn to_text(&self) -> String {
        let digits = self.0.iter().map(|octet| format!("{octet:02x}"));
        PREFIX.chars().chain(digits.collect::<String>().chars()).collect()
    }

    /// Fingerprint of the key that may be shown: it tells two keys apart and reveals nothing else.
    pub fn name(&self) -> KeyName {
        let mut name = [0; 4];
        expand(&self.prk(), b"weft key name", &mut name);
        KeyName(u32::from_be_bytes(name))
    }

    /// Credentials of connections under this key.
    pub fn credentials(&self) -> Credentials {
        let mut shared = Zeroizing::new([0; LEN]);
        expand(&self.prk(), b"weft connections", shared.as_mut_slice());
        Credentials::PreShared(*shared)
    }

    /// Root secret of the keys for unreliable datagrams.
    pub(crate) fn datagrams(&self) -> Prk {
        let mut root = Zeroizing::new([0; LEN]);
        expand(&self.prk(), b"weft datagrams", root.as_mut_slice());
        Prk::new_less_safe(HKDF_SHA256, root.as_slice())
    }

    fn prk(&self) -> Prk {
        Prk::new_less_safe(HKDF_SHA256, self.0.as_slice())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.name())
    }
}

/// Fingerprint of a key, for comparison by eye.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyName(u32);

impl fmt::Display for KeyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}-{:04x}", self.0 >> 16, self.0 & 0xffff)
    }
}

fn value(digit: u8) -> Result<u8, KeyError> {
    let value = char::from(digit).to_digit(16).ok_or(KeyError::Digit)?;
    Ok(value as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "weft1:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

    #[test]
    fn a_key_comes_back_from_its_text() {
        let key = Key::parse(TEXT).unwrap();
        assert_eq!(key, Key::new(core::array::from_fn(|i| i as u8)));
        assert_eq!(key.to_text(), TEXT);
        assert_eq!(Key::parse(&TEXT.to_uppercase().replace("WEFT", "weft")), Ok(key));
    }

    #[test]
    fn what_is_no_key_says_what_is_wrong_and_not_what_it_was() {
        let short = &TEXT[..TEXT.len() - 1];
        let wrong = TEXT.replace("1f", "zz");
        let cases = [
            ("", KeyError::Prefix),
            ("0001", KeyError::Prefix),
            (" weft1:00", KeyError::Prefix),
            ("weft1:", KeyError::Length(0)),
            (short, KeyError::Length(63)),
            (&format!("{TEXT}00"), KeyError::Length(66)),
            (&wrong, KeyError::Digit),
            ("weft1:é", KeyError::Length(2)),
            (&format!("weft1:{}", "0".repeat(64)), KeyError::Zeros),
        ];
        for (text, error) in cases {
            assert_eq!(Key::parse(text), Err(error), "{text}");
            assert!(text.len() < 4 || !error.to_string().contains(&text[text.len() - 4..]));
        }
    }

    #[test]
    fn a_file_has_one_key_and_comments() {
        let key = Key::parse(TEXT).unwrap();
        for content in [TEXT.into(), format!("# of the lab\n\n  {TEXT}\r\n"), format!("{TEXT}\n#")]
        {
            assert_eq!(Key::parse_file(content.as_bytes()), Ok(key.clone()), "{content:?}");
        }
        let twice = format!("{TEXT}\n{TEXT}\n");
        let long = format!("{TEXT}\n{}", "#".repeat(KEY_FILE_OCTETS_MAX));
        for (content, error) in [
            (&b""[..], KeyError::Lines),
            (b"# nothing\n", KeyError::Lines),
            (twice.as_bytes(), KeyError::Lines),
            (b"\xff\xfe", KeyError::File),
            (long.as_bytes(), KeyError::File),
            (b"secret", KeyError::Prefix),
        ] {
            assert_eq!(Key::parse_file(content), Err(error));
        }
    }

    #[test]
    fn names_and_debug_show_nothing_of_the_key() {
        let key = Key::parse(TEXT).unwrap();
        let name = key.name().to_string();
        assert_eq!(format!("{key:?}"), format!("Key({name})"));
        assert_eq!(name.len(), 9);
        assert_ne!(Key::new([7; 32]).name(), key.name());
    }

    #[test]
    fn equal_keys_have_equal_credentials_that_do_not_tell_the_key() {
        let shared = |octet| match Key::new([octet; 32]).credentials() {
            Credentials::PreShared(shared) => shared,
            other => panic!("{other:?}"),
        };
        assert_eq!(shared(7), shared(7));
        assert_ne!(shared(7), shared(8));
        assert_ne!(shared(7), [7; 32]);
    }
}
