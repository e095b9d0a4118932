//! What a server offers beside tools: requests about its resources and prompts, and the lists of them.

use std::collections::HashSet;
use std::time::Duration;

use rmcp::model::{ClientRequest, CustomRequest, ErrorCode};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use super::connection::Connection;
use super::context::Limits;
use super::inputs::Inputs;
use super::outcome::{CallOutcome, Entries, LARGEST_LIST, LONGEST_CURSOR, MOST_TOOLS};
use crate::mcp::bounds::work_on;
use crate::mcp::client::Expected;
use crate::upstream::error::UpstreamError;
use crate::upstream::offer::{OfferList, OfferRequest};
use crate::upstream::options::CallOptions;

/// A list of resources, templates or prompts, each as its server wrote it.
#[derive(Debug, Default)]
pub struct OfferPages {
    pub items: Vec<Box<RawValue>>,
    /// Whether there are more, which were left out.
    pub is_cut: bool,
    bytes: usize,
}

/// One page of any of the lists.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page<'a> {
    #[serde(borrow, default)]
    resources: Entries<'a>,
    #[serde(borrow, default)]
    resource_templates: Entries<'a>,
    #[serde(borrow, default)]
    prompts: Entries<'a>,
    #[serde(borrow, default)]
    next_cursor: Option<&'a RawValue>,
}

impl OfferPages {
    /// Reads a page, and returns the cursor of the next one; None after the last page that is wanted.
    fn read(&mut self, list: OfferList, page: &RawValue) -> Result<Option<String>, serde_json::Error> {
        self.bytes += page.get().len();
        if self.bytes > LARGEST_LIST {
            self.is_cut = true;
            return Ok(None);
        }
        work_on(page.get().len(), || {
            let page: Page<'_> = serde_json::from_str(page.get())?;
            let entries = match list {
                OfferList::Resources => page.resources,
                OfferList::Templates => page.resource_templates,
                OfferList::Prompts => page.prompts,
            };
            let room = MOST_TOOLS - self.items.len();
            self.is_cut = entries.left_out > 0 || entries.read.len() > room;
            self.items.extend(entries.read.into_iter().take(room).map(ToOwned::to_owned));
            if self.is_cut || self.items.len() == MOST_TOOLS {
                self.is_cut |= page.next_cursor.is_some();
                return Ok(None);
            }
            let cursor = page.next_cursor.filter(|cursor| cursor.get().len() <= LONGEST_CURSOR);
            Ok(cursor.map(|cursor| serde_json::from_str(cursor.get())).transpose()?.flatten())
        })
    }
}

impl Connection {
    /// Sends a request about a resource or a prompt.
    pub(super) async fn offer(
        &self,
        request: &OfferRequest,
        options: CallOptions<'_>,
        limit: Duration,
    ) -> Result<CallOutcome, UpstreamError> {
        let method = request.method();
        let request = |inputs: Option<Inputs>| {
            let mut params = request.params();
            if let (Some(inputs), Some(params)) = (inputs, params.as_object_mut()) {
                inputs.add_to(params);
            }
            ClientRequest::CustomRequest(CustomRequest::new(method, Some(params)))
        };
        self.ask_with_inputs(method, request, options, limit).await
    }

    /// Returns a list, which is empty if the server does not know it.
    pub(super) async fn list_offers(
        &self,
        list: OfferList,
        limits: &Limits,
        cancel: &CancellationToken,
    ) -> Result<OfferPages, UpstreamError> {
        let method = list.method();
        let listing = async {
            let mut pages = OfferPages::default();
            let mut cursor: Option<String> = None;
            let mut seen = HashSet::new();
            for _ in 0..limits.pages {
                let params = cursor.as_ref().map(|cursor| json!({ "cursor": cursor }));
                let request = ClientRequest::CustomRequest(CustomRequest::new(method, params));
                let expected = Expected::new(None, None);
                let answer = self.request(method, request, expected, limits.listing, cancel).await;
                let (result, _) = match answer {
                    Err(UpstreamError::Refused { code, .. }) if code == ErrorCode::METHOD_NOT_FOUND.0 => {
                        break;
                    }
                    other => other?,
                };
                cursor =
                    pages.read(list, &result).map_err(|error| self.malformed(method, &error.to_string()))?;
                match &cursor {
                    None => break,
                    // A cursor that repeats itself would never end.
                    Some(cursor) if !seen.insert(cursor.clone()) => break,
                    Some(_) => {}
                }
            }
            Ok(pages)
        };
        match tokio::time::timeout(limits.listing, listing).await {
            Ok(list) => list,
            Err(_) => Err(self.timed_out(method, limits.listing)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(json: &str) -> Box<RawValue> {
        RawValue::from_string(json.into()).unwrap()
    }

    #[test]
    fn pages_are_put_together_up_to_a_limit() {
        let mut pages = OfferPages::default();
        let first = raw(r#"{"resources":[{"uri":"a:1"}],"nextCursor":"2"}"#);
        assert_eq!(pages.read(OfferList::Resources, &first).unwrap().as_deref(), Some("2"));
        let last = raw(r#"{"resources":[{"uri":"a:2","size":1.0}],"prompts":[{"name":"p"}]}"#);
        assert_eq!(pages.read(OfferList::Resources, &last).unwrap(), None);
        let items: Vec<&str> = pages.items.iter().map(|item| item.get()).collect();
        assert_eq!((items, pages.is_cut), (vec![r#"{"uri":"a:1"}"#, r#"{"uri":"a:2","size":1.0}"#], false));
        let many = raw(&format!(r#"{{"resources":[{}0],"nextCursor":"3"}}"#, "0,".repeat(MOST_TOOLS)));
        assert_eq!(pages.read(OfferList::Resources, &many).unwrap(), None);
        assert_eq!((pages.items.len(), pages.is_cut), (MOST_TOOLS, true));
        assert!(OfferPages::default().read(OfferList::Prompts, &raw(r#"{"prompts":{}}"#)).is_err());
    }
}
