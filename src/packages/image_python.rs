//! The Python of an image, as far as the choice of wheels depends on it.

use serde::Deserialize;

/// Minor versions of glibc 2 for which uv knows platforms, newest first.
const GLIBC: [u32; 12] = [40, 39, 38, 37, 36, 35, 34, 33, 32, 31, 28, 17];

/// What a sandbox says of its Python. It may say anything.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct RawPython {
    pub version: String,
    pub machine: String,
    /// `glibc 2.41` or `musl 1.2`.
    pub libc: String,
    #[serde(default)]
    pub abi_flags: String,
}

/// The same, checked.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ImagePython {
    version: [u32; 3],
    machine: &'static str,
    libc: Libc,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Libc {
    /// The minor version of glibc 2.
    Glibc(u32),
    /// The minor version of musl 1.
    Musl(u32),
}

impl ImagePython {
    /// Returns None for a Python that no wheels of an index are made for.
    pub fn parse(raw: &RawPython) -> Option<Self> {
        let numbers = |text: &str| -> Option<Vec<u32>> {
            text.split('.').map(|part| part.parse().ok().filter(|number| *number < 1000)).collect()
        };
        let version: [u32; 3] = numbers(&raw.version)?.try_into().ok()?;
        let machine = match raw.machine.as_str() {
            "x86_64" => "x86_64",
            "aarch64" | "arm64" => "aarch64",
            _ => return None,
        };
        let (name, libc) = raw.libc.split_once(' ')?;
        let libc = match (name, numbers(libc)?.as_slice()) {
            ("glibc", [2, minor, ..]) if *minor >= 17 => Libc::Glibc(*minor),
            ("musl", [1, minor, ..]) => Libc::Musl(*minor),
            _ => return None,
        };
        let is_usual = version[0] == 3 && version[1] >= 9 && raw.abi_flags.is_empty();
        is_usual.then_some(Self { version, machine, libc })
    }

    /// Returns `3.14`.
    pub fn short_version(&self) -> String {
        format!("{}.{}", self.version[0], self.version[1])
    }

    /// Returns `3.14.0`.
    pub fn full_version(&self) -> String {
        self.version.map(|number| number.to_string()).join(".")
    }

    /// Returns the platform as uv names it: `x86_64-manylinux_2_36`.
    pub fn platform(&self) -> String {
        match self.libc {
            Libc::Glibc(minor) => {
                let known = GLIBC.into_iter().find(|known| *known <= minor).unwrap_or(17);
                format!("{}-manylinux_2_{known}", self.machine)
            }
            Libc::Musl(_) => format!("{}-unknown-linux-musl", self.machine),
        }
    }

    /// Returns the tags of platforms as pip takes them, newest first.
    pub(super) fn pip_platforms(&self) -> Vec<String> {
        let machine = self.machine;
        match self.libc {
            Libc::Glibc(minor) => {
                let mut tags: Vec<_> =
                    (5..=minor.min(60)).rev().map(|n| format!("manylinux_2_{n}_{machine}")).collect();
                tags.push(format!("manylinux2014_{machine}"));
                tags
            }
            Libc::Musl(minor) => {
                (0..=minor.min(10)).rev().map(|n| format!("musllinux_1_{n}_{machine}")).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn python(version: &str, machine: &str, libc: &str) -> Option<ImagePython> {
        let [version, machine, libc] = [version, machine, libc].map(String::from);
        ImagePython::parse(&RawPython { version, machine, libc, abi_flags: String::new() })
    }

    #[test]
    fn a_platform_is_the_newest_that_the_image_runs() {
        let platform = |machine, libc| python("3.14.0", machine, libc).unwrap().platform();
        assert_eq!(platform("x86_64", "glibc 2.41"), "x86_64-manylinux_2_40");
        assert_eq!(platform("aarch64", "glibc 2.31"), "aarch64-manylinux_2_31");
        assert_eq!(platform("x86_64", "glibc 2.30"), "x86_64-manylinux_2_28");
        assert_eq!(platform("x86_64", "musl 1.2"), "x86_64-unknown-linux-musl");
        let tags = python("3.9.2", "x86_64", "glibc 2.28").unwrap().pip_platforms();
        assert_eq!(tags[0], "manylinux_2_28_x86_64");
        assert!(tags.contains(&"manylinux2014_x86_64".to_string()));
    }

    #[test]
    fn what_a_sandbox_says_of_itself_is_checked() {
        for (version, machine, libc) in [
            ("3.14", "x86_64", "glibc 2.41"),
            ("2.7.0", "x86_64", "glibc 2.41"),
            ("3.14.0 --index-url", "x86_64", "glibc 2.41"),
            ("3.14.0", "x86_64; rm", "glibc 2.41"),
            ("3.14.0", "x86_64", "glibc 2.x"),
            ("3.14.0", "x86_64", "2.41"),
            ("3.99999999999.0", "x86_64", "glibc 2.41"),
        ] {
            assert_eq!(python(version, machine, libc), None, "{version} {machine} {libc}");
        }
    }
}
