//! Recipes: `recipe.toml`, and the files beside it that pin versions.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::Deserialize;

use super::{Lock, RecipeError};

/// The built-in recipes: name and files.
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
/// Recipes based on recipes.
const DEPTH_LIMIT: usize = 8;

/// The description of an image.
#[derive(Debug, Clone)]
pub struct Recipe {
    /// Also the name of the image.
    pub name: String,
    /// The recipe below: each recipe is a layer.
    pub base: Option<Box<Recipe>>,
    /// The suite of the distribution.
    pub suite: String,
    /// Packages of the distribution, without their dependencies.
    pub packages: Vec<String>,
    /// Version of CPython, such as `3.14`.
    pub python: String,
    /// Python packages, with their digests.
    pub requirements: Option<String>,
    /// Folders that are left out, except for licences.
    pub leave_out: Vec<String>,
    /// Names of folders that are left out everywhere.
    pub leave_out_everywhere: Vec<String>,
    /// Symbolic links and their targets.
    pub links: BTreeMap<String, String>,
    /// Copies, and the files of the image that they are copies of.
    pub copies: BTreeMap<String, String>,
    /// Small files and their content.
    pub files: BTreeMap<String, String>,
    /// Environment, including that of the base.
    pub env: BTreeMap<String, String>,
    /// The time of all files, in seconds since 1970.
    pub created: u64,
    source: Files,
}

/// A Python package of a recipe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    /// `name==version`
    pub name: String,
    /// The size of its file, or 0 if it is unknown.
    pub bytes: u64,
}

#[derive(Debug, Clone)]
enum Files {
    BuiltIn(&'static [(&'static str, &'static str)]),
    Folder(PathBuf),
    /// Packages that were named on the command line.
    Names,
}

impl Files {
    fn read(&self, name: &str) -> Result<Option<String>, RecipeError> {
        match self {
            Self::BuiltIn(files) => {
                let found = files.iter().find(|(known, _)| *known == name);
                Ok(found.map(|(_, text)| (*text).to_string()))
            }
            Self::Names => Ok(None),
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

impl Raw {
    /// Checks that its parts fit together, and its words and paths. An error is the reason.
    fn check(&self) -> Result<(), String> {
        if self.base.is_some() && (self.suite.is_some() || !self.packages.is_empty()) {
            return Err("`suite` and `packages` belong to its `base`".into());
        }
        if self.base.is_none() && (self.packages.is_empty() || self.suite.is_none()) {
            return Err("it needs `suite` and `packages`, or a `base`".into());
        }
        let made = self.links.keys().chain(self.copies.keys()).chain(self.files.keys());
        for path in made.chain(self.copies.values()).chain(&self.leave_out) {
            if path.split('/').any(|part| matches!(part, "" | "." | "..")) {
                return Err(format!("'{path}' is not a path in an image"));
            }
        }
        for word in self.packages.iter().chain(&self.suite) {
            // They become arguments and configuration of apt.
            let plain =
                |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"+-.".contains(&byte);
            if !word.bytes().all(plain) || !word.starts_with(|first: char| first.is_ascii_alphanumeric()) {
                return Err(format!("'{word}' is not the name of a package or suite"));
            }
        }
        Ok(())
    }
}

impl Recipe {
    /// Reads the built-in recipe of this name, or the one in this folder if it has a slash or is a dot.
    ///
    /// # Errors
    /// There is no such recipe, or it is invalid.
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
            Files::Names => name.clone(),
        };
        let malformed = |why: String| RecipeError::Malformed { file: file.clone(), why };
        let text = files.read("recipe.toml")?.ok_or_else(|| malformed("no such file".into()))?;
        let raw: Raw =
            toml::from_str(&text).map_err(|error| malformed(error.to_string().trim_end().into()))?;
        if raw.base.is_some() && depth > DEPTH_LIMIT {
            return Err(malformed("too many recipes are based on each other".into()));
        }
        let base = raw.base.as_deref().map(|base| Self::read_base(base, &files, depth + 1)).transpose()?;
        raw.check().map_err(malformed)?;
        let (suite, python, created) = match &base {
            Some(base) => (base.suite.clone(), base.python.clone(), base.created),
            None => (raw.suite.clone().unwrap_or_default(), String::new(), 0),
        };
        let python = raw.python.unwrap_or(python);
        let version: Vec<_> = python.split('.').collect();
        if version.len() != 2 || version.iter().any(|part| part.parse::<u8>().is_err()) {
            return Err(malformed("`python` has to be a version such as \"3.14\"".into()));
        }
        let created = raw.created.unwrap_or(created);
        if i64::try_from(created).ok().and_then(|seconds| Timestamp::from_second(seconds).ok()).is_none() {
            return Err(malformed("`created` is not a time in seconds since 1970".into()));
        }
        let mut env = base.as_ref().map(|base| base.env.clone()).unwrap_or_default();
        env.extend(raw.env);
        let requirements = match raw.requirements {
            Some(name) => {
                let text = files.read(&name)?;
                Some(text.ok_or_else(|| malformed(format!("no file '{name}' beside it")))?)
            }
            None => None,
        };
        Ok(Self {
            name,
            base: base.map(Box::new),
            suite,
            packages: raw.packages,
            python,
            requirements,
            leave_out: raw.leave_out,
            leave_out_everywhere: raw.leave_out_everywhere,
            links: raw.links,
            copies: raw.copies,
            env,
            created,
            files: raw.files,
            source: files,
        })
    }

    /// Reads the recipe below; a path starts at the folder of the recipe above.
    fn read_base(name: &str, above: &Files, depth: usize) -> Result<Self, RecipeError> {
        match above {
            Files::Folder(folder) if name.contains('/') || name.starts_with('.') => {
                Self::find_below(&folder.join(name).to_string_lossy(), depth)
            }
            _ => Self::find_below(name, depth),
        }
    }

    /// Returns the time of all files.
    pub(super) fn time(&self) -> Timestamp {
        Timestamp::from_second(self.created.cast_signed()).unwrap_or_default()
    }

    /// Returns the recipe and those below it, the lowest first: each is a layer.
    pub fn layers(&self) -> Vec<&Self> {
        let mut layers = self.base.as_ref().map(|base| base.layers()).unwrap_or_default();
        layers.push(self);
        layers
    }

    /// Returns the packages that this recipe is pinned to for an architecture by its name in Debian.
    ///
    /// # Errors
    /// The file cannot be read or is invalid.
    pub fn lock(&self, architecture: &str) -> Result<Option<Lock>, RecipeError> {
        let name = lock_name(architecture);
        self.source.read(&name)?.map(|text| Lock::parse(&format!("{}/{name}", self.name), &text)).transpose()
    }

    /// Pins this recipe to packages; returns false for a built-in recipe, which cannot be changed.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write_lock(&self, architecture: &str, lock: &Lock) -> Result<bool, RecipeError> {
        let Files::Folder(folder) = &self.source else { return Ok(false) };
        let path = folder.join(lock_name(architecture));
        std::fs::write(&path, lock.to_string()).map_err(RecipeError::io("write", &path))?;
        Ok(true)
    }

    /// Returns a recipe for this one and a layer of Python packages, each by its name or as `name==version`.
    ///
    /// # Errors
    /// A name is none.
    pub fn with_packages(self, names: &[String]) -> Result<Self, RecipeError> {
        let is_name = |name: &String| {
            name.starts_with(|first: char| first.is_ascii_alphanumeric())
                && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.[]=<>!~".contains(c))
        };
        if let Some(name) = names.iter().find(|name| !is_name(name)) {
            return Err(RecipeError::PackageName(name.clone()));
        }
        let none = BTreeMap::new;
        Ok(Self {
            name: "custom".into(),
            suite: self.suite.clone(),
            packages: Vec::new(),
            python: self.python.clone(),
            requirements: Some(names.join("\n")),
            leave_out: Vec::new(),
            leave_out_everywhere: Vec::new(),
            links: none(),
            copies: none(),
            files: none(),
            env: self.env.clone(),
            created: self.created,
            source: Files::Names,
            base: Some(Box::new(self)),
        })
    }

    /// Returns whether the Python packages are names that pip has to resolve at each build.
    pub fn is_of_names(&self) -> bool {
        matches!(self.source, Files::Names)
    }

    /// Returns the Python packages with their versions and digests: those of the recipe itself, or those that an update pinned
    /// them to. None when a package is pinned by neither, or the recipe now wants another version of it.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn pinned_requirements(&self, architecture: &str) -> Result<Option<String>, RecipeError> {
        let Some(wanted) = &self.requirements else { return Ok(None) };
        if package_lines(wanted).all(|line| line.contains(" --hash=")) {
            return Ok(Some(wanted.clone()));
        }
        let lock = self.source.read(&python_lock_name(architecture))?;
        let holds = |lock: &String| {
            let held: Vec<_> =
                package_lines(lock).map(|line| (package_name(line), exact_version(line))).collect();
            package_lines(wanted).all(|line| {
                let (name, version) = (package_name(line), exact_version(line));
                held.iter().any(|held| held.0 == name && (version.is_none() || held.1 == version))
            })
        };
        Ok(lock.filter(holds))
    }

    /// Pins the Python packages of a recipe in a folder.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write_python_lock(&self, architecture: &str, lock: &str) -> Result<(), RecipeError> {
        let Files::Folder(folder) = &self.source else { return Ok(()) };
        let path = folder.join(python_lock_name(architecture));
        std::fs::write(&path, lock).map_err(RecipeError::io("write", &path))
    }

    /// Returns the Python packages, for display: pip reads the text itself.
    pub fn requirements(&self) -> Vec<Requirement> {
        self.requirements.as_deref().map(parse_requirements).unwrap_or_default()
    }
}

fn python_lock_name(architecture: &str) -> String {
    format!("python-{architecture}.lock")
}

fn package_lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with(['#', '-']))
}

/// Returns the normalized name of a package
/// (<https://packaging.python.org/en/latest/specifications/name-normalization/>) at the start of a requirement.
pub fn package_name(requirement: &str) -> String {
    let end = requirement.find(|c: char| !c.is_ascii_alphanumeric() && !"-_.".contains(c));
    let name = requirement[..end.unwrap_or(requirement.len())].to_ascii_lowercase();
    name.split(['-', '_', '.']).filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
}

/// Returns the version of a requirement such as `numpy==2.0`; None if it allows several.
fn exact_version(requirement: &str) -> Option<&str> {
    // What follows is a condition, an option or a comment.
    let end = requirement.find([';', '#']).unwrap_or(requirement.len());
    let (_, rest) = requirement[..end].split_once("==")?;
    let version = rest.trim_start_matches('=').split_whitespace().next()?;
    (!version.contains(['*', ','])).then_some(version)
}

fn lock_name(architecture: &str) -> String {
    format!("debian-{architecture}.lock")
}

/// Parses lines of one package, with the size of its file in a comment at the end.
pub fn parse_requirements(text: &str) -> Vec<Requirement> {
    let lines = package_lines(text);
    let parse = |line: &str| Requirement {
        name: line.split_whitespace().next().unwrap_or_default().to_string(),
        bytes: line.rsplit_once('#').and_then(|(_, bytes)| bytes.trim().parse().ok()).unwrap_or(0),
    };
    lines.map(parse).collect()
}
