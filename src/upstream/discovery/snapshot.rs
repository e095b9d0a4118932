//! All definitions at one moment, and the cache of the files that they are from.

use std::collections::{HashMap, HashSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::definition::{Definition, Launch, Proposal, Server, Skip, Source};
use super::document::{parse_json, parse_toml};
use super::files::{LARGEST_OF_PROJECT, LARGEST_OF_USER, read};
use super::forms::{self, Entry, Found};
use super::itself::{ProgramLookup, is_itself};
use super::profiles::{self, Chosen, FOR_NOW, Profile, UnknownProfile};
use super::sources::{Form, MOST_FILES, Place, files_of, places, projects};
use super::surroundings::Surroundings;
use super::trust::{Trust, TrustError, misleading, with_use};
use super::warning::{Warning, WarningKind};
use crate::file_stamp::FileStamp;
use crate::upstream::alias::{alias, aliases};

/// Servers of a file in the working directory: more were not written by a person.
const MOST_SERVERS: usize = 100;

/// All definitions at one moment.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// Usable servers in order of precedence.
    pub servers: Vec<Arc<Server>>,
    /// Definitions that are not used, each with the reason.
    pub skipped: Vec<Arc<Server>>,
    pub warnings: Vec<Warning>,
    /// Why no server can be used: the profile that was chosen does not exist.
    pub unknown_profile: Option<UnknownProfile>,
    by_name: HashMap<Arc<str>, usize>,
}

impl Snapshot {
    /// Returns the server of a name, or of an alias if no server has the name.
    pub fn get(&self, name: &str) -> Option<&Arc<Server>> {
        self.by_name.get(name).map(|at| &self.servers[*at])
    }

    /// Returns the warnings that a list of all definitions does not have.
    pub fn warnings_of_files(&self) -> impl Iterator<Item = &Warning> {
        let is_listed = |warning: &Warning| {
            let sources = self.skipped.iter().map(|server| &server.source);
            sources.into_iter().any(|source| source.path == warning.path && Some(source.line) == warning.line)
        };
        self.warnings.iter().filter(move |warning| !is_listed(warning))
    }

    /// Returns an unused definition of a name or an alias: the first one of the user, else the first that is not trusted.
    pub fn skipped(&self, name: &str) -> Option<&Arc<Server>> {
        let is_untrusted = |server: &Server| matches!(server.definition, Err(Skip::Untrusted(_)));
        let find = |untrusted: bool, by: fn(&Server, &str) -> bool| {
            self.skipped.iter().find(|server| is_untrusted(server) == untrusted && by(server, name))
        };
        let by_name = |server: &Server, name: &str| *server.name == *name;
        let by_alias = |server: &Server, name: &str| alias(&server.name) == name;
        find(false, by_name)
            .or_else(|| find(true, by_name))
            .or_else(|| find(false, by_alias))
            .or_else(|| find(true, by_alias))
    }
}

/// A definition of a file.
#[derive(Debug, Clone, PartialEq)]
struct Claim {
    server: Server,
    /// Whether it keeps its name from later definitions. One that is disabled or lacks a variable does: the user did not mean the
    /// next one. One that the user has not approved does not, whatever it says.
    keeps_name: bool,
}

/// The definitions of one file.
#[derive(Debug, Clone, Default, PartialEq)]
struct FileContent {
    entries: Vec<Claim>,
    profiles: Vec<Profile>,
    warnings: Vec<Warning>,
}

/// Of a file and, in the working directory, of the approvals.
type Stamps = [Option<FileStamp>; 2];

#[derive(Debug)]
struct CachedFile {
    stamps: Stamps,
    settled: bool,
    content: Arc<FileContent>,
}

#[derive(Debug, Default)]
struct Cache {
    files: HashMap<(PathBuf, Form), CachedFile>,
    /// The contents that the snapshot is made of.
    contents: Vec<Arc<FileContent>>,
    snapshot: Arc<Snapshot>,
    /// What the log says of the present snapshot.
    logged: Logged,
}

/// What the log says of a snapshot. The next one is logged as far as it differs.
#[derive(Debug, Default)]
struct Logged {
    untrusted: usize,
    /// Without their lines, which change with each edit of a file.
    warnings: HashSet<(Arc<Path>, String)>,
}

impl Logged {
    /// Logs what is new in a snapshot; returns its new warnings.
    fn update<'a>(&mut self, snapshot: &'a Snapshot) -> Vec<&'a Warning> {
        let is_untrusted = |server: &&Arc<Server>| matches!(server.definition, Err(Skip::Untrusted(_)));
        let untrusted = snapshot.skipped.iter().filter(is_untrusted).count();
        if untrusted > self.untrusted {
            tracing::info!(
                count = untrusted,
                "servers of the working directory are not trusted yet; `codebridge servers` lists them"
            );
        }
        let (mut warnings, mut new) = (HashSet::new(), Vec::new());
        for warning in snapshot.warnings.iter().filter(|warning| warning.kind == WarningKind::Content) {
            let key = (Arc::clone(&warning.path), warning.message.clone());
            let is_known = self.warnings.contains(&key);
            if warnings.insert(key) && !is_known {
                tracing::warn!("{warning}");
                new.push(warning);
            }
        }
        *self = Self { untrusted, warnings };
        new
    }
}

/// Returns the stamp of a file; None if there is nothing to say of it. Most of the files do not exist, and take no space.
fn stamp_of(file: &Place) -> Option<Option<FileStamp>> {
    match std::fs::symlink_metadata(&file.path) {
        Ok(metadata) if !metadata.is_symlink() => Some(Some(FileStamp::of(&metadata))),
        Err(error)
            if !file.is_explicit
                && matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
        {
            None
        }
        _ => Some(FileStamp::at(&file.path)),
    }
}

/// Finds definitions, and reads files again only when they have changed.
#[derive(Debug)]
pub struct Discovery {
    surroundings: Surroundings,
    trust: Trust,
    projects: Vec<PathBuf>,
    cache: Mutex<Cache>,
    /// The definitions that hold until this process ends.
    for_now: Mutex<Arc<FileContent>>,
}

impl Discovery {
    /// Reads nothing yet.
    pub fn new(surroundings: Surroundings) -> Self {
        let (projects, trust) = (projects(&surroundings.cwd), Trust::new(&surroundings));
        Self { surroundings, trust, projects, cache: Mutex::default(), for_now: Mutex::default() }
    }

    pub(super) fn surroundings(&self) -> &Surroundings {
        &self.surroundings
    }

    /// Returns the folders whose own definitions are used.
    pub(super) fn projects(&self) -> &[PathBuf] {
        &self.projects
    }

    /// Returns all definitions; the previous snapshot if no file has changed.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let mut contents = Vec::new();
        let files = places(&self.surroundings).into_iter().flat_map(files_of);
        let files: Vec<_> = files.filter_map(|file| Some((stamp_of(&file)?, file))).collect();
        let identity = |stamp: &Option<FileStamp>| stamp.map(|stamp| stamp.identity());
        // The working folder may be the home: then its files are the user's own.
        let of_user: HashSet<_> = files
            .iter()
            .filter(|(_, file)| !file.in_project)
            .filter_map(|(stamp, _)| identity(stamp))
            .collect();
        let mut seen = HashSet::new();
        for (stamp, file) in &files {
            // Several places may link to one file.
            let is_new = identity(stamp).is_none_or(|identity| {
                !(file.in_project && of_user.contains(&identity)) && seen.insert(identity)
            });
            if is_new {
                contents.push(self.content(&mut cache, file, *stamp));
            }
        }
        contents.push(Arc::clone(&self.for_now.lock().unwrap_or_else(PoisonError::into_inner)));
        let is_same = contents.len() == cache.contents.len()
            && contents.iter().zip(&cache.contents).all(|(new, old)| Arc::ptr_eq(new, old));
        if !is_same {
            let snapshot = Snapshot::of(&contents, self.surroundings.profile.as_ref());
            if let Some(unknown) = &snapshot.unknown_profile {
                tracing::info!("no server is used: {unknown}");
            }
            cache.contents = contents;
            cache.logged.update(&snapshot);
            cache.snapshot = Arc::new(snapshot);
        }
        Arc::clone(&cache.snapshot)
    }

    /// Uses a definition until this process ends. It has the last place: no name is taken from the others.
    pub(super) fn keep_for_now(&self, entry: &Entry<'_>) {
        let claim = self.claim(entry, &Path::new(FOR_NOW).into(), false, None);
        let mut for_now = self.for_now.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::make_mut(&mut for_now).entries.push(claim);
    }

    /// Returns whether the user has approved a definition.
    pub fn is_trusted(&self, proposal: &Proposal) -> bool {
        self.trust.holds(proposal)
    }

    /// Records the user's approval of a definition. The next snapshot has the server.
    ///
    /// # Errors
    /// The approval could not be written.
    pub fn trust(&self, name: &str, proposal: &Proposal) -> Result<(), TrustError> {
        self.trust.approve(name, proposal)
    }

    /// Returns the content of a file, which is read only if it may have changed.
    fn content(&self, cache: &mut Cache, file: &Place, stamp: Option<FileStamp>) -> Arc<FileContent> {
        let key = (file.path.clone(), file.form);
        let stamps = [stamp, file.in_project.then(|| self.trust.stamp()).flatten()];
        let known = cache.files.get(&key);
        if let Some(known) = known.filter(|known| known.settled && known.stamps == stamps) {
            return Arc::clone(&known.content);
        }
        let read = self.read(file);
        let content = match known {
            Some(known) if *known.content == read => Arc::clone(&known.content),
            _ => Arc::new(read),
        };
        let settled = stamps.iter().flatten().all(FileStamp::is_settled);
        cache.files.insert(key, CachedFile { stamps, settled, content: Arc::clone(&content) });
        content
    }

    fn read(&self, place: &Place) -> FileContent {
        let path: Arc<Path> = place.path.as_path().into();
        let mut content = FileContent::default();
        if place.is_folder {
            let message = match std::fs::read_dir(&path) {
                Err(error) => format!("could not read it: {error}"),
                Ok(_) => format!("it is not read: it has more than {MOST_FILES} files"),
            };
            content.warnings.push(Warning { path, line: None, kind: WarningKind::Content, message });
            return content;
        }
        let mut warn = |line, message| {
            let (path, kind) = (Arc::clone(&path), WarningKind::Content);
            content.warnings.push(Warning { path, line, kind, message });
        };
        let largest = if place.in_project { LARGEST_OF_PROJECT } else { LARGEST_OF_USER };
        let text = match read(&path, largest) {
            Ok(Some(text)) => text,
            Ok(None) => {
                if place.is_explicit {
                    let message = "MCP_SERVERS_CONFIG names this file, which does not exist".into();
                    content.warnings.push(Warning {
                        path,
                        line: None,
                        kind: WarningKind::NoSuchFile,
                        message,
                    });
                }
                return content;
            }
            Err(error) => {
                warn(error.line(), error.to_string());
                return content;
            }
        };
        let is_toml = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("toml"));
        let root = match if is_toml { parse_toml(&text) } else { parse_json(&text) } {
            Ok(Some(root)) => root,
            Ok(None) => return content,
            Err(error) => {
                warn(Some(error.line), format!("could not parse it: {}", error.message));
                return content;
            }
        };
        let Found { entries, mut misplaced } = forms::entries(&root, place.form, &self.projects);
        // Those of a cloned folder could hide the user's own.
        let (found, wrong) = match place.form {
            Form::Any if !place.in_project => profiles::parse(&root, &path),
            _ => Default::default(),
        };
        misplaced.extend(wrong);
        let is_empty = entries.is_empty() && misplaced.is_empty() && found.is_empty();
        for part in misplaced {
            warn(Some(part.line), part.message);
        }
        if place.is_explicit && is_empty {
            warn(None, "it defines no server".into());
        }
        if place.in_project && entries.len() > MOST_SERVERS {
            warn(None, format!("it is not read: it defines more than {MOST_SERVERS} servers"));
            return content;
        }
        content.profiles = found;
        let about_all = forms::description(&root).filter(|_| place.form == Form::Any);
        for entry in entries {
            content.add(self.claim(&entry, &path, place.in_project, about_all.as_deref()));
        }
        content
    }

    fn claim(&self, entry: &Entry<'_>, path: &Arc<Path>, in_project: bool, about_all: Option<&str>) -> Claim {
        let description = forms::description(entry.node).or_else(|| about_all.map(str::to_owned));
        let source = Source { path: Arc::clone(path), line: entry.node.line };
        let missing =
            if in_project { self.trust.missing(entry, description.as_deref(), &source) } else { None };
        let is_trusted = missing.is_none();
        let definition = match missing {
            Some(proposal) => Err(self.unapproved(entry, proposal)),
            None => self.definition(entry).map(Arc::new),
        };
        let keeps_name = is_trusted && !matches!(definition, Err(Skip::Invalid(_) | Skip::Itself));
        let server = Server { name: entry.name.into(), alias: "".into(), description, source, definition };
        Claim { server, keeps_name }
    }

    pub(super) fn definition(&self, entry: &Entry<'_>) -> Result<Definition, Skip> {
        let definition = forms::definition(entry, &self.surroundings, true);
        // A definition of this bridge is skipped even if its variables are not set.
        if !self.surroundings.allow_self && self.is_itself(&definition, entry) {
            return Err(Skip::Itself);
        }
        definition
    }

    /// Returns why a definition that the user has not approved is not used. Nothing that it names is looked for.
    fn unapproved(&self, entry: &Entry<'_>, proposal: Proposal) -> Skip {
        let launch = match forms::definition(entry, &self.surroundings, false) {
            Ok(Definition { launch, .. }) => launch,
            Err(skip) => return skip,
        };
        let is_own = |words: &[String]| is_itself(&words[0], &words[1..], None);
        if !self.surroundings.allow_self
            && forms::command_as_written(entry.node).is_some_and(|it| is_own(&it))
        {
            return Skip::Itself;
        }
        match misleading(entry) {
            Some(why) => Skip::Invalid(why),
            None => Skip::Untrusted(Arc::new(with_use(proposal, &launch))),
        }
    }

    fn is_itself(&self, definition: &Result<Definition, Skip>, entry: &Entry<'_>) -> bool {
        let Surroundings { cwd, environment, own_binary, .. } = &self.surroundings;
        let mut lookup = ProgramLookup {
            path: environment.get("PATH").map(|path| path.as_os_str()),
            cwd,
            own_binary: own_binary.as_deref(),
        };
        match definition.as_ref().map(|definition| &definition.launch) {
            Ok(Launch::Stdio { command, args, env, cwd }) => {
                let own_path = env.iter().find(|(name, _)| name == "PATH").map(|(_, path)| path.as_ref());
                lookup.path = own_path.or(lookup.path);
                lookup.cwd = cwd.as_deref().unwrap_or(lookup.cwd);
                is_itself(command, args, Some(lookup))
            }
            Err(Skip::MissingVariable(_)) => forms::command_as_written(entry.node)
                .is_some_and(|words| is_itself(&words[0], &words[1..], Some(lookup))),
            _ => false,
        }
    }
}

impl FileContent {
    fn add(&mut self, claim: Claim) {
        let server = &claim.server;
        if let Err(why @ (Skip::Invalid(_) | Skip::MissingVariable(_))) = &server.definition {
            self.warnings.push(Warning {
                path: Arc::clone(&server.source.path),
                line: Some(server.source.line),
                kind: WarningKind::Content,
                message: format!("server '{}' is skipped: {why}", server.name.escape_debug()),
            });
        }
        self.entries.push(claim);
    }
}

impl Snapshot {
    fn of(contents: &[Arc<FileContent>], chosen: Option<&Arc<str>>) -> Self {
        let mut snapshot = Self::default();
        let chosen = snapshot.choose(contents, chosen);
        let mut claimed: HashMap<Arc<str>, Source> = HashMap::new();
        let mut usable = Vec::new();
        for Claim { server, keeps_name } in contents.iter().flat_map(|content| &content.entries) {
            let mut server = server.clone();
            if let Some(first) = claimed.get(&server.name) {
                server.definition = Err(Skip::Duplicate(first.clone()));
                if first.path == server.source.path && first.line != server.source.line {
                    snapshot.warnings.push(Warning {
                        path: Arc::clone(&first.path),
                        line: Some(server.source.line),
                        kind: WarningKind::Content,
                        message: format!(
                            "server '{}' is already defined in line {}",
                            server.name, first.line
                        ),
                    });
                }
            } else if *keeps_name {
                claimed.insert(Arc::clone(&server.name), server.source.clone());
            }
            if let Some(skip) = chosen.and_then(|chosen| chosen.skips(&server)) {
                server.definition = Err(skip);
            }
            match server.definition {
                Ok(_) => usable.push(server),
                Err(_) => snapshot.skipped.push(Arc::new(server)),
            }
        }
        let aliases = aliases(usable.iter().map(|server| &*server.name));
        for (mut server, alias) in usable.into_iter().zip(aliases) {
            server.alias = alias.into();
            snapshot.servers.push(Arc::new(server));
        }
        let names = snapshot.servers.iter().map(|server| &server.name).enumerate();
        let aliases = snapshot.servers.iter().map(|server| &server.alias).enumerate();
        // Names win over aliases.
        for (at, name) in names.chain(aliases) {
            snapshot.by_name.entry(Arc::clone(name)).or_insert(at);
        }
        snapshot.warnings.extend(contents.iter().flat_map(|content| content.warnings.iter().cloned()));
        snapshot
    }

    /// Returns the chosen profile. Names in it that no definition has are warned of.
    fn choose<'a>(
        &mut self,
        contents: &'a [Arc<FileContent>],
        chosen: Option<&'a Arc<str>>,
    ) -> Option<Chosen<'a>> {
        let name = chosen?;
        let profile = match profiles::find(name, contents.iter().flat_map(|content| &content.profiles)) {
            Ok(profile) => profile,
            Err(unknown) => {
                self.unknown_profile = Some(unknown);
                return Some(Chosen { name, profile: None });
            }
        };
        let names: HashSet<&str> =
            contents.iter().flat_map(|content| &content.entries).map(|claim| &*claim.server.name).collect();
        let Source { path, line } = &profile.source;
        self.warnings.extend(profile.problems(&names).map(|message| Warning {
            path: Arc::clone(path),
            line: Some(*line),
            kind: WarningKind::Content,
            message,
        }));
        Some(Chosen { name, profile: Some(profile) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_is_logged_once_until_it_is_gone() {
        let warning = |line| Warning {
            path: Path::new("/f").into(),
            line: Some(line),
            kind: WarningKind::Content,
            message: "bad".into(),
        };
        let snapshot = |warnings: Vec<Warning>| Snapshot { warnings, ..Snapshot::default() };
        let mut logged = Logged::default();
        assert_eq!(logged.update(&snapshot(vec![warning(1)])), [&warning(1)]);
        // Another part of the file has changed.
        assert!(logged.update(&snapshot(vec![warning(5)])).is_empty());
        assert!(logged.update(&snapshot(Vec::new())).is_empty());
        assert_eq!(logged.update(&snapshot(vec![warning(5)])), [&warning(5)]);
        // It is said at the start.
        let missing = Warning { kind: WarningKind::NoSuchFile, ..warning(1) };
        assert!(logged.update(&snapshot(vec![missing])).is_empty());
    }
}
