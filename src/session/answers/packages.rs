//! The packages of one session: what its code asks for, and the folder in which they appear.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

use codebridge_runtimes::{AnyDriver, Copies, HostFolder, Instance, SandboxSpec, ShareMechanism};
use futures_util::future::BoxFuture;
use serde_json::json;
use tokio::sync::{Mutex, mpsc};
use tokio_util::sync::CancellationToken;

use crate::packages::{
    ImagePython, InstallError, InstallRequest, Installed, PackageService, PackageSet, Pin, Script,
    SessionFolder, count_of, distribution_of, recipe_with,
};
use crate::requirements::{Requirement, RequirementError};
use crate::session::Progress;
use crate::session::bytecode::compile_packages;
use crate::session::questions::{Answer, InstallQuestion, MissingModule, QuestionError, ok};

/// Where the sandbox sees them.
const TARGET: &str = "/packages";
/// Packages of the image that are looked at, and the length of their names and versions.
const MOST_PRESENT: usize = 2000;
const LONGEST_PRESENT: usize = 128;
/// Bytes of a set, and of it with its compiled modules, that are copied to an engine elsewhere: this process holds them meanwhile.
const MOST_COPIED: u64 = 512 << 20;
const MOST_COPIED_COMPILED: u64 = 1 << 30;

const NOT_IN_PODS: &str = "pods cannot install packages; use an image that has them";

/// Whether code may have a package, once that is decided.
pub(super) type Allowing<'a> = BoxFuture<'a, Result<(), QuestionError>>;

/// The packages of a session. Without a folder, nothing can be added to it.
#[derive(Debug)]
pub(in crate::session) struct SessionPackages {
    service: Arc<PackageService>,
    /// The image, for messages.
    image: String,
    place: Result<Place, String>,
    /// Why no session of this runtime can have any, whatever the settings allow.
    never: Option<&'static str>,
    /// What the session said of its Python first: it cannot change.
    python: OnceLock<ImagePython>,
    /// One installation at a time.
    turn: Mutex<()>,
}

/// The folder, and what compiles modules for the Python that sees it.
#[derive(Debug)]
struct Place {
    folder: SessionFolder,
    driver: Arc<AnyDriver>,
    spec: SandboxSpec,
    instance: Arc<Instance>,
    /// The copy of the folder that a sandbox elsewhere has.
    copies: Option<Copies>,
}

impl SessionPackages {
    /// Prepares the packages of a session before its sandbox starts: adds the folder to the specification if sessions have one.
    pub(in crate::session) fn prepare(
        service: &Arc<PackageService>,
        image: String,
        driver: &Arc<AnyDriver>,
        spec: &mut SandboxSpec,
        instance: &Arc<Instance>,
    ) -> Self {
        let never = (driver.share_mechanism(spec.user) == ShareMechanism::None).then_some(NOT_IN_PODS);
        let place = match (service.is_used(), never) {
            (false, _) => Err("no packages are allowed".into()),
            (true, Some(why)) => Err(why.into()),
            (true, None) => service.open_session().map_err(|error| {
                tracing::warn!(error = error.for_operator(), "sessions cannot have packages");
                error.to_string()
            }),
        };
        let place = place.map(|folder| {
            let bare = spec.clone();
            spec.folders.push(HostFolder { source: folder.path(), target: TARGET.into() });
            let (driver, instance) = (Arc::clone(driver), Arc::clone(instance));
            Place { folder, driver, spec: bare, instance, copies: None }
        });
        let service = Arc::clone(service);
        // Code in the sandbox does not learn paths of the host.
        let image = if image.contains(":/") { "the image".to_owned() } else { image };
        Self { service, image, place, never, python: OnceLock::new(), turn: Mutex::default() }
    }

    /// Learns what copies the sandbox has, when it is on an engine elsewhere.
    pub(in crate::session) fn launched(&mut self, copies: Option<Copies>) {
        if let Ok(place) = &mut self.place {
            place.copies = copies;
        }
    }

    /// Returns the answer to a missing module: a hint, or nothing for what cannot be a package.
    pub(in crate::session) fn missing(&self, missing: &MissingModule) -> Result<Answer, QuestionError> {
        let hint = distribution_of(&missing.module).map(|package| {
            let recipe = recipe_with(&package)
                .map(|name| format!("; the image `{name}` of `codebridge image build` has it"));
            let how = self.never.map_or_else(|| self.service.hint(&package), str::to_owned);
            let image = &self.image;
            format!("hint: {image} does not have the package {package}: {how}{}", recipe.unwrap_or_default())
        });
        Answer::work(move || ok(&hint))
    }

    /// Installs what a question asks for.
    pub(in crate::session) async fn install<'a>(
        &self,
        question: InstallQuestion,
        progress: Option<mpsc::Sender<Progress>>,
        allow: &(dyn Fn(String) -> Allowing<'a> + Sync),
        cancel: &CancellationToken,
    ) -> Result<Answer, QuestionError> {
        let report = |line: String| {
            if let Some(progress) = &progress {
                // A receiver that is too slow misses a line.
                let _ = progress.try_send(Progress::Preparing(line));
            }
        };
        let is_named = question.with;
        // What the operator has named needs no permission.
        if !is_named {
            for name in names(&question) {
                allow(name).await?;
            }
        }
        let installing = async {
            let _turn = self.turn.lock().await;
            let installed = self.install_in_turn(question, &report, cancel).await;
            installed.map_err(|error| if is_named { self.service.error_of_with(error) } else { error })
        };
        let installed = tokio::select! {
            installed = installing => installed,
            () = cancel.cancelled() => Err(InstallError::Cancelled),
        };
        match installed {
            Ok((packages, notices)) => {
                let packages: Vec<_> =
                    packages.iter().map(|pin| json!({ "name": pin.name, "version": pin.version })).collect();
                Answer::work(move || ok(&json!({ "packages": packages, "notices": notices })))
            }
            Err(error) => {
                tracing::info!(error = error.for_operator(), "could not install packages");
                let message = error.to_string().replace("\nhint: ", "; hint: ");
                Err(QuestionError { kind: Some("packages"), message })
            }
        }
    }

    async fn install_in_turn(
        &self,
        question: InstallQuestion,
        report: &(impl Fn(String) + Send + Sync),
        cancel: &CancellationToken,
    ) -> Result<(Vec<Pin>, Vec<String>), InstallError> {
        let python = ImagePython::parse(&question.python).ok_or(InstallError::UnknownPython)?;
        let python = self.python.get_or_init(|| python).clone();
        let requirements = self.requirements(&question, &python)?;
        let mut present = plain(question.present);
        let added = self.place.as_ref().map(|place| place.folder.present()).unwrap_or_default();
        present.extend(added.clone());
        let request = InstallRequest {
            requirements,
            upgrade: question.upgrade,
            python: python.clone(),
            present,
            added,
        };
        let plan = match (self.service.plan(request), self.never) {
            (Ok(None), _) => return Ok((Vec::new(), Vec::new())),
            (_, Some(why)) => return Err(InstallError::Unavailable(why.into())),
            (Ok(Some(plan)), None) => plan,
            (Err(error), None) => return Err(error),
        };
        let place = self.place.as_ref().map_err(|why| InstallError::Unavailable(why.clone()))?;
        let Installed { set, mut notices } = self.service.provide(&plan, report).await?;
        let Some(set) = set else { return Ok((Vec::new(), notices)) };
        if place.copies.is_none() {
            notices.extend(set.warning().map(str::to_owned));
        }
        place.add(&set, &python, report, cancel).await?;
        Ok((set.description.packages, notices))
    }

    fn requirements(
        &self,
        question: &InstallQuestion,
        python: &ImagePython,
    ) -> Result<Vec<Requirement>, InstallError> {
        if question.with {
            return Ok(self.service.with().to_vec());
        }
        if let Some(script) = &question.script {
            let script = Script::parse(script)?;
            script.check_python(&python.full_version())?;
            return Ok(script.dependencies);
        }
        let parsed: Result<Vec<_>, RequirementError> =
            question.requirements.iter().map(|text| text.parse()).collect();
        Ok(parsed?)
    }
}

impl Place {
    /// Adds a set to the folder, with its modules compiled for the Python of the image.
    async fn add(
        &self,
        set: &PackageSet,
        python: &ImagePython,
        report: &(impl Fn(String) + Send + Sync),
        cancel: &CancellationToken,
    ) -> Result<(), InstallError> {
        if self.copies.is_some() && set.description.bytes > MOST_COPIED {
            return Err(InstallError::TooLargeToCopy {
                size: set.description.bytes >> 20,
                most: MOST_COPIED >> 20,
            });
        }
        let image = format!("{} {}", self.spec.root, python.full_version());
        if set.compiled_for(&image).is_none() {
            report(format!("compiling {} for this image, once", count_of(&set.description.packages)));
            let Self { driver, spec, instance, copies, .. } = self;
            let is_elsewhere = copies.is_some();
            compile_packages(set, &image, driver, spec, instance, is_elsewhere, cancel).await;
        }
        let files = set.compiled_for(&image).unwrap_or_else(|| set.files());
        let megabytes = set.description.bytes.div_ceil(1 << 20);
        report(format!("installing {}, {megabytes} MiB", count_of(&set.description.packages)));
        if let Some(copies) = &self.copies {
            let _ =
                copies.add(TARGET, files.clone(), MOST_COPIED_COMPILED).await.map_err(InstallError::Copy)?;
        }
        // In this task: it takes some milliseconds, and must not be left half done when the caller goes away.
        tokio::task::block_in_place(|| self.folder.add(set, &files))
    }
}

/// Returns the names of the packages that code asks for. What cannot be read is refused later.
fn names(question: &InstallQuestion) -> Vec<String> {
    let requirements = match &question.script {
        Some(script) => Script::parse(script).map(|script| script.dependencies).unwrap_or_default(),
        None => question.requirements.iter().filter_map(|text| text.parse().ok()).collect(),
    };
    requirements.iter().map(|requirement: &Requirement| requirement.name().to_owned()).collect()
}

/// Returns the names and versions of a sandbox that can be those of packages.
fn plain(present: HashMap<String, String>) -> BTreeMap<String, String> {
    let is_plain = |text: &str| {
        let bytes = text.as_bytes();
        !bytes.is_empty()
            && bytes.len() <= LONGEST_PRESENT
            && bytes.iter().all(|b| b.is_ascii_alphanumeric() || b"-_.+!".contains(b))
            && !bytes.starts_with(b"-")
    };
    let is_package = |(name, version): &(String, String)| {
        is_plain(version) && name.parse::<Requirement>().is_ok_and(|parsed| parsed.name() == name)
    };
    present.into_iter().take(MOST_PRESENT).filter(is_package).collect()
}
