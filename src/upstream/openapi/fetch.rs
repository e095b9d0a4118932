//! The HTTP client, and documents that are read with it.

use std::error::Error;
use std::path::Path;
use std::time::SystemTime;

use http::header;
use reqwest::redirect::Policy;
use reqwest::{Client, Response};

use super::hosts::PublicOnly;
use crate::upstream::discovery::{DocumentPlace, HttpOptions, OpenApi};
use crate::upstream::http_client::builder;

/// Bytes of a document.
const LARGEST: usize = 64 << 20;

/// What differs after a file was changed.
pub(super) type Stamp = (u64, Option<SystemTime>);

/// Returns a client that follows no redirect: credentials travel with requests.
pub(super) fn client(options: &HttpOptions, public_only: bool) -> Result<Client, String> {
    let builder = || {
        let builder = builder(options, true).map_err(|error| error.to_string())?.redirect(Policy::none());
        // A proxy would look names up itself.
        Ok::<_, String>(if public_only { builder.dns_resolver(PublicOnly).no_proxy() } else { builder })
    };
    let mut client = builder()?.build();
    if client.is_err() && options.ca_file.is_none() {
        // Without certificate authorities in the system, plain HTTP still works.
        client = builder()?.tls_certs_only([]).build();
    }
    client.map_err(|error| format!("could not create an HTTP client: {}", innermost(&error)))
}

/// Returns what is wrong with a request, without its URL.
pub(super) fn message_of(error: &reqwest::Error) -> String {
    let stage = if error.is_connect() { "could not connect" } else { "the connection failed" };
    format!("{stage}: {}", innermost(error))
}

fn innermost(error: &reqwest::Error) -> &dyn Error {
    let mut innermost: &dyn Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost
}

/// Reads a body; None if it is longer than the limit.
pub(super) async fn read_up_to(
    response: &mut Response,
    limit: usize,
) -> Result<Option<Vec<u8>>, reqwest::Error> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if bytes.len() + chunk.len() > limit {
            return Ok(None);
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(Some(bytes))
}

/// Reads a document, and the stamp of a file.
///
/// # Errors
/// It cannot be read. The text does not name it.
pub(super) async fn read_document(openapi: &OpenApi) -> Result<(String, Option<Stamp>), String> {
    let (bytes, stamp) = match &openapi.document {
        DocumentPlace::File(path) => {
            let stamp = stamp(path);
            let read = tokio::fs::metadata(path).await.map_err(|error| error.to_string())?;
            if !read.is_file() {
                return Err("it is not a file".into());
            }
            if read.len() > LARGEST as u64 {
                return Err(too_large());
            }
            (tokio::fs::read(path).await.map_err(|error| error.to_string())?, stamp)
        }
        DocumentPlace::Url(url) => (fetch(url, &openapi.options).await?, None),
    };
    Ok((String::from_utf8(bytes).map_err(|_| "it is not UTF-8")?, stamp))
}

/// Returns the stamp of a file; None if there is none.
pub(super) fn stamp(path: &Path) -> Option<Stamp> {
    let found = std::fs::metadata(path).ok()?;
    Some((found.len(), found.modified().ok()))
}

async fn fetch(url: &str, options: &HttpOptions) -> Result<Vec<u8>, String> {
    let request = client(options, false)?.get(url).header(
        header::ACCEPT,
        "application/json, application/yaml, application/openapi+json, text/plain;q=0.9, */*;q=0.5",
    );
    let mut response = request.send().await.map_err(|error| message_of(&error))?;
    let status = response.status();
    if status.is_redirection() {
        return Err(format!(
            "it was answered with HTTP {status}; redirects are not followed, so name its final URL"
        ));
    }
    if !status.is_success() {
        return Err(format!("it was answered with HTTP {status}"));
    }
    let read = read_up_to(&mut response, LARGEST).await.map_err(|error| message_of(&error))?;
    read.ok_or_else(too_large)
}

fn too_large() -> String {
    format!("it is larger than {} MiB", LARGEST >> 20)
}
