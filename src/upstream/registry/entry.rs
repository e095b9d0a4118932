//! What a registry says of a server: <https://modelcontextprotocol.io/registry/about>. Only what is used is read.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

/// Reads a value; null stands for none.
fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(value: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(value)?.unwrap_or_default())
}

/// A server of a registry.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Entry {
    /// `NAMESPACE/NAME`; the namespace belongs to its publisher.
    pub name: String,
    pub title: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub description: String,
    pub version: String,
    /// `active` or `deprecated`.
    pub status: Option<String>,
    pub repository: Option<Repository>,
    #[serde(deserialize_with = "or_default")]
    pub(super) packages: Vec<Package>,
    #[serde(deserialize_with = "or_default")]
    pub(super) remotes: Vec<Remote>,
}

impl Entry {
    /// Returns the namespace: the registry has checked that it belongs to the publisher.
    pub fn publisher(&self) -> &str {
        self.name.split_once('/').map_or("", |(namespace, _)| namespace)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Repository {
    pub url: String,
}

/// A package that is started on this machine.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Package {
    #[serde(alias = "registry_type")]
    pub(super) registry_type: String,
    #[serde(alias = "registry_base_url")]
    pub(super) registry_base_url: Option<String>,
    pub(super) identifier: String,
    pub(super) version: Option<String>,
    #[serde(alias = "runtime_hint")]
    pub(super) runtime_hint: Option<String>,
    pub(super) transport: Option<PackageTransport>,
    #[serde(alias = "runtime_arguments", deserialize_with = "or_default")]
    pub(super) runtime_arguments: Vec<Argument>,
    #[serde(alias = "package_arguments", deserialize_with = "or_default")]
    pub(super) package_arguments: Vec<Argument>,
    #[serde(alias = "environment_variables", deserialize_with = "or_default")]
    pub(super) environment_variables: Vec<Named>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct PackageTransport {
    #[serde(rename = "type")]
    pub(super) kind: String,
}

/// A server elsewhere.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct Remote {
    #[serde(rename = "type", alias = "transport_type")]
    pub(super) kind: String,
    pub(super) url: String,
    #[serde(deserialize_with = "or_default")]
    pub(super) headers: Vec<Named>,
    #[serde(deserialize_with = "or_default")]
    pub(super) variables: BTreeMap<String, Input>,
}

/// A word of a command line, or two.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Argument {
    #[serde(rename = "type")]
    pub(super) kind: String,
    /// Of a named argument, with its dashes.
    pub(super) name: Option<String>,
    #[serde(alias = "value_hint")]
    pub(super) value_hint: Option<String>,
    #[serde(flatten)]
    pub(super) input: Input,
}

/// A variable or a header.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct Named {
    pub(super) name: String,
    #[serde(flatten)]
    pub(super) input: Input,
}

/// A value that is given, or that the user has to give.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Input {
    pub description: Option<String>,
    #[serde(alias = "is_required")]
    pub is_required: bool,
    #[serde(alias = "is_secret")]
    pub is_secret: bool,
    pub value: Option<String>,
    pub default: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub choices: Vec<String>,
    /// Stand in the value in braces.
    #[serde(deserialize_with = "or_default")]
    pub variables: BTreeMap<String, Self>,
}
