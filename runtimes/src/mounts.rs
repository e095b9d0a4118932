//! The mounts that this process sees.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// Returns every mount point, in mount order; none where there is no `/proc`.
pub(crate) fn of_this_process() -> Vec<PathBuf> {
    parse_mount_points(&fs::read("/proc/self/mountinfo").unwrap_or_default())
}

/// Returns the fifth field of each line of `/proc/PID/mountinfo`
/// (<https://man7.org/linux/man-pages/man5/proc_pid_mountinfo.5.html>), except for autofs, which mounts something on
/// access.
fn parse_mount_points(text: &[u8]) -> Vec<PathBuf> {
    let point = |line: &[u8]| {
        let mut fields = line.split(|&byte| byte == b' ');
        let path = fields.nth(4)?;
        let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
        (kind != b"autofs").then(|| PathBuf::from(OsString::from_vec(unescaped(path))))
    };
    text.split(|&byte| byte == b'\n').filter_map(point).collect()
}

/// Decodes spaces, tabs, line breaks and backslashes, which are written as three octal digits.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, tail @ ..] = rest {
        match tail {
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..] if *first == b'\\' => {
                bytes.push((a - b'0') * 64 + (b - b'0') * 8 + (c - b'0'));
                rest = after;
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_are_read_with_spaces_and_optional_fields() {
        let text = b"36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 shared:2 - ext3 /dev/root rw\n\
                     37 36 0:40 / /a\\040b\\134c ro - tmpfs none rw\n\
                     38 36 0:41 / /net rw - autofs systemd-1 rw\n\
                     garbage\n";
        assert_eq!(parse_mount_points(text), [PathBuf::from("/mnt2"), PathBuf::from("/a b\\c")]);
        assert!(of_this_process().contains(&PathBuf::from("/proc")));
    }
}
