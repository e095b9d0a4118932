//! Checks of a request that need no credential: a page of another site, and heads that two readers could understand differently.

use std::net::SocketAddr;

use http::header::{AUTHORIZATION, CONTENT_LENGTH, HOST, ORIGIN, TRANSFER_ENCODING};
use http::uri::Authority;
use http::{HeaderMap, Method, StatusCode, Uri};

/// The names under which clients reach the bridge.
#[derive(Debug, Clone)]
pub(super) struct Hosts {
    /// With or without a port; without one, any port is meant.
    names: Vec<Authority>,
}

/// Why a request is refused, for the client and for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    pub status: StatusCode,
    pub reason: &'static str,
    pub text: &'static str,
}

const fn refusal(status: StatusCode, reason: &'static str, text: &'static str) -> Refusal {
    Refusal { status, reason, text }
}

const AMBIGUOUS: Refusal =
    refusal(StatusCode::BAD_REQUEST, "ambiguous", "the request has a header twice that can be there once");
const TWO_HOSTS: Refusal =
    refusal(StatusCode::BAD_REQUEST, "host", "the address of the request and its Host name different hosts");
const NO_HOST: Refusal = refusal(StatusCode::BAD_REQUEST, "host", "the request has no valid Host");
const OTHER_HOST: Refusal = refusal(
    StatusCode::FORBIDDEN,
    "host",
    "this Host is not served: the operator can add it to MCP_BRIDGE_ALLOWED_HOSTS",
);
const OTHER_ORIGIN: Refusal = refusal(
    StatusCode::FORBIDDEN,
    "origin",
    "pages of this Origin may not use the bridge: the operator can add its host to MCP_BRIDGE_ALLOWED_HOSTS",
);

const NOT_OF_THIS_SITE: Refusal =
    refusal(StatusCode::FORBIDDEN, "origin", "pages of another site cannot use the console");

impl Hosts {
    /// Returns those of an address, and those that the operator has named.
    pub(super) fn new(address: Option<SocketAddr>, named: &[String]) -> Self {
        let mut names: Vec<String> = ["localhost", "127.0.0.1", "[::1]"].map(String::from).to_vec();
        names.extend(address.filter(|address| !address.ip().is_unspecified()).map(|address| match address {
            SocketAddr::V4(address) => address.ip().to_string(),
            SocketAddr::V6(address) => format!("[{}]", address.ip()),
        }));
        names.extend(named.iter().cloned());
        Self { names: names.iter().filter_map(|name| name.parse().ok()).collect() }
    }

    fn has(&self, host: &Authority) -> bool {
        self.names.iter().any(|name| {
            name.host().eq_ignore_ascii_case(host.host())
                && name.port_u16().is_none_or(|port| host.port_u16() == Some(port))
        })
    }

    /// Checks who the request is meant for, and which page sends it.
    ///
    /// # Errors
    /// A page of another site may have made a browser send it.
    pub(super) fn check(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let host = headers.get(HOST).and_then(|host| host.to_str().ok()?.parse::<Authority>().ok());
        let host = host.filter(|host| !host.as_str().contains('@')).ok_or(NO_HOST)?;
        if !self.has(&host) {
            return Err(OTHER_HOST);
        }
        let Some(origin) = headers.get(ORIGIN) else { return Ok(()) };
        let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
        let of_http = origin.filter(|(scheme, _)| ["http", "https"].contains(scheme));
        let authority = of_http.and_then(|(_, rest)| rest.parse::<Authority>().ok());
        match authority {
            Some(authority) if self.has(&authority) => Ok(()),
            _ => Err(OTHER_ORIGIN),
        }
    }
}

/// Checks a request for a page, whose cookie a browser also sends for pages of other ports of the same host.
///
/// # Errors
/// A page of another origin sends it, or shows a part of the page.
pub(super) fn check_page(method: &Method, headers: &HeaderMap) -> Result<(), Refusal> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    if let Some(origin) = headers.get(ORIGIN) {
        let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
        let is_own =
            origin.zip(text("host")).is_some_and(|((_, origin), host)| origin.eq_ignore_ascii_case(host));
        if !is_own {
            return Err(NOT_OF_THIS_SITE);
        }
    }
    // Browsers say where a request comes from. A link leads here from anywhere.
    let is_own = text("sec-fetch-site").is_none_or(|site| ["same-origin", "none"].contains(&site));
    let is_link = method == Method::GET
        && text("sec-fetch-mode") == Some("navigate")
        && text("sec-fetch-dest") == Some("document");
    if is_own || is_link { Ok(()) } else { Err(NOT_OF_THIS_SITE) }
}

/// Checks that nobody could read the head in another way.
///
/// # Errors
/// A proxy in front of the bridge may have understood the request differently.
pub(super) fn check_head(uri: &Uri, headers: &HeaderMap) -> Result<(), Refusal> {
    let single = [AUTHORIZATION, CONTENT_LENGTH, HOST, ORIGIN, TRANSFER_ENCODING];
    let twice = single.iter().any(|name| headers.get_all(name).iter().count() > 1);
    // A whole URL counts for more than Host, for those that read it.
    let named = headers.get(HOST).map(|host| host.as_bytes().to_ascii_lowercase());
    let other_host = uri.authority().is_some_and(|authority| {
        named.is_none_or(|host| host != authority.as_str().to_ascii_lowercase().into_bytes())
    });
    match (twice, other_host) {
        (true, _) => Err(AMBIGUOUS),
        (false, true) => Err(TWO_HOSTS),
        (false, false) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (name.parse::<http::HeaderName>().unwrap(), value.parse().unwrap()))
            .collect()
    }

    #[test]
    fn only_names_of_the_bridge_are_served() {
        let hosts =
            Hosts::new(Some("192.0.2.1:80".parse().unwrap()), &["a.example".into(), "b.example:8443".into()]);
        let check = |host: &str| hosts.check(&headers(&[("host", host)]));
        for good in ["localhost:1", "127.0.0.1:8765", "[::1]:1", "192.0.2.1", "A.example:9", "b.example:8443"]
        {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for bad in ["evil.example", "b.example", "b.example:1", "localhost.evil.example", "127.0.0.1.nip.io"]
        {
            assert_eq!(check(bad), Err(OTHER_HOST), "{bad}");
        }
        assert_eq!(check("user@localhost"), Err(NO_HOST));
        assert_eq!(hosts.check(&HeaderMap::new()), Err(NO_HOST));
        let any = Hosts::new(Some("0.0.0.0:80".parse().unwrap()), &[]);
        assert_eq!(any.check(&headers(&[("host", "0.0.0.0")])), Err(OTHER_HOST));
    }

    #[test]
    fn pages_of_other_sites_are_refused() {
        let hosts = Hosts::new(None, &["a.example".into()]);
        let check = |origin: &str| hosts.check(&headers(&[("host", "localhost"), ("origin", origin)]));
        for good in ["http://localhost:3000", "https://a.example"] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for bad in [
            "null", "https://evil.example", "file://", "chrome-extension://a.example",
            "https://a.example/x/..",
        ] {
            assert_eq!(check(bad), Err(OTHER_ORIGIN), "{bad}");
        }
    }

    #[test]
    fn a_page_is_only_for_its_own_origin() {
        let check = |method: &Method, more: &[(&'static str, &str)]| {
            check_page(method, &headers(&[&[("host", "localhost:8765")], more].concat())).is_ok()
        };
        let (get, post) = (Method::GET, Method::POST);
        assert!(check(&get, &[]) && check(&post, &[("origin", "http://localhost:8765")]));
        assert!(check(&post, &[("origin", "https://LOCALHOST:8765"), ("sec-fetch-site", "same-origin")]));
        for origin in ["http://localhost:3000", "null", "http://localhost", "localhost:8765"] {
            assert!(!check(&post, &[("origin", origin)]), "{origin}");
        }
        let link = [("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")];
        for site in ["same-site", "cross-site", "other"] {
            let from = [("sec-fetch-site", site)];
            assert!(check(&get, &[&from[..], &link].concat()), "a link leads here");
            assert!(!check(&post, &[&from[..], &link].concat()) && !check(&get, &from), "{site}");
            let frame = [("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "iframe")];
            assert!(!check(&get, &[&from[..], &frame].concat()), "{site}");
        }
    }

    #[test]
    fn heads_with_two_meanings_are_refused() {
        let mut twice = headers(&[("host", "localhost")]);
        twice.append("host", "evil.example".parse().unwrap());
        let path = Uri::from_static("/mcp");
        assert_eq!(check_head(&path, &twice), Err(AMBIGUOUS));
        assert_eq!(check_head(&path, &headers(&[("content-length", "3")])), Ok(()));
        let check = |uri, host| check_head(&Uri::from_static(uri), &headers(&[("host", host)]));
        assert_eq!(check("http://Localhost:1/mcp", "localhost:1"), Ok(()));
        for uri in ["http://evil.example/mcp", "http://localhost/mcp", "http://x@localhost:1/mcp"] {
            assert_eq!(check(uri, "localhost:1"), Err(TWO_HOSTS), "{uri}");
        }
        assert_eq!(check_head(&Uri::from_static("http://localhost/"), &HeaderMap::new()), Err(TWO_HOSTS));
    }
}
