//! What a process of the bridge has once, and what each of its users has.
//!
//! Both are built here and nowhere else, from the settings. Nothing starts before it is needed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

mod folder;
mod governed;
mod quotas;
mod usage;

pub use folder::{folder_of, principals};
pub use governed::{Governed, RunCounts};
pub use quotas::{Load, Quotas};

use crate::audit::Audit;
use crate::packages::PackageService;
use crate::policy::Policy;
use crate::reaper::Reaper;
use crate::session::{Launcher, Sessions, cache_dir};
use crate::settings::{Environment, Settings};
use crate::telemetry::Telemetry;
use crate::upstream::discovery::User;
use crate::upstream::{Recorded, Upstream};

/// How long the removal of sandboxes and the end of the reaper may take. A removal that takes longer is on an engine that hangs, and a
/// user who has closed the client or pressed Ctrl-C does not wait for that.
const CLOSE_LIMIT: Duration = Duration::from_secs(20);

/// What exists once in a process: the choice of a runtime, images, sandboxes and the reaper.
#[derive(Debug)]
pub struct Bridge {
    pub settings: Settings,
    pub launcher: Arc<Launcher>,
    pub packages: Arc<PackageService>,
    pub telemetry: Telemetry,
    environment: Arc<Environment>,
    reaper: Reaper,
}

/// What belongs to one user: sessions with their outputs, saved tools, and connections to servers.
#[derive(Debug)]
pub struct Workspace {
    pub bridge: Arc<Bridge>,
    pub sessions: Sessions,
    pub upstream: Upstream,
    pub policy: Arc<Policy>,
    pub audit: Audit,
}

impl Bridge {
    pub fn new(settings: Settings, environment: Environment) -> Self {
        let reaper = Reaper::of_this_program();
        let packages = PackageService::new(&settings, environment.clone(), reaper.clone(), cache_dir());
        let packages = Arc::new(packages);
        let telemetry = Telemetry::of(&environment);
        let launcher = Launcher::new(&settings, reaper.clone(), Arc::clone(&packages), telemetry.clone());
        let environment = Arc::new(environment);
        Self { settings, launcher: Arc::new(launcher), packages, telemetry, environment, reaper }
    }

    /// Returns the folder of one of many users.
    pub fn folder_of(&self, principal: &str) -> PathBuf {
        folder_of(&self.settings.state_dir, principal)
    }

    /// Ends the bridge, after its workspaces.
    pub async fn close(&self) {
        let deadline = Instant::now() + CLOSE_LIMIT;
        let removed = timeout_at(deadline, self.launcher.close()).await;
        self.telemetry.close().await;
        self.dismiss_reaper(removed.is_ok(), deadline).await;
    }

    async fn dismiss_reaper(&self, removed: bool, deadline: Instant) {
        // The reaper goes on when this process has exited.
        match removed {
            true => drop(timeout_at(deadline, self.reaper.dismiss()).await),
            false => tracing::warn!(
                "an engine does not answer: its sandboxes are left to the reaper and to later bridges"
            ),
        }
    }
}

impl Workspace {
    pub fn new(bridge: Arc<Bridge>) -> Self {
        let policy = Policy::of(&bridge.settings);
        let settings = bridge.settings.clone();
        Self::with(bridge, &settings, policy, User::default())
    }

    /// Returns the workspace of one of many users of a bridge, in a folder of its own.
    pub fn of_principal(bridge: Arc<Bridge>, principal: &str) -> Self {
        let mut settings = bridge.settings.clone();
        let operator_dir = settings.state_dir.value.clone();
        settings.state_dir.value = bridge.folder_of(principal);
        let policy = Policy::of_principal(&bridge.settings, &settings.state_dir);
        let user = User { principal: principal.into(), operator_dir: Some(operator_dir) };
        Self::with(bridge, &settings, policy, user)
    }

    fn with(bridge: Arc<Bridge>, settings: &Settings, policy: Policy, user: User) -> Self {
        let Bridge { launcher, telemetry, environment, reaper, .. } = &*bridge;
        let (policy, audit) = (Arc::new(policy), Audit::of(settings));
        let upstream = Upstream::new(
            settings,
            Arc::clone(environment),
            reaper.clone(),
            Arc::clone(&policy),
            user,
            telemetry.clone(),
            audit.clone(),
        );
        let sessions = Sessions::new(settings, Arc::clone(launcher), upstream.clone(), audit.clone());
        Self { bridge, sessions, upstream, policy, audit }
    }

    /// Returns one whose calls are answered from the audit log. Its folder has what belongs to it, and nothing else.
    pub fn replaying(bridge: Arc<Bridge>, folder: &Path, recorded: Recorded, audit: Audit) -> Self {
        let Bridge { settings, launcher, reaper, .. } = &*bridge;
        let upstream = Upstream::replaying(settings, folder, recorded, reaper.clone());
        let policy = Arc::new(Policy::none());
        let sessions = Sessions::new(settings, Arc::clone(launcher), upstream.clone(), audit.clone());
        Self { bridge, sessions, upstream, policy, audit }
    }

    /// Ends all sessions and servers of this user; the bridge goes on.
    pub async fn end(&self) {
        let deadline = Instant::now() + CLOSE_LIMIT;
        let (ended, ()) = tokio::join!(timeout_at(deadline, self.sessions.close()), self.upstream.shutdown());
        if ended.is_err() {
            tracing::warn!("an engine does not answer: the sandboxes of a user are removed later");
        }
        self.audit.close().await;
    }

    /// Ends all sessions and servers, and the bridge with them: this is its only workspace.
    pub async fn close(&self) {
        let removal = async {
            self.sessions.close().await;
            self.bridge.launcher.close().await;
        };
        let deadline = Instant::now() + CLOSE_LIMIT;
        // Side by side: neither needs the other, and each may take its time.
        let (removed, ()) = tokio::join!(timeout_at(deadline, removal), self.upstream.shutdown());
        self.bridge.telemetry.close().await;
        self.audit.close().await;
        self.bridge.dismiss_reaper(removed.is_ok(), deadline).await;
    }
}
