//! Any text as the name of an image.

use codebridge_fuzz::fuzz;

use crate::{Digest, ImageName, package_name, parse_requirements};

#[test]
fn references_are_read_as_they_are_written() {
    let words = [
        "oci:", "oci-archive:", "docker-archive:", "dir:", "host:", "containers-storage:", "docker-daemon:",
        "docker://", "@sha256:", "localhost:5000/", "[::1]:80/",
    ];
    fuzz("references", &words, |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let name = match text.parse::<ImageName>() {
            Ok(name) => name,
            Err(error) => return assert!(!error.to_string().is_empty() && !error.hint().is_empty()),
        };
        let shown = name.to_string();
        // Spaces at the ends do not count, and a path may end with some.
        if shown.trim() == shown {
            let again: ImageName = shown.parse().unwrap_or_else(|error| panic!("{shown:?}: {error}"));
            assert_eq!((again.to_string(), again.path()), (shown.clone(), name.path()));
        }
        match &name {
            ImageName::Registry(name) => {
                assert!(shown.bytes().all(|byte| byte.is_ascii_graphic()), "{shown:?}");
                assert!(!shown.starts_with('-') && shown.starts_with(&name.full_repository()), "{shown:?}");
                let parts = || name.full_repository().split('/').map(str::to_owned).collect::<Vec<_>>();
                assert!(parts().iter().all(|part| !matches!(part.as_str(), "" | "." | "..")), "{shown:?}");
            }
            // It becomes an argument.
            ImageName::Engine(_, reference) => {
                assert!(!reference.starts_with('-') && reference.bytes().all(|byte| byte.is_ascii_graphic()));
            }
            _ => {}
        }
    });
}

#[test]
fn digests_are_read_as_they_are_written() {
    fuzz("digests", &["sha256:", "sha512:", "=="], |bytes| {
        let text = String::from_utf8_lossy(bytes);
        if let Ok(digest) = text.parse::<Digest>() {
            assert_eq!(digest.to_string().parse::<Digest>().unwrap(), digest);
            assert!(digest.hex().bytes().all(|byte| byte.is_ascii_hexdigit()), "{digest}");
        }
        let name = package_name(&text);
        assert!(name.bytes().all(|byte| byte == b'-' || byte.is_ascii_lowercase() || byte.is_ascii_digit()));
        assert!(!name.starts_with('-') && package_name(&name) == name, "{name:?}");
        assert!(parse_requirements(&text).len() <= text.lines().count());
    });
}
