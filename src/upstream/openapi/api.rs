//! An API as its document describes it: its tools, and their calls.

use std::collections::HashMap;
use std::sync::Arc;

use http::StatusCode;
use reqwest::Client;
use serde_json::{Map, Value, json};

use super::auth::Credentials;
use super::document::Document;
use super::fetch::{Stamp, client, message_of, read_document, read_up_to, stamp};
use super::hosts::Hosts;
use super::operations::{Operation, Operations};
use super::pages::next_page;
use super::parameters::Reserved;
use super::request::{Prepared, prepare};
use super::response::{Received, failed};
use super::schema::shortened;
use crate::upstream::discovery::{DocumentPlace, OpenApi};

/// Bytes of a response.
const LONGEST_RESPONSE: usize = 32 << 20;
/// Bytes of what a document says of the whole API.
const LONGEST_DESCRIPTION: usize = 2_000;

/// Why a document cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("could not use the OpenAPI document '{place}': {why}")]
pub(in crate::upstream) struct LoadError {
    place: String,
    why: String,
}

/// An API, ready to be called.
#[derive(Debug)]
pub(in crate::upstream) struct Api {
    client: Client,
    credentials: Credentials,
    operations: Operations,
    by_name: HashMap<String, usize>,
    title: Option<String>,
    description: Option<String>,
    stamp: Option<Stamp>,
}

impl Api {
    /// Reads the document of a definition.
    ///
    /// # Errors
    /// It cannot be read, is no OpenAPI document, or names no host that may be called.
    pub(in crate::upstream) async fn load(openapi: &Arc<OpenApi>) -> Result<Self, LoadError> {
        let error = |why: String| LoadError { place: openapi.document.to_string(), why };
        let (text, stamp) = read_document(openapi).await.map_err(error)?;
        let definition = Arc::clone(openapi);
        // Documents have megabytes.
        let read = tokio::task::spawn_blocking(move || Self::read(&definition, &text, stamp)).await;
        read.unwrap_or_else(|_| Err("it could not be read".into())).map_err(error)
    }

    fn read(openapi: &OpenApi, text: &str, stamp: Option<Stamp>) -> Result<Self, String> {
        let document = Document::parse(text).map_err(|error| error.to_string())?;
        let hosts = Hosts::new(openapi, &document.root).map_err(|error| error.to_string())?;
        let reserved = Reserved::of(openapi);
        let operations = Operations::read(&document, &hosts, &reserved).map_err(|error| error.to_string())?;
        if let Some(refused) = operations.none_can_be_called() {
            return Err(refused.to_string());
        }
        // A document that was fetched does not say where a secret is sent.
        let is_own = matches!(openapi.document, DocumentPlace::File(_));
        let credentials = Credentials::new(openapi, is_own.then_some(&document.root))?;
        let names = operations.all.iter().enumerate().map(|(at, operation)| (operation.name.clone(), at));
        let info = |key: &str| {
            let text = document.root.pointer(&format!("/info/{key}")).and_then(Value::as_str);
            text.map(|text| shortened(text, LONGEST_DESCRIPTION)).filter(|text| !text.is_empty())
        };
        Ok(Self {
            client: client(&openapi.options, hosts.are_foreign())?,
            credentials,
            by_name: names.collect(),
            title: info("title"),
            description: info("description"),
            operations,
            stamp,
        })
    }

    /// Whether the document is still the one that was read, as far as that can be seen without fetching it.
    pub(super) fn is_current(&self, place: &DocumentPlace) -> bool {
        match place {
            DocumentPlace::File(path) => stamp(path).is_none_or(|now| Some(now) == self.stamp),
            DocumentPlace::Url(_) => true,
        }
    }

    /// Returns what MCP's handshake says of it.
    pub(super) fn about(&self) -> Value {
        let mut about = json!({
            "capabilities": { "tools": { "listChanged": true } },
            "serverInfo": { "name": "openapi", "version": "1" },
        });
        if let Some(title) = &self.title {
            about["serverInfo"]["title"] = json!(title);
        }
        if let Some(description) = &self.description {
            about["instructions"] = json!(description);
        }
        about
    }

    /// Returns the list of tools as JSON.
    pub(super) fn tools(&self) -> &str {
        &self.operations.tools
    }

    pub(super) fn has(&self, tool: &str) -> bool {
        self.by_name.contains_key(tool)
    }

    /// Calls an operation, and returns the MCP result. No credential is in it.
    pub(super) async fn call(&self, tool: &str, arguments: &[u8]) -> Value {
        let Some(operation) = self.by_name.get(tool).map(|at| &self.operations.all[*at]) else {
            return failed("there is no such operation");
        };
        match self.try_call(operation, arguments).await {
            Ok(result) => result,
            Err(why) => failed(&self.credentials.hide_in(&why)),
        }
    }

    async fn try_call(&self, operation: &Operation, arguments: &[u8]) -> Result<Value, String> {
        let arguments: Map<String, Value> =
            serde_json::from_slice(arguments).map_err(|error| error.to_string())?;
        let (mut request, arguments) = prepared(operation, arguments)?;
        let plain = (request.url.clone(), request.headers.clone());
        let mut received = self.send(&mut request).await?;
        if received.status == StatusCode::UNAUTHORIZED && self.credentials.forget_token().await {
            // The token was revoked before its time. The request was not carried out.
            (request.url, request.headers) = plain;
            received = self.send(&mut request).await?;
        }
        let body = if received.status.is_success() { received.json() } else { None };
        let next = next_page(operation, &arguments, &received.url, &received.headers, body.as_ref());
        Ok(received.into_result(next))
    }

    async fn send(&self, request: &mut Prepared) -> Result<Received, String> {
        let shown = request.url.clone();
        self.credentials.apply(&self.client, &mut request.url, &mut request.headers).await?;
        let mut sending =
            self.client.request(request.method.clone(), request.url.clone()).headers(request.headers.clone());
        if let Some(body) = &request.body {
            sending = sending.body(body.bytes.clone());
        }
        let host = shown.host_str().unwrap_or_default();
        let failure = |error: reqwest::Error| format!("could not reach {host}: {}", message_of(&error));
        let mut response = sending.send().await.map_err(failure)?;
        let (status, mut headers) = (response.status(), response.headers().clone());
        let body = read_up_to(&mut response, LONGEST_RESPONSE).await.map_err(failure)?;
        let body = body.ok_or_else(|| {
            format!(
                "the response (HTTP {status}) is longer than {} MiB, and was not read",
                LONGEST_RESPONSE >> 20
            )
        })?;
        for value in headers.values_mut() {
            if let Ok(hidden) = self.credentials.hide(value.as_bytes().to_vec()).try_into() {
                *value = hidden;
            }
        }
        let (method, body) = (request.method.clone(), self.credentials.hide(body));
        Ok(Received { method, url: shown, status, headers, body })
    }
}

/// Returns the request, and the arguments that it was made of.
fn prepared(
    operation: &Operation,
    arguments: Map<String, Value>,
) -> Result<(Prepared, Map<String, Value>), String> {
    // Only those of the query are needed after the call; bodies may be large.
    let of_query = |name: &str| operation.parameters.iter().any(|parameter| parameter.argument == name);
    let kept = arguments
        .iter()
        .filter(|(name, _)| of_query(name))
        .map(|(name, value)| (name.clone(), value.clone()));
    let kept = kept.collect();
    Ok((prepare(operation, arguments)?, kept))
}
