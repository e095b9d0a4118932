//! Forms and queries.

use std::time::Duration;

use axum::body::Body;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};
use http_body_util::{BodyExt, Limited};

use crate::http::Refusal;

/// Bytes of a form.
const LONGEST: usize = 64 << 10;
/// How long a form may take to arrive.
const ARRIVAL: Duration = Duration::from_secs(20);

const NO_FORM: Refusal = Refusal {
    status: StatusCode::BAD_REQUEST,
    reason: "form",
    text: "the form cannot be read: it is too long, incomplete, or no form",
};

/// The fields of a form or of a query. Of a name that comes twice, the first counts.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Fields(Vec<(String, String)>);

impl Fields {
    pub(super) fn parse(text: &[u8]) -> Self {
        Self(form_urlencoded::parse(text).into_owned().collect())
    }

    /// Returns a field; empty if it is missing.
    pub(super) fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }

    /// Returns all fields of a name.
    pub(super) fn all(&self, name: &str) -> Vec<&str> {
        self.0.iter().filter(|(known, _)| known == name).map(|(_, value)| value.as_str()).collect()
    }
}

/// Reads a form.
///
/// # Errors
/// It is none, too long, or does not arrive.
pub(super) async fn read(headers: &HeaderMap, body: Body) -> Result<Fields, Refusal> {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if !kind.to_ascii_lowercase().starts_with("application/x-www-form-urlencoded") {
        return Err(NO_FORM);
    }
    let reading = Limited::new(body, LONGEST).collect();
    match tokio::time::timeout(ARRIVAL, reading).await {
        Ok(Ok(body)) => Ok(Fields::parse(&body.to_bytes())),
        _ => Err(NO_FORM),
    }
}

/// Returns a query with these fields, those that are empty left out.
pub(super) fn query(fields: &[(&str, &str)]) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(fields.iter().filter(|(_, value)| !value.is_empty()));
    query.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn forms_are_short_and_say_that_they_are_forms() {
        let mut headers = HeaderMap::new();
        assert!(read(&headers, Body::from("a=1")).await.is_err());
        headers.insert(CONTENT_TYPE, "application/x-www-form-urlencoded; charset=UTF-8".parse().unwrap());
        let fields = read(&headers, Body::from("a=1+%3C&a=2&b")).await.unwrap();
        assert_eq!((fields.get("a"), fields.get("b"), fields.get("c")), ("1 <", "", ""));
        assert!(read(&headers, Body::from(vec![b'a'; LONGEST + 1])).await.is_err());
    }

    #[test]
    fn a_query_is_read_as_it_was_written() {
        let text = query(&[("q", "a&b=\"c\""), ("empty", ""), ("x", "ü")]);
        assert_eq!(Fields::parse(text.as_bytes()).get("q"), "a&b=\"c\"");
        assert!(!text.contains("empty"));
    }
}
