//! Root filesystems for runtimes that cannot fetch images: the store of unpacked images.
//!
//! `store` keeps one unpacked root per image id and makes sure that it is whole; `unpack` writes an archive into a
//! folder and trusts nothing in it.

mod store;
mod unpack;

pub use store::{Store, StoreError};
pub use unpack::UnpackError;
