//! Why a place could not be looked at or cleaned.

use std::io;

use codebridge_images::StoreError;
use codebridge_runtimes::ReclaimError;

use crate::artifacts::ArtifactError;
use crate::audit::AuditError;

#[derive(Debug, thiserror::Error)]
pub enum GcError {
    #[error("could not remove unused images: {0}")]
    Images(#[from] StoreError),
    #[error("could not remove unused packages: {0}")]
    Packages(#[source] io::Error),
    #[error("could not remove unused documentation of servers: {0}")]
    Catalogue(#[source] io::Error),
    #[error("could not remove artifacts beyond the limit: {0}")]
    Artifacts(#[from] ArtifactError),
    #[error("could not remove old files of the audit log: {0}")]
    Audit(#[from] AuditError),
    #[error("could not remove a sandbox of a bridge that has ended: {0}")]
    Sandboxes(#[source] Box<ReclaimError>),
}
