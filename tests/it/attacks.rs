//! Attempts that must fail, with the exact refusal, on every runtime.
//!
//! The attacks are data: Python in `attacks/`, in sections that say how they end. Those of the first kind are tried in
//! processes of their own, all of them in one sandbox for each runtime; where it does no harm they are tried outside of
//! one as well, where they must end in another way, which shows that it is the sandbox that refuses. Those of the second
//! kind use up their session: it ends with a reason, the bridge stays as it is, and the next call runs.

mod catalogue;
mod mounts;
mod quick;
mod sessions;

use crate::harness::Suite;

pub(crate) fn register(suite: &mut Suite) {
    mounts::register(suite);
    quick::register(suite);
    sessions::register(suite);
}
