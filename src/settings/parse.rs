//! Pure parsers of values as people write them.

use std::time::Duration;

use codebridge_runtimes::User;
use reqwest::Url;

/// A hundred years, which stands for every longer time: clocks cannot count further.
const LONGEST_TIME: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Parses whole seconds, with or without a unit: `30`, `30s`, `2m`, `1h`.
pub fn parse_time(text: &str) -> Option<Duration> {
    let text = text.trim();
    let (number, factor) = match text.char_indices().last()? {
        (at, 's' | 'S') => (&text[..at], 1),
        (at, 'm' | 'M') => (&text[..at], 60),
        (at, 'h' | 'H') => (&text[..at], 3600),
        _ => (text, 1),
    };
    let time = parse_digits(number.trim_end())?.checked_mul(factor).map(Duration::from_secs)?;
    Some(time.min(LONGEST_TIME))
}

/// Parses bytes, with or without a unit: `536870912`, `512m`, `1.5g`, `64KiB`. Units are powers of 1024, as engines
/// read them.
pub(super) fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim().to_ascii_lowercase();
    let text = text.strip_suffix("ib").or_else(|| text.strip_suffix('b')).unwrap_or(&text);
    let (number, shift) = match text.char_indices().last()? {
        (at, 'k') => (&text[..at], 10),
        (at, 'm') => (&text[..at], 20),
        (at, 'g') => (&text[..at], 30),
        (at, 't') => (&text[..at], 40),
        _ => (text, 0),
    };
    let (whole, fraction) = number.trim_end().split_once('.').unwrap_or((number.trim_end(), ""));
    let whole = parse_digits(whole)?.checked_mul(1 << shift)?;
    if fraction.is_empty() {
        return Some(whole);
    }
    // A fraction of a byte has no meaning, and digits after the sixth make no difference.
    let digits = &fraction[..fraction.len().min(6)];
    if shift == 0 || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let part = (parse_digits(digits)? << shift) / 10_u64.pow(digits.len() as u32);
    whole.checked_add(part)
}

/// Parses digits; a sign or a space is refused.
pub(super) fn parse_digits(text: &str) -> Option<u64> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// Parses a number greater than zero, with or without a fraction.
pub(super) fn parse_number(text: &str) -> Option<f64> {
    let text = text.trim();
    let plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    text.parse().ok().filter(|number: &f64| plain && number.is_finite() && *number > 0.0)
}

/// Parses yes or no.
pub(super) fn parse_bool(text: &str) -> Option<bool> {
    match text.trim().to_ascii_lowercase().as_str() {
        "1" | "true" | "t" | "yes" | "y" | "on" | "enabled" => Some(true),
        "0" | "false" | "f" | "no" | "n" | "off" | "disabled" => Some(false),
        _ => None,
    }
}

/// Parses `UID:GID`; a single number is both.
pub(super) fn parse_user(text: &str) -> Option<User> {
    let id = |text: &str| parse_digits(text).and_then(|id| u32::try_from(id).ok());
    let (uid, gid) = text.trim().split_once(':').unwrap_or((text.trim(), text.trim()));
    // The highest id means "no change" to the kernel.
    let ids = User { uid: id(uid)?, gid: id(gid)? };
    (ids.uid != u32::MAX && ids.gid != u32::MAX).then_some(ids)
}

/// Parses names of hosts, with or without a port, separated by commas.
pub(super) fn parse_hosts(text: &str) -> Option<Vec<String>> {
    let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
    let is_name = |name: &str| {
        name.parse::<http::uri::Authority>().is_ok_and(|host| !name.contains('@') && !host.host().is_empty())
    };
    names.map(|name| is_name(name).then(|| name.to_owned())).collect()
}

/// Parses the URL of a registry. Returns that of its list of servers: `URL/v0/servers`, or `URL/servers` where the URL names a version.
pub(super) fn parse_registry(text: &str) -> Option<Url> {
    let mut url: Url = text.trim().parse().ok()?;
    if !matches!(url.scheme(), "http" | "https") || url.query().is_some() || url.fragment().is_some() {
        return None;
    }
    let last = url.path().trim_end_matches('/').rsplit('/').next().unwrap_or_default().to_owned();
    let mut path = url.path_segments_mut().ok()?;
    path.pop_if_empty();
    match last.as_str() {
        "servers" => {}
        version if version.starts_with("v0") => drop(path.push("servers")),
        _ => drop(path.push("v0").push("servers")),
    }
    drop(path);
    Some(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(text: &str) -> Option<u64> {
        parse_time(text).map(|time| time.as_secs())
    }

    #[test]
    fn times_are_whole_seconds_with_an_optional_unit() {
        assert_eq!(seconds("30"), Some(30));
        assert_eq!(seconds("30s"), Some(30));
        assert_eq!(seconds(" 2m "), Some(120));
        assert_eq!(seconds("2 m"), Some(120));
        assert_eq!(seconds("1H"), Some(3600));
        assert_eq!(seconds("0"), Some(0));
        assert_eq!(seconds("18446744073709551615"), Some(LONGEST_TIME.as_secs()));
        for bad in ["", "s", "m", "-1", "+1", "1.5", "1e3", "30 sec", "30ms", "½", "18446744073709551615m"] {
            assert_eq!(seconds(bad), None, "{bad}");
        }
    }

    #[test]
    fn sizes_are_bytes_with_an_optional_binary_unit() {
        assert_eq!(parse_size("536870912"), Some(512 << 20));
        assert_eq!(parse_size("512m"), Some(512 << 20));
        assert_eq!(parse_size("512M"), Some(512 << 20));
        assert_eq!(parse_size("512MB"), Some(512 << 20));
        assert_eq!(parse_size("512MiB"), Some(512 << 20));
        assert_eq!(parse_size("1g"), Some(1 << 30));
        assert_eq!(parse_size("1.5g"), Some(3 << 29));
        assert_eq!(parse_size("64 k"), Some(64 << 10));
        assert_eq!(parse_size("100b"), Some(100));
        for bad in ["", "m", "b", "-1m", "1.5", "1.5.5g", "1.xg", "lots", "99999999999999999999", "99999999t"]
        {
            assert_eq!(parse_size(bad), None, "{bad}");
        }
    }

    #[test]
    fn numbers_are_plain_and_above_zero() {
        assert_eq!(parse_number("1.5"), Some(1.5));
        assert_eq!(parse_number(" 2 "), Some(2.0));
        for bad in ["", "0", "-1", "1e3", "inf", "nan", "1,5"] {
            assert_eq!(parse_number(bad), None, "{bad}");
        }
    }

    #[test]
    fn booleans_are_read_as_people_write_them() {
        for yes in ["1", "true", "True", "YES", "on", "enabled"] {
            assert_eq!(parse_bool(yes), Some(true), "{yes}");
        }
        for no in ["0", "false", "FALSE", "no", "off", "disabled"] {
            assert_eq!(parse_bool(no), Some(false), "{no}");
        }
        assert_eq!(parse_bool("maybe"), None);
    }

    #[test]
    fn hosts_are_names_with_an_optional_port() {
        assert_eq!(parse_hosts("a.example, b:8443,[::1]:1").unwrap(), ["a.example", "b:8443", "[::1]:1"]);
        for bad in ["https://a.example", "a b", "user@a.example", "a/b"] {
            assert_eq!(parse_hosts(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_registry_is_the_url_of_its_list() {
        let list = |text| parse_registry(text).map(String::from);
        for (text, url) in [
            ("https://registry.example", "https://registry.example/v0/servers"),
            (" http://127.0.0.1:1/mcp/ ", "http://127.0.0.1:1/mcp/v0/servers"),
            ("https://registry.example/v0.1", "https://registry.example/v0.1/servers"),
            ("https://registry.example/v0/servers", "https://registry.example/v0/servers"),
        ] {
            assert_eq!(list(text).as_deref(), Some(url));
        }
        for bad in ["registry.example", "ftp://registry.example", "https://", "https://registry.example?a=b"]
        {
            assert_eq!(list(bad), None, "{bad}");
        }
    }

    #[test]
    fn users_are_numbers() {
        assert_eq!(parse_user("65534:65534"), Some(User { uid: 65534, gid: 65534 }));
        assert_eq!(parse_user("1000"), Some(User { uid: 1000, gid: 1000 }));
        for bad in ["nobody", "1000:", ":1", "1:2:3", "-1:1", "4294967295:1", "4294967296:1"] {
            assert_eq!(parse_user(bad), None, "{bad}");
        }
    }
}
