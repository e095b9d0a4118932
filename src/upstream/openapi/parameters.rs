//! The parameters of an operation: which there are, and what each is called as an argument.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::document::Document;
use super::schema::{Limits, Sender, shortened};
use super::style::{Place, Style};
use crate::upstream::discovery::{Auth, OpenApi};

/// Headers that are no parameters, as OpenAPI says.
const NO_PARAMETERS: [&str; 3] = ["accept", "content-type", "authorization"];

#[derive(Debug)]
pub(super) struct Parameter {
    /// What it is called as an argument of the tool.
    pub(super) argument: String,
    /// What it is called in the request.
    pub(super) name: String,
    pub(super) place: Place,
    pub(super) style: Style,
    pub(super) required: bool,
    /// What is sent where it is required and not given.
    pub(super) default: Option<Value>,
    /// Taken by the tool's schema when that is made.
    pub(super) schema: Value,
}

/// What the credentials of a definition fill in, and no argument does.
#[derive(Debug, Default)]
pub(super) struct Reserved(Vec<(Place, String)>);

impl Reserved {
    pub(super) fn of(openapi: &OpenApi) -> Self {
        let headers = openapi.headers.iter().map(|(name, _)| (Place::Header, name.to_ascii_lowercase()));
        let auth = match &openapi.auth {
            Some(Auth::Header { name, .. }) => Some((Place::Header, name.to_ascii_lowercase())),
            Some(Auth::Query { name, .. }) => Some((Place::Query, name.clone())),
            _ => None,
        };
        Self(headers.chain(auth).collect())
    }

    fn has(&self, place: Place, name: &str) -> bool {
        let lower = name.to_ascii_lowercase();
        let name = if place == Place::Header { lower.as_str() } else { name };
        (place == Place::Header && NO_PARAMETERS.contains(&name))
            || self.0.iter().any(|(reserved, known)| *reserved == place && known == name)
    }
}

/// Reads the parameters of an operation and of its path; None if a reference leads nowhere.
pub(super) fn parameters(
    document: &Document,
    item: &Value,
    operation: &Value,
    path: &str,
    reserved: &Reserved,
    limits: Limits,
) -> Option<Vec<Parameter>> {
    let mut found: Vec<Parameter> = Vec::new();
    for list in [item.get("parameters"), operation.get("parameters")].into_iter().flatten() {
        for written in list.as_array().into_iter().flatten() {
            let written = document.follow(written)?;
            let Some(mut parameter) = parameter(document, written, limits) else { continue };
            let Parameter { place, name, .. } = &parameter;
            if reserved.has(*place, name) || (*place == Place::Path && !path.contains(&format!("{{{name}}}")))
            {
                continue;
            }
            let same = found.iter().position(|known| known.place == *place && known.name == *name);
            match same {
                // That of the operation replaces that of its path.
                Some(at) => std::mem::swap(&mut found[at], &mut parameter),
                None => found.push(parameter),
            }
        }
    }
    found.extend(undeclared(path, &found));
    name_arguments(&mut found);
    Some(found)
}

fn parameter(document: &Document, written: &Value, limits: Limits) -> Option<Parameter> {
    let name = written.get("name")?.as_str().filter(|name| !name.is_empty())?.to_owned();
    let place = written.get("in")?.as_str()?;
    let place = Place::ALL.into_iter().find(|known| known.name() == place)?;
    let content = written.get("content").and_then(Value::as_object).and_then(|all| all.values().next());
    let schema = content.unwrap_or(written).get("schema");
    let mut schema =
        schema.map_or_else(|| json!({}), |schema| document.plain(schema, Sender::Client, limits));
    if let (Some(Value::String(text)), Value::Object(members)) = (written.get("description"), &mut schema) {
        members.insert("description".into(), shortened(text, limits.description).into());
    }
    let required = place == Place::Path || written.get("required") == Some(&Value::Bool(true));
    let style = Style::of(written, place, content.is_some());
    let default = schema.get("default").cloned();
    Some(Parameter { argument: String::new(), name, place, style, required, default, schema })
}

/// Returns the parameters that a path has in braces and that nothing describes.
fn undeclared(path: &str, known: &[Parameter]) -> Vec<Parameter> {
    let names = path.split('{').skip(1).filter_map(|part| part.split_once('}')).map(|(name, _)| name);
    let mut seen = HashSet::new();
    let is_new = |name: &&str| {
        !name.is_empty()
            && !known.iter().any(|known| known.place == Place::Path && known.name == **name)
            && seen.insert((*name).to_owned())
    };
    let names: Vec<&str> = names.filter(is_new).collect();
    let parameter = |name: &str| Parameter {
        argument: String::new(),
        name: name.to_owned(),
        place: Place::Path,
        style: Style::of(&Value::Null, Place::Path, false),
        required: true,
        default: None,
        schema: json!({ "type": "string" }),
    };
    names.into_iter().map(parameter).collect()
}

/// Parameters of one name in several places: that of the path keeps it, others get their place after it.
fn name_arguments(found: &mut [Parameter]) {
    let mut taken = HashSet::new();
    for place in Place::ALL {
        for parameter in found.iter_mut().filter(|parameter| parameter.place == place) {
            let mut argument = parameter.name.clone();
            if taken.contains(&argument) {
                argument = format!("{argument}_{}", place.name());
            }
            while taken.contains(&argument) {
                argument.push('_');
            }
            taken.insert(argument.clone());
            parameter.argument = argument;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_merged_and_named() {
        let document = Document {
            root: json!({ "components": { "parameters": {
                "Limit": { "name": "limit", "in": "query", "schema": { "type": "integer" } },
            }}}),
        };
        let item = json!({ "parameters": [
            { "name": "id", "in": "path", "required": true, "schema": { "type": "integer" } },
            { "name": "verbose", "in": "query", "schema": { "type": "string" } },
        ]});
        let operation = json!({ "parameters": [
            { "$ref": "#/components/parameters/Limit" },
            { "name": "id", "in": "query", "description": "another one" },
            { "name": "verbose", "in": "query", "schema": { "type": "boolean" }, "required": true },
            { "name": "Authorization", "in": "header" },
            { "name": "api_key", "in": "query" },
            { "name": "unused", "in": "path" },
            { "name": "filter", "in": "query", "content": { "application/json": { "schema": { "type": "object" } } } },
        ]});
        let reserved = Reserved(vec![(Place::Query, "api_key".into())]);
        let limits = Limits { values: 100, description: 100 };
        let found = parameters(&document, &item, &operation, "/a/{id}/{other}", &reserved, limits).unwrap();
        let shown: Vec<_> = found
            .iter()
            .map(|one| (one.argument.as_str(), one.name.as_str(), one.place.name(), one.required))
            .collect();
        assert_eq!(
            shown,
            [
                ("id", "id", "path", true),
                ("verbose", "verbose", "query", true),
                ("limit", "limit", "query", false),
                ("id_query", "id", "query", false),
                ("filter", "filter", "query", false),
                ("other", "other", "path", true),
            ]
        );
        assert_eq!(found[1].schema, json!({ "type": "boolean" }));
        assert_eq!(found[3].schema, json!({ "description": "another one" }));
        let lost = json!({ "parameters": [{ "$ref": "#/components/parameters/None" }] });
        assert!(parameters(&document, &item, &lost, "/a/{id}", &reserved, limits).is_none());
    }
}
