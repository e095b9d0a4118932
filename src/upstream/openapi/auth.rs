//! The credentials of requests, and their removal from what comes back.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use regex::bytes::{NoExpand, Regex};
use reqwest::{Client, Url};
use serde::Deserialize;
use serde_json::{Value, json};

use super::fetch::{message_of, read_up_to};
use crate::upstream::credential::is_secret;
use crate::upstream::discovery::{Auth, OpenApi};

/// Everything but the unreserved characters of RFC 3986.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// Shorter credentials are too common to be replaced.
const SHORTEST: usize = 6;
const HIDDEN: &[u8] = b"[auth]";
/// Bytes of the answer with a token.
const LONGEST_ANSWER: usize = 256 << 10;
/// How long before its end a token is replaced, and how long one without an end is used.
const MARGIN: Duration = Duration::from_secs(30);
const LIFE: Duration = Duration::from_secs(600);
/// Tokens whose occurrences are replaced.
const MOST_TOKENS: usize = 8;
/// How long issuing a token may take. Calls wait for it together.
const ISSUE_LIMIT: Duration = Duration::from_secs(20);

/// Everything of a definition that requests have and code must not see.
#[derive(Debug)]
pub(super) struct Credentials {
    auth: Option<Auth>,
    headers: HeaderMap,
    /// Where tokens are issued.
    token_url: Option<Url>,
    token: tokio::sync::Mutex<Option<Token>>,
    issue_limit: Duration,
    masked: Mutex<Masked>,
}

struct Token {
    value: String,
    until: Instant,
}

/// What is replaced in answers.
#[derive(Default)]
struct Masked {
    /// Those of the definition.
    values: Vec<String>,
    tokens: VecDeque<String>,
    pattern: Option<Regex>,
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

impl fmt::Debug for Masked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Masked({})", self.values.len() + self.tokens.len())
    }
}

/// The answer with a token.
#[derive(Deserialize)]
struct Issued {
    access_token: Option<String>,
    expires_in: Option<Value>,
    error: Option<String>,
    error_description: Option<String>,
}

impl Credentials {
    /// Those of a definition. `root` is the document, if it may say where tokens are issued.
    ///
    /// # Errors
    /// Nothing says where tokens are issued.
    pub(super) fn new(openapi: &OpenApi, root: Option<&Value>) -> Result<Self, &'static str> {
        let header = |(name, value): &(String, String)| {
            let mut value = HeaderValue::from_bytes(value.as_bytes()).ok()?;
            value.set_sensitive(true);
            Some((HeaderName::from_bytes(name.as_bytes()).ok()?, value))
        };
        let headers = openapi.headers.iter().filter_map(header).collect();
        let token_url = match &openapi.auth {
            Some(Auth::OAuth2 { token_url, .. }) => {
                let url = token_url.clone().or_else(|| root.and_then(token_url_of));
                let url = url.and_then(|url| Url::parse(&url).ok());
                let url = url.filter(|url| matches!(url.scheme(), "http" | "https"));
                Some(url.ok_or("'auth' needs a 'tokenUrl': the URL where tokens are issued")?)
            }
            _ => None,
        };
        Ok(Self {
            auth: openapi.auth.clone(),
            headers,
            token_url,
            token: Default::default(),
            issue_limit: ISSUE_LIMIT,
            masked: Mutex::new(Masked::new(secrets_of(openapi))),
        })
    }

    /// Adds the credentials to a request.
    ///
    /// # Errors
    /// No token is issued. The text says why.
    pub(super) async fn apply(
        &self,
        client: &Client,
        url: &mut Url,
        headers: &mut HeaderMap,
    ) -> Result<(), String> {
        headers.extend(self.headers.clone());
        let mut set = |name: &str, value: &str| {
            let name = HeaderName::from_bytes(name.as_bytes());
            if let (Ok(name), Ok(mut value)) = (name, HeaderValue::from_str(value)) {
                value.set_sensitive(true);
                headers.insert(name, value);
            }
        };
        match &self.auth {
            None => {}
            Some(Auth::Header { name, value }) => set(name, value),
            Some(Auth::Query { name, value }) => {
                url.query_pairs_mut().append_pair(name, value);
            }
            Some(Auth::Basic { user, password }) => {
                set("authorization", &format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))));
            }
            Some(Auth::OAuth2 { .. }) => {
                let token = self.token(client).await?;
                set("authorization", &format!("Bearer {token}"));
            }
        }
        Ok(())
    }

    /// Forgets the token; returns whether there was one, so that another attempt may help.
    pub(super) async fn forget_token(&self) -> bool {
        self.token.lock().await.take().is_some()
    }

    async fn token(&self, client: &Client) -> Result<String, String> {
        let mut kept = self.token.lock().await;
        if let Some(token) = kept.as_ref().filter(|token| Instant::now() < token.until) {
            return Ok(token.value.clone());
        }
        let issued = tokio::time::timeout(self.issue_limit, self.issue(client)).await;
        let issued = issued.unwrap_or_else(|_| {
            Err(format!("the issuer did not answer within {} seconds", self.issue_limit.as_secs_f32()))
        });
        let token = issued.map_err(|why| format!("could not get an access token: {why}"))?;
        self.masked.lock().unwrap_or_else(PoisonError::into_inner).add_token(&token.value);
        let value = token.value.clone();
        *kept = Some(token);
        Ok(value)
    }

    async fn issue(&self, client: &Client) -> Result<Token, String> {
        let (Some(url), Some(Auth::OAuth2 { client_id, client_secret, scopes, .. })) =
            (&self.token_url, &self.auth)
        else {
            return Err("the definition has no OAuth client".into());
        };
        let mut form = vec![("grant_type", "client_credentials".to_owned())];
        if !scopes.is_empty() {
            form.push(("scope", scopes.join(" ")));
        }
        let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        // The client in a header, which every issuer has to accept; and in the body, for those that do not.
        let basic = STANDARD.encode(format!("{}:{}", encoded(client_id), encoded(client_secret)));
        let first =
            client.post(url.clone()).header(header::AUTHORIZATION, format!("Basic {basic}")).form(&form);
        let (status, issued) = answer(first).await?;
        if let Some(token) = issued.token() {
            return Ok(token);
        }
        if status != 400 && status != 401 {
            return Err(issued.failure(status));
        }
        form.push(("client_id", client_id.clone()));
        form.push(("client_secret", client_secret.clone()));
        let (status, issued) = answer(client.post(url.clone()).form(&form)).await?;
        issued.token().ok_or_else(|| issued.failure(status))
    }

    /// Replaces credentials in what came back.
    pub(super) fn hide(&self, bytes: Vec<u8>) -> Vec<u8> {
        let masked = self.masked.lock().unwrap_or_else(PoisonError::into_inner);
        match &masked.pattern {
            Some(pattern) if pattern.is_match(&bytes) => {
                pattern.replace_all(&bytes, NoExpand(HIDDEN)).into_owned()
            }
            _ => bytes,
        }
    }

    /// Replaces credentials in a text.
    pub(super) fn hide_in(&self, text: &str) -> String {
        String::from_utf8_lossy(&self.hide(text.as_bytes().to_vec())).into_owned()
    }
}

impl Masked {
    fn new(values: Vec<String>) -> Self {
        let mut masked = Self { values, ..Self::default() };
        masked.compile();
        masked
    }

    fn add_token(&mut self, token: &str) {
        self.tokens.push_back(token.to_owned());
        if self.tokens.len() > MOST_TOKENS {
            self.tokens.pop_front();
        }
        self.compile();
    }

    fn compile(&mut self) {
        let values = self.values.iter().chain(&self.tokens).filter(|value| value.len() >= SHORTEST);
        let mut spellings: Vec<String> = values.flat_map(|value| spellings(value)).collect();
        spellings.sort_by_key(|spelling| std::cmp::Reverse(spelling.len()));
        let pattern: Vec<String> = spellings.iter().map(|spelling| regex::escape(spelling)).collect();
        self.pattern = (!pattern.is_empty()).then(|| Regex::new(&pattern.join("|")).ok()).flatten();
    }
}

/// Returns what code must not see of a definition: its credentials, headers that look like some, and what variables filled in
/// there.
fn secrets_of(openapi: &OpenApi) -> Vec<String> {
    // With and without a scheme such as `Bearer`.
    let bare = |secret: &str| secret.split_once(' ').map_or(secret, |(_, bare)| bare.trim()).to_owned();
    let mut secrets = match &openapi.auth {
        Some(Auth::Basic { user, password }) => {
            vec![password.clone(), STANDARD.encode(format!("{user}:{password}"))]
        }
        Some(auth) => vec![bare(auth.secret().1)],
        None => Vec::new(),
    };
    let headers = openapi.headers.iter().filter(|(name, value)| is_secret(name, value));
    secrets.extend(headers.map(|(_, value)| bare(value)));
    secrets.extend(openapi.filled_in.iter().cloned());
    secrets
}

/// Returns a value as it looks as it is, in JSON, in a URL and in base64.
fn spellings(value: &str) -> [String; 4] {
    let json = json!(value).to_string();
    [
        value.to_owned(),
        json[1..json.len() - 1].to_owned(),
        utf8_percent_encode(value, RESERVED).to_string(),
        STANDARD.encode(value).trim_end_matches('=').to_owned(),
    ]
}

/// Returns where the document says that tokens for clients are issued.
fn token_url_of(root: &Value) -> Option<String> {
    let schemes = root.pointer("/components/securitySchemes")?.as_object()?;
    let url =
        |scheme: &Value| scheme.pointer("/flows/clientCredentials/tokenUrl")?.as_str().map(str::to_owned);
    schemes.values().find_map(url)
}

async fn answer(request: reqwest::RequestBuilder) -> Result<(u16, Issued), String> {
    let mut response = request
        .header(header::ACCEPT, "application/json")
        .send()
        .await
        .map_err(|error| message_of(&error))?;
    let status = response.status().as_u16();
    let bytes = read_up_to(&mut response, LONGEST_ANSWER).await.map_err(|error| message_of(&error))?;
    let issued = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let nothing = Issued { access_token: None, expires_in: None, error: None, error_description: None };
    Ok((status, issued.unwrap_or(nothing)))
}

impl Issued {
    fn token(&self) -> Option<Token> {
        let value = self
            .access_token
            .clone()
            .filter(|token| HeaderValue::from_str(token).is_ok() && !token.is_empty())?;
        let seconds = self.expires_in.as_ref().and_then(|seconds| match seconds {
            Value::String(text) => text.parse().ok(),
            seconds => seconds.as_f64(),
        });
        let life = seconds.and_then(|seconds: f64| Duration::try_from_secs_f64(seconds).ok()).unwrap_or(LIFE);
        let until = Instant::now().checked_add(life.saturating_sub(MARGIN))?;
        Some(Token { value, until })
    }

    fn failure(&self, status: u16) -> String {
        let said: Vec<&str> =
            [&self.error, &self.error_description].into_iter().flatten().map(String::as_str).collect();
        let said: String = said.join(", ").chars().filter(|c| !c.is_control()).take(200).collect();
        if said.is_empty() {
            format!("the issuer answered with HTTP {status} and no token")
        } else {
            format!("the issuer answered with HTTP {status}: {said}")
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;
    use crate::upstream::discovery::{DocumentPlace, HttpOptions};

    fn credentials(auth: Auth) -> Credentials {
        let openapi = OpenApi {
            document: DocumentPlace::File("/x".into()),
            base_url: None,
            auth: Some(auth),
            headers: [("X-Org", "acme"), ("X-Token", "to-ken-1"), ("X-Shop", "of shop-7")]
                .map(|(name, value)| (name.into(), value.into()))
                .into(),
            filled_in: vec!["shop-7".into()],
            options: HttpOptions::default(),
        };
        Credentials::new(&openapi, None).unwrap()
    }

    async fn applied(credentials: &Credentials) -> (String, HeaderMap) {
        let (mut url, mut headers) = (Url::parse("https://h.example/a?b=c").unwrap(), HeaderMap::new());
        headers.insert("x-org", HeaderValue::from_static("other"));
        let client = Client::builder().tls_certs_only([]).build().unwrap();
        credentials.apply(&client, &mut url, &mut headers).await.unwrap();
        (url.into(), headers)
    }

    #[tokio::test]
    async fn credentials_are_added_and_hidden() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let header = credentials(Auth::Header { name: "X-Api-Key".into(), value: "Key se\"cret/1".into() });
        let (_, headers) = applied(&header).await;
        assert_eq!(headers["x-api-key"], "Key se\"cret/1");
        assert_eq!(headers["x-org"], "acme");
        assert_eq!(headers["x-shop"], "of shop-7");
        assert_eq!(header.hide_in("acme to-ken-1 of shop-7"), "acme [auth] of [auth]");
        assert_eq!(
            header.hide_in(r#"{"k": "se\"cret/1"} se%22cret%2F1 c2UiY3JldC8x"#),
            r#"{"k": "[auth]"} [auth] [auth]"#
        );
        let query = credentials(Auth::Query { name: "key".into(), value: "se&cret".into() });
        assert_eq!(applied(&query).await.0, "https://h.example/a?b=c&key=se%26cret");
        assert_eq!(query.hide_in("?key=se%26cret"), "?key=[auth]");
        let basic = credentials(Auth::Basic { user: "ann".into(), password: "hunter22".into() });
        let (_, headers) = applied(&basic).await;
        assert_eq!(headers["authorization"], "Basic YW5uOmh1bnRlcjIy");
        assert_eq!(basic.hide(b"\xffann:hunter22 YW5uOmh1bnRlcjIy".to_vec()), b"\xffann:[auth] [auth]");
        assert!(!format!("{basic:?}{query:?}").contains("hunter"));
    }

    /// Returns why there is no token where the issuer is on this port.
    async fn refused(port: u16, issue_limit: Duration) -> String {
        let issuer = credentials(Auth::OAuth2 {
            token_url: Some(format!("http://127.0.0.1:{port}/token")),
            client_id: "id".into(),
            client_secret: "client-secret".into(),
            scopes: Vec::new(),
        });
        let issuer = Credentials { issue_limit, ..issuer };
        let client = crate::upstream::openapi::fetch::client(&HttpOptions::default(), false).unwrap();
        let (mut url, mut headers) = (Url::parse("http://127.0.0.1/").unwrap(), HeaderMap::new());
        issuer.apply(&client, &mut url, &mut headers).await.unwrap_err()
    }

    #[tokio::test]
    async fn an_issuer_that_is_silent_or_redirects_is_given_up() {
        let silent = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        assert_eq!(
            refused(silent.local_addr().unwrap().port(), Duration::from_millis(250)).await,
            "could not get an access token: the issuer did not answer within 0.25 seconds"
        );
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let redirecting = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let answer = format!(
                "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:{port}/elsewhere\r\nContent-Length: 0\r\n\r\n"
            );
            let (mut sent, mut part) = (String::new(), [0; 1024]);
            while !sent.contains("grant_type=client_credentials") {
                let length = stream.read(&mut part).unwrap();
                assert!(length > 0, "{sent}");
                sent.push_str(std::str::from_utf8(&part[..length]).unwrap());
            }
            stream.write_all(answer.as_bytes()).unwrap();
            sent
        });
        assert_eq!(
            refused(port, ISSUE_LIMIT).await,
            "could not get an access token: the issuer answered with HTTP 302 and no token"
        );
        let sent = redirecting.join().unwrap();
        assert!(sent.starts_with("POST /token "), "{sent}");
    }

    #[test]
    fn the_place_of_tokens_is_needed() {
        let auth = || Auth::OAuth2 {
            token_url: None,
            client_id: "id".into(),
            client_secret: "secret".into(),
            scopes: Vec::new(),
        };
        let openapi = OpenApi {
            document: DocumentPlace::File("/x".into()),
            base_url: None,
            auth: Some(auth()),
            headers: Vec::new(),
            filled_in: Vec::new(),
            options: HttpOptions::default(),
        };
        assert!(Credentials::new(&openapi, None).unwrap_err().contains("tokenUrl"));
        let flows = json!({ "clientCredentials": { "tokenUrl": "https://h.example/token" } });
        let root =
            json!({ "components": { "securitySchemes": { "o": { "type": "oauth2", "flows": flows } } } });
        assert_eq!(Credentials::new(&openapi, Some(&root)).unwrap().token_url.unwrap().path(), "/token");
    }
}
