//! Settings as text, from the environment and the flags.

use std::collections::BTreeMap;
use std::ffi::OsString;

use super::variables::{ALL, Variable};
use super::{Origin, SettingError};

/// The environment of a process. Tests pass one of their own.
pub type Environment = BTreeMap<String, OsString>;

/// The text of every setting that was given. A flag wins over a variable, and an empty value counts as none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RawSettings {
    values: BTreeMap<&'static str, (String, Origin)>,
    pub(super) home: Option<String>,
}

impl RawSettings {
    /// Reads the variables of the table, and `HOME`.
    ///
    /// # Errors
    /// A variable of the table is not UTF-8.
    pub fn from_environment(environment: &Environment) -> Result<Self, SettingError> {
        let text = |name: &'static str| match environment.get(name) {
            Some(value) => match value.to_str() {
                Some(text) => Ok(Some(text.to_owned()).filter(|text| !text.trim().is_empty())),
                None => Err(SettingError::NotUnicode { origin: Origin::Variable(name) }),
            },
            None => Ok(None),
        };
        let mut raw = Self { home: text("HOME").unwrap_or_default(), ..Self::default() };
        for variable in ALL {
            for &name in std::iter::once(&variable.name).chain(variable.aliases) {
                if let Some(value) = text(name)? {
                    raw.values.insert(variable.name, (value, Origin::Variable(name)));
                    break;
                }
            }
        }
        Ok(raw)
    }

    /// Sets the value of a flag.
    pub fn set_flag(&mut self, variable: &'static Variable, value: &str) {
        if !value.trim().is_empty() {
            self.values.insert(variable.name, (value.to_owned(), Origin::Flag(variable.flag)));
        }
    }

    pub(super) fn get(&self, variable: &Variable) -> Option<(&str, Origin)> {
        self.values.get(variable.name).map(|(value, origin)| (value.as_str(), *origin))
    }
}
