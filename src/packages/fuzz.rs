//! What package indexes and their tools say, and the names that code wants. What comes out of it is in files that pip and uv
//! read: no option, address or path may get there.

use codebridge_fuzz::fuzz;

use super::pins::{Pin, parse_pins, requirements_text, versions_text};
use super::{ImagePython, RawPython, pip, uv};
use crate::requirements::{Requirement, parse_list};

fn python() -> ImagePython {
    let [version, machine, libc] = ["3.14.0", "x86_64", "glibc 2.36"].map(String::from);
    ImagePython::parse(&RawPython { version, machine, libc, abi_flags: String::new() }).unwrap()
}

/// Checks that an installer reads pins as what they are.
fn check(pins: &[Pin]) {
    let text = requirements_text(pins);
    assert_eq!(parse_pins(&text).as_deref(), Ok(pins), "{text:?}");
    assert_eq!(versions_text(pins).lines().count(), pins.len());
    for pin in pins {
        assert!(!pin.name.is_empty() && !pin.name.starts_with('-'), "{pin:?}");
    }
}

#[test]
fn pins_are_read_as_they_are_written() {
    let words = ["==", " \\\n", "--hash=sha256:", "--index-url=", "-e ", " # "];
    fuzz("pins", &words, |bytes| {
        if let Ok(pins) = parse_pins(&String::from_utf8_lossy(bytes)) {
            check(&pins);
        }
    });
}

#[test]
fn reports_of_installers_become_plain_pins() {
    let python = python();
    let words =
        ["metadata", "download_info", "archive_info", "sha256", "No matching distribution found for "];
    fuzz("reports_of_installers", &words, |bytes| {
        if let Ok(pins) = pip::parse_report(bytes) {
            check(&pins);
        }
        let text = String::from_utf8_lossy(bytes);
        for error in [pip::parse_failure(&text, &python), uv::parse_failure(&text, &python)] {
            assert!(!error.to_string().contains("://user:"), "{error}");
        }
    });
}

#[test]
fn requirements_are_read_as_they_are_written() {
    let words = [
        "[http2]", ">=1.0", "~=", "; python_version < '3.12'", " and ", "@ file:///", ".whl", "(==1)",
        "extra ==",
    ];
    fuzz("requirements", &words, |bytes| {
        let text = String::from_utf8_lossy(bytes);
        match text.parse::<Requirement>() {
            Ok(requirement) => {
                let shown = requirement.to_string();
                assert!(
                    !shown.contains(['\n', '\r', '@', '/', '\\']) && !shown.starts_with('-'),
                    "{shown:?}"
                );
                // It may be a little longer than it was.
                if shown.len() < 500 {
                    let again: Requirement =
                        shown.parse().unwrap_or_else(|error| panic!("{shown:?}: {error}"));
                    assert_eq!(again, requirement, "{shown:?}");
                }
            }
            Err(error) => assert!(error.to_string().len() < 1000, "{error}"),
        }
        if let Ok(list) = parse_list(&text) {
            assert!(list.iter().all(|one| !one.name().is_empty()));
        }
    });
}
