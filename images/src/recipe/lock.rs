//! The exact packages of a recipe.

use std::collections::BTreeMap;
use std::fmt;

use super::RecipeError;
use crate::digest::Digest;

/// A package of a distribution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Package {
    pub name: String,
    pub version: String,
    pub architecture: String,
    /// The digest of the file.
    pub digest: Digest,
    /// The size of the file.
    pub bytes: u64,
}

/// Packages, sorted by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lock(BTreeMap<String, Package>);

impl FromIterator<Package> for Lock {
    fn from_iter<I: IntoIterator<Item = Package>>(packages: I) -> Self {
        Self(packages.into_iter().map(|package| (package.name.clone(), package)).collect())
    }
}

impl Lock {
    /// Parses the output of [`fmt::Display`].
    pub(super) fn parse(file: &str, text: &str) -> Result<Self, RecipeError> {
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let package = |line: &str| -> Option<Package> {
            let mut words = line.split(' ');
            let mut next = || words.next().map(String::from);
            let (name, version, architecture, digest) = (next()?, next()?, next()?, next()?);
            let bytes = next()?.parse().ok()?;
            let digest = format!("sha256:{digest}").parse().ok()?;
            words.next().is_none().then_some(Package { name, version, architecture, digest, bytes })
        };
        let malformed =
            |line: &str| RecipeError::Malformed { file: file.into(), why: format!("not a package: {line}") };
        lines.map(|line| package(line).ok_or_else(|| malformed(line))).collect()
    }

    /// Returns the packages, sorted by name.
    pub fn packages(&self) -> impl Iterator<Item = &Package> {
        self.0.values()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the size of all files.
    pub fn bytes(&self) -> u64 {
        self.packages().map(|package| package.bytes).sum()
    }

    /// Lists how the offered packages differ from these.
    pub fn differences(&self, offered: &Self) -> Vec<String> {
        let mut found = Vec::new();
        for (name, package) in &self.0 {
            match offered.0.get(name) {
                Some(other) if other == package => {}
                Some(other) if other.version == package.version => {
                    found.push(format!("{name} {} has another digest than before", package.version));
                }
                Some(other) => found.push(format!("{name} {} instead of {}", other.version, package.version)),
                None => found.push(format!("{name} is not needed any more")),
            }
        }
        let new = offered.0.values().filter(|package| !self.0.contains_key(&package.name));
        found.extend(new.map(|package| format!("{} {} is new", package.name, package.version)));
        found
    }
}

impl fmt::Display for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "# Written by `codebridge image build --update`: name, version, architecture, SHA-256, bytes."
        )?;
        for Package { name, version, architecture, digest, bytes } in self.packages() {
            writeln!(f, "{name} {version} {architecture} {} {bytes}", digest.hex())?;
        }
        Ok(())
    }
}
