//! The next page of a result: the arguments that fetch it, where the API says how.

use http::HeaderMap;
use reqwest::Url;
use serde_json::{Map, Value, json};

use super::operations::Operation;
use super::style::Place;

/// Members of a result that are the URL of the next page.
const URLS: [&str; 9] = [
    "/next", "/links/next", "/links/pages/next", "/_links/next/href", "/next_page_uri", "/@odata.nextLink",
    "/paging/next", "/meta/next", "/next_url",
];
/// Members of a result that are a cursor, and the parameters that take it.
const CURSORS: [(&str, &[&str]); 10] = [
    ("/nextPageToken", &["pageToken", "page_token"]),
    ("/next_page_token", &["page_token", "pageToken", "next_page_token"]),
    ("/next_cursor", &["cursor", "next_cursor", "start_cursor", "after"]),
    ("/nextCursor", &["cursor", "nextCursor", "after"]),
    ("/response_metadata/next_cursor", &["cursor"]),
    ("/meta/next_cursor", &["cursor", "after"]),
    ("/pagination/next_cursor", &["cursor", "after"]),
    ("/metadata/continue", &["continue"]),
    ("/NextToken", &["NextToken", "nextToken"]),
    ("/nextToken", &["nextToken", "NextToken", "next_token"]),
];

/// Returns the arguments of the next page that differ from those of this one; None after the last page.
///
/// Only arguments that the operation has are given: the next page is an ordinary call.
pub(super) fn next_page(
    operation: &Operation,
    arguments: &Map<String, Value>,
    at: &Url,
    headers: &HeaderMap,
    body: Option<&Value>,
) -> Option<Map<String, Value>> {
    let linked = linked(headers).or_else(|| {
        let body = body?;
        let url = URLS.iter().find_map(|path| body.pointer(path)?.as_str())?;
        (!url.is_empty()).then(|| url.to_owned())
    });
    let next = match linked {
        Some(url) => from_url(operation, at, &url),
        None => body.and_then(|body| cursor(operation, body)),
    }?;
    let changes = next.iter().any(|(name, value)| arguments.get(name) != Some(value));
    changes.then_some(next)
}

/// Returns the URL of the link to the next page: `<https://h/a?page=2>; rel="next"`.
fn linked(headers: &HeaderMap) -> Option<String> {
    let links = headers.get_all("link").iter().filter_map(|value| value.to_str().ok());
    for link in links.flat_map(|value| value.split('<').skip(1)) {
        let (url, parameters) = link.split_once('>')?;
        let is_next = parameters.split([';', ',']).any(|parameter| {
            let (name, value) = parameter.split_once('=').unwrap_or_default();
            name.trim().eq_ignore_ascii_case("rel")
                && value.trim().trim_matches('"').split(' ').any(|rel| rel.eq_ignore_ascii_case("next"))
        });
        if is_next {
            return Some(url.to_owned());
        }
    }
    None
}

/// Takes the arguments out of a URL, if it is one of the same operation.
fn from_url(operation: &Operation, at: &Url, url: &str) -> Option<Map<String, Value>> {
    let url = at.join(url).ok().filter(|url| url.origin() == at.origin())?;
    let mut next = Map::new();
    for (name, value) in url.query_pairs() {
        let of_query = operation.parameters.iter().filter(|parameter| parameter.place == Place::Query);
        if let Some(parameter) = of_query.into_iter().find(|parameter| parameter.name == *name) {
            let value = json!(value);
            match next.get_mut(&parameter.argument) {
                None => {
                    next.insert(parameter.argument.clone(), value);
                }
                Some(Value::Array(values)) => values.push(value),
                Some(first) => *first = json!([first.take(), value]),
            }
        }
    }
    (!next.is_empty()).then_some(next)
}

fn cursor(operation: &Operation, body: &Value) -> Option<Map<String, Value>> {
    let argument = |names: &[&str]| {
        let of_query = |name: &&str| {
            operation
                .parameters
                .iter()
                .find(|parameter| parameter.place == Place::Query && parameter.name == **name)
        };
        names.iter().find_map(of_query).map(|parameter| parameter.argument.clone())
    };
    let pair = |name: String, value: Value| Some(Map::from_iter([(name, value)]));
    for (path, names) in CURSORS {
        let value = body
            .pointer(path)
            .filter(|value| value.is_number() || value.as_str().is_some_and(|text| !text.is_empty()));
        if let (Some(value), Some(name)) = (value, argument(names)) {
            return pair(name, value.clone());
        }
    }
    // The next page begins after the last item of this one.
    if body.get("has_more") == Some(&Value::Bool(true)) {
        let last = body.get("data")?.as_array()?.last()?.get("id")?;
        return pair(argument(&["starting_after", "after", "after_id"])?, last.clone());
    }
    None
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;
    use crate::upstream::openapi::parameters::Parameter;
    use crate::upstream::openapi::style::Style;

    fn next(names: &[&str], link: Option<&'static str>, body: Value) -> Option<Value> {
        let parameter = |name: &&str| Parameter {
            argument: (*name).to_owned(),
            name: (*name).to_owned(),
            place: Place::Query,
            style: Style::of(&Value::Null, Place::Query, false),
            required: false,
            default: None,
            schema: Value::Null,
        };
        let operation = Operation {
            name: "list".into(),
            method: http::Method::GET,
            path: "/a".into(),
            base: Ok(Url::parse("https://h.example").unwrap()),
            parameters: names.iter().map(parameter).collect(),
            body: None,
            accept: Vec::new(),
        };
        let mut headers = HeaderMap::new();
        if let Some(link) = link {
            headers.insert("link", HeaderValue::from_static(link));
        }
        let arguments = Map::from_iter([("page".to_owned(), json!("2"))]);
        let at = Url::parse("https://h.example/a?page=2").unwrap();
        next_page(&operation, &arguments, &at, &headers, Some(&body)).map(Value::Object)
    }

    #[test]
    fn the_next_page_is_found_where_apis_put_it() {
        let link = r#"<https://h.example/a?page=1>; rel="prev", <https://h.example/a?page=3&per_page=5&x=1>; rel="next""#;
        assert_eq!(
            next(&["page", "per_page"], Some(link), json!([])),
            Some(json!({ "page": "3", "per_page": "5" }))
        );
        for (names, body, expected) in [
            (&["page"][..], json!({ "next": "https://h.example/a?page=3" }), Some(json!({ "page": "3" }))),
            (
                &["page"],
                json!({ "links": { "pages": { "next": "/a?page=3" } } }),
                Some(json!({ "page": "3" })),
            ),
            (
                &["Page", "PageToken"],
                json!({ "next_page_uri": "/a?Page=1&PageToken=x" }),
                Some(json!({ "Page": "1", "PageToken": "x" })),
            ),
            (&["pageToken"], json!({ "nextPageToken": "t" }), Some(json!({ "pageToken": "t" }))),
            (
                &["cursor"],
                json!({ "response_metadata": { "next_cursor": "c" } }),
                Some(json!({ "cursor": "c" })),
            ),
            (&["continue"], json!({ "metadata": { "continue": "k" } }), Some(json!({ "continue": "k" }))),
            (
                &["starting_after"],
                json!({ "has_more": true, "data": [{ "id": 1 }, { "id": 2 }] }),
                Some(json!({ "starting_after": 2 })),
            ),
            (&["starting_after"], json!({ "has_more": false, "data": [{ "id": 1 }] }), None),
            (&["cursor"], json!({ "next_cursor": "" }), None),
            (&["other"], json!({ "next_cursor": "c" }), None),
            (&["page"], json!({ "next": "https://evil.example/a?page=3" }), None),
            (&["page"], json!({ "next": "https://h.example/a?page=2" }), None),
            (&["page"], json!({ "next": null }), None),
        ] {
            assert_eq!(next(names, None, body.clone()), expected, "{body}");
        }
    }
}
