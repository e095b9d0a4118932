//! Digests of content.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256, Sha512};

/// `sha256:…` or `sha512:…`, the two that the image specification registers
/// (<https://github.com/opencontainers/image-spec/blob/main/descriptor.md#registered-algorithms>).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(String);

/// A text that is not a digest of a supported algorithm.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is not a digest: expected sha256: and 64 hexadecimal digits, or sha512: and 128, in lower case"
)]
pub struct DigestError(String);

impl Digest {
    /// Returns the SHA-256 digest of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        let mut hasher = Hasher::sha256();
        hasher.update(bytes);
        hasher.finish()
    }

    /// Returns the name of the algorithm.
    pub fn algorithm(&self) -> &str {
        // The names of both have six letters.
        &self.0[..6]
    }

    /// Returns the hexadecimal digits.
    pub fn hex(&self) -> &str {
        &self.0[7..]
    }

    /// Returns a hasher of the same algorithm.
    pub(crate) fn hasher(&self) -> Hasher {
        match self.algorithm() {
            "sha512" => Hasher::Sha512(Sha512::new()),
            _ => Hasher::sha256(),
        }
    }

    /// Returns whether these bytes match the digest.
    pub fn verifies(&self, bytes: &[u8]) -> bool {
        let mut hasher = self.hasher();
        hasher.update(bytes);
        hasher.finish() == *self
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        let error = || DigestError(text.chars().take(160).collect());
        let (name, hex) = text.split_once(':').ok_or_else(error)?;
        let length = match name {
            "sha256" => 64,
            "sha512" => 128,
            _ => return Err(error()),
        };
        // Digits become file names: only these, so that one digest has one name.
        if hex.len() != length || !hex.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)) {
            return Err(error());
        }
        Ok(Self(text.to_string()))
    }
}

impl TryFrom<String> for Digest {
    type Error = DigestError;

    fn try_from(text: String) -> Result<Self, DigestError> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Computes a digest.
#[derive(Clone)]
pub(crate) enum Hasher {
    Sha256(Sha256),
    Sha512(Sha512),
}

impl Hasher {
    pub(crate) fn sha256() -> Self {
        Self::Sha256(Sha256::new())
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha256(state) => state.update(bytes),
            Self::Sha512(state) => state.update(bytes),
        }
    }

    pub(crate) fn finish(self) -> Digest {
        Digest(match self {
            Self::Sha256(state) => format!("sha256:{}", hex::encode(state.finalize())),
            Self::Sha512(state) => format!("sha512:{}", hex::encode(state.finalize())),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_sha256sum_and_sha512sum() {
        let abc: Digest =
            "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad".parse().unwrap();
        assert!(abc.verifies(b"abc") && !abc.verifies(b"abd"));
        assert_eq!(Digest::of(b"abc"), abc);
        assert_eq!(abc.algorithm(), "sha256");
        let long: Digest = "sha512:ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a\
                            2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f"
            .parse()
            .unwrap();
        assert!(long.verifies(b"abc"));
    }

    #[test]
    fn a_text_that_could_name_another_path_is_not_a_digest() {
        let upper = format!("sha256:{}", "A".repeat(64));
        let long = format!("sha256:{}", "a".repeat(65));
        for text in [
            "",
            "sha256:",
            "abc",
            "sha256:../../etc/passwd",
            "md5:d41d8cd98f00b204e9800998ecf8427e",
            &upper,
            &long,
        ] {
            assert!(text.parse::<Digest>().is_err(), "{text}");
        }
    }
}
