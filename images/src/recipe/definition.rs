//! What a recipe says: `recipe.toml`, and the files that pin versions beside it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{Lock, RecipeError};

/// The recipes that come with the program: a name and its files.
const BUILT_IN: &[(&str, &[(&str, &str)])] = &[
    (
        "slim",
        &[
            ("recipe.toml", include_str!("../../recipes/slim/recipe.toml")),
            ("debian-amd64.lock", include_str!("../../recipes/slim/debian-amd64.lock")),
            ("debian-arm64.lock", include_str!("../../recipes/slim/debian-arm64.lock")),
        ],
    ),
    (
        "data",
        &[
            ("recipe.toml", include_str!("../../recipes/data/recipe.toml")),
            ("requirements.txt", include_str!("../../recipes/data/requirements.txt")),
        ],
    ),
];
/// Recipes over recipes.
const DEPTH_LIMIT: usize = 8;

/// What an image is made of.
#[derive(Debug, Clone)]
pub struct Recipe {
    /// Its name, which is that of the image.
    pub name: String,
    /// The recipe whose image it is a layer over.
    pub base: Option<Box<Recipe>>,
    /// The suite of the distribution that packages come from.
    pub suite: String,
    /// Packages of the distribution; those that they need come by themselves.
    pub packages: Vec<String>,
    /// Version of CPython, such as `3.14`.
    pub python: String,
    /// Python packages, with their digests.
    pub requirements: Option<String>,
    /// Folders that are left out, but for notices of copyright.
    pub leave_out: Vec<String>,
    /// Names of folders that are left out wherever they are.
    pub leave_out_everywhere: Vec<String>,
    /// Symbolic links, and where they lead.
    pub links: BTreeMap<String, String>,
    /// Files, and those of the image that they are copies of.
    pub copies: BTreeMap<String, String>,
    /// Small files, and what they say.
    pub files: BTreeMap<String, String>,
    /// Environment, that of the base included.
    pub env: BTreeMap<String, String>,
    /// The time of everything, in seconds since 1970.
    pub created: u64,
    source: Files,
}

/// A Python package of a recipe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    /// `name==version`
    pub name: String,
    /// Bytes of its file, where it is known.
    pub bytes: u64,
}

#[derive(Debug, Clone)]
enum Files {
    BuiltIn(&'static [(&'static str, &'static str)]),
    Folder(PathBuf),
}

impl Files {
    fn read(&self, name: &str) -> Result<Option<String>, RecipeError> {
        match self {
            Self::BuiltIn(files) => {
                let found = files.iter().find(|(known, _)| *known == name);
                Ok(found.map(|(_, text)| (*text).to_string()))
            }
            Self::Folder(folder) => {
                let path = folder.join(name);
                match std::fs::read_to_string(&path) {
                    Ok(text) => Ok(Some(text)),
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
                    Err(error) => Err(RecipeError::io("read", &path)(error)),
                }
            }
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    base: Option<String>,
    suite: Option<String>,
    created: Option<u64>,
    python: Option<String>,
    #[serde(default)]
    packages: Vec<String>,
    requirements: Option<String>,
    #[serde(default)]
    leave_out: Vec<String>,
    #[serde(default)]
    leave_out_everywhere: Vec<String>,
    #[serde(default)]
    links: BTreeMap<String, String>,
    #[serde(default)]
    copies: BTreeMap<String, String>,
    #[serde(default)]
    files: BTreeMap<String, String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
}

impl Recipe {
    /// The recipe of this name, or in this folder: one has a slash in it, or is a dot.
    ///
    /// # Errors
    /// There is none, or it makes no sense.
    pub fn find(name: &str) -> Result<Self, RecipeError> {
        Self::find_below(name, 0)
    }

    fn find_below(name: &str, depth: usize) -> Result<Self, RecipeError> {
        if name.contains('/') || matches!(name, "." | "..") {
            let path = Path::new(name);
            let path = std::path::absolute(path).map_err(RecipeError::io("find", path))?;
            let own =
                path.file_name().map_or_else(|| "image".into(), |own| own.to_string_lossy().into_owned());
            return Self::read(own, Files::Folder(path), depth);
        }
        match BUILT_IN.iter().find(|(known, _)| *known == name) {
            Some((_, files)) => Self::read(name.into(), Files::BuiltIn(files), depth),
            None => {
                let known: Vec<_> = BUILT_IN.iter().map(|(name, _)| *name).collect();
                Err(RecipeError::Unknown { name: name.into(), known: known.join(", ") })
            }
        }
    }

    fn read(name: String, files: Files, depth: usize) -> Result<Self, RecipeError> {
        let file = match &files {
            Files::BuiltIn(_) => format!("{name}/recipe.toml"),
            Files::Folder(folder) => folder.join("recipe.toml").display().to_string(),
        };
        let malformed = |why: String| RecipeError::Malformed { file: file.clone(), why };
        let text = files.read("recipe.toml")?.ok_or_else(|| malformed("there is no such file".into()))?;
        let raw: Raw =
            toml::from_str(&text).map_err(|error| malformed(error.to_string().trim_end().into()))?;
        let base = match &raw.base {
            Some(_) if depth > DEPTH_LIMIT => {
                return Err(malformed("it is based on too many others".into()));
            }
            // Beside the recipe's folder, not the one we happen to be in.
            Some(base) => match &files {
                Files::Folder(folder) if base.contains('/') || base.starts_with('.') => {
                    let path = folder.join(base);
                    Some(Box::new(Self::find_below(&path.to_string_lossy(), depth + 1)?))
                }
                _ => Some(Box::new(Self::find_below(base, depth + 1)?)),
            },
            None => None,
        };
        if base.is_some() && (raw.suite.is_some() || !raw.packages.is_empty()) {
            return Err(malformed("`suite` and `packages` are those of its `base`".into()));
        }
        if base.is_none() && (raw.packages.is_empty() || raw.suite.is_none()) {
            return Err(malformed("it needs `suite` and `packages`, or a `base`".into()));
        }
        let made = raw.links.keys().chain(raw.copies.keys()).chain(raw.files.keys());
        for path in made.chain(raw.copies.values()).chain(&raw.leave_out) {
            if path.split('/').any(|part| matches!(part, "" | "." | "..")) {
                return Err(malformed(format!("'{path}' is no place in an image")));
            }
        }
        for word in raw.packages.iter().chain(raw.suite.iter()) {
            // They become arguments and lines of apt.
            let plain =
                |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"+-.".contains(&byte);
            if !word.bytes().all(plain) || !word.starts_with(|first: char| first.is_ascii_alphanumeric()) {
                return Err(malformed(format!("'{word}' is no name of a package or suite")));
            }
        }
        let (suite, python, created) = match &base {
            Some(base) => (base.suite.clone(), base.python.clone(), base.created),
            None => (raw.suite.clone().unwrap_or_default(), String::new(), 0),
        };
        let python = raw.python.unwrap_or(python);
        let version: Vec<_> = python.split('.').collect();
        if version.len() != 2 || version.iter().any(|part| part.parse::<u8>().is_err()) {
            return Err(malformed("`python` has to be a version such as \"3.14\"".into()));
        }
        let mut env = base.as_ref().map(|base| base.env.clone()).unwrap_or_default();
        env.extend(raw.env);
        let requirements = match raw.requirements {
            Some(name) => {
                let text = files.read(&name)?;
                Some(text.ok_or_else(|| malformed(format!("there is no '{name}' beside it")))?)
            }
            None => None,
        };
        Ok(Self {
            name,
            base,
            suite,
            packages: raw.packages,
            python,
            requirements,
            leave_out: raw.leave_out,
            leave_out_everywhere: raw.leave_out_everywhere,
            links: raw.links,
            copies: raw.copies,
            env,
            created: raw.created.unwrap_or(created),
            files: raw.files,
            source: files,
        })
    }

    /// The recipe and those below it, the lowest first: each is a layer.
    pub fn layers(&self) -> Vec<&Self> {
        let mut layers = self.base.as_ref().map(|base| base.layers()).unwrap_or_default();
        layers.push(self);
        layers
    }

    /// The packages of the distribution that this recipe is pinned to, for an architecture in Debian's words.
    ///
    /// # Errors
    /// The file cannot be read, or makes no sense.
    pub fn lock(&self, architecture: &str) -> Result<Option<Lock>, RecipeError> {
        let name = lock_name(architecture);
        self.source.read(&name)?.map(|text| Lock::parse(&format!("{}/{name}", self.name), &text)).transpose()
    }

    /// Pins this recipe to packages. False for a recipe that comes with the program.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write_lock(&self, architecture: &str, lock: &Lock) -> Result<bool, RecipeError> {
        let Files::Folder(folder) = &self.source else { return Ok(false) };
        let path = folder.join(lock_name(architecture));
        std::fs::write(&path, lock.to_string()).map_err(RecipeError::io("write", &path))?;
        Ok(true)
    }

    /// The Python packages, for people: what is downloaded is for pip to read.
    pub fn requirements(&self) -> Vec<Requirement> {
        self.requirements.as_deref().map(parse_requirements).unwrap_or_default()
    }
}

fn lock_name(architecture: &str) -> String {
    format!("debian-{architecture}.lock")
}

/// One package a line, with the bytes of its file in a comment at the end.
fn parse_requirements(text: &str) -> Vec<Requirement> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with(['#', '-']));
    let parse = |line: &str| Requirement {
        name: line.split_whitespace().next().unwrap_or_default().to_string(),
        bytes: line.rsplit_once('#').and_then(|(_, bytes)| bytes.trim().parse().ok()).unwrap_or(0),
    };
    lines.map(parse).collect()
}
