//! Packages of one version each, with the digests of their files: what a resolution results in, and what a lock file has.

use std::collections::BTreeSet;
use std::fmt;

use codebridge_images::package_name;
use pep440_rs::Version;
use serde::{Deserialize, Serialize};

/// A package in one version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pin {
    pub name: String,
    pub version: String,
    /// SHA-256 of each file that may be used, in hexadecimal.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub hashes: BTreeSet<String>,
}

/// Whether a text can be the name of a package:
/// <https://packaging.python.org/en/latest/specifications/name-normalization/>.
pub(super) fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

impl Pin {
    /// Returns a pin in its normal form; None if a part of it is not what it should be. They come from package indexes.
    pub(super) fn of(name: &str, version: &str, hashes: impl IntoIterator<Item = String>) -> Option<Self> {
        let name = is_name(name).then(|| package_name(name)).filter(|name| !name.is_empty())?;
        let version: Version = version.parse().ok()?;
        let is_hash = |hash: &String| hash.len() == 64 && hash.bytes().all(|b| b.is_ascii_hexdigit());
        let hash = |hash: String| is_hash(&hash).then(|| hash.to_ascii_lowercase());
        let hashes = hashes.into_iter().map(hash).collect::<Option<_>>()?;
        Some(Self { name, version: version.to_string(), hashes })
    }
}

impl fmt::Display for Pin {
    /// Writes it as a line of a requirements file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}=={}", self.name, self.version)?;
        self.hashes.iter().try_for_each(|hash| write!(f, " \\\n    --hash=sha256:{hash}"))
    }
}

/// Writes a requirements file.
pub fn requirements_text(pins: &[Pin]) -> String {
    pins.iter().map(|pin| format!("{pin}\n")).collect()
}

/// Parses a requirements file that pins every version: `name==1.0 --hash=sha256:…`. The error is the first line that pins
/// nothing.
pub(super) fn parse_pins(text: &str) -> Result<Vec<Pin>, String> {
    let joined = text.replace("\\\r\n", " ").replace("\\\n", " ");
    let lines = joined.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    lines
        .filter(|line| !line.is_empty())
        .map(|line| parse_line(line).ok_or_else(|| line.to_owned()))
        .collect()
}

fn parse_line(line: &str) -> Option<Pin> {
    let mut words = line.split_whitespace();
    let (name, version) = words.next()?.split_once("==")?;
    let mut hashes = BTreeSet::new();
    for word in words {
        hashes.insert(word.strip_prefix("--hash=sha256:")?.to_owned());
    }
    Pin::of(name, version, hashes)
}

/// Returns lines of a requirements file without hashes.
pub(super) fn versions_text(pins: &[Pin]) -> String {
    pins.iter().map(|pin| format!("{}=={}\n", pin.name, pin.version)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_are_read_as_they_are_written() {
        let (a, b) = ("a".repeat(64), "b".repeat(64));
        let text = format!(
            "# made by a tool\nHumanize==4.9.0 \\\n    --hash=sha256:{a} \\\n    --hash=sha256:{b}\n\nx.y==1.0\n"
        );
        let pins = parse_pins(&text).unwrap();
        assert_eq!((pins.len(), pins[0].name.as_str(), pins[0].hashes.len()), (2, "humanize", 2));
        assert_eq!(parse_pins(&requirements_text(&pins)).unwrap(), pins);
        assert_eq!(pins[1].name, "x-y");
    }

    #[test]
    fn a_line_that_pins_nothing_is_returned() {
        for bad in
            ["a>=1", "-e .", "a==1 --index-url=x", "a @ file:///x", "a==1 --hash=sha256:zz", "==1", "a=="]
        {
            assert_eq!(parse_pins(bad).unwrap_err(), bad);
        }
    }
}
