//! Removes the credentials of remote engines from addresses and texts: podman prints the whole URL in its errors, with the
//! password.

use std::env;

/// Variables that hold the URL of an engine.
pub(crate) const URLS: &[&str] = &["CONTAINER_HOST", "DOCKER_HOST"];
/// Variables whose whole value is a secret.
const VALUES: &[&str] = &["CONTAINER_SSHKEY", "CONTAINER_PASSPHRASE"];
/// Shorter values are too common to be searched for in text.
const SHORTEST: usize = 6;
/// Replaces a secret in a text.
const GONE: &str = "[hidden]";
/// The characters that end a URL in a text.
const ENDS: &[char] = &[' ', '\t', '\r', '\n', '"', '\'', '`', '<', '>'];

pub(crate) fn without_password(url: &str) -> String {
    match password(url) {
        Some((start, end)) => format!("{}{}", &url[..start], &url[end..]),
        None => url.to_string(),
    }
}

/// Returns the range of the password in a URL, with the colon before it.
///
/// A password with a slash makes the URL invalid, but is still a secret: then the part before the slash is not a port.
fn password(url: &str) -> Option<(usize, usize)> {
    let start = url.find("://")? + "://".len();
    let authority = &url[start..];
    let authority = &authority[..authority.find(['/', '?', '#']).unwrap_or(authority.len())];
    let end = start
        + match (authority.rfind('@'), authority.rsplit_once(':')) {
            (Some(at), _) => at,
            (None, Some((_, port))) if !port.ends_with(']') && !port.bytes().all(|b| b.is_ascii_digit()) => {
                url[start..].rfind('@')?
            }
            _ => return None,
        };
    let colon = start + url[start..end].find(':')?;
    Some((colon, end))
}

/// Returns a text of other programs without credentials: passwords in URLs, those in the variables of this process, and the
/// paths of ssh keys.
pub(crate) fn hide(text: &str) -> String {
    let mut known: Vec<String> = VALUES.iter().filter_map(|name| env::var(name).ok()).collect();
    for url in URLS.iter().filter_map(|name| env::var(name).ok()) {
        known.extend(password(&url).map(|(start, end)| url[start + 1..end].to_string()));
    }
    hide_known(text, known)
}

fn hide_known(text: &str, mut known: Vec<String>) -> String {
    known.extend(parse_key_files(text));
    known.retain(|value| value.len() >= SHORTEST);
    known.sort_by_key(|value| std::cmp::Reverse(value.len()));
    let text = hide_passwords(text);
    known.iter().fold(text, |text, value| text.replace(value.as_str(), GONE))
}

/// Removes the passwords of all URLs in a text, and the parts that Go's `net/url` quotes of invalid URLs:
/// ``parse "ssh://root:a/b@host": invalid port ":a" after host``, ``invalid URL escape "%zz"``.
fn hide_passwords(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(scheme) = rest.find("://") {
        let end = rest[scheme..].find(ENDS).map_or(rest.len(), |end| scheme + end);
        shown.push_str(&without_password(&rest[..end]));
        rest = &rest[end..];
    }
    shown.push_str(rest);
    for start in ["invalid port \"", "invalid URL escape \""] {
        let rest = shown.split_once(start).map(|(_, rest)| rest);
        if let Some((value, _)) = rest.and_then(|rest| rest.split_once('"')) {
            shown = shown.replace(&format!("{start}{value}\""), &format!("{start}{GONE}\""));
        }
    }
    shown
}

/// Returns the paths of keys that a client could not use:
///
/// - podman 4.3.1 and 5.8.6, captured: ``failed to read identity "/home/a/key": open /home/a/key: no such file or directory``
/// - OpenSSH 9.2, captured: ``Load key "/home/a/key": error in libcrypto``, ``Permissions 0644 for '/home/a/key' are too open.``,
///   ``no such identity: /home/a/key: No such file or directory``
fn parse_key_files(text: &str) -> Vec<String> {
    let starts = [
        ("failed to read identity \"", "\""),
        ("Load key \"", "\""),
        ("Permissions 0", "' are too open"),
        ("no such identity: ", ":"),
    ];
    let found = starts.iter().flat_map(|&(start, end)| {
        let values = text.split(start).skip(1).filter_map(move |rest| rest.split_once(end));
        values.map(|(value, _)| value.rsplit_once(" for '").map_or(value, |(_, path)| path).to_string())
    });
    found.filter(|value| value.starts_with('/')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_password_is_removed_from_a_url() {
        for (url, shown) in [
            ("ssh://root:s3cret@host:22/run/podman.sock", "ssh://root@host:22/run/podman.sock"),
            ("ssh://root:s3/cr@et@host:22/run/x", "ssh://root@host:22/run/x"),
            ("ssh://root:@host", "ssh://root@host"),
            ("ssh://:p@[::1]:22/x", "ssh://@[::1]:22/x"),
        ] {
            assert_eq!(without_password(url), shown);
        }
        for url in [
            "ssh://root@host:22/run/user@1000.service/podman.sock",
            "ssh://host:22/run/user@1000/podman.sock",
            "ssh://[fe80::1]/run/user@1000/podman.sock",
            "unix:///run/user/1000/docker.sock",
            "docker://registry:5000/image@sha256:0123",
            "tcp://10.0.0.1:2376",
            "",
            "no address: a:b@c",
        ] {
            assert_eq!(without_password(url), url);
        }
    }

    #[test]
    fn messages_of_clients_show_no_credentials() {
        for (said, shown) in [
            // podman 5.8.6
            (
                "Error: unable to connect to Podman socket: failed to connect: dial tcp 127.0.0.1:4823: connect: connection refused: ssh://root:s3cret@127.0.0.1:4823/sock",
                "Error: unable to connect to Podman socket: failed to connect: dial tcp 127.0.0.1:4823: connect: connection refused: ssh://root@127.0.0.1:4823/sock",
            ),
            // podman 4.3.1
            (
                "Error: value of CONTAINER_HOST is not a valid url: ssh://root:s3/cret@127.0.0.1/x: parse \"ssh://root:s3/cret@127.0.0.1/x\": invalid port \":s3\" after host",
                "Error: value of CONTAINER_HOST is not a valid url: ssh://root@127.0.0.1/x: parse \"ssh://root@127.0.0.1/x\": invalid port \"[hidden]\" after host",
            ),
            // podman 4.3.1
            (
                "Error: failed to read identity \"/home/a/.ssh/key\": open /home/a/.ssh/key: no such file or directory",
                "Error: failed to read identity \"[hidden]\": open [hidden]: no such file or directory",
            ),
            // OpenSSH 9.2
            (
                "Permissions 0644 for '/home/a/.ssh/key' are too open.\nLoad key \"/home/a/.ssh/key\": bad permissions",
                "Permissions 0644 for '[hidden]' are too open.\nLoad key \"[hidden]\": bad permissions",
            ),
        ] {
            assert_eq!(hide_known(said, Vec::new()), shown);
        }
        let known = vec!["hunter22".to_string(), "short".into()];
        assert_eq!(hide_known("it is hunter22, in short", known), "it is [hidden], in short");
    }
}
