//! Settings as the code uses them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use codebridge_images::ImageName;
use codebridge_runtimes::{Limits, PodSettings, RuntimeChoice, TargetError, User};
use reqwest::Url;

use super::error::Expected;
use super::variables::{self as var, NO_DEFAULT, Variable};
use super::{
    AuditMode, Origin, OutputMode, RawSettings, Setting, SettingError, SettingWarning, Share, ShareProblem,
    parse, pod,
};
use crate::requirements::{Permission, PermissionError, Requirement, parse_list};

/// The period of a CPU quota, in microseconds.
const CPU_PERIOD: f64 = 100_000.0;
/// Bytes of the smallest `/workspace`.
const LEAST_WORKSPACE: u64 = 1 << 20;

/// Every setting with its value and the reason for it.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Which runtime runs the sandboxes.
    pub runtime: Setting<RuntimeChoice>,
    /// Which root filesystem the code sees. If it is the default, the Python of this machine may be used instead.
    pub image: Setting<ImageName>,
    /// The time limit of a call that requests none. Never more than `max_timeout`.
    pub timeout: Setting<Duration>,
    /// The longest time limit that a call can request.
    pub max_timeout: Setting<Duration>,
    /// The time limit of code in the background.
    pub max_background: Setting<Duration>,
    /// Bytes of memory of a sandbox, including swap.
    pub memory: Setting<u64>,
    /// Bytes of the folder of a session's files.
    pub workspace_size: Setting<u64>,
    /// Processes and threads in a sandbox.
    pub pids: Setting<u32>,
    /// CPUs of a sandbox; None means unlimited.
    pub cpus: Setting<Option<f64>>,
    /// The user that the code runs as.
    pub container_user: Setting<User>,
    /// The time after which an idle session ends; None means never.
    pub runtime_idle_timeout: Setting<Option<Duration>>,
    /// Whether a podman machine may be created where there is none.
    pub machine_init: Setting<bool>,
    /// Whether podman machines run containers as root.
    pub machine_rootful: Setting<bool>,
    /// The maximum number of sessions.
    pub max_sessions: Setting<usize>,
    /// The number of spare sandboxes.
    pub warm: Setting<usize>,
    /// The maximum number of runs at once, over HTTP.
    pub max_runs: Setting<usize>,
    /// The maximum number of runs of one user at once, over HTTP.
    pub user_runs: Setting<usize>,
    /// How long the runs of one user may take in a day, over HTTP.
    pub user_seconds: Setting<Option<Duration>>,
    /// Bytes of output of the runs of one user in a day, over HTTP.
    pub user_bytes: Setting<Option<u64>>,
    /// Names under which clients reach the bridge over HTTP.
    pub allowed_hosts: Setting<Vec<String>>,
    /// The folder of saved tools and other state. Absolute.
    pub state_dir: Setting<PathBuf>,
    /// Bytes of all artifacts.
    pub artifacts_limit: Setting<u64>,
    pub output_mode: Setting<OutputMode>,
    /// Bytes of standard output in a result.
    pub output_limit: Setting<usize>,
    /// The maximum number of pictures in a result.
    pub max_images: Setting<usize>,
    /// Which Python packages code can install.
    pub packages: Setting<Permission>,
    /// The Python packages of every session.
    pub with: Setting<Vec<Requirement>>,
    /// The file of rules. Absolute.
    pub policy: Setting<Option<PathBuf>>,
    /// What the audit log records.
    pub audit: Setting<AuditMode>,
    /// A level or log directives, as given.
    pub log_level: Setting<String>,
    /// Whether sessions keep their interpreter between calls.
    pub session_persist: Setting<bool>,
    /// The folders of this machine that code sees.
    pub share: Setting<Vec<Share>>,
    /// Whether folders with secrets may be shared.
    pub share_anyway: Setting<bool>,
    /// Where pods run.
    pub pod: Setting<PodSettings>,
    /// Additional security options for engines.
    pub security_opt: Setting<Vec<String>>,
    /// Whether a server definition that starts this bridge is listed.
    pub allow_self_server: Setting<bool>,
    /// Whether definitions in the working directory need no approval.
    pub trust_project: Setting<bool>,
    /// Whether logins go to the keyring of the desktop.
    pub keyring: Setting<bool>,
    /// The folder of the model for searches by meaning.
    pub search_model: Setting<Option<PathBuf>>,
    /// An additional file of server definitions.
    pub servers_config: Setting<Option<PathBuf>>,
    /// The set of servers that is used; None means all.
    pub profile: Setting<Option<Arc<str>>>,
    /// Where an MCP registry lists its servers.
    pub registry: Setting<Option<Url>>,
    /// Whether this process runs code once, for a person who types flags. Else it serves a client, which sets variables.
    pub one_shot: bool,
    /// What the user set to no effect.
    pub warnings: Vec<SettingWarning>,
}

impl Settings {
    /// Parses every value.
    ///
    /// # Errors
    /// The first value that cannot be used, with the variable or flag that gave it.
    pub fn resolve(raw: &RawSettings) -> Result<Self, SettingError> {
        let max_timeout = raw.positive_time(&var::MAX_TIMEOUT)?;
        let timeout = raw.positive_time(&var::TIMEOUT)?;
        // A longer default is meant, unless the maximum was set as well.
        let max_timeout = if max_timeout.is_explicit() || timeout.value <= max_timeout.value {
            max_timeout
        } else {
            timeout
        };
        Ok(Self {
            runtime: raw.runtime()?,
            image: raw.image()?,
            timeout: timeout.map(|time| time.min(max_timeout.value)),
            max_timeout,
            max_background: raw.positive_time(&var::MAX_BACKGROUND)?,
            memory: raw.size(&var::MEMORY, Limits::LEAST_MEMORY, "16m")?,
            workspace_size: raw.size(&var::WORKSPACE_SIZE, LEAST_WORKSPACE, "1m")?,
            pids: raw.pids()?,
            cpus: raw.cpus()?,
            container_user: raw.value(&var::CONTAINER_USER, Expected::User, parse::parse_user)?,
            runtime_idle_timeout: raw
                .value(&var::RUNTIME_IDLE_TIMEOUT, Expected::Time, parse::parse_time)?
                .map(|time| Some(time).filter(|time| !time.is_zero())),
            machine_init: raw.boolean(&var::MACHINE_INIT)?,
            machine_rootful: raw.boolean(&var::MACHINE_ROOTFUL)?,
            max_sessions: raw.count(&var::MAX_SESSIONS)?.map(|count| count as usize),
            warm: raw.value(&var::WARM, Expected::WholeNumber, |text| text.trim().parse().ok())?,
            max_runs: raw.count(&var::MAX_RUNS)?.map(|count| count as usize),
            user_runs: raw.count(&var::USER_RUNS)?.map(|count| count as usize),
            user_seconds: raw.optional(&var::USER_SECONDS, |text, origin| {
                parse::parse_time(text).map(Some).ok_or_else(|| invalid(text, origin, Expected::Time))
            })?,
            user_bytes: raw.optional(&var::USER_BYTES, |text, origin| {
                parse::parse_size(text).map(Some).ok_or_else(|| invalid(text, origin, Expected::Size))
            })?,
            allowed_hosts: raw.optional(&var::ALLOWED_HOSTS, |text, origin| {
                parse::parse_hosts(text).ok_or_else(|| invalid(text, origin, Expected::Hosts))
            })?,
            state_dir: raw.read(&var::STATE_DIR, |text, origin| raw.path(text, origin))?,
            artifacts_limit: raw.size(&var::ARTIFACTS_LIMIT, 0, "0")?,
            output_mode: raw.value(
                &var::OUTPUT_MODE,
                Expected::OneOf(&OutputMode::NAMES),
                OutputMode::parse,
            )?,
            output_limit: raw.count(&var::OUTPUT_LIMIT)?.map(|count| count as usize),
            max_images: raw
                .value(&var::MAX_IMAGES, Expected::WholeNumber, |text| text.trim().parse().ok())?,
            packages: raw.packages()?,
            with: raw.optional(&var::WITH, |text, origin| {
                let list = text.replace(RawSettings::SEPARATOR, ",");
                parse_list(&list).map_err(|source| SettingError::Requirement { origin, source })
            })?,
            policy: raw.optional(&var::POLICY, |text, origin| raw.path(text, origin).map(Some))?,
            audit: raw.value(&var::AUDIT, Expected::OneOf(&AuditMode::NAMES), AuditMode::parse)?,
            log_level: raw.read(&var::LOG_LEVEL, |text, _| Ok(text.trim().to_owned()))?,
            session_persist: raw.boolean(&var::SESSION_PERSIST)?,
            share: raw.optional(&var::SHARE, |text, origin| raw.shares(text, origin))?,
            share_anyway: raw.boolean(&var::SHARE_ANYWAY)?,
            pod: raw.optional(&var::POD, |text, origin| raw.pod(text, origin))?,
            security_opt: raw.optional(&var::SECURITY_OPT, |text, _| {
                Ok(text.split_whitespace().map(str::to_owned).collect())
            })?,
            allow_self_server: raw.boolean(&var::ALLOW_SELF_SERVER)?,
            trust_project: raw.boolean(&var::TRUST_PROJECT)?,
            keyring: raw.boolean(&var::KEYRING)?,
            search_model: raw
                .optional(&var::SEARCH_MODEL, |text, origin| raw.path(text, origin).map(Some))?,
            servers_config: raw
                .optional(&var::SERVERS_CONFIG, |text, origin| raw.path(text, origin).map(Some))?,
            profile: raw.optional(&var::PROFILE, |text, _| Ok(Some(text.trim().into())))?,
            registry: raw.optional(&var::REGISTRY, |text, origin| {
                parse::parse_registry(text).map(Some).ok_or_else(|| invalid(text, origin, Expected::Registry))
            })?,
            one_shot: false,
            warnings: raw.warnings(&timeout, &max_timeout),
        })
    }
}

impl Settings {
    /// Returns what the user of this process types to change a setting: its flag, or its variable.
    pub fn name_of(&self, variable: &Variable) -> String {
        if self.one_shot { format!("--{}", variable.flag) } else { variable.name.to_owned() }
    }
}

impl RawSettings {
    /// Returns the text that was set, else the default of the table.
    fn text(&self, variable: &Variable) -> (&str, Origin) {
        self.get(variable).unwrap_or((variable.default, Origin::Default))
    }

    fn read<T>(
        &self,
        variable: &Variable,
        read: impl FnOnce(&str, Origin) -> Result<T, SettingError>,
    ) -> Result<Setting<T>, SettingError> {
        let (text, origin) = self.text(variable);
        Ok(Setting { value: read(text, origin)?, origin })
    }

    fn value<T>(
        &self,
        variable: &Variable,
        expected: Expected,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Setting<T>, SettingError> {
        self.read(variable, |text, origin| parse(text).ok_or_else(|| invalid(text, origin, expected)))
    }

    /// Reads a setting without a default, for which the empty value stands.
    fn optional<T: Default>(
        &self,
        variable: &Variable,
        read: impl FnOnce(&str, Origin) -> Result<T, SettingError>,
    ) -> Result<Setting<T>, SettingError> {
        debug_assert_eq!(variable.default, NO_DEFAULT, "{}", variable.name);
        match self.get(variable) {
            Some((text, origin)) => Ok(Setting { value: read(text, origin)?, origin }),
            None => Ok(Setting { value: T::default(), origin: Origin::Default }),
        }
    }

    fn positive_time(&self, variable: &Variable) -> Result<Setting<Duration>, SettingError> {
        self.read(variable, |text, origin| match parse::parse_time(text) {
            None => Err(invalid(text, origin, Expected::Time)),
            Some(Duration::ZERO) => {
                Err(SettingError::TooSmall { origin, value: text.to_owned(), least: "1 second" })
            }
            Some(time) => Ok(time),
        })
    }

    fn count(&self, variable: &Variable) -> Result<Setting<u32>, SettingError> {
        self.read(variable, |text, origin| {
            let is_digits = !text.trim().is_empty() && text.trim().bytes().all(|b| b.is_ascii_digit());
            match text.trim().parse() {
                Ok(count @ 1..) => Ok(count),
                Err(_) if is_digits => {
                    Err(SettingError::TooLarge { origin, value: text.to_owned(), most: u32::MAX })
                }
                _ => Err(invalid(text, origin, Expected::Count)),
            }
        })
    }

    fn pids(&self) -> Result<Setting<u32>, SettingError> {
        let pids = self.count(&var::PIDS)?;
        if pids.value < Limits::LEAST_PIDS {
            let (text, origin) = self.text(&var::PIDS);
            return Err(SettingError::TooSmall { origin, value: text.to_owned(), least: "4" });
        }
        Ok(pids)
    }

    fn boolean(&self, variable: &Variable) -> Result<Setting<bool>, SettingError> {
        self.value(variable, Expected::Boolean, parse::parse_bool)
    }

    fn size(
        &self,
        variable: &Variable,
        least: u64,
        shown: &'static str,
    ) -> Result<Setting<u64>, SettingError> {
        self.read(variable, |text, origin| match parse::parse_size(text) {
            None => Err(invalid(text, origin, Expected::Size)),
            Some(bytes) if bytes < least => {
                Err(SettingError::TooSmall { origin, value: text.to_owned(), least: shown })
            }
            Some(bytes) => Ok(bytes),
        })
    }

    fn cpus(&self) -> Result<Setting<Option<f64>>, SettingError> {
        let number = |text: &str, origin| {
            parse::parse_number(text).map(Some).ok_or_else(|| invalid(text, origin, Expected::Number))
        };
        let cpus = self.optional(&var::CPUS, number)?;
        let quota = self.optional(&var::CPU_QUOTA, number)?;
        // A flag of one wins over the variable of the other.
        if cpus.is_explicit() && (cpus.is_from_flag() || !quota.is_from_flag()) {
            return Ok(cpus);
        }
        Ok(quota.map(|quota| quota.map(|microseconds| microseconds / CPU_PERIOD)))
    }

    fn warnings(&self, timeout: &Setting<Duration>, max: &Setting<Duration>) -> Vec<SettingWarning> {
        let mut warnings = self.warnings.clone();
        if timeout.is_explicit() && timeout.value > max.value {
            let (wanted, used) = (timeout.value, max.value);
            warnings.push(SettingWarning::Cut { timeout: timeout.origin, wanted, by: max.origin, used });
        }
        // A flag that wins over a variable is meant to.
        if let (Some((_, used)), Some((_, ignored))) = (self.get(&var::CPUS), self.get(&var::CPU_QUOTA))
            && used.is_flag() == ignored.is_flag()
        {
            warnings.push(SettingWarning::Ignored { ignored, used });
        }
        warnings
    }

    fn runtime(&self) -> Result<Setting<RuntimeChoice>, SettingError> {
        self.read(&var::RUNTIME, |text, origin| match text.parse() {
            Ok(RuntimeChoice::Program(_)) => self.path(text, origin).map(RuntimeChoice::Program),
            Ok(choice) => Ok(choice),
            Err(TargetError(name)) => Err(invalid(&name, origin, Expected::Runtime)),
        })
    }

    fn packages(&self) -> Result<Setting<Permission>, SettingError> {
        self.read(&var::PACKAGES, |text, origin| match text.parse() {
            Ok(Permission::Locked(file)) => {
                let file = self.path(&file.to_string_lossy(), origin)?;
                Ok(Permission::Locked(file))
            }
            Ok(permission) if Permission::word_meant_by(text).is_none() => Ok(permission),
            Ok(_) | Err(PermissionError) => Err(invalid(text, origin, Expected::Packages)),
        })
    }

    fn image(&self) -> Result<Setting<ImageName>, SettingError> {
        self.read(&var::IMAGE, |text, origin| {
            let name: ImageName = text.parse().map_err(|source| SettingError::Image { origin, source })?;
            let path = name.path().and_then(|path| path.to_str()).map(|path| self.path(path, origin));
            let path = path.transpose()?;
            Ok(name.map_path(|old| path.unwrap_or(old)))
        })
    }

    fn pod(&self, text: &str, origin: Origin) -> Result<PodSettings, SettingError> {
        let path = self.path(text, origin)?;
        pod::read(&path).map_err(|problem| SettingError::Pod { origin, path, problem })
    }

    /// Reads shares. Their flag may be repeated; their variable has commas.
    fn shares(&self, text: &str, origin: Origin) -> Result<Vec<Share>, SettingError> {
        let invalid = |problem| SettingError::Share { origin, problem };
        let separator = if origin.is_flag() { RawSettings::SEPARATOR } else { ',' };
        let mut shares: Vec<Share> = Vec::new();
        for part in text.split(separator) {
            let share = Share::parse(part, |path| self.path(path, origin))?.map_err(invalid)?;
            if shares.iter().any(|other| other.name == share.name) {
                return Err(invalid(ShareProblem::Twice(share.name)));
            }
            shares.push(share);
        }
        Ok(shares)
    }

    /// Returns a path with its `~` expanded, absolute, so that it means the same after a change of folder.
    fn path(&self, text: &str, origin: Origin) -> Result<PathBuf, SettingError> {
        let text = text.trim();
        let path = match text.strip_prefix('~') {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => {
                let home = self.home.as_ref().map(PathBuf::from).or_else(std::env::home_dir);
                let home = home.filter(|home| home.is_absolute());
                home.ok_or_else(|| SettingError::NoHome { origin, value: text.to_owned() })?
                    .join(rest.trim_start_matches('/'))
            }
            _ => PathBuf::from(text),
        };
        Ok(std::path::absolute(&path).unwrap_or(path))
    }
}

fn invalid(value: &str, origin: Origin, expected: Expected) -> SettingError {
    SettingError::Invalid { origin, value: value.to_owned(), expected }
}
