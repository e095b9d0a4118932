//! Where images come from, for sessions and for `codebridge image`: the store of this user, engines, registries, builds.
//! The image crate starts no programs; what needs one is here.

pub mod build;
mod engines;
mod error;
mod find;
mod helper;
mod watch;

use std::path::PathBuf;
use std::sync::Arc;

use codebridge_images::{ImageResolver, Store};

pub use engines::import_from_engine;
pub use error::SourceError;
pub use find::find_root;
pub use watch::Watch;

/// Returns the resolver over the store of this user. With `plain_http`, registries may be asked without TLS.
pub fn image_resolver(plain_http: bool) -> ImageResolver {
    ImageResolver::new(Store::at(store_dir()), Arc::new(helper::Programs), plain_http)
}

/// Returns `$XDG_DATA_HOME/codebridge` or its default; for root the default is `/var/lib/codebridge`, because the ids of
/// sandboxes have to pass through all folders above an image.
fn store_dir() -> PathBuf {
    use etcetera::BaseStrategy;
    let is_set = std::env::var_os("XDG_DATA_HOME").is_some_and(|dir| PathBuf::from(dir).is_absolute());
    if rustix::process::getuid().is_root() && !is_set {
        return PathBuf::from("/var/lib/codebridge");
    }
    match etcetera::choose_base_strategy() {
        Ok(base) => base.data_dir().join("codebridge"),
        Err(_) => std::env::temp_dir().join("codebridge-images"),
    }
}
