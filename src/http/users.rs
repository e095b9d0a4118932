//! The users of now. Each has a workspace of its own, and a service for each credential.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::body::{HELD, LONGEST};
use super::credentials::{Credential, Credentials, Identity};
use crate::server::{Budget, McpService, McpUser};
use crate::tokens::PrincipalName;
use crate::workspace::{Bridge, Governed, Quotas, RunCounts, Workspace};

/// Requests of one user under way at once, streams among them.
const MOST_REQUESTS: usize = 512;
/// Open sessions of the protocol of one credential.
pub(super) const MOST_SESSIONS: usize = 256;
/// Why sessions end in which something runs between calls.
const USED_UP: &str =
    "it worked between calls, and the seconds of the day are used up (MCP_BRIDGE_USER_SECONDS)";
/// How long a user who does nothing keeps a workspace. Interpreters may end before.
const IDLE: Duration = Duration::from_secs(3600);
/// Users who have nothing but a workspace. Beyond them, the one who has done nothing for longest loses it.
const MOST_IDLE: usize = 256;
/// How long a user does nothing before that.
const QUIET: Duration = Duration::from_secs(60);

/// The users of now.
#[derive(Debug)]
pub(super) struct Users {
    bridge: Arc<Bridge>,
    /// Whether there is only the user of this process, whose workspace is the state folder itself.
    is_own: bool,
    pub(super) quotas: Arc<Quotas>,
    pub(super) counts: Arc<RunCounts>,
    open: Mutex<HashMap<PrincipalName, Arc<User>>>,
    /// Workspaces that end.
    ending: TaskTracker,
}

/// One user.
#[derive(Debug)]
pub(super) struct User {
    workspace: Workspace,
    mcp: Arc<McpUser<Governed>>,
    /// By what the user has shown; None for what was shown for pages alone.
    services: Mutex<HashMap<Credential, Option<Service>>>,
    pub(super) requests: Arc<Semaphore>,
    /// Bytes of bodies and results.
    pub(super) held: Arc<Budget>,
    last_used: Mutex<Instant>,
}

#[derive(Debug)]
struct Service {
    mcp: Arc<McpService<Governed>>,
    stop: CancellationToken,
}

impl Drop for Service {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl User {
    fn new(
        bridge: &Arc<Bridge>,
        name: &PrincipalName,
        quotas: &Arc<Quotas>,
        counts: &Arc<RunCounts>,
        is_own: bool,
    ) -> Self {
        let workspace = match is_own {
            true => Workspace::new(Arc::clone(bridge)),
            false => Workspace::of_principal(Arc::clone(bridge), name.as_str()),
        };
        let sessions = workspace.sessions.clone();
        let governed = Governed::new(sessions, name.shared(), Arc::clone(quotas), Arc::clone(counts));
        let mcp = McpUser::new(Arc::new(governed), workspace.upstream.events(), bridge.settings.clone());
        Self {
            workspace,
            mcp: Arc::new(mcp),
            services: Mutex::default(),
            requests: Arc::new(Semaphore::new(MOST_REQUESTS)),
            held: Budget::new(HELD),
            last_used: Mutex::new(Instant::now()),
        }
    }

    pub(super) fn workspace(&self) -> &Workspace {
        &self.workspace
    }

    /// Notes that the user does something.
    pub(super) fn was_used(&self) {
        *lock(&self.last_used) = Instant::now();
    }

    /// Returns the service of a credential.
    pub(super) fn service(&self, credential: &Credential) -> Arc<McpService<Governed>> {
        self.was_used();
        let mut services = lock(&self.services);
        let service = services.entry(credential.clone()).or_default().get_or_insert_with(|| {
            let stop = CancellationToken::new();
            Service { mcp: Arc::new(self.mcp.service(LONGEST, stop.clone())), stop }
        });
        Arc::clone(&service.mcp)
    }

    /// Notes what the user has shown: the workspace ends with the last of it.
    fn has_shown(&self, credential: &Credential) {
        let mut services = lock(&self.services);
        if !services.contains_key(credential) {
            services.insert(credential.clone(), None);
        }
    }

    fn services(&self) -> Vec<Arc<McpService<Governed>>> {
        lock(&self.services).values().flatten().map(|service| Arc::clone(&service.mcp)).collect()
    }

    /// Ends what belongs to credentials that hold no longer. Returns whether nothing is left although there was something.
    fn drop_revoked(&self, name: &PrincipalName, credentials: &Credentials) -> bool {
        let mut services = lock(&self.services);
        let before = services.len();
        services.retain(|credential, _| credentials.holds(name, credential));
        if services.len() < before {
            tracing::info!(principal = %name, "a token holds no longer: its sessions end");
        }
        before > 0 && services.is_empty()
    }

    async fn is_idle(&self, time: Duration) -> bool {
        let is_used =
            lock(&self.last_used).elapsed() < time || self.requests.available_permits() < MOST_REQUESTS;
        // Nobody may look at a run in the background, or at its result, for a while.
        if is_used || self.workspace.sessions.has_run_within(IDLE) {
            return false;
        }
        for service in self.services() {
            if service.sessions().await > 0 {
                return false;
            }
        }
        true
    }

    fn stop_services(&self) {
        lock(&self.services).clear();
    }
}

impl Users {
    pub(super) fn new(bridge: Arc<Bridge>, is_own: bool) -> Self {
        let quotas = Quotas::of(&bridge.settings);
        let (counts, open, ending) = Default::default();
        Self { bridge, is_own, quotas, counts, open, ending }
    }

    /// Returns the user of a request.
    pub(super) fn of(&self, identity: &Identity) -> Arc<User> {
        let mut open = lock(&self.open);
        let user = open.entry(identity.principal.clone()).or_insert_with(|| {
            tracing::debug!(principal = %identity.principal, "opened a workspace");
            Arc::new(User::new(&self.bridge, &identity.principal, &self.quotas, &self.counts, self.is_own))
        });
        user.has_shown(&identity.credential);
        Arc::clone(user)
    }

    /// Whether a user has not been replaced, because all that it came with was revoked.
    pub(super) fn has(&self, user: &Arc<User>) -> bool {
        lock(&self.open).values().any(|open| Arc::ptr_eq(open, user))
    }

    /// Returns the number of users, and of their sessions of the protocol.
    pub(super) async fn count(&self) -> (usize, usize) {
        let users: Vec<_> = lock(&self.open).values().cloned().collect();
        let mut sessions = 0;
        for service in users.iter().flat_map(|user| user.services()) {
            sessions += service.sessions().await;
        }
        (users.len(), sessions)
    }

    /// Ends what belongs to revoked credentials, and the workspaces of users who are gone.
    pub(super) async fn look_after(&self, credentials: &Credentials) {
        let users: Vec<_> =
            lock(&self.open).iter().map(|(name, user)| (name.clone(), Arc::clone(user))).collect();
        for (name, user) in users {
            let is_revoked = user.drop_revoked(&name, credentials);
            let keeps_interpreters = self.bridge.settings.runtime_idle_timeout.is_none();
            let may_end = !keeps_interpreters && !self.quotas.is_active(name.as_str());
            let is_over = is_revoked || (may_end && user.is_idle(IDLE).await);
            if is_over {
                self.close_one(&name, user);
                continue;
            }
            self.count_idle_work(&name, &user);
        }
        self.make_room(MOST_IDLE, QUIET).await;
        let quotas = Arc::clone(&self.quotas);
        let saved = tokio::task::spawn_blocking(move || {
            quotas.save();
            quotas.forget_idle_users();
        });
        if saved.await.is_err() {
            tracing::warn!("could not write what users have used today");
        }
        credentials.tokens.look_again();
    }

    /// Ends workspaces of users who have nothing else, and have done nothing for some time, if there are more than `most`.
    async fn make_room(&self, most: usize, time: Duration) {
        let users: Vec<_> =
            lock(&self.open).iter().map(|(name, user)| (name.clone(), Arc::clone(user))).collect();
        if users.len() <= most {
            return;
        }
        let mut idle = Vec::new();
        for (name, user) in users {
            let has_sessions = !user.workspace.sessions.list().is_empty();
            if !has_sessions && !self.quotas.is_active(name.as_str()) && user.is_idle(time).await {
                let used = *lock(&user.last_used);
                idle.push((used, name, user));
            }
        }
        idle.sort_by_key(|(used, ..)| *used);
        let surplus = idle.len().saturating_sub(most);
        for (_, name, user) in idle.into_iter().take(surplus) {
            tracing::debug!(principal = %name, "ended the workspace of a user who does nothing: there are too many");
            self.close_one(&name, user);
        }
    }

    fn close_one(&self, name: &PrincipalName, user: Arc<User>) {
        lock(&self.open).remove(name);
        self.end(user);
    }

    /// Counts what code takes between runs, and ends it when the day of its user is used up.
    fn count_idle_work(&self, name: &PrincipalName, user: &User) {
        let sessions = &user.workspace.sessions;
        let taken = sessions.take_idle_time();
        if !taken.is_zero() && !self.quotas.charge(&name.shared(), taken) {
            sessions.end_working(USED_UP);
        }
    }

    fn end(&self, user: Arc<User>) {
        user.stop_services();
        self.ending.spawn(async move { user.workspace.end().await });
    }

    /// Ends all sessions of the protocol: their answers end too.
    pub(super) fn stop_services(&self) {
        lock(&self.open).values().for_each(|user| user.stop_services());
    }

    /// Ends all workspaces.
    pub(super) async fn close(&self) {
        let users: Vec<_> = lock(&self.open).drain().map(|(_, user)| user).collect();
        users.into_iter().for_each(|user| self.end(user));
        self.ending.close();
        self.ending.wait().await;
        self.quotas.save();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::pin::pin;

    use futures_util::FutureExt;
    use tokio::sync::mpsc;

    use super::*;
    use crate::session::{Caller, RunRequest};
    use crate::settings::{Environment, RawSettings, Settings};
    use crate::tokens::{NewToken, Refused, Scope, Scopes, Tokens};

    fn users(state: &Path) -> Users {
        let environment: Environment =
            [("MCP_BRIDGE_STATE_DIR".into(), state.into()), ("HOME".into(), state.into())].into();
        let settings = Settings::resolve(&RawSettings::from_environment(&environment).unwrap()).unwrap();
        Users::new(Arc::new(Bridge::new(settings, environment)), false)
    }

    fn open(users: &Users, name: &str) -> Arc<User> {
        let (principal, scopes) = (name.parse().unwrap(), Scopes::mcp());
        users.of(&Identity { principal, scopes, credential: Credential::Start, until: None })
    }

    #[tokio::test]
    async fn a_user_with_a_run_in_the_background_keeps_the_workspace() {
        let state = tempfile::tempdir().unwrap();
        let user = open(&users(state.path()), "alice");
        assert!(user.is_idle(Duration::ZERO).await);
        let request = RunRequest {
            code: "1".into(),
            servers: Vec::new(),
            timeout: IDLE,
            session: "main".into(),
            clamped: None,
        };
        let caller = Caller::without_answers(mpsc::channel(1).0, CancellationToken::new());
        let mut start = pin!(user.workspace.sessions.start_and_then(request, caller, |_| ()));
        assert!(start.as_mut().now_or_never().is_none(), "it has ended");
        assert!(!user.is_idle(Duration::ZERO).await);
    }

    #[tokio::test]
    async fn the_workspace_of_a_user_who_only_looked_at_pages_ends_with_the_token() {
        let state = tempfile::tempdir().unwrap();
        let (tokens, refused) = (Tokens::at(state.path()), Refused::at(state.path()));
        let new =
            NewToken { principal: "alice".parse().unwrap(), scopes: Scopes::of_console(), lifetime: None };
        let secret = tokens.add(new).unwrap();
        let credentials = Credentials::new(tokens, refused, None);
        let identity = credentials.of_token(&secret, Scope::Console).await.unwrap();
        let users = users(state.path());
        let user = users.of(&identity);
        users.look_after(&credentials).await;
        assert!(users.has(&user));
        Tokens::at(state.path()).revoke("alice").unwrap();
        users.look_after(&credentials).await;
        assert!(!users.has(&user));
        users.close().await;
    }

    #[tokio::test]
    async fn users_who_do_nothing_make_room_in_their_order() {
        let state = tempfile::tempdir().unwrap();
        let users = users(state.path());
        let opened = ["a", "b", "c", "d"].map(|name| open(&users, name));
        let asks = Arc::clone(&opened[0].requests).try_acquire_owned().unwrap();
        opened[1].was_used();
        let are_open = || [0, 1, 2, 3].map(|index: usize| users.has(&opened[index]));
        users.make_room(1, IDLE).await;
        assert_eq!(are_open(), [true; 4], "they have just done something");
        users.make_room(4, Duration::ZERO).await;
        assert_eq!(are_open(), [true; 4]);
        users.make_room(1, Duration::ZERO).await;
        assert_eq!(
            are_open(),
            [true, true, false, false],
            "the first has a request, the second was there last"
        );
        drop(asks);
        users.close().await;
    }
}
