//! Which hosts the operations of a document may be called on.
//!
//! The user names `baseUrl`, and a file is the user's own. A document that was fetched is somebody else's: it must not lead
//! into the user's network, nor credentials to a host that the user does not know.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use serde_json::Value;

use crate::upstream::discovery::{DocumentPlace, OpenApi};

/// Why there is no URL to call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum HostError {
    #[error("the document names no server with an absolute URL; set \"baseUrl\" in the definition")]
    NoServer,
    #[error("'{0}' is not a URL that starts with http:// or https://; set \"baseUrl\" in the definition")]
    NoUrl(String),
    #[error(
        "the document was fetched, and the private host '{0}' in it is not allowed; set \"baseUrl\" in the definition to allow it"
    )]
    Private(String),
    #[error(
        "the document was fetched from another host than '{0}', which does not get the credentials of the definition; set \
         \"baseUrl\" to send them there"
    )]
    Foreign(String),
}

/// What decides where operations are called.
#[derive(Debug)]
pub(super) struct Hosts<'a> {
    base: Option<Url>,
    /// That of a document that was fetched.
    fetched_from: Option<Url>,
    has_credentials: bool,
    servers: Option<&'a Value>,
}

impl<'a> Hosts<'a> {
    pub(super) fn new(openapi: &OpenApi, root: &'a Value) -> Result<Self, HostError> {
        let base = openapi.base_url.as_deref().map(parsed).transpose()?;
        let fetched_from = match &openapi.document {
            DocumentPlace::Url(url) => Some(parsed(url)?),
            DocumentPlace::File(_) => None,
        };
        let has_credentials =
            openapi.auth.is_some() || !openapi.headers.is_empty() || openapi.options.client_cert.is_some();
        Ok(Self { base, fetched_from, has_credentials, servers: root.get("servers") })
    }

    /// Whether names that lead to private addresses have to be refused when they are looked up.
    pub(super) fn are_foreign(&self) -> bool {
        self.base.is_none() && self.fetched_from.is_some()
    }

    /// Returns where the path of an operation begins. `own` are the servers that it names itself.
    pub(super) fn base_of(&self, own: Option<&Value>) -> Result<Url, HostError> {
        if let Some(base) = &self.base {
            return Ok(base.clone());
        }
        let servers = own.filter(|own| own.get(0).is_some()).or(self.servers);
        let first = servers.and_then(|servers| servers.get(0)).and_then(url_of);
        let Some(from) = &self.fetched_from else {
            let url = first.ok_or(HostError::NoServer)?;
            return match Url::parse(&url) {
                Ok(_) => parsed(&url),
                Err(_) => Err(HostError::NoServer),
            };
        };
        // Without servers, paths begin at the root of the host.
        let url = first.unwrap_or_else(|| "/".into());
        let url = from.join(&url).map_err(|_| HostError::NoUrl(shown(&url)))?;
        let url = parsed(url.as_str())?;
        let host = url.host_str().unwrap_or_default().to_owned();
        if is_private_host(&url) {
            return Err(HostError::Private(host));
        }
        if self.has_credentials && url.origin() != from.origin() {
            return Err(HostError::Foreign(host));
        }
        Ok(url)
    }
}

/// Returns the URL of a server, with the default values of its variables.
fn url_of(server: &Value) -> Option<String> {
    let mut url = server.get("url")?.as_str()?.to_owned();
    for (name, variable) in server.get("variables").and_then(Value::as_object).into_iter().flatten() {
        if let Some(default) = variable.get("default") {
            let default = default.as_str().map_or_else(|| default.to_string(), str::to_owned);
            url = url.replace(&format!("{{{name}}}"), &default);
        }
    }
    Some(url)
}

fn parsed(url: &str) -> Result<Url, HostError> {
    let parsed =
        Url::parse(url).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    // A variable without a value.
    let is_whole = !url.contains('{') && !url.contains("%7B");
    parsed.filter(|_| is_whole).ok_or_else(|| HostError::NoUrl(shown(url)))
}

fn shown(url: &str) -> String {
    url.chars().filter(|c| !c.is_control()).take(120).collect()
}

fn is_private_host(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_end_matches('.').to_ascii_lowercase();
    match host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
        Ok(address) => is_private(address),
        Err(_) => ["localhost", "local", "internal", "home.arpa"]
            .iter()
            .any(|name| host == *name || host.strip_suffix(name).is_some_and(|rest| rest.ends_with('.'))),
    }
}

/// Whether an address is not one of the public internet.
fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_private_v4(address),
        IpAddr::V6(address) => {
            let [first, second, ..] = address.segments();
            let embedded = match address.segments() {
                // Translated and tunnelled addresses.
                [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => Some((high, low)),
                [0, 0, 0, 0, 0, 0 | 0xffff, high, low] => Some((high, low)),
                _ => None,
            };
            let embedded = embedded.map(|(high, low)| {
                let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
                Ipv4Addr::new(a, b, c, d)
            });
            embedded.is_some_and(is_private_v4)
                || address.is_loopback()
                || address == Ipv6Addr::UNSPECIFIED
                || address.is_multicast()
                || first & 0xfe00 == 0xfc00
                || first & 0xffc0 == 0xfe80
                || first & 0xffc0 == 0xfec0
                || (first == 0x2001 && second == 0xdb8)
        }
    }
}

fn is_private_v4(address: Ipv4Addr) -> bool {
    let [first, second, third, _] = address.octets();
    address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_broadcast()
        || address.is_documentation()
        || first == 0
        || first >= 240
        || (first == 100 && (64..128).contains(&second))
        || (first, second, third) == (192, 0, 0)
        || (first == 198 && (18..20).contains(&second))
}

/// Looks up names, and refuses private addresses.
#[derive(Debug)]
pub(super) struct PublicOnly;

impl Resolve for PublicOnly {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            if found.iter().any(|address| is_private(address.ip())) {
                return Err(HostError::Private(name.as_str().to_owned()).into());
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::upstream::discovery::{Auth, HttpOptions};

    fn base(
        place: DocumentPlace,
        base_url: Option<&str>,
        has_auth: bool,
        root: &Value,
    ) -> Result<String, HostError> {
        let auth = has_auth.then(|| Auth::Header { name: "X".into(), value: "y".into() });
        let openapi = OpenApi {
            document: place,
            base_url: base_url.map(str::to_owned),
            auth,
            headers: Vec::new(),
            filled_in: Vec::new(),
            options: HttpOptions::default(),
        };
        Hosts::new(&openapi, root)?.base_of(None).map(Into::into)
    }

    fn file() -> DocumentPlace {
        DocumentPlace::File("/api.json".into())
    }

    fn fetched() -> DocumentPlace {
        DocumentPlace::Url("https://api.example.com/v1/openapi.json".into())
    }

    #[test]
    fn the_hosts_of_a_file_are_allowed() {
        let of = |url: &str| base(file(), None, true, &json!({ "servers": [{ "url": url }] }));
        assert_eq!(of("http://127.0.0.1:8000/v1").unwrap(), "http://127.0.0.1:8000/v1");
        assert_eq!(of("/v1"), Err(HostError::NoServer));
        assert!(matches!(of("ftp://h/"), Err(HostError::NoUrl(_))));
        assert_eq!(base(file(), None, false, &json!({})), Err(HostError::NoServer));
        let variables = json!({ "servers": [{
            "url": "https://{region}.example.com:{port}/",
            "variables": { "region": { "default": "eu" }, "port": { "default": 8443 } },
        }]});
        assert_eq!(base(file(), None, false, &variables).unwrap(), "https://eu.example.com:8443/");
        assert!(matches!(of("https://h/{version}"), Err(HostError::NoUrl(_))));
    }

    #[test]
    fn private_hosts_of_a_fetched_document_are_not_allowed() {
        let of = |url: &str| base(fetched(), None, false, &json!({ "servers": [{ "url": url }] }));
        assert_eq!(of("/v2").unwrap(), "https://api.example.com/v2");
        assert_eq!(of("https://other.example.com/").unwrap(), "https://other.example.com/");
        for host in [
            "127.0.0.1", "localhost", "a.localhost", "10.1.2.3", "192.168.0.1", "169.254.169.254", "[::1]",
            "[fd00::1]", "[::ffff:10.0.0.1]", "100.64.0.1", "0.0.0.0", "printer.local", "2130706433",
            "0x7f.1", "LOCALHOST.", "metadata.google.internal",
        ] {
            let refused = of(&format!("http://{host}/"));
            assert!(matches!(refused, Err(HostError::Private(_))), "{host}: {refused:?}");
        }
        let local = DocumentPlace::Url("http://127.0.0.1:1/openapi.json".into());
        assert!(matches!(base(local, None, false, &json!({})), Err(HostError::Private(_))));
        let allowed = base(
            fetched(),
            Some("http://127.0.0.1:9"),
            true,
            &json!({ "servers": [{ "url": "https://x.org" }] }),
        );
        assert_eq!(allowed.unwrap(), "http://127.0.0.1:9/");
    }

    #[test]
    fn our_certificate_is_a_credential() {
        let openapi = OpenApi {
            document: fetched(),
            base_url: None,
            auth: None,
            headers: Vec::new(),
            filled_in: Vec::new(),
            options: HttpOptions { client_cert: Some("/us.pem".into()), ..HttpOptions::default() },
        };
        let root = json!({ "servers": [{ "url": "https://evil.example/" }] });
        let refused = Hosts::new(&openapi, &root).unwrap().base_of(None);
        assert_eq!(refused, Err(HostError::Foreign("evil.example".into())));
    }

    #[test]
    fn credentials_stay_on_the_host_of_a_fetched_document() {
        let of = |url: &str| base(fetched(), None, true, &json!({ "servers": [{ "url": url }] }));
        assert!(of("/v2").is_ok());
        assert_eq!(of("https://evil.example/"), Err(HostError::Foreign("evil.example".into())));
        assert_eq!(of("http://api.example.com/"), Err(HostError::Foreign("api.example.com".into())));
    }
}
