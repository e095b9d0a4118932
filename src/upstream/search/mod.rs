//! Which tools fit a wish.

mod analysis;
mod index;
mod intent;
mod query;
mod stem;
mod stop;
mod synonyms;
mod typos;
mod weights;
mod words;

pub use analysis::Terms;
pub use index::{Hit, Index, IndexedServer};
pub use weights::Weights;
