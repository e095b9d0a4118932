//! Attempts that must fail, with the exact refusal, on every runtime.
//!
//! The attacks are data: Python in `attacks/`, in sections that say how each one ends. Attacks of the first kind run
//! in processes of their own, all of them in one sandbox for each runtime. Where it is harmless they also run outside
//! of a sandbox, where they must end differently: this proves that it is the sandbox that refuses. Attacks of the
//! second kind end their session: with a reason, while the bridge keeps working and the next call runs.

mod catalogue;
mod mounts;
mod quick;
mod sessions;
mod table;

use crate::harness::Suite;

pub(crate) fn register(suite: &mut Suite) {
    mounts::register(suite);
    quick::register(suite);
    sessions::register(suite);
    table::register(suite);
}
