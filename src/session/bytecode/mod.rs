//! Compiled Python modules: of the guest, of the standard library of an image, of packages. They only save time.

mod compile;
mod guest;
mod library;
mod packages;

pub(super) use guest::GuestBytecode;
pub use guest::old_bytecode;
pub(super) use library::compile_library;
pub(super) use packages::compile_packages;
