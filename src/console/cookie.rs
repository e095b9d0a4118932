//! The cookie of a browser that is signed in.

use http::HeaderMap;
use http::header::COOKIE;

/// Bytes of its secret.
pub(super) const SECRET: usize = 32;

/// Returns the name of the cookie. Cookies are for all ports of a host, and there may be a bridge on each.
pub(super) fn name(port: Option<u16>) -> String {
    match port {
        Some(port) => format!("codebridge_console_{port}"),
        None => "codebridge_console".into(),
    }
}

/// Returns the secret that a browser sends.
pub(super) fn read<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let pairs = headers
        .get_all(COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'));
    let secret = pairs.filter_map(|pair| pair.trim().split_once('=')).find(|(known, _)| *known == name)?.1;
    let is_secret = secret.len() == 2 * SECRET && secret.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_secret.then_some(secret)
}

/// Returns the header that sets it until the browser is closed, or removes it.
pub(super) fn written(name: &str, secret: Option<&str>, is_https: bool) -> String {
    let (value, end) = match secret {
        Some(secret) => (secret, ""),
        None => ("", "; Max-Age=0"),
    };
    let secure = if is_https { "; Secure" } else { "" };
    format!("{name}={value}; Path=/console; HttpOnly; SameSite=Strict{secure}{end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_cookie_of_this_bridge_is_read() {
        let secret = "0a".repeat(SECRET);
        let mut headers = HeaderMap::new();
        headers.append(COOKIE, "other=1; codebridge_console_1=ff".parse().unwrap());
        headers.append(COOKIE, format!("x; codebridge_console_2={secret}").parse().unwrap());
        assert_eq!(read(&headers, "codebridge_console_2"), Some(&*secret));
        assert_eq!(read(&headers, "codebridge_console_1"), None, "too short");
        assert_eq!(read(&headers, "codebridge_console"), None);
    }

    #[test]
    fn a_cookie_is_for_no_script_and_no_other_site() {
        let set = "c=ab; Path=/console; HttpOnly; SameSite=Strict";
        assert_eq!(written("c", Some("ab"), false), set);
        assert_eq!(written("c", Some("ab"), true), format!("{set}; Secure"));
        assert_eq!(written("c", None, false), "c=; Path=/console; HttpOnly; SameSite=Strict; Max-Age=0");
    }
}
