//! `codebridge gc`: finds what is unused in the stores of a user, and removes it.
//!
//! Each store knows what of it is unused, and removes it under its own locks: bridges may run meanwhile. Nothing depends on this:
//! stores that are never collected stay within their limits or are removed by hand.

mod error;

use std::sync::Arc;
use std::time::Duration;

use codebridge_images::Prune;
use codebridge_runtimes::OwnerState;
use serde::Serialize;

pub use error::GcError;

use crate::artifacts::Artifacts;
use crate::audit;
use crate::http::gone_listeners;
use crate::image_sources::image_resolver;
use crate::packages::PackageService;
use crate::session::{cache_dir, old_bytecode};
use crate::settings::Settings;
use crate::sizes::Amount;
use crate::upstream::registry::old_answers;
use crate::workspace::{Bridge, Workspace, principals};
use crate::{housekeeping, workspace};

/// Sets of packages that were not used for so many seconds are removed.
const UNUSED_PACKAGES: u64 = 30 * 24 * 3600;
/// Documentation of servers that are not defined any more is removed at this age: another working directory may define them.
const UNUSED_DOCUMENTATION: Duration = Duration::from_secs(30 * 24 * 3600);

/// What is done with what is unused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    Look,
    Remove,
}

/// A store, or another place where something may be unused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    Images,
    Packages,
    Catalogue,
    Registry,
    Artifacts,
    Audit,
    Sandboxes,
    Listeners,
    Bytecode,
}

impl Place {
    pub fn name(self) -> &'static str {
        match self {
            Self::Images => "images",
            Self::Packages => "packages",
            Self::Catalogue => "catalogue",
            Self::Registry => "registry",
            Self::Artifacts => "artifacts",
            Self::Audit => "audit",
            Self::Sandboxes => "sandboxes",
            Self::Listeners => "listeners",
            Self::Bytecode => "bytecode",
        }
    }

    /// Returns what of it is unused.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Images => "images without a name, interrupted downloads",
            Self::Packages => "sets that were not used for 30 days, folders of sessions that have ended",
            Self::Catalogue => "tools of servers that are not defined any more, after 30 days",
            Self::Registry => "answers of the registry of servers, after an hour",
            Self::Artifacts => "the oldest versions beyond MCP_BRIDGE_ARTIFACTS_LIMIT",
            Self::Audit => "the oldest files beyond 256 MiB",
            Self::Sandboxes => "sandboxes of bridges that have ended",
            Self::Listeners => "records of HTTP listeners that have ended",
            Self::Bytecode => "what other versions of codebridge have compiled",
        }
    }
}

/// What is unused in a place, or was removed there.
#[derive(Debug, Clone, Serialize)]
pub struct Unused {
    pub place: Place,
    #[serde(flatten)]
    pub amount: Amount,
}

/// What was found or removed everywhere, and which places failed.
#[derive(Debug, Default)]
pub struct Collected {
    /// Places with something.
    pub unused: Vec<Unused>,
    pub failed: Vec<GcError>,
}

impl Collected {
    /// Returns the sum.
    pub fn total(&self) -> Amount {
        let mut total = Amount::default();
        self.unused.iter().for_each(|unused| total += unused.amount);
        total
    }

    fn take(&mut self, place: Place, found: Result<Amount, GcError>) {
        match found {
            Ok(Amount { count: 0, .. }) => {}
            Ok(amount) => self.unused.push(Unused { place, amount }),
            Err(error) => self.failed.push(error),
        }
    }
}

/// Finds or removes what is unused.
pub async fn collect(bridge: &Arc<Bridge>, act: Act) -> Collected {
    let settings = &bridge.settings;
    let mut all = Collected::default();
    all.take(Place::Images, images(act));
    all.take(Place::Packages, packages(&bridge.packages, act));
    all.take(Place::Catalogue, catalogue(bridge, act).await);
    let folders = folders(settings);
    let registry = |settings: &Settings| Ok(old_answers(&settings.state_dir, act == Act::Remove));
    all.take(Place::Registry, sum(&folders, registry));
    all.take(Place::Artifacts, sum(&folders, |settings| artifacts(settings, act)));
    all.take(Place::Audit, sum(&folders, |settings| audit(settings, act)));
    all.take(Place::Sandboxes, sandboxes(settings, act).await);
    let listeners = gone_listeners(&settings.state_dir, act == Act::Remove);
    all.take(Place::Listeners, Ok(listeners));
    // Without a cache folder there is none.
    let bytecode = cache_dir().map(|cache| old_bytecode(&cache, act == Act::Remove));
    all.take(Place::Bytecode, Ok(bytecode.unwrap_or_default()));
    all
}

/// Returns the settings of each user: those of this one, and those of the principals of a bridge that listens.
fn folders(settings: &Settings) -> Vec<Settings> {
    let mut all = vec![settings.clone()];
    for name in principals(&settings.state_dir) {
        let mut own = settings.clone();
        own.state_dir.value = workspace::folder_of(&settings.state_dir, &name);
        all.push(own);
    }
    all
}

fn sum(
    all: &[Settings],
    mut of_one: impl FnMut(&Settings) -> Result<Amount, GcError>,
) -> Result<Amount, GcError> {
    let mut total = Amount::default();
    for settings in all {
        total += of_one(settings)?;
    }
    Ok(total)
}

fn images(act: Act) -> Result<Amount, GcError> {
    let images = image_resolver(false);
    let prunable = images.store().prunable()?;
    let amount = Amount { count: prunable.count, bytes: prunable.bytes };
    if act == Act::Look || amount.count == 0 {
        return Ok(amount);
    }
    let pruned = images.store().prune(Prune::default())?;
    Ok(Amount { bytes: pruned.bytes, ..amount })
}

fn packages(service: &PackageService, act: Act) -> Result<Amount, GcError> {
    // Without a cache folder there are none.
    let Ok(store) = service.store() else { return Ok(Amount::default()) };
    match act {
        Act::Look => store.unused(UNUSED_PACKAGES),
        Act::Remove => store.remove_unused(UNUSED_PACKAGES),
    }
    .map_err(GcError::Packages)
}

async fn catalogue(bridge: &Arc<Bridge>, act: Act) -> Result<Amount, GcError> {
    let mut users = vec![Workspace::new(Arc::clone(bridge))];
    let names = principals(&bridge.settings.state_dir);
    users.extend(names.iter().map(|name| Workspace::of_principal(Arc::clone(bridge), name)));
    let mut total = Amount::default();
    for user in &users {
        let unused = user.upstream.unused_documentation(UNUSED_DOCUMENTATION, act == Act::Remove).await;
        total += unused.map_err(GcError::Catalogue)?;
    }
    Ok(total)
}

fn artifacts(settings: &Settings, act: Act) -> Result<Amount, GcError> {
    let artifacts = Artifacts::at(&settings.state_dir.value, settings.artifacts_limit.value);
    let amount = match act {
        Act::Look => artifacts.surplus()?,
        Act::Remove => artifacts.remove_surplus()?,
    };
    Ok(amount)
}

fn audit(settings: &Settings, act: Act) -> Result<Amount, GcError> {
    let folder = audit::folder_in(&settings.state_dir.value);
    match act {
        Act::Look => Ok(audit::unused(&folder)),
        Act::Remove => Ok(audit::remove_unused(&folder)?),
    }
}

async fn sandboxes(settings: &Settings, act: Act) -> Result<Amount, GcError> {
    let count = match act {
        Act::Look => {
            let all = housekeeping::list(settings).await.entries;
            all.iter().filter(|sandbox| sandbox.owner == OwnerState::Dead).count()
        }
        Act::Remove => {
            let swept = housekeeping::reap(settings).await;
            // Those of an engine that does not answer are removed when it does.
            if let Some(error) = swept.failed.into_iter().next() {
                return Err(GcError::Sandboxes(Box::new(error)));
            }
            swept.removed.len()
        }
    };
    Ok(Amount { count, bytes: 0 })
}
