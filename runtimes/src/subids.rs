//! The names of users, and their subordinate ids.

use std::fs;

/// Returns the name of a user in `/etc/passwd`; subordinate ids may be listed by name or number.
pub(crate) fn user_name(uid: u32) -> Option<String> {
    let passwd = fs::read_to_string("/etc/passwd").ok()?;
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_string())
    })
}

/// Returns the ranges of a user in the text of `/etc/subuid`, start and size of each
/// (<https://man7.org/linux/man-pages/man5/subuid.5.html>: `name-or-uid:start:count`).
pub(crate) fn parse_subids<'a>(
    text: &'a str,
    name: Option<&'a str>,
    uid: u32,
) -> impl Iterator<Item = (u32, u32)> + 'a {
    text.lines().filter_map(move |line| {
        let mut fields = line.trim().split(':');
        let who = fields.next()?;
        let (start, size) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        // The kernel knows no ids beyond 32 bits, and the last one means none.
        let exists = size > 0 && u32::checked_add(start, size).is_some();
        (exists && (Some(who) == name || who.parse() == Ok(uid))).then_some((start, size))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_found_by_name_and_by_number() {
        let text = "# comment\nother:1:2\nann:100000:65536\n1001:300000:1000\nann:400000:10\nbad:x:y\nann:4294967000:65536\n";
        let ranges = |name, uid| parse_subids(text, name, uid).collect::<Vec<_>>();
        assert_eq!(ranges(Some("ann"), 1000), [(100_000, 65_536), (400_000, 10)]);
        assert_eq!(ranges(None, 1001), [(300_000, 1000)]);
        assert_eq!(ranges(Some("ann"), 1001), [(100_000, 65_536), (300_000, 1000), (400_000, 10)]);
        assert_eq!(ranges(Some("bob"), 1002), []);
    }
}
