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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::document::parse_page;
    use super::*;

    /// A page in the form that is published: `GET /v0.1/servers`, with schemas of 2025-12.
    const PAGE: &[u8] = include_bytes!("sample.json");

    #[test]
    fn a_page_in_the_published_form_is_read_whole() {
        let page = parse_page(PAGE).unwrap();
        assert_eq!((page.left_out, page.next.as_deref()), (0, Some("example.tracker/issues:1.0.0")));
        let listed: Vec<Value> = page.entries.iter().map(|entry| json!(Listed::of(entry))).collect();
        let [forecast, notes, issues] = &listed[..] else { panic!("{listed:?}") };
        assert_eq!(
            *forecast,
            json!({
                "name": "com.example.weather/forecast", "title": "Forecast", "publisher": "com.example.weather",
                "description": "Forecasts and warnings for any place", "version": "2.4.1", "deprecated": false,
                "repository": "https://code.example/weather/forecast",
                "options": [
                    { "type": "npm", "transport": "stdio",
                      "runs": "npx -y @weather/forecast-mcp@2.4.1 serve '--units=metric'",
                      "needs": [
                        { "name": "FORECAST_KEY", "kind": "variable", "required": true, "secret": true,
                          "description": "The key of your account" },
                        { "name": "CACHE_FOLDER", "kind": "variable", "required": false, "secret": false,
                          "description": "Where answers are kept" },
                        { "name": "--units", "kind": "argument", "required": false, "secret": false,
                          "description": "Units of temperatures" },
                      ] },
                    { "type": "oci", "transport": "stdio",
                      "runs": "docker run -i --rm '--mount=type=bind,src=<source>,dst=/cache' containers.example/weather/forecast:2.4.1",
                      "needs": [{ "name": "source", "kind": "argument", "required": true, "secret": false,
                                  "description": "Folder on this machine" }] },
                ],
            })
        );
        assert_eq!((&notes["deprecated"], notes.get("repository")), (&json!(true), None));
        assert_eq!(notes["options"][0]["runs"], "uvx notes-mcp@0.9.0b2 '<folder>'");
        let unusable: Vec<_> =
            notes["unusable"].as_array().unwrap().iter().map(|why| why.as_str().unwrap()).collect();
        assert!(unusable[0].starts_with("its package is a bundle (mcpb)"), "{unusable:?}");
        assert_eq!(unusable[1..], ["its package speaks 'streamable-http', not stdio"]);
        assert_eq!(issues["options"][0]["runs"], "https://main.tracker.example/mcp");
        let needs = |at: usize| {
            let needs = issues["options"][at]["needs"].as_array().unwrap().iter();
            needs.map(|need| (need["name"].as_str().unwrap(), need["secret"] == true)).collect::<Vec<_>>()
        };
        assert_eq!(needs(0), [("tenant", false), ("token", true), ("X-Region", false)]);
        assert_eq!(
            (&issues["options"][1]["runs"], needs(1)),
            (&json!("https://old.tracker.example/sse"), vec![])
        );
    }
}
