//! One requirement: a name, extras, versions and a marker, as PEP 508 has them. There is no URL, path or option in one, so that
//! none can reach an index or the command line of an installer.

use std::fmt;
use std::str::FromStr;

use codebridge_images::package_name;
use pep440_rs::{Version, VersionSpecifiers};

use super::marker::is_condition;

/// Bytes of a requirement. No real one is longer.
const LONGEST: usize = 512;
/// Bytes of a requirement that a message quotes.
const QUOTED: usize = 60;

/// A package that is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    /// In its normal form: lower case, with `-`.
    name: String,
    /// In their normal form.
    extras: Vec<String>,
    versions: VersionSpecifiers,
    /// A condition, which the installer reads.
    marker: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequirementError {
    #[error("a requirement has {0} bytes, {LONGEST} are the most")]
    Long(usize),
    #[error("'{0}' is not a package name with versions, such as polars or httpx>=0.27")]
    Malformed(String),
    #[error("'{0}' is an option: only package names with versions are accepted")]
    Option(String),
    #[error("'{0}' is an address or a path: only packages of the index can be installed")]
    Address(String),
    #[error("'{0}' is the name of a file: only package names with versions are accepted")]
    File(String),
    #[error("'{text}' has no valid version: {why}")]
    Versions { text: String, why: String },
    #[error("'{0}' has a condition that is not understood")]
    Marker(String),
}

impl Requirement {
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn versions(&self) -> &VersionSpecifiers {
        &self.versions
    }

    /// Returns whether a package with this version is all that is required. Extras and conditions are for the installer.
    pub fn is_met_by(&self, version: &str) -> bool {
        let plain = self.extras.is_empty() && self.marker.is_none();
        plain && version.parse::<Version>().is_ok_and(|version| self.versions.contains(&version))
    }
}

impl FromStr for Requirement {
    type Err = RequirementError;

    fn from_str(text: &str) -> Result<Self, RequirementError> {
        let text = text.trim();
        if text.len() > LONGEST {
            return Err(RequirementError::Long(text.len()));
        }
        let malformed = || RequirementError::Malformed(quoted(text));
        if text.starts_with('-') {
            return Err(RequirementError::Option(quoted(text)));
        }
        let (package, marker) = match text.split_once(';') {
            Some((package, marker)) => (package.trim(), Some(parse_marker(marker, text)?)),
            None => (text, None),
        };
        if package.contains(['@', '/', '\\']) {
            return Err(RequirementError::Address(quoted(text)));
        }
        let end = package.find(|c: char| !is_of_name(c)).unwrap_or(package.len());
        let (name, rest) = package.split_at(end);
        if !is_name(name) {
            return Err(malformed());
        }
        if [".txt", ".toml", ".whl"].iter().any(|end| name.to_ascii_lowercase().ends_with(end)) {
            return Err(RequirementError::File(quoted(text)));
        }
        let rest = rest.trim_start();
        let (extras, rest) = match rest.strip_prefix('[') {
            Some(rest) => rest.split_once(']').ok_or_else(malformed)?,
            None => ("", rest),
        };
        let extras: Vec<&str> = extras.split(',').map(str::trim).filter(|extra| !extra.is_empty()).collect();
        if !extras.iter().all(|extra| is_name(extra)) {
            return Err(malformed());
        }
        let rest = rest.trim();
        // `name (>=1)` is the older form.
        let versions = rest.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')).unwrap_or(rest);
        if !versions.is_empty() && !versions.starts_with(['=', '<', '>', '!', '~']) {
            return Err(malformed());
        }
        let versions = VersionSpecifiers::from_str(versions).map_err(|error| RequirementError::Versions {
            text: quoted(text),
            why: error.to_string().lines().next().unwrap_or_default().trim_end_matches(':').to_owned(),
        })?;
        let extras = extras.into_iter().map(package_name).collect();
        Ok(Self { name: package_name(name), extras, versions, marker })
    }
}

impl fmt::Display for Requirement {
    /// Writes it in one line, as installers read it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if !self.extras.is_empty() {
            write!(f, "[{}]", self.extras.join(","))?;
        }
        let versions: Vec<String> = self.versions.iter().map(ToString::to_string).collect();
        f.write_str(&versions.join(","))?;
        match &self.marker {
            Some(marker) => write!(f, " ; {marker}"),
            None => Ok(()),
        }
    }
}

/// Parses requirements that are separated by commas or lines: `polars, httpx[http2]>=0.27,<1`.
///
/// # Errors
/// The first that is not one.
pub fn parse_list(text: &str) -> Result<Vec<Requirement>, RequirementError> {
    split_list(text).iter().map(|item| item.parse()).collect()
}

/// Splits a list at its commas, but for those between extras and between versions.
pub(super) fn split_list(text: &str) -> Vec<String> {
    let mut items: Vec<String> = Vec::new();
    let mut is_in_extras = false;
    for piece in text.split(['\n', ',']).map(str::trim).filter(|piece| !piece.is_empty()) {
        match items.last_mut() {
            Some(last) if is_in_extras || piece.starts_with(['=', '<', '>', '!', '~']) => {
                last.push(',');
                last.push_str(piece);
            }
            _ => items.push(piece.to_owned()),
        }
        is_in_extras = items.last().is_some_and(|last| last.contains('[') && !last.contains(']'));
    }
    items
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-_.".contains(c)
}

fn is_name(text: &str) -> bool {
    let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    text.chars().all(is_of_name) && ends(text.chars().next()) && ends(text.chars().next_back())
}

/// Returns a condition that has only what conditions need: neither a second line nor an option.
fn parse_marker(marker: &str, text: &str) -> Result<String, RequirementError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._<>=!~'\"(), -".contains(c);
    let marker = marker.trim();
    match is_condition(marker) && marker.chars().all(is_plain) && !marker.contains("--") {
        true => Ok(marker.to_owned()),
        false => Err(RequirementError::Marker(quoted(text))),
    }
}

/// Returns the beginning of a text, without control characters.
fn quoted(text: &str) -> String {
    let shown: String = text.chars().take(QUOTED).collect::<String>().escape_debug().collect();
    if text.chars().count() > QUOTED { format!("{shown}…") } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(text: &str) -> String {
        text.parse::<Requirement>().unwrap().to_string()
    }

    #[test]
    fn names_extras_versions_and_markers_are_read_and_written_in_one_form() {
        assert_eq!(written(" Polars "), "polars");
        assert_eq!(written("ruamel.yaml"), "ruamel-yaml");
        assert_eq!(written("httpx [http2, CLI] >= 0.27, <1"), "httpx[http2,cli]>=0.27,<1");
        assert_eq!(written("requests (>=2)"), "requests>=2");
        assert_eq!(written("tomli>=1; python_version < '3.11'"), "tomli>=1 ; python_version < '3.11'");
        assert_eq!(written("a==1.*"), "a==1.*");
    }

    #[test]
    fn what_is_no_package_of_the_index_is_refused() {
        for bad in [
            "", "--index-url=http://x", "-r /etc/passwd", "x @ file:///etc/passwd", "./here", "/etc/passwd",
            "git+https://x/y", "a\n--index-url=http://x", "a\r-e .", "a --hash=sha256:00", "a[--x]", "a[b",
            "a b", "a=1", "a>=x", "a ; x --hash=1", "a ; os_name == 'x'\n-e .", "a # b", "six; import os",
            "-a", "a-", "é", "a\0", "${HOME}",
        ] {
            assert!(bad.parse::<Requirement>().is_err(), "{bad:?}");
        }
        let error = "x".repeat(100_000).parse::<Requirement>().unwrap_err().to_string();
        assert!(error.len() < 200, "{error}");
    }

    #[test]
    fn a_file_is_told_from_a_package() {
        for file in ["requirements.txt", "pyproject.toml", "six-1.0-py3-none-any.WHL"] {
            let error = file.parse::<Requirement>().unwrap_err();
            assert_eq!(error, RequirementError::File(file.into()));
        }
        assert!("ruamel.yaml".parse::<Requirement>().is_ok());
    }

    #[test]
    fn a_list_keeps_extras_and_versions_together() {
        let list = parse_list("pandas>=2,<3, httpx[http2,cli],\nnumpy").unwrap();
        let written: Vec<_> = list.iter().map(ToString::to_string).collect();
        assert_eq!(written, ["pandas>=2,<3", "httpx[http2,cli]", "numpy"]);
    }

    #[test]
    fn a_version_meets_a_plain_requirement() {
        let met = |text: &str, version| text.parse::<Requirement>().unwrap().is_met_by(version);
        assert!(met("a", "0.1") && met("a>=1.5,<2", "1.10") && met("a~=1.4", "1.9"));
        assert!(!met("a>=1.5", "1.4") && !met("a[x]", "1") && !met("a", "nonsense"));
    }
}
