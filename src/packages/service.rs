//! What sessions ask for: which packages are allowed, which versions they mean, and where those are.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use pep440_rs::Version;

use super::installer::Installer;
use super::pins::{Pin, parse_pins};
use super::resolutions::Resolution;
use super::resolve::Resolve;
use super::{ImagePython, InstallError, PackageSet, SessionFolder, Store, StoredSet};
use crate::reaper::Reaper;
use crate::requirements::{Permission, Requirement};
use crate::settings::{Environment, Settings, variables};

/// Requirements in one request.
const MOST_REQUIREMENTS: usize = 100;
const OLD_VERSIONS: &str = "the package index cannot be reached: the versions that it had earlier are used";
/// Bytes of the sets in the store.
const MOST_STORED: u64 = 20 << 30;
/// Names in a message.
const MOST_NAMED: usize = 5;

/// Provides packages to all sessions of a bridge.
#[derive(Debug)]
pub struct PackageService {
    store: Option<Store>,
    permission: Permission,
    /// What every session has.
    with: Vec<Requirement>,
    environment: Environment,
    reaper: Reaper,
    /// How the operator sets the permission: a variable or a flag.
    setting: String,
    /// How the operator names packages of every session.
    with_setting: String,
    /// The sets that sessions were given.
    provided: Mutex<Vec<StoredSet>>,
}

/// A request of a session.
#[derive(Debug, Clone)]
pub struct InstallRequest {
    pub requirements: Vec<Requirement>,
    /// Whether newer versions are wanted than those that are known.
    pub upgrade: bool,
    pub python: ImagePython,
    /// Names and versions of what the session has, in the image or installed.
    pub present: BTreeMap<String, String>,
    /// Those of them that were installed, and may be loaded.
    pub added: BTreeMap<String, String>,
}

/// What is to do for a request: it is allowed, and the session does not have it.
#[derive(Debug)]
pub struct InstallPlan {
    requirements: Vec<Requirement>,
    /// Versions that the permission allows, as lines.
    limits: Vec<String>,
    lock_file: Option<Vec<Pin>>,
    request: InstallRequest,
}

/// Packages that are in the store.
#[derive(Debug)]
pub struct Installed {
    /// None if the session has all of them.
    pub set: Option<PackageSet>,
    pub notices: Vec<String>,
}

impl PackageService {
    /// Returns the service that these settings describe. Nothing is looked for before the first request.
    pub fn new(
        settings: &Settings,
        environment: Environment,
        reaper: Reaper,
        cache: Option<PathBuf>,
    ) -> Self {
        Self {
            store: cache.map(|cache| Store::at(cache.join("packages"))),
            permission: settings.packages.value.clone(),
            with: settings.with.value.clone(),
            environment,
            reaper,
            setting: settings.name_of(&variables::PACKAGES),
            with_setting: settings.name_of(&variables::WITH),
            provided: Mutex::default(),
        }
    }

    /// Returns what every session has from its start.
    pub fn with(&self) -> &[Requirement] {
        &self.with
    }

    /// Returns an error about these packages, with the setting that named them.
    pub fn error_of_with(&self, error: InstallError) -> InstallError {
        InstallError::Named { setting: self.with_setting.clone(), error: Box::new(error) }
    }

    /// Returns the sets that sessions were given.
    pub fn provided(&self) -> Vec<StoredSet> {
        self.provided.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns whether sessions need a folder for packages.
    pub fn is_used(&self) -> bool {
        self.permission != Permission::Off || !self.with.is_empty()
    }

    /// Returns a folder for the packages of a session.
    pub fn open_session(&self) -> Result<SessionFolder, InstallError> {
        SessionFolder::create(self.store()?)
    }

    pub fn store(&self) -> Result<&Store, InstallError> {
        self.store
            .as_ref()
            .ok_or_else(|| InstallError::Unavailable("this machine has no cache folder".into()))
    }

    /// Returns how code gets a package that is missing.
    pub fn hint(&self, package: &str) -> String {
        match self.permission.versions_of(package) {
            Some(_) => format!("install it with runtime.install(\"{package}\")"),
            None => self.how_to_allow(&[package.to_owned()]),
        }
    }

    /// Returns what the operator types, so that these packages can be used.
    fn how_to_allow(&self, names: &[String]) -> String {
        let list = names.join(",");
        if self.with_setting.starts_with('-') {
            let flag = &self.with_setting;
            return format!("run it again with {flag} {list} (flags of codebridge stand before the script)");
        }
        match &self.permission {
            Permission::Off => format!(
                "the operator can allow it with {}={list}, or give it to every session with {}={list}",
                self.setting, self.with_setting
            ),
            Permission::Locked(path) => {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                let locked = read_lock_file(path).unwrap_or_default().into_iter().map(|pin| pin.name);
                let mut all: Vec<String> = locked.chain(names.iter().cloned()).collect();
                all.dedup();
                format!(
                    "the operator can renew the file: codebridge packages lock {} -o {name}",
                    all.join(" ")
                )
            }
            _ => format!("the operator can allow it: add {list} to {}", self.setting),
        }
    }

    /// Decides on a request; None if the session has everything.
    pub fn plan(&self, request: InstallRequest) -> Result<Option<InstallPlan>, InstallError> {
        if request.requirements.len() > MOST_REQUIREMENTS {
            return Err(InstallError::TooMany(request.requirements.len()));
        }
        let is_present = |wanted: &Requirement| {
            !request.upgrade
                && request.present.get(wanted.name()).is_some_and(|version| wanted.is_met_by(version))
        };
        let missing: Vec<_> =
            request.requirements.iter().filter(|wanted| !is_present(wanted)).cloned().collect();
        if missing.is_empty() {
            return Ok(None);
        }
        let (mut limits, mut refused) = (Vec::new(), Vec::new());
        for wanted in missing.iter().filter(|wanted| !self.with.contains(wanted)) {
            match self.permission.versions_of(wanted.name()) {
                None => refused.push(wanted.name().to_owned()),
                Some(versions) if versions.is_empty() => {}
                Some(versions) => limits.push(format!("{}{}", wanted.name(), versions)),
            }
        }
        if !refused.is_empty() {
            return Err(self.refusal(refused));
        }
        let needs_permission = missing.iter().any(|wanted| !self.with.contains(wanted));
        let lock_file = match &self.permission {
            Permission::Locked(path) if needs_permission => Some(read_lock_file(path)?),
            _ => None,
        };
        // Before the index hears of the name.
        let is_locked = |wanted: &&Requirement| {
            lock_file.as_ref().is_none_or(|pins| pins.iter().any(|pin| pin.name == wanted.name()))
        };
        let unlocked: Vec<_> = missing.iter().filter(|wanted| !is_locked(wanted)).collect();
        if !unlocked.is_empty() {
            return Err(self.refusal(unlocked.iter().map(|wanted| wanted.name().to_owned()).collect()));
        }
        Ok(Some(InstallPlan { requirements: missing, limits, lock_file, request }))
    }

    fn refusal(&self, names: Vec<String>) -> InstallError {
        let more = names.len().saturating_sub(MOST_NAMED);
        let mut shown = names[..names.len() - more].join(", ");
        if more > 0 {
            shown += &format!(" and {more} more");
        }
        let why = match &self.permission {
            Permission::Off => format!("{} is off", self.setting),
            Permission::Locked(_) => format!("it is not in the lock file of {}", self.setting),
            _ => format!("{} allows other packages", self.setting),
        };
        let hint = self.how_to_allow(&names);
        InstallError::Refused { names: shown, why, hint }
    }

    /// Resolves and downloads what a plan needs, unless the store has it; `report` gets the progress.
    pub async fn provide(
        &self,
        plan: &InstallPlan,
        report: impl Fn(String) + Send + Sync,
    ) -> Result<Installed, InstallError> {
        let store = self.store()?;
        let mut notices = Vec::new();
        let mut pins = self.resolve(store, plan, &report, &mut notices).await?;
        let InstallRequest { python, present, added, .. } = &plan.request;
        pins.retain(|pin| !present.get(&pin.name).is_some_and(|has| is_same(has, &pin.version)));
        if let Some((pin, has)) = pins.iter().find_map(|pin| Some((pin, added.get(&pin.name)?))) {
            let (name, wanted) = (pin.name.clone(), pin.version.clone());
            return Err(InstallError::OtherVersion { name, present: has.clone(), wanted });
        }
        if let Some(lock_file) = &plan.lock_file {
            pins = with_locked_hashes(pins, lock_file)?;
        }
        if pins.is_empty() {
            return Ok(Installed { set: None, notices });
        }
        let id = Store::id_of(&pins, python);
        let known = store.find(&id);
        let set = match known {
            Some(set) => set,
            None => self.download(store, &id, pins, python, &report).await?,
        };
        self.provided.lock().unwrap_or_else(PoisonError::into_inner).push(set.description.clone());
        Ok(Installed { set: Some(set), notices })
    }

    /// Adds a set to the store, unless another process does so meanwhile.
    async fn download(
        &self,
        store: &Store,
        id: &str,
        pins: Vec<Pin>,
        python: &ImagePython,
        report: &(impl Fn(String) + Send + Sync),
    ) -> Result<PackageSet, InstallError> {
        let lock = store.lock(id).await?;
        if let Some(set) = store.find(id) {
            return Ok(set);
        }
        report(format!("downloading {}", counted(&pins)));
        let installer = Installer::find(&self.environment, self.reaper.clone())?;
        let staging = store.staging()?;
        let downloaded = match installer.download(&pins, python, staging.path(), false).await {
            Err(InstallError::Offline) => installer.download(&pins, python, staging.path(), true).await,
            done => done,
        };
        downloaded?;
        let (store, id, python) = (store.clone(), id.to_owned(), python.clone());
        let adding = tokio::task::spawn_blocking(move || {
            let _lock = lock;
            let added = store.add(&id, &pins, &python, staging)?;
            store.shrink(MOST_STORED);
            Ok(added)
        });
        adding.await.map_err(|error| InstallError::Failed(error.to_string()))?
    }

    async fn resolve(
        &self,
        store: &Store,
        plan: &InstallPlan,
        report: &(impl Fn(String) + Send + Sync),
        notices: &mut Vec<String>,
    ) -> Result<Vec<Pin>, InstallError> {
        let InstallPlan { requirements, limits, lock_file, request } = plan;
        let mut constraints = limits.clone();
        if let Some(pins) = lock_file {
            constraints.extend(pins.iter().map(|pin| format!("{}=={}", pin.name, pin.version)));
        }
        let with_image: Vec<String> = constraints.iter().cloned().chain(plan.present_versions()).collect();
        let wanted =
            |constraints| Resolve { requirements, constraints, python: &request.python, offline: false };
        let kept = Resolution::of(store, &wanted(&with_image))?;
        let known = kept.known();
        match known {
            Some(known) if known.is_fresh && !request.upgrade => Ok(known.pins),
            known => {
                let names: Vec<_> = requirements.iter().map(Requirement::name).take(MOST_NAMED).collect();
                report(format!("resolving {}", names.join(", ")));
                let installer = Installer::find(&self.environment, self.reaper.clone())?;
                let staging = store.staging()?;
                let first = installer.resolve(&wanted(&with_image), staging.path()).await;
                let resolved = match first {
                    // The versions of the image may not fit, or not be in the index.
                    Err(
                        InstallError::Conflict(_)
                        | InstallError::NoWheel { .. }
                        | InstallError::NoneFound { .. },
                    ) if with_image.len() > constraints.len() => {
                        installer.resolve(&wanted(&constraints), staging.path()).await
                    }
                    first => first,
                };
                match (resolved, known) {
                    (Err(InstallError::Offline), Some(known)) => {
                        notices.push(OLD_VERSIONS.into());
                        Ok(known.pins)
                    }
                    (Err(InstallError::Offline), None) => {
                        let offline = Resolve { offline: true, ..wanted(&with_image) };
                        installer.resolve(&offline, staging.path()).await
                    }
                    (resolved, _) => resolved.inspect(|pins| kept.keep(pins)),
                }
            }
        }
    }
}

impl InstallPlan {
    /// Returns the versions that the session has, as constraints, but for packages that are wanted in another one.
    fn present_versions(&self) -> impl Iterator<Item = String> {
        let is_wanted = |name: &str| self.requirements.iter().any(|wanted| wanted.name() == name);
        let present = self.request.present.iter().filter(move |(name, _)| !is_wanted(name));
        present.filter_map(|(name, version)| {
            let version: Version = version.parse().ok()?;
            (!version.is_local()).then(|| format!("{name}=={version}"))
        })
    }
}

fn is_same(a: &str, b: &str) -> bool {
    a == b || matches!((a.parse::<Version>(), b.parse::<Version>()), (Ok(a), Ok(b)) if a == b)
}

/// Returns `3 packages: a, b, c`.
fn counted(pins: &[Pin]) -> String {
    let names: Vec<_> = pins.iter().map(|pin| pin.name.as_str()).take(MOST_NAMED).collect();
    let more = if pins.len() > MOST_NAMED { ", …" } else { "" };
    format!("{}: {}{more}", count_of(pins), names.join(", "))
}

/// Returns `1 package` or `3 packages`.
pub fn count_of(pins: &[Pin]) -> String {
    let noun = if pins.len() == 1 { "package" } else { "packages" };
    format!("{} {noun}", pins.len())
}

fn read_lock_file(path: &Path) -> Result<Vec<Pin>, InstallError> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        InstallError::LockFile(match error.kind() {
            io::ErrorKind::NotFound => "there is no such file".into(),
            kind => kind.to_string(),
        })
    })?;
    let pins = parse_pins(&text).map_err(|line| {
        let line: String = line.chars().take(80).collect();
        InstallError::LockFile(format!("a line is not NAME==VERSION with hashes: {line}"))
    })?;
    match pins.iter().find(|pin| pin.hashes.is_empty()) {
        Some(pin) => Err(InstallError::LockFile(format!("{} has no hash", pin.name))),
        None => Ok(pins),
    }
}

/// Replaces the hashes of the index by those of the lock file, which has to have each package.
fn with_locked_hashes(pins: Vec<Pin>, lock_file: &[Pin]) -> Result<Vec<Pin>, InstallError> {
    let locked = |pin: Pin| {
        let found = lock_file.iter().find(|one| one.name == pin.name && is_same(&one.version, &pin.version));
        found.cloned().ok_or(InstallError::NotLocked { name: pin.name, version: pin.version })
    };
    pins.into_iter().map(locked).collect()
}
