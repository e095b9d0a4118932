//! Settings as text, from the environment and the flags.

use std::collections::BTreeMap;
use std::ffi::OsString;

use super::variables::{ALL, Variable};
use super::{Origin, SettingError, SettingWarning};
use crate::nearest::nearest;

/// The environment of a process. Tests pass one of their own.
pub type Environment = BTreeMap<String, OsString>;

/// What the names of variables begin with.
const PREFIXES: [&str; 2] = ["MCP_BRIDGE_", "MCP_SERVERS_"];

/// The text of every setting that was given. A flag wins over a variable, and an empty value counts as none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RawSettings {
    values: BTreeMap<&'static str, (String, Origin)>,
    pub(super) home: Option<String>,
    pub(super) warnings: Vec<SettingWarning>,
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
            for name in variable.names() {
                let Some(value) = text(name)? else { continue };
                match raw.values.get(variable.name) {
                    None => drop(raw.values.insert(variable.name, (value, Origin::Variable(name)))),
                    Some((used, _)) if *used == value => {}
                    Some((_, used)) => raw
                        .warnings
                        .push(SettingWarning::Ignored { ignored: Origin::Variable(name), used: *used }),
                }
            }
        }
        raw.warnings.extend(
            environment.iter().filter(|(_, value)| !value.is_empty()).filter_map(|(name, _)| unknown(name)),
        );
        Ok(raw)
    }

    /// Between the values of a flag that was given several times; no argument of a program contains it.
    pub(super) const SEPARATOR: char = '\0';

    /// Sets the value of a flag, or adds one where the flag may be repeated.
    pub fn set_flag(&mut self, variable: &'static Variable, value: &str) {
        if variable.may_be_repeated()
            && let Some((values, Origin::Flag(_))) = self.values.get_mut(variable.name)
        {
            values.push(Self::SEPARATOR);
            values.push_str(value);
        } else if !value.trim().is_empty() {
            self.values.insert(variable.name, (value.to_owned(), Origin::Flag(variable.flag)));
        }
    }

    pub(super) fn get(&self, variable: &Variable) -> Option<(&str, Origin)> {
        self.values.get(variable.name).map(|(value, origin)| (value.as_str(), *origin))
    }
}

/// Returns a warning about a variable that has one of our prefixes and sets nothing.
fn unknown(name: &str) -> Option<SettingWarning> {
    fn own_part(name: &str) -> &str {
        ["MCP_BRIDGE_", "MCP_"].iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name)
    }
    let is_ours = PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    if !is_ours || ALL.iter().any(|variable| variable.names().any(|known| known == name)) {
        return None;
    }
    // What all names begin with would make all of them alike.
    let names = || ALL.into_iter().flat_map(Variable::names);
    let nearest = nearest(own_part(name), names().map(own_part));
    let nearest = nearest.and_then(|part| names().find(|known| own_part(known) == part));
    Some(SettingWarning::Unknown { name: name.to_owned(), nearest })
}
