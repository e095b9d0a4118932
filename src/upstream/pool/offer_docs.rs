//! The resources, URI templates and prompts of a server as documentation, so that searches find them.

use std::sync::{Arc, PoisonError};

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::changes::Changes;
use super::connection::Connection;
use super::context::{Context, Limits};
use super::listing::OfferedDocs;
use crate::mcp::bounds::Bounds;
use crate::upstream::error::UpstreamError;
use crate::upstream::offer::OfferList;
use crate::upstream::tool_doc::{DocKind, ToolDoc};

/// Resources, templates and prompts that searches find of each list of a server: tools must not be lost among them.
const MOST_FOUND: usize = 1_000;
/// What is read of each.
const ENTRY: Bounds = Bounds { bytes: 64 << 10, values: 1_000 };
/// The arguments of a prompt.
const MOST_ARGUMENTS: usize = 100;

impl Connection {
    /// Returns the documentation of what the server offers beside tools.
    pub(super) async fn offer_docs(
        &self,
        limits: &Limits,
        cancel: &CancellationToken,
    ) -> Result<Arc<OfferedDocs>, UpstreamError> {
        let _turn = tokio::select! {
            turn = self.offers.asking.lock() => turn,
            () = cancel.cancelled() => return Err(self.cancelled("resources/list")),
        };
        // Read before the lists: a change that is announced meanwhile may not be in them.
        let generation = *self.parts.offers_changed.borrow();
        if let Some((known, docs)) = &*self.offers.last.lock().unwrap_or_else(PoisonError::into_inner)
            && *known == generation
        {
            return Ok(Arc::clone(docs));
        }
        let mut docs = Vec::new();
        for list in self.declared() {
            match self.list_offers(list, limits, cancel).await {
                Ok(pages) => {
                    docs.extend(pages.items.iter().filter_map(|item| doc_of(list, item)).take(MOST_FOUND))
                }
                // A server that refuses one list may have the others.
                Err(UpstreamError::Refused { .. } | UpstreamError::Malformed { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let (source, definition) = (Arc::clone(&self.parts.source), Arc::clone(&self.parts.definition));
        let offered = Arc::new(OfferedDocs { source, definition, docs });
        let mut last = self.offers.last.lock().unwrap_or_else(PoisonError::into_inner);
        *last = Some((generation, Arc::clone(&offered)));
        Ok(offered)
    }

    /// Lists them again whenever the server says that they have changed, until it ends.
    pub(super) async fn follow_offers(&self, context: &Context) {
        let mut changes = Changes::new(self.parts.offers_changed.clone());
        while changes.next(&self.parts.gone).await {
            match self.offer_docs(&context.limits, &self.parts.gone).await {
                Ok(offered) => Arc::clone(&context.listener).offered(offered),
                Err(error) => {
                    tracing::debug!(server = %self.parts.server, %error, "could not list the changed resources and prompts");
                }
            }
        }
    }

    /// Returns the lists that the server says that it has.
    fn declared(&self) -> Vec<OfferList> {
        let Some(info) = self.peer.peer_info() else { return Vec::new() };
        let (resources, prompts) = (&info.capabilities.resources, &info.capabilities.prompts);
        let is_declared = |list: &OfferList| match list {
            OfferList::Resources | OfferList::Templates => resources.is_some(),
            OfferList::Prompts => prompts.is_some(),
        };
        OfferList::ALL.into_iter().filter(is_declared).collect()
    }
}

/// Returns the documentation of an entry of a list; None if it is malformed or has no name.
fn doc_of(list: OfferList, raw: &RawValue) -> Option<ToolDoc> {
    let value = ENTRY.parse(raw)?.ok()?;
    let text = |key: &str| value.get(key).and_then(Value::as_str).filter(|text| !text.trim().is_empty());
    let (kind, name) = match list {
        OfferList::Resources => (DocKind::Resource, text("uri")?),
        OfferList::Templates => (DocKind::Template, text("uriTemplate")?),
        OfferList::Prompts => (DocKind::Prompt, text("name")?),
    };
    let title = text("title").or(text("name").filter(|title| *title != name));
    let input_schema = match kind {
        DocKind::Prompt => schema_of(value.get("arguments")),
        _ => json!({ "type": "object" }),
    };
    Some(ToolDoc {
        kind,
        name: name.to_owned(),
        title: title.map(str::to_owned),
        description: text("description").or(title).unwrap_or_default().to_owned(),
        input_schema,
        output_schema: None,
    })
}

/// Returns the arguments of a prompt as JSON Schema. All of them are texts.
fn schema_of(arguments: Option<&Value>) -> Value {
    let (mut properties, mut required) = (Map::new(), Vec::new());
    let arguments = arguments.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    for argument in arguments.iter().take(MOST_ARGUMENTS) {
        let Some(name) = argument.get("name").and_then(Value::as_str) else { continue };
        let mut property = json!({ "type": "string" });
        if let Some(description) = argument.get("description").filter(|description| description.is_string()) {
            property["description"] = description.clone();
        }
        properties.insert(name.to_owned(), property);
        if argument.get("required") == Some(&Value::Bool(true)) {
            required.push(Value::from(name));
        }
    }
    json!({ "type": "object", "properties": properties, "required": required })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn doc(list: OfferList, json: &str) -> Option<ToolDoc> {
        doc_of(list, &RawValue::from_string(json.into()).unwrap())
    }

    #[test]
    fn entries_are_documented_by_what_they_say() {
        let page = doc(OfferList::Resources, r#"{"uri":"w://a","name":"a.md","mimeType":"text/x"}"#).unwrap();
        assert_eq!((page.kind, &*page.name, &*page.description), (DocKind::Resource, "w://a", "a.md"));
        let prompt = doc(
            OfferList::Prompts,
            r#"{"name":"p","description":"Does.","arguments":[{"name":"b","required":true,"description":"d"},{"name":"a"},7]}"#,
        )
        .unwrap();
        assert_eq!((prompt.title, &*prompt.description), (None, "Does."));
        assert_eq!(
            prompt.input_schema.to_string(),
            r#"{"type":"object","properties":{"b":{"type":"string","description":"d"},"a":{"type":"string"}},"required":["b"]}"#
        );
        for wrong in ["7", "{}", r#"{"uri":7}"#, r#"{"uri":" "}"#, r#"{"name":"n"}"#] {
            assert_eq!(doc(OfferList::Resources, wrong), None, "{wrong}");
        }
    }
}
