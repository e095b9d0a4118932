//! A server of a registry as it is shown, to people and to code.

use serde::Serialize;

use super::entry::Entry;
use super::recipe::{Recipe, Wanted};

/// A server of a registry. Nothing in it was tried.
#[derive(Debug, Clone, Serialize)]
pub struct Listed {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    pub description: String,
    pub publisher: String,
    pub version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
    /// Whether its publisher advises against it.
    pub deprecated: bool,
    /// The ways to use it, the one that `add` takes first.
    pub options: Vec<ListedOption>,
    /// Why other ways cannot be used.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unusable: Vec<String>,
}

/// A way to use a server.
#[derive(Debug, Clone, Serialize)]
pub struct ListedOption {
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// `stdio` or `http`.
    pub transport: &'static str,
    /// The command line or the URL.
    pub runs: String,
    pub needs: Vec<Need>,
}

/// What the user has to give, or can.
#[derive(Debug, Clone, Serialize)]
pub struct Need {
    pub name: String,
    pub kind: &'static str,
    pub required: bool,
    pub secret: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
}

impl Listed {
    pub fn of(entry: &Entry) -> Self {
        let recipes = entry.recipes();
        Self {
            name: entry.name.clone(),
            title: entry.title.clone(),
            description: entry.description.clone(),
            publisher: entry.publisher().to_owned(),
            version: entry.version.clone(),
            repository: entry.repository.as_ref().map(|repository| repository.url.clone()),
            deprecated: entry.status.as_deref() == Some("deprecated"),
            unusable: recipes.iter().filter_map(|recipe| Some(recipe.as_ref().err()?.to_string())).collect(),
            options: recipes.iter().flatten().map(ListedOption::of).collect(),
        }
    }
}

impl ListedOption {
    fn of(recipe: &Recipe) -> Self {
        let need = |Wanted { name, kind, description, is_required, is_secret, .. }| Need {
            name,
            kind,
            required: is_required,
            secret: is_secret,
            description,
        };
        Self {
            kind: recipe.kind,
            transport: recipe.transport(),
            runs: recipe.shown(),
            needs: recipe.wanted().into_iter().map(need).collect(),
        }
    }
}
