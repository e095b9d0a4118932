//! Reads the definition of a server that is an OpenAPI document.

use super::definition::Skip;
use super::document::Value;
use super::forms::{Fields, check_headers, invalid};
use super::openapi::{Auth, DocumentPlace, OpenApi};

impl Fields<'_> {
    pub(super) fn openapi(&self) -> Result<OpenApi, Skip> {
        let before = self.scope.filled_in.borrow().len();
        let headers = self.pairs("headers")?;
        check_headers(&headers)?;
        let filled_in =
            self.scope.filled_in.borrow()[before..].iter().map(|(_, value)| value.clone()).collect();
        Ok(OpenApi {
            document: self.document()?,
            base_url: self.url("baseUrl")?,
            auth: self.auth()?,
            headers,
            filled_in,
            options: self.certificates()?,
        })
    }

    fn document(&self) -> Result<DocumentPlace, Skip> {
        let written = self.text("openapi")?.unwrap_or_default();
        let expanded = self.scope.expand(written)?;
        if has_scheme(&expanded) {
            return Ok(DocumentPlace::Url(checked_url("openapi", expanded)?));
        }
        if written.trim().is_empty() {
            return Err(invalid("'openapi' must be a file or a URL".into()));
        }
        let path = match expanded.trim().strip_prefix("file://") {
            Some(path) => path.into(),
            None => self.scope.absolute(written)?,
        };
        if path.as_os_str().as_encoded_bytes().contains(&0) {
            return Err(invalid("it contains a NUL character".into()));
        }
        Ok(DocumentPlace::File(path))
    }

    fn url(&self, key: &str) -> Result<Option<String>, Skip> {
        let Some(written) = self.text(key)? else { return Ok(None) };
        checked_url(key, self.scope.expand(written)?).map(Some)
    }

    fn auth(&self) -> Result<Option<Auth>, Skip> {
        let Some(node) = self.get("auth") else { return Ok(None) };
        if !node.is_table() {
            return Err(invalid(format!("'auth' must be an object, not {}", node.kind())));
        }
        let auth = Fields { node, scope: self.scope };
        let kind = auth.text("type")?.unwrap_or_default();
        let found = match kind.to_ascii_lowercase().as_str() {
            "header" => {
                let name = auth.word(&["name"])?.unwrap_or_else(|| "Authorization".into());
                let header = (name, auth.needed(kind, &["value"])?);
                check_headers(std::slice::from_ref(&header))?;
                Auth::Header { name: header.0, value: header.1 }
            }
            "query" => {
                Auth::Query { name: auth.needed(kind, &["name"])?, value: auth.needed(kind, &["value"])? }
            }
            "basic" => {
                let user = auth.needed(kind, &["username", "user", "name"])?;
                if user.contains(':') {
                    return Err(invalid("the user name in 'auth' has a colon in it".into()));
                }
                Auth::Basic { user, password: auth.needed(kind, &["password", "value"])? }
            }
            "oauth2" => Auth::OAuth2 {
                token_url: auth.url(if auth.get("token_url").is_some() {
                    "token_url"
                } else {
                    "tokenUrl"
                })?,
                client_id: auth.needed(kind, &["clientId", "client_id", "name"])?,
                client_secret: auth.needed(kind, &["clientSecret", "client_secret", "value"])?,
                scopes: auth.scopes()?,
            },
            _ => return Err(invalid("'type' in 'auth' must be header, query, basic or oauth2".into())),
        };
        Ok(Some(found))
    }

    /// Reads the string of the first of these names that there is.
    fn word(&self, names: &[&str]) -> Result<Option<String>, Skip> {
        let Some(name) = names.iter().find(|name| self.get(name).is_some()) else { return Ok(None) };
        self.text(name)?.map(|text| self.scope.expand(text)).transpose()
    }

    fn needed(&self, kind: &str, names: &[&str]) -> Result<String, Skip> {
        match self.word(names)? {
            Some(word) if !word.is_empty() => Ok(word),
            _ => Err(invalid(format!("'auth' of type {kind} needs '{}'", names[0]))),
        }
    }

    /// Reads a list of scopes, or one string with spaces between them.
    fn scopes(&self) -> Result<Vec<String>, Skip> {
        let key = if self.get("scope").is_some() { "scope" } else { "scopes" };
        match self.get(key).map(|node| &node.value) {
            Some(Value::Text(text)) => {
                Ok(self.scope.expand(text)?.split_whitespace().map(str::to_owned).collect())
            }
            _ => self.list(key),
        }
    }
}

fn has_scheme(text: &str) -> bool {
    let scheme = text.trim().split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
    scheme.is_some_and(|scheme| scheme != "file")
}

fn checked_url(key: &str, url: String) -> Result<String, Skip> {
    let url = url.trim().to_owned();
    let scheme = url.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
    if !matches!(scheme.as_deref(), Some("http" | "https")) || url.contains(char::is_whitespace) {
        return Err(invalid(format!("'{key}' must be a URL that starts with http:// or https://")));
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use crate::upstream::discovery::{
        Auth, Discovery, DocumentPlace, HttpOptions, Launch, OpenApi, Skip, Surroundings,
    };

    /// Reads one definition.
    fn read(definition: &str) -> Result<OpenApi, String> {
        let folder = tempfile::tempdir().unwrap();
        let environment = [("KEY", "k3y"), ("HOST", "h.example")];
        let surroundings = Surroundings {
            cwd: "/work".into(),
            state_dir: folder.path().into(),
            environment: std::sync::Arc::new(
                environment.map(|(name, value)| (name.into(), value.into())).into(),
            ),
            ..Surroundings::default()
        };
        fs::write(folder.path().join("a.json"), format!(r#"{{"mcpServers": {{"a": {definition}}}}}"#))
            .unwrap();
        let snapshot = Discovery::new(surroundings).snapshot();
        let server = snapshot.get("a").or(snapshot.skipped("a")).unwrap();
        match server.definition.as_ref().map(|definition| &definition.launch) {
            Ok(Launch::OpenApi(openapi)) => Ok((**openapi).clone()),
            Ok(launch) => panic!("{launch:?}"),
            Err(why) => Err(why.to_string()),
        }
    }

    #[test]
    fn a_definition_names_a_document_and_credentials() {
        let read_ok = |definition: &str| read(definition).unwrap();
        let plain = read_ok(r#"{"openapi": "api/pets.yaml"}"#);
        assert!(plain.document == DocumentPlace::File("/work/api/pets.yaml".into()) && plain.auth.is_none());
        let all = read_ok(
            r#"{"openapi": "https://${HOST}/openapi.json", "baseUrl": "https://${HOST}/v1", "headers": {"X-Org": "acme", "X-Shop": "of ${KEY}"},
                "caFile": "ca.pem", "clientCert": "/us.pem", "clientKey": "/us.key",
                "auth": {"type": "header", "name": "X-Api-Key", "value": "${KEY}"}}"#,
        );
        assert!(all.document == DocumentPlace::Url("https://h.example/openapi.json".into()));
        assert_eq!(all.base_url.as_deref(), Some("https://h.example/v1"));
        assert!(all.auth == Some(Auth::Header { name: "X-Api-Key".into(), value: "k3y".into() }));
        assert_eq!(
            all.headers,
            [("X-Org".to_owned(), "acme".to_owned()), ("X-Shop".to_owned(), "of k3y".to_owned())]
        );
        assert_eq!(all.filled_in, ["k3y"], "the URL and the credentials have others");
        let HttpOptions { ca_file, client_cert, client_key, .. } = &all.options;
        assert_eq!(
            [ca_file, client_cert, client_key].map(|file| file.as_deref().unwrap().to_str().unwrap()),
            ["/work/ca.pem", "/us.pem", "/us.key"]
        );
        assert!(!format!("{all:?}").contains("k3y"));
        let auth =
            |auth: &str| read_ok(&format!(r#"{{"openapi": "/a.json", "auth": {auth}}}"#)).auth.unwrap();
        let basic = Auth::Basic { user: "ann".into(), password: "k3y".into() };
        assert!(auth(r#"{"type": "basic", "name": "ann", "value": "${KEY}"}"#) == basic);
        assert!(auth(r#"{"type": "Basic", "username": "ann", "password": "k3y"}"#) == basic);
        let client = |token_url: Option<&str>, scopes: &[&str]| Auth::OAuth2 {
            token_url: token_url.map(str::to_owned),
            client_id: "id".into(),
            client_secret: "k3y".into(),
            scopes: scopes.iter().map(|scope| (*scope).to_owned()).collect(),
        };
        let written = r#"{"type": "oauth2", "tokenUrl": "https://h/t", "clientId": "id", "clientSecret": "${KEY}", "scopes": ["a", "b"]}"#;
        assert!(auth(written) == client(Some("https://h/t"), &["a", "b"]));
        assert!(
            auth(r#"{"type": "oauth2", "name": "id", "value": "k3y", "scope": "a b"}"#)
                == client(None, &["a", "b"])
        );
    }

    #[test]
    fn nothing_is_read_before_the_user_approves_it() {
        let folder = tempfile::tempdir().unwrap();
        let definition = r#"{"mcpServers": {"a": {"openapi": "api.yaml", "auth": {"type": "header", "value": "${KEY}"}}}}"#;
        fs::write(folder.path().join(".mcp.json"), definition).unwrap();
        let surroundings = Surroundings {
            cwd: folder.path().into(),
            state_dir: folder.path().join("MCPs"),
            environment: std::sync::Arc::new(
                [("KEY", "k3y")].map(|(name, value)| (name.into(), value.into())).into(),
            ),
            ..Surroundings::default()
        };
        let snapshot = Discovery::new(surroundings).snapshot();
        let Err(Skip::Untrusted(proposal)) = &snapshot.skipped("a").unwrap().definition else {
            panic!("{snapshot:?}")
        };
        let path = folder.path().join("api.yaml");
        let first = format!("reads \"{}\" and sends requests to the hosts in it\n", path.display());
        assert!(proposal.text.starts_with(&first) && !proposal.text.contains("k3y"), "{}", proposal.text);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (definition, expected) in [
            (r#"{"openapi": 7}"#, "'openapi' must be a string, not a number"),
            (r#"{"openapi": " "}"#, "'openapi' must be a file or a URL"),
            (
                r#"{"openapi": "ftp://h/a.json"}"#,
                "'openapi' must be a URL that starts with http:// or https://",
            ),
            (
                r#"{"openapi": "a.json", "baseUrl": "h.example"}"#,
                "'baseUrl' must be a URL that starts with http:// or https://",
            ),
            (r#"{"openapi": "a.json", "auth": "x"}"#, "'auth' must be an object, not a string"),
            (
                r#"{"openapi": "a.json", "auth": {"type": "digest"}}"#,
                "'type' in 'auth' must be header, query, basic or oauth2",
            ),
            (
                r#"{"openapi": "a.json", "auth": {"type": "query", "name": "k"}}"#,
                "'auth' of type query needs 'value'",
            ),
            (
                r#"{"openapi": "a.json", "auth": {"type": "header", "value": "a\nb"}}"#,
                "header 'Authorization' has an invalid value",
            ),
            (
                r#"{"openapi": "a.json", "auth": {"type": "header", "value": "${NONE}"}}"#,
                "environment variable 'NONE' is not set",
            ),
            (
                r#"{"openapi": "a.json", "auth": {"type": "oauth2", "clientId": "x"}}"#,
                "'auth' of type oauth2 needs 'clientSecret'",
            ),
            (r#"{"openapi": "a.json", "clientKey": "us.key"}"#, "it has 'clientKey' without 'clientCert'"),
            (r#"{"openapi": "a.json", "headers": {"a b": "c"}}"#, "\"a b\" is not a valid header name"),
        ] {
            assert_eq!(read(definition).unwrap_err(), expected, "{definition}");
        }
    }
}
