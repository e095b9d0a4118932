//! The documents that describe an image: index, manifest, configuration. Only parsing; every field is untrusted.
//!
//! <https://github.com/opencontainers/image-spec> and docker's older format
//! (<https://distribution.github.io/distribution/spec/manifest-v2-2/>).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::platform::Platform;

pub(crate) const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
const DOCKER_INDEX: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
pub(crate) const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
/// The types that a registry is asked for, best first.
pub(crate) const MANIFEST_TYPES: &[&str] = &[OCI_INDEX, DOCKER_INDEX, OCI_MANIFEST, DOCKER_MANIFEST];
/// Registries refuse manifests above 4 MiB themselves.
pub(crate) const MANIFEST_LIMIT: u64 = 4 << 20;
/// Configurations hold the history of every layer and the labels.
pub(crate) const CONFIG_LIMIT: u64 = 8 << 20;
/// More layers than any engine writes: overlayfs takes 500, docker 127.
const LAYER_LIMIT: usize = 1000;
/// Bytes of environment; no program needs more.
const ENV_LIMIT: usize = 64 << 10;

/// The reason why a document does not describe an image that can run here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    #[error("the {what} is malformed: {why}")]
    Malformed { what: &'static str, why: String },
    /// The document could be read as an index and as an image.
    #[error("the manifest claims to be both an index and an image")]
    Ambiguous,
    /// Docker's format of before 2016.
    #[error("the manifest has schema version {0}; only version 2 is supported: push the image again")]
    Schema(u64),
    /// An index without an image for this machine.
    #[error("the image is not built for {wanted}, only for {offered}")]
    Platform { wanted: Platform, offered: String },
    /// A layer that is not a part of a file system, or is encrypted.
    #[error("a layer of type '{0}' cannot be unpacked")]
    LayerType(String),
    #[error("the manifest has {layers} layers, its configuration {diff_ids}")]
    LayerCount { layers: usize, diff_ids: usize },
    /// More layers or environment than an image may have.
    #[error("the image has {0}")]
    Excess(String),
}

/// A reference to content by its digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    #[serde(default)]
    pub media_type: String,
    pub digest: Digest,
    /// In bytes.
    pub size: u64,
    /// In an index: the machine that the image is built for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<Platform>,
    /// In the index of a layout: the name of the image, among others.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

impl Descriptor {
    fn is_index(&self) -> bool {
        [OCI_INDEX, DOCKER_INDEX].contains(&self.media_type.as_str())
    }
}

/// One image for one platform.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub(crate) config: Descriptor,
    pub(crate) layers: Vec<Descriptor>,
}

/// The document of a reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Document {
    Image(Manifest),
    Index(Vec<Descriptor>),
}

/// Parses an index or a manifest.
pub(crate) fn parse_document(bytes: &[u8]) -> Result<Document, ManifestError> {
    #[derive(Deserialize)]
    struct Raw {
        #[serde(default)]
        manifests: Option<Vec<Descriptor>>,
        #[serde(default)]
        config: Option<Descriptor>,
        #[serde(default)]
        layers: Option<Vec<Descriptor>>,
    }
    #[derive(Deserialize)]
    struct Version {
        #[serde(rename = "schemaVersion")]
        version: u64,
    }
    // First, because a document of version 1 has fields of other shapes.
    let Version { version } = parse("manifest", bytes)?;
    if version != 2 {
        return Err(ManifestError::Schema(version));
    }
    let raw: Raw = parse("manifest", bytes)?;
    match (raw.manifests, raw.config, raw.layers) {
        (Some(manifests), None, None) => Ok(Document::Index(manifests)),
        (None, Some(config), Some(layers)) => {
            if layers.len() > LAYER_LIMIT {
                return Err(ManifestError::Excess(format!("{} layers", layers.len())));
            }
            for layer in &layers {
                check_layer_type(&layer.media_type)?;
            }
            Ok(Document::Image(Manifest { config, layers }))
        }
        (Some(_), ..) => Err(ManifestError::Ambiguous),
        _ => {
            Err(ManifestError::Malformed { what: "manifest", why: "it has neither images nor layers".into() })
        }
    }
}

fn parse<'a, T: Deserialize<'a>>(what: &'static str, bytes: &'a [u8]) -> Result<T, ManifestError> {
    serde_json::from_slice(bytes).map_err(|error| ManifestError::Malformed { what, why: error.to_string() })
}

/// Checks that a layer is a tar archive. Its first bytes tell more reliably how it is compressed.
fn check_layer_type(media_type: &str) -> Result<(), ManifestError> {
    let known = ["application/vnd.oci.image.layer.", "application/vnd.docker.image.rootfs."]
        .iter()
        .any(|prefix| media_type.starts_with(prefix));
    if known && !media_type.ends_with("+encrypted") {
        return Ok(());
    }
    Err(ManifestError::LayerType(media_type.chars().take(100).collect()))
}

/// Returns the entry of an index that runs best on a machine.
pub(crate) fn choose(entries: &[Descriptor], machine: &Platform) -> Result<Descriptor, ManifestError> {
    let ranked = entries.iter().enumerate().filter_map(|(place, entry)| {
        let rank = match &entry.platform {
            Some(platform) => platform.rank(machine)?,
            // An index within an index, or a single image without a platform: its configuration tells.
            None if entry.is_index() || entries.len() == 1 => 1000,
            None => return None,
        };
        Some((rank, place, entry))
    });
    match ranked.min_by_key(|(rank, place, _)| (*rank, *place)) {
        Some((_, _, entry)) => Ok(entry.clone()),
        None => {
            let mut offered: Vec<_> =
                entries.iter().filter_map(|entry| Some(entry.platform.as_ref()?.to_string())).collect();
            // Signatures and the like.
            offered.retain(|platform| platform != "unknown/unknown");
            offered.dedup();
            let offered = if offered.is_empty() { "unnamed platforms".into() } else { offered.join(", ") };
            Err(ManifestError::Platform { wanted: machine.clone(), offered })
        }
    }
}

/// The configuration of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ImageConfig {
    pub(crate) run: RunConfig,
    /// Digests of the uncompressed layers.
    pub(crate) diff_ids: Vec<Digest>,
}

/// The configuration that an image has for its containers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunConfig {
    /// Environment, `NAME=value` each.
    pub env: Vec<String>,
    /// Working directory; may be empty.
    pub working_dir: String,
    /// User by name or number, with a group after a colon; may be empty.
    pub user: String,
    /// Program and arguments that always run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub entrypoint: Vec<String>,
    /// Program and arguments that run by default.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cmd: Vec<String>,
}

impl RunConfig {
    /// Returns the environment as pairs.
    pub fn env_pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.env.iter().filter_map(|pair| pair.split_once('='))
    }
}

/// Parses a configuration; refuses one for another platform.
pub(crate) fn parse_config(bytes: &[u8], machine: &Platform) -> Result<ImageConfig, ManifestError> {
    #[derive(Deserialize)]
    struct Raw {
        #[serde(default)]
        os: String,
        #[serde(default)]
        architecture: String,
        #[serde(default)]
        variant: Option<String>,
        #[serde(default)]
        config: Option<Run>,
        rootfs: RootFs,
    }
    // Docker writes null for what is not set.
    #[derive(Deserialize, Default)]
    #[serde(rename_all = "PascalCase", default)]
    struct Run {
        env: Option<Vec<String>>,
        working_dir: Option<String>,
        user: Option<String>,
        entrypoint: Option<Vec<String>>,
        cmd: Option<Vec<String>>,
    }
    #[derive(Deserialize)]
    struct RootFs {
        #[serde(default)]
        diff_ids: Option<Vec<Digest>>,
    }
    let raw: Raw = parse("configuration", bytes)?;
    let platform = Platform { os: raw.os, architecture: raw.architecture, variant: raw.variant };
    let unnamed = platform.os.is_empty() && platform.architecture.is_empty();
    if !unnamed && platform.rank(machine).is_none() {
        let offered = platform.to_string();
        return Err(ManifestError::Platform { wanted: machine.clone(), offered });
    }
    let run = raw.config.unwrap_or_default();
    let env = run.env.unwrap_or_default();
    let size: usize = env.iter().map(String::len).sum();
    if size > ENV_LIMIT {
        return Err(ManifestError::Excess(format!("{size} bytes of environment")));
    }
    if env.iter().any(|pair| pair.contains('\0')) {
        let why = "a variable contains a zero byte".into();
        return Err(ManifestError::Malformed { what: "configuration", why });
    }
    Ok(ImageConfig {
        run: RunConfig {
            env,
            working_dir: run.working_dir.unwrap_or_default(),
            user: run.user.unwrap_or_default(),
            entrypoint: run.entrypoint.unwrap_or_default(),
            cmd: run.cmd.unwrap_or_default(),
        },
        diff_ids: raw.rootfs.diff_ids.unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    const B: &str = "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

    fn amd64() -> Platform {
        Platform { os: "linux".into(), architecture: "amd64".into(), variant: None }
    }

    #[test]
    fn manifests_of_docker_and_oci_are_read_alike() {
        for (config, layer) in [
            ("application/vnd.oci.image.config.v1+json", "application/vnd.oci.image.layer.v1.tar+zstd"),
            (
                "application/vnd.docker.container.image.v1+json",
                "application/vnd.docker.image.rootfs.diff.tar.gzip",
            ),
        ] {
            let text = format!(
                r#"{{"schemaVersion":2,"config":{{"mediaType":"{config}","digest":"{A}","size":7}},
                    "layers":[{{"mediaType":"{layer}","digest":"{B}","size":9,"urls":["http://x/"]}}]}}"#
            );
            let Document::Image(manifest) = parse_document(text.as_bytes()).unwrap() else {
                panic!("{text}")
            };
            assert_eq!((manifest.config.size, manifest.layers[0].digest.to_string()), (7, B.to_string()));
        }
    }

    #[test]
    fn the_entry_for_this_machine_is_chosen_from_an_index() {
        let text = format!(
            r#"{{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[
                {{"digest":"{A}","size":1,"platform":{{"os":"linux","architecture":"arm64"}}}},
                {{"digest":"{A}","size":2,"platform":{{"os":"unknown","architecture":"unknown"}}}},
                {{"digest":"{B}","size":3,"platform":{{"os":"linux","architecture":"amd64"}}}}]}}"#
        );
        let Document::Index(entries) = parse_document(text.as_bytes()).unwrap() else { panic!("{text}") };
        assert_eq!(choose(&entries, &amd64()).unwrap().size, 3);
        let error = choose(&entries[..2], &amd64()).unwrap_err().to_string();
        assert_eq!(error, "the image is not built for linux/amd64, only for linux/arm64");
    }

    #[test]
    fn documents_that_mean_two_things_or_nothing_are_refused() {
        let descriptor = format!(r#"{{"mediaType":"x","digest":"{A}","size":1}}"#);
        let both = format!(r#"{{"schemaVersion":2,"config":{descriptor},"layers":[],"manifests":[]}}"#);
        assert_eq!(parse_document(both.as_bytes()), Err(ManifestError::Ambiguous));
        let old = br#"{"schemaVersion":1,"name":"x","fsLayers":[{"blobSum":"x"}]}"#;
        assert_eq!(parse_document(old), Err(ManifestError::Schema(1)));
        let chart = format!(r#"{{"schemaVersion":2,"config":{descriptor},"layers":[{descriptor}]}}"#);
        assert_eq!(parse_document(chart.as_bytes()), Err(ManifestError::LayerType("x".into())));
        for text in ["", "{}", "[]", r#"{"schemaVersion":2}"#, "<html>"] {
            assert!(
                matches!(parse_document(text.as_bytes()), Err(ManifestError::Malformed { .. })),
                "{text}"
            );
        }
    }

    #[test]
    fn a_configuration_is_data_and_nulls_are_nothing() {
        let text = format!(
            r#"{{"os":"linux","architecture":"amd64","config":{{"Env":["PATH=/bin","A=b=c","odd"],"Cmd":null,
                "User":"app","WorkingDir":"/app"}},"rootfs":{{"type":"layers","diff_ids":["{A}"]}},"history":[{{}}]}}"#
        );
        let config = parse_config(text.as_bytes(), &amd64()).unwrap();
        assert_eq!(config.diff_ids, [A.parse().unwrap()]);
        assert_eq!(config.run.env_pairs().collect::<Vec<_>>(), [("PATH", "/bin"), ("A", "b=c")]);
        assert_eq!((config.run.user.as_str(), config.run.working_dir.as_str()), ("app", "/app"));
        let bare = parse_config(br#"{"config":null,"rootfs":{"diff_ids":null}}"#, &amd64()).unwrap();
        assert_eq!((bare.run, bare.diff_ids.len()), (RunConfig::default(), 0));
    }

    #[test]
    fn a_configuration_for_another_machine_or_of_another_size_is_refused() {
        let windows = br#"{"os":"windows","architecture":"amd64","rootfs":{"diff_ids":[]}}"#;
        assert!(matches!(parse_config(windows, &amd64()), Err(ManifestError::Platform { .. })));
        let huge = format!(r#"{{"config":{{"Env":["A={}"]}},"rootfs":{{}}}}"#, "x".repeat(70_000));
        assert!(matches!(parse_config(huge.as_bytes(), &amd64()), Err(ManifestError::Excess(_))));
        let zero = br#"{"config":{"Env":["A=\u0000"]},"rootfs":{}}"#;
        assert!(matches!(parse_config(zero, &amd64()), Err(ManifestError::Malformed { .. })));
    }
}
