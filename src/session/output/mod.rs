//! The output of runs: what a result shows of it, and what is kept on disk for later.

mod capture;
mod displays;
mod kept;
mod rewritten;

pub(super) use capture::Capture;
pub use capture::whole_characters;
pub(super) use displays::{DisplayCapture, PictureBudget};
pub(super) use kept::{Kept, Outputs, UnderWay};
pub use rewritten::Rewritten;
