//! What a process of the bridge has once, and what each of its users has.
//!
//! Both are built here and nowhere else, from the settings. Nothing starts before it is needed.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::audit::Audit;
use crate::packages::PackageService;
use crate::policy::Policy;
use crate::reaper::Reaper;
use crate::session::{Launcher, Sessions, cache_dir};
use crate::settings::{Environment, Settings};
use crate::telemetry::Telemetry;
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
    environment: Environment,
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
        Self { settings, launcher: Arc::new(launcher), packages, telemetry, environment, reaper }
    }
}

impl Workspace {
    pub fn new(bridge: Arc<Bridge>) -> Self {
        let Bridge { settings, launcher, telemetry, environment, reaper, .. } = &*bridge;
        let policy = Arc::new(Policy::of(settings));
        let (environment, reaper) = (environment.clone(), reaper.clone());
        let audit = Audit::of(settings);
        let upstream = Upstream::new(
            settings,
            environment,
            reaper,
            Arc::clone(&policy),
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

    /// Ends all sessions and servers, and the bridge with them: this is its only workspace.
    pub async fn close(&self) {
        let Bridge { launcher, reaper, telemetry, .. } = &*self.bridge;
        let removal = async {
            self.sessions.close().await;
            launcher.close().await;
        };
        let deadline = Instant::now() + CLOSE_LIMIT;
        // Side by side: neither needs the other, and each may take its time.
        let (removed, ()) = tokio::join!(timeout_at(deadline, removal), self.upstream.shutdown());
        telemetry.close().await;
        self.audit.close().await;
        // The reaper goes on when this process has exited.
        match removed {
            Ok(()) => drop(timeout_at(deadline, reaper.dismiss()).await),
            Err(_) => tracing::warn!(
                "an engine does not answer: its sandboxes are left to the reaper and to later bridges"
            ),
        }
    }
}
