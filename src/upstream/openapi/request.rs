//! The HTTP request of a call.

use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use reqwest::Url;
use serde_json::{Map, Value};

use super::body::Encoded;
use super::operations::Operation;
use super::style::Place;

/// A request, without the credentials of the definition.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) method: Method,
    pub(super) url: Url,
    pub(super) headers: HeaderMap,
    pub(super) body: Option<Encoded>,
}

/// Returns the request of a call.
///
/// # Errors
/// The arguments make none. The text says which, and why.
pub(super) fn prepare(operation: &Operation, mut arguments: Map<String, Value>) -> Result<Prepared, String> {
    let base = operation.base.as_ref().map_err(ToString::to_string)?;
    let mut path = operation.path.clone();
    let mut query: Vec<String> = base.query().map(str::to_owned).into_iter().collect();
    let mut headers = HeaderMap::new();
    let mut cookies = Vec::new();
    for parameter in &operation.parameters {
        let value = arguments.shift_remove(&parameter.argument).filter(|value| !value.is_null());
        let default = || parameter.default.clone().filter(|_| parameter.required);
        let Some(value) = value.or_else(default) else {
            if parameter.required {
                return Err(format!("argument '{}' is missing", parameter.argument));
            }
            continue;
        };
        match parameter.place {
            Place::Path => {
                let text = parameter.style.in_path(&parameter.name, &value);
                if text.is_empty() {
                    return Err(format!(
                        "argument '{}' is empty, and it is a part of the path",
                        parameter.argument
                    ));
                }
                path = path.replace(&format!("{{{}}}", parameter.name), &text);
            }
            Place::Query => {
                let pairs = parameter.style.pairs(&parameter.name, &value);
                query.extend(pairs.into_iter().map(|(name, value)| format!("{name}={value}")));
            }
            Place::Cookie => {
                let pairs = parameter.style.pairs(&parameter.name, &value);
                cookies.extend(pairs.into_iter().map(|(name, value)| format!("{name}={value}")));
            }
            Place::Header => {
                let invalid =
                    || format!("argument '{}' is not a valid value of a header", parameter.argument);
                let name = HeaderName::from_bytes(parameter.name.as_bytes()).map_err(|_| invalid())?;
                let value =
                    HeaderValue::from_str(&parameter.style.in_header(&value)).map_err(|_| invalid())?;
                headers.insert(name, value);
            }
        }
    }
    if let Some(cookies) =
        (!cookies.is_empty()).then(|| HeaderValue::from_str(&cookies.join("; ")).ok()).flatten()
    {
        headers.insert(header::COOKIE, cookies);
    }
    if let Ok(accept) = HeaderValue::from_str(&accept(&operation.accept)) {
        headers.insert(header::ACCEPT, accept);
    }
    let body = match &operation.body {
        Some(body) => body.encode(arguments)?,
        None => None,
    };
    if let Some(body) = &body {
        let kind =
            HeaderValue::from_str(&body.content_type).map_err(|_| "the type of the body is invalid")?;
        headers.insert(header::CONTENT_TYPE, kind);
    }
    let url = url(base, &path, &query)?;
    Ok(Prepared { method: operation.method.clone(), url, headers, body })
}

/// Returns the URL of a path below a base. No argument leads elsewhere.
fn url(base: &Url, path: &str, query: &[String]) -> Result<Url, String> {
    let path = path.split('#').next().unwrap_or_default();
    let (path, own_query) = path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
    if path.split('/').any(is_dots) {
        return Err("an argument is '.' or '..', which would lead to another path".into());
    }
    let mut url = base.clone();
    let below = base.path().trim_end_matches('/');
    url.set_path(&format!("{below}{path}"));
    let query: Vec<&str> = own_query.into_iter().chain(query.iter().map(String::as_str)).collect();
    url.set_query(Some(query.join("&")).filter(|query| !query.is_empty()).as_deref());
    url.set_fragment(None);
    Ok(url)
}

fn is_dots(segment: &str) -> bool {
    let segment = segment.replace("%2e", ".").replace("%2E", ".");
    segment == "." || segment == ".."
}

fn accept(kinds: &[String]) -> String {
    if kinds.is_empty() {
        return "application/json, */*;q=0.8".into();
    }
    format!("{}, */*;q=0.1", kinds.join(", "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::upstream::discovery::{DocumentPlace, HttpOptions, OpenApi};
    use crate::upstream::openapi::document::Document;
    use crate::upstream::openapi::hosts::Hosts;
    use crate::upstream::openapi::operations::Operations;
    use crate::upstream::openapi::parameters::Reserved;

    fn operation(base: &str, path: &str, operation: Value) -> Operation {
        let root = json!({ "openapi": "3.0.0", "paths": { path: { "post": operation } } });
        let openapi = OpenApi {
            document: DocumentPlace::File("/x".into()),
            base_url: Some(base.into()),
            auth: None,
            headers: Vec::new(),
            filled_in: Vec::new(),
            options: HttpOptions::default(),
        };
        let document = Document::parse(&root.to_string()).unwrap();
        let hosts = Hosts::new(&openapi, &document.root).unwrap();
        Operations::read(&document, &hosts, &Reserved::of(&openapi)).unwrap().all.remove(0)
    }

    fn prepared(operation: &Operation, arguments: Value) -> Result<Prepared, String> {
        let Value::Object(arguments) = arguments else { panic!("no object") };
        prepare(operation, arguments)
    }

    #[test]
    fn a_request_has_everything_in_its_place() {
        let operation = operation(
            "https://h.example/v1/?a=b",
            "/pets/{id}/x",
            json!({
                "parameters": [
                    { "name": "id", "in": "path", "required": true },
                    { "name": "tag", "in": "query" },
                    { "name": "X-Trace", "in": "header" },
                    { "name": "sid", "in": "cookie" },
                    { "name": "v", "in": "query", "required": true, "schema": { "default": 2 } },
                ],
                "requestBody": { "content": { "application/json": { "schema": { "properties": { "n": {} } } } } },
                "responses": { "200": { "content": { "text/csv": {}, "application/json": {} } } },
            }),
        );
        let arguments = json!({ "id": "a/b?c#d", "tag": ["x", "y"], "X-Trace": 7, "sid": "s;1", "n": 1 });
        let request = prepared(&operation, arguments).unwrap();
        assert_eq!(request.url.as_str(), "https://h.example/v1/pets/a%2Fb%3Fc%23d/x?a=b&tag=x&tag=y&v=2");
        assert_eq!(request.headers["x-trace"], "7");
        assert_eq!(request.headers["cookie"], "sid=s%3B1");
        assert_eq!(request.headers["accept"], "application/json, text/csv, */*;q=0.1");
        assert_eq!(request.body.unwrap().bytes, br#"{"n":1}"#);
    }

    #[test]
    fn no_argument_leads_to_another_path_or_header() {
        let operation = operation(
            "https://h.example/v1",
            "/pets/{id}",
            json!({ "parameters": [{ "name": "X-A", "in": "header" }] }),
        );
        for id in ["..", ".", "", "%2e%2e"] {
            let result = prepared(&operation, json!({ "id": id }));
            assert!(result.as_ref().is_err() || result.unwrap().url.path() == "/v1/pets/%252e%252e", "{id}");
        }
        let url = prepared(&operation, json!({ "id": "../../admin" })).unwrap().url;
        assert_eq!(url.as_str(), "https://h.example/v1/pets/..%2F..%2Fadmin");
        let url = prepared(&operation, json!({ "id": "@evil.example/" })).unwrap().url;
        assert_eq!(url.host_str(), Some("h.example"));
        assert!(prepared(&operation, json!({ "id": 1, "X-A": "a\r\nHost: evil" })).is_err());
        assert!(prepared(&operation, json!({})).unwrap_err().contains("'id' is missing"));
    }
}
