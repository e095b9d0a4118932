//! Where inputs are kept: those of the repository, and in `target/fuzz` what runs on this machine have found.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use crate::random::Random;

/// Random inputs for a check without a corpus, whose inputs are choices: the first is empty, each has as many bytes more.
const MADE: usize = 32;
const MORE_BYTES: usize = 8;

pub(crate) fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name)
}

fn found_folder() -> PathBuf {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    std::env::var_os("CARGO_TARGET_DIR").map_or(target, PathBuf::from).join("fuzz")
}

/// Returns the inputs to begin with, at least one; with those that were found earlier if that is wanted.
pub(crate) fn read(name: &str, with_found: bool, random: &mut Random) -> Vec<Vec<u8>> {
    let mut inputs = files(&folder(name));
    if inputs.is_empty() {
        inputs = (0..MADE).map(|number| random.bytes(number * MORE_BYTES)).collect();
    }
    if with_found {
        inputs.extend(files(&found_folder().join(name)));
    }
    inputs
}

fn files(folder: &Path) -> Vec<Vec<u8>> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths.iter().filter_map(|path| fs::read(path).ok()).collect()
}

/// Keeps an input that reaches new code.
pub(crate) fn keep(name: &str, input: &[u8]) {
    write(&found_folder().join(name).join(digest(input)), input);
}

/// Keeps an input for which a check failed, and returns where.
pub(crate) fn keep_failure(name: &str, input: &[u8]) -> PathBuf {
    let path = found_folder().join(format!("{name}-failure-{}", digest(input)));
    write(&path, input);
    path
}

fn write(path: &Path, input: &[u8]) {
    let written = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(path, input));
    if let Err(error) = written {
        panic!("cannot write {}: {error}", path.display());
    }
}

fn digest(input: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    input.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}
