//! Which packages code may install: the value of `MCP_BRIDGE_PACKAGES`.

use std::path::PathBuf;
use std::str::FromStr;

use pep440_rs::VersionSpecifiers;

use super::requirement::split_list;
use crate::glob::fits;
use crate::nearest::nearest;

/// What code may install.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Permission {
    /// Nothing. Packages that the operator names are not asked for here.
    #[default]
    Off,
    /// Every package of the index.
    Allow,
    /// Packages whose names fit one of these.
    Only(Vec<Pattern>),
    /// The versions and hashes of a lock file.
    Locked(PathBuf),
}

/// A name, in which `*` stands for any characters, and the versions that are allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    name: String,
    versions: VersionSpecifiers,
}

/// The text is not a permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PermissionError;

impl Permission {
    /// Returns the word that a text probably means: it is a package name only by mistake. A package with such a name can still be
    /// allowed in a list: `alow,`.
    pub fn word_meant_by(text: &str) -> Option<&'static str> {
        let text = text.trim().to_ascii_lowercase();
        let is_bare = text.bytes().all(|b| b.is_ascii_alphabetic());
        let word = nearest(&text, ["allow", "off", "locked"])
            .filter(|word| is_bare && *word != text || text == "locked")?;
        Some(if word == "locked" { "locked:FILE" } else { word })
    }

    /// Returns the versions of a package that are allowed, all of which hold; None if it is not allowed at all.
    pub fn versions_of(&self, name: &str) -> Option<VersionSpecifiers> {
        match self {
            Self::Off => None,
            // What the file lacks is refused once it is read.
            Self::Allow | Self::Locked(_) => Some(VersionSpecifiers::empty()),
            Self::Only(patterns) => {
                let fitting = patterns.iter().find(|pattern| fits(&pattern.name, name));
                fitting.map(|pattern| pattern.versions.clone())
            }
        }
    }
}

impl FromStr for Permission {
    type Err = PermissionError;

    fn from_str(text: &str) -> Result<Self, PermissionError> {
        let text = text.trim();
        if let Some(file) = text.strip_prefix("locked:").filter(|file| !file.trim().is_empty()) {
            return Ok(Self::Locked(file.trim().into()));
        }
        match text.to_ascii_lowercase().as_str() {
            "off" | "0" | "false" | "no" => return Ok(Self::Off),
            "allow" | "on" | "1" | "true" | "yes" => return Ok(Self::Allow),
            _ => {}
        }
        let items = split_list(text);
        let patterns: Option<Vec<Pattern>> = items.iter().map(|item| parse_pattern(item)).collect();
        patterns.filter(|patterns| !patterns.is_empty()).map(Self::Only).ok_or(PermissionError)
    }
}

fn parse_pattern(text: &str) -> Option<Pattern> {
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || "-_.*".contains(c))).unwrap_or(text.len());
    let (name, versions) = text.split_at(end);
    let versions = versions.trim();
    let is_plain = versions.is_empty() || versions.starts_with(['=', '<', '>', '!', '~']);
    let name = name.to_ascii_lowercase().replace(['_', '.'], "-");
    let pattern = Pattern { name, versions: VersionSpecifiers::from_str(versions).ok()? };
    (is_plain && !pattern.name.is_empty()).then_some(pattern)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(setting: &str, name: &str) -> Option<String> {
        setting.parse::<Permission>().unwrap().versions_of(name).map(|versions| versions.to_string())
    }

    #[test]
    fn a_setting_is_a_word_a_list_or_a_file() {
        assert_eq!("off".parse(), Ok(Permission::Off));
        assert_eq!("Allow".parse(), Ok(Permission::Allow));
        assert_eq!("locked:/a b.txt".parse(), Ok(Permission::Locked("/a b.txt".into())));
        for bad in ["", "locked:", "a b", "https://x", "a=1", "-r x", "a[b]"] {
            assert!(bad.parse::<Permission>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_mistyped_word_is_not_a_package() {
        for (text, word) in [
            ("alow", Some("allow")),
            ("alllow", Some("allow")),
            ("offf", Some("off")),
            ("locked", Some("locked:FILE")),
            ("allow", None),
            ("off", None),
            ("on", None),
            ("pandas", None),
            ("alow,", None),
            ("polars", None),
        ] {
            assert_eq!(Permission::word_meant_by(text), word, "{text}");
        }
    }

    #[test]
    fn a_list_allows_names_and_versions() {
        let list = "numpy, Pandas>=2,<3, scikit_*, *-stubs";
        assert_eq!(allows(list, "numpy").as_deref(), Some(""));
        assert_eq!(allows(list, "pandas").as_deref(), Some(">=2, <3"));
        assert!(allows(list, "scikit-learn").is_some() && allows(list, "pandas-stubs").is_some());
        for refused in ["scikit", "numpy-x", "xnumpy", "stubs"] {
            assert_eq!(allows(list, refused), None, "{refused}");
        }
        assert!(fits("a*b*c", "a-b-b-c") && !fits("a*b*c", "ac") && fits("*", ""));
    }
}
