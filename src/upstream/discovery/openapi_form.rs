//! Reads the definition of a server that is an OpenAPI document.

use super::definition::Skip;
use super::document::Value;
use super::forms::{Fields, check_headers, invalid};
use super::openapi::{Auth, DocumentPlace, OpenApi};

impl Fields<'_> {
    pub(super) fn openapi(&self) -> Result<OpenApi, Skip> {
        let headers = self.pairs("headers")?;
        check_headers(&headers)?;
        Ok(OpenApi {
            document: self.document()?,
            base_url: self.url("baseUrl")?,
            auth: self.auth()?,
            headers,
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
                token_url: auth.url("tokenUrl")?,
                client_id: auth.needed(kind, &["clientId", "name"])?,
                client_secret: auth.needed(kind, &["clientSecret", "value"])?,
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
