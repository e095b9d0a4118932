//! Names of images, in the syntax of containers-transports(5).

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use oci_client::{ParseError, Reference};

use crate::digest::Digest;

/// The name of an image.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ImageName {
    /// In a registry: `python:3.14-slim`, `quay.io/org/image@sha256:…`, `docker://…`.
    Registry(RegistryName),
    /// `oci:DIR[:TAG]`: a folder in the OCI image layout.
    OciFolder {
        path: PathBuf,
        /// The image, if there are several.
        tag: Option<String>,
    },
    /// `oci-archive:FILE[:TAG]`: the same in a tar file.
    OciArchive {
        path: PathBuf,
        /// The image, if there are several.
        tag: Option<String>,
    },
    /// `docker-archive:FILE[:REFERENCE]`: what `docker save` and `podman save` write.
    DockerArchive {
        path: PathBuf,
        /// The image, if there are several.
        reference: Option<String>,
    },
    /// `containers-storage:REF` or `docker-daemon:REF`: in the store of an engine on this machine.
    Engine(EngineKind, String),
    /// `dir:DIR`: a folder with a root filesystem.
    Folder(PathBuf),
    /// `host:`: this machine's own `/usr`.
    Host,
}

/// An engine with a store of images on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EngineKind {
    /// `containers-storage:`
    Podman,
    /// `docker-daemon:`
    Docker,
}

impl EngineKind {
    /// Returns the name of its program.
    pub fn program(self) -> &'static str {
        match self {
            Self::Podman => "podman",
            Self::Docker => "docker",
        }
    }

    fn transport(self) -> &'static str {
        match self {
            Self::Podman => "containers-storage",
            Self::Docker => "docker-daemon",
        }
    }
}

/// The reason why a text is not the name of an image.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("images of the form `{0}:` cannot be used")]
    Transport(String),
    #[error("`{transport}:` needs {needs} after it")]
    Missing { transport: &'static str, needs: &'static str },
    #[error("'{text}' is not an image reference: {why}")]
    Reference { text: String, why: String },
    #[error("'{0}' is not an image reference: the form `{0}:` ends with a colon")]
    NoColon(String),
    #[error("'{0}' is a path, and the form of the image is missing")]
    Path(String),
}

impl NameError {
    /// Returns what to type instead.
    pub fn hint(&self) -> String {
        match self {
            Self::NoColon(word) if word == "host" => "use --image host:".into(),
            Self::NoColon(word) => {
                format!("use {word}:PATH, or docker.io/library/{word} for an image of that name")
            }
            Self::Path(path) if path.ends_with(".tar") => {
                format!("use oci-archive:{path} or docker-archive:{path}")
            }
            Self::Path(path) => {
                format!("use dir:{path} for a root filesystem, or oci:{path} for an OCI layout")
            }
            _ => FORMS.into(),
        }
    }
}

const FORMS: &str = "use a reference (python:3.14-slim, quay.io/org/image:tag, name@sha256:DIGEST), \
                     oci:DIR[:TAG], oci-archive:FILE[:TAG], docker-archive:FILE[:REFERENCE], dir:DIR, \
                     containers-storage:REF, docker-daemon:REF or host:";

/// Transports of containers-transports(5) and of skopeo that are not supported here.
const FOREIGN: &[&str] = &["atomic", "ostree", "sif", "tarball", "docker-tar", "containers", "http", "https"];

/// Forms with a path behind a colon.
const FORMS_OF_FILES: [&str; 4] = ["oci", "oci-archive", "docker-archive", "dir"];

impl FromStr for ImageName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let text = text.trim();
        if text.starts_with(['/', '.', '~']) {
            return Err(NameError::Path(text.chars().take(300).collect()));
        }
        let Some((transport, rest)) = text.split_once(':') else {
            if FORMS_OF_FILES.contains(&text) || text == "host" {
                return Err(NameError::NoColon(text.into()));
            }
            return text.parse().map(Self::Registry);
        };
        let split = |transport, rest: &str| match split_path(rest) {
            (path, _) if path.as_os_str().is_empty() => {
                Err(NameError::Missing { transport, needs: "a path" })
            }
            parts => Ok(parts),
        };
        Ok(match transport {
            "oci" => {
                let (path, tag) = split("oci", rest)?;
                Self::OciFolder { path, tag }
            }
            "oci-archive" => {
                let (path, tag) = split("oci-archive", rest)?;
                Self::OciArchive { path, tag }
            }
            "docker-archive" => {
                let (path, reference) = split("docker-archive", rest)?;
                Self::DockerArchive { path, reference }
            }
            "dir" if rest.is_empty() => return Err(NameError::Missing { transport: "dir", needs: "a path" }),
            "dir" => Self::Folder(rest.into()),
            "host" if rest.is_empty() => Self::Host,
            "containers-storage" => Self::engine(EngineKind::Podman, rest)?,
            "docker-daemon" => Self::engine(EngineKind::Docker, rest)?,
            "docker" if rest.starts_with("//") => Self::Registry(rest[2..].parse()?),
            _ if FOREIGN.contains(&transport) || rest.starts_with("//") => {
                return Err(NameError::Transport(transport.to_string()));
            }
            _ => Self::Registry(text.parse()?),
        })
    }
}

impl ImageName {
    fn engine(kind: EngineKind, rest: &str) -> Result<Self, NameError> {
        // It becomes an argument: flags start with a dash, podman's store specifiers with a bracket.
        if rest.is_empty() || rest.starts_with(['-', '[']) || !rest.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(NameError::Missing { transport: kind.transport(), needs: "an image's name or id" });
        }
        Ok(Self::Engine(kind, rest.to_string()))
    }

    /// Returns the same name with its path, if it has one, changed.
    #[must_use]
    pub fn map_path(self, change: impl FnOnce(PathBuf) -> PathBuf) -> Self {
        match self {
            Self::OciFolder { path, tag } => Self::OciFolder { path: change(path), tag },
            Self::OciArchive { path, tag } => Self::OciArchive { path: change(path), tag },
            Self::DockerArchive { path, reference } => Self::DockerArchive { path: change(path), reference },
            Self::Folder(path) => Self::Folder(change(path)),
            other => other,
        }
    }

    /// Returns the path of a file or folder.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::OciFolder { path, .. }
            | Self::OciArchive { path, .. }
            | Self::DockerArchive { path, .. }
            | Self::Folder(path) => Some(path),
            Self::Registry(_) | Self::Engine(..) | Self::Host => None,
        }
    }
}

impl fmt::Display for ImageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut tagged = |transport: &str, path: &Path, tag: &Option<String>| {
            write!(f, "{transport}:{}", path.display())?;
            tag.as_ref().map_or(Ok(()), |tag| write!(f, ":{tag}"))
        };
        match self {
            Self::OciFolder { path, tag } => tagged("oci", path, tag),
            Self::OciArchive { path, tag } => tagged("oci-archive", path, tag),
            Self::DockerArchive { path, reference } => tagged("docker-archive", path, reference),
            Self::Registry(name) => name.fmt(f),
            Self::Engine(kind, reference) => write!(f, "{}:{reference}", kind.transport()),
            Self::Folder(path) => write!(f, "dir:{}", path.display()),
            Self::Host => f.write_str("host:"),
        }
    }
}

/// A path ends at the first colon, as containers-transports(5) has it.
fn split_path(rest: &str) -> (PathBuf, Option<String>) {
    match rest.split_once(':') {
        Some((path, tag)) => (path.into(), Some(tag.to_string()).filter(|tag| !tag.is_empty())),
        None => (rest.into(), None),
    }
}

/// An image in a registry, in full: `docker.io/library/python:3.14-slim`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RegistryName {
    /// The host of the registry, with its port if it has one: `docker.io`.
    pub(crate) registry: String,
    /// `library/python`
    pub(crate) repository: String,
    /// `latest` by default.
    pub(crate) tag: Option<String>,
    /// The digest that the manifest must have.
    pub(crate) digest: Option<Digest>,
    typed: String,
}

impl RegistryName {
    /// Returns the reference as the user typed it: engines resolve short names by rules of their own.
    pub fn as_typed(&self) -> &str {
        &self.typed
    }

    /// Returns registry and repository: `docker.io/library/python`.
    pub fn full_repository(&self) -> String {
        format!("{}/{}", self.registry, self.repository)
    }
}

impl FromStr for RegistryName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        if let Some((name, tag)) = split_plain_name(text) {
            return Ok(Self {
                registry: "docker.io".into(),
                repository: format!("library/{name}"),
                tag: Some(tag.into()),
                digest: None,
                typed: text.into(),
            });
        }
        let error = |why: String| NameError::Reference { text: text.chars().take(300).collect(), why };
        // The library takes letters of any script in a tag; registries do not.
        if let Some(odd) = text.chars().find(|c| !c.is_ascii()) {
            return Err(error(format!("it contains '{}'", odd.escape_debug())));
        }
        let reference = Reference::try_from(text).map_err(|parse| error(explain(text, &parse)))?;
        // The library takes capitals in a first part that looks like a host, and then makes it a part of the repository.
        if reference.repository().contains(|c: char| c.is_ascii_uppercase()) {
            return Err(error(lower_case(&text.to_ascii_lowercase())));
        }
        let digest = match reference.digest() {
            Some(digest) => {
                Some(digest.parse().map_err(|parse: crate::DigestError| error(parse.to_string()))?)
            }
            None => None,
        };
        Ok(Self {
            registry: reference.registry().to_string(),
            repository: reference.repository().to_string(),
            tag: reference.tag().map(String::from),
            digest,
            typed: text.to_string(),
        })
    }
}

/// Splits a name such as `python:3.14-slim`, which is read at every start: to compile the library's regular expression
/// for it would more than double the memory of an idle bridge. Every other name is left to the library.
fn split_plain_name(text: &str) -> Option<(&str, &str)> {
    let (name, tag) = text.split_once(':').unwrap_or((text, "latest"));
    let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_tag = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let fits = (1..64).contains(&name.len()) && (1..=128).contains(&tag.len());
    let begins = tag.starts_with(|first: char| first.is_ascii_alphanumeric());
    (fits && begins && name.bytes().all(is_name) && tag.bytes().all(is_tag)).then_some((name, tag))
}

fn lower_case(lower: &str) -> String {
    format!("repositories are lower case (did you mean '{lower}'?)")
}

/// Explains common mistakes better than the parser does.
fn explain(text: &str, error: &ParseError) -> String {
    if text.is_empty() {
        return "it is empty".into();
    }
    if text.starts_with('-') {
        return "it starts with a dash".into();
    }
    let lower = text.to_ascii_lowercase();
    if lower != text && Reference::try_from(lower.as_str()).is_ok() {
        return lower_case(&lower);
    }
    match text.strip_suffix(':').or_else(|| text.strip_suffix('@')) {
        Some(_) => "a tag or digest is missing at its end".into(),
        None => error.to_string(),
    }
}

impl fmt::Display for RegistryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        self.digest.as_ref().map_or(Ok(()), |digest| write!(f, "@{digest}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full(text: &str) -> String {
        text.parse::<ImageName>().unwrap().to_string()
    }

    #[test]
    fn a_plain_name_means_the_same_to_the_library() {
        for text in ["python", "python:3.14-slim", "a", "0", "python:3_x.Y-z", "localhost", "localhost:5000"]
        {
            let (name, tag) = split_plain_name(text).unwrap();
            let reference = Reference::try_from(text).unwrap();
            let expected = (reference.registry(), reference.repository(), reference.tag());
            assert_eq!(("docker.io", format!("library/{name}").as_str(), Some(tag)), expected, "{text}");
        }
        for text in ["", ":3", "python:", "Python", "a/b", "a@sha256:1", "a:b:c", "a:-b", "a.b", "a b"] {
            assert_eq!(split_plain_name(text), None, "{text}");
        }
        assert_eq!(split_plain_name(&"a".repeat(64)), None);
    }

    #[test]
    fn short_names_expand_as_in_docker() {
        let digest = format!("sha256:{}", "0a".repeat(32));
        assert_eq!(full("python"), "docker.io/library/python:latest");
        assert_eq!(full(" python:3.14-slim "), "docker.io/library/python:3.14-slim");
        assert_eq!(full("ann/tools"), "docker.io/ann/tools:latest");
        assert_eq!(full("docker://index.docker.io/python"), "docker.io/library/python:latest");
        assert_eq!(full(&format!("python@{digest}")), format!("docker.io/library/python@{digest}"));
        assert_eq!(full(&format!("python:3@{digest}")), format!("docker.io/library/python:3@{digest}"));
        for same in ["localhost/x:1", "localhost:5000/x:1", "127.0.0.1:5000/a/b:1", "quay.example/x/y:z"] {
            assert_eq!(full(same), same);
        }
        let ImageName::Registry(name) = "docker://python:3".parse().unwrap() else {
            panic!("not in a registry")
        };
        assert_eq!(name.as_typed(), "python:3", "an engine may know it by another full name");
    }

    #[test]
    fn transports_name_files_folders_and_engines() {
        for same in [
            "oci:/srv/image",
            "oci:/srv/image:v1",
            "oci-archive:image.tar",
            "oci-archive:/a/image.tar:v1",
            "docker-archive:/a/i.tar",
            "docker-archive:/a/i.tar:docker.io/library/python:3",
            "dir:/srv/root",
            "dir:/srv/a:b",
            "containers-storage:localhost/x:1",
            "docker-daemon:python:3",
            "host:",
        ] {
            assert_eq!(full(same), same);
        }
        let name: ImageName = "oci:here:v1".parse().unwrap();
        assert_eq!(name.map_path(|path| Path::new("/there").join(path)).to_string(), "oci:/there/here:v1");
    }

    #[test]
    fn an_invalid_name_is_refused_with_the_valid_forms() {
        for (text, expected) in [
            ("", "it is empty"),
            ("Python:3", "did you mean 'python:3'"),
            ("python:", "a tag or digest is missing"),
            ("--privileged", "starts with a dash"),
            ("python@sha256:12", "is not an image reference"),
            ("a b", "is not an image reference"),
            ("oci:", "`oci:` needs a path"),
            ("dir:", "`dir:` needs a path"),
            ("docker-archive::x", "needs a path"),
            ("docker-daemon:--all", "needs an image's name or id"),
            ("https://quay.io/x", "images of the form `https:`"),
            ("sif:/x.sif", "images of the form `sif:`"),
            ("host:x/../y", "is not an image reference"),
        ] {
            let error = text.parse::<ImageName>().unwrap_err();
            assert!(error.to_string().contains(expected), "{text}: {error}");
            assert!(error.hint().contains("oci-archive:FILE"), "{text}");
        }
        for (text, hint) in [
            ("host", "use --image host:"),
            ("oci-archive", "use oci-archive:PATH, "),
            ("/tmp/data.tar", "use oci-archive:/tmp/data.tar or "),
            ("./rootfs", "use dir:./rootfs "),
        ] {
            let error = text.parse::<ImageName>().unwrap_err();
            assert!(error.hint().starts_with(hint), "{text}: {}", error.hint());
        }
    }
}
