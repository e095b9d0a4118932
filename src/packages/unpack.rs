//! Packages for the bridge itself: files that are read, and no code that is run.

use std::path::{Path, PathBuf};

use super::installer::Installer;
use super::{ImagePython, InstallError, Pin, RawPython};
use crate::reaper::Reaper;
use crate::settings::Environment;

/// Downloads packages for every Python, and returns the folder below `staging` that they are unpacked into.
///
/// # Errors
/// There is no installer, or it fails: the index is not reached, or has other files than those of the pins.
pub async fn unpack(
    pins: &[Pin],
    environment: &Environment,
    reaper: Reaper,
    staging: &Path,
) -> Result<PathBuf, InstallError> {
    let any = RawPython {
        version: "3.12.0".into(),
        machine: "x86_64".into(),
        libc: "glibc 2.36".into(),
        ..RawPython::default()
    };
    let python = ImagePython::parse(&any).ok_or(InstallError::NoInstaller)?;
    let installer = Installer::find(environment, reaper)?;
    match installer.download(pins, &python, staging, false).await {
        Err(InstallError::Offline) => installer.download(pins, &python, staging, true).await?,
        done => done?,
    }
    Ok(staging.join("files"))
}
