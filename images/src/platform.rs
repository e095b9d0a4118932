//! Platforms of images.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Operating system and processor, by their names in Go, as in image indexes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Platform {
    /// `linux`
    #[serde(default)]
    pub os: String,
    /// `amd64`, `arm64` …
    #[serde(default)]
    pub architecture: String,
    /// `v7`, `v8` …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
}

impl Platform {
    /// Returns the platform of this machine.
    pub fn here() -> Self {
        let (architecture, variant) = match std::env::consts::ARCH {
            "x86_64" => ("amd64", None),
            "x86" => ("386", None),
            "aarch64" => ("arm64", Some("v8")),
            "arm" => ("arm", Some("v7")),
            "powerpc64" if cfg!(target_endian = "little") => ("ppc64le", None),
            "loongarch64" => ("loong64", None),
            other => (other, None),
        };
        // Sandboxes are Linux, also where the bridge is not.
        Self { os: "linux".into(), architecture: architecture.into(), variant: variant.map(String::from) }
    }

    /// Returns how well an image for `self` runs on `machine`: smaller is better, None is not at all.
    pub(crate) fn rank(&self, machine: &Self) -> Option<u32> {
        if self.os != machine.os || self.architecture != machine.architecture {
            return None;
        }
        let level = |variant: &Option<String>| variant.as_deref()?.strip_prefix('v')?.parse::<u32>().ok();
        match (level(&self.variant), level(&machine.variant)) {
            // Each of arm v5 to v7 also runs those before it: the nearest first.
            (Some(built), Some(here)) => here.checked_sub(built),
            // amd64/v2 and above need a newer processor; the plain one runs anywhere.
            (Some(built), None) => Some(built),
            (None, _) => Some(0),
        }
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        self.variant.as_ref().map_or(Ok(()), |variant| write!(f, "/{variant}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn platform(text: &str) -> Platform {
        let mut parts = text.split('/').map(String::from);
        Platform { os: parts.next().unwrap(), architecture: parts.next().unwrap(), variant: parts.next() }
    }

    fn best<'a>(machine: &str, offers: &[&'a str]) -> Option<&'a str> {
        let machine = platform(machine);
        let ranked = offers.iter().filter_map(|offer| Some((platform(offer).rank(&machine)?, *offer)));
        ranked.min().map(|(_, offer)| offer)
    }

    #[test]
    fn the_nearest_variant_that_runs_here_wins() {
        let many =
            ["linux/386", "linux/arm/v5", "linux/arm/v7", "linux/amd64", "linux/arm64/v8", "windows/amd64"];
        assert_eq!(best("linux/amd64", &many), Some("linux/amd64"));
        assert_eq!(best("linux/arm/v7", &many), Some("linux/arm/v7"));
        assert_eq!(best("linux/arm/v6", &many), Some("linux/arm/v5"));
        assert_eq!(best("linux/arm64/v8", &["linux/arm64"]), Some("linux/arm64"));
        assert_eq!(best("linux/amd64", &["linux/amd64/v3", "linux/amd64/v2"]), Some("linux/amd64/v2"));
        assert_eq!(best("linux/riscv64", &many), None);
        assert_eq!(best("linux/amd64", &["windows/amd64", "unknown/unknown"]), None);
    }

    #[test]
    fn this_machine_has_a_platform_that_images_are_built_for() {
        let here = Platform::here();
        assert_eq!(here.os, "linux");
        assert!(!here.architecture.contains("x86_64") && !here.architecture.contains("aarch64"), "{here}");
    }
}
