//! The image of a skeleton: an engine that starts only images gets the empty folders and links as an image, and the real
//! folders as mounts.

use std::path::Path;

use tar::{Builder, EntryType, Header};

use crate::root::ComposedRoot;

/// Returns the name of the image of a skeleton; the name of the folder is a hash of its content.
pub(super) fn image_name(skeleton: &Path) -> String {
    let hash = skeleton.file_name().unwrap_or_default().to_string_lossy().into_owned();
    format!("codebridge-skeleton:{hash}")
}

/// Returns the skeleton as a tar archive. Writing to memory cannot fail; names that do not fit a header are left out.
pub(super) fn archive(root: &ComposedRoot) -> Vec<u8> {
    let mut archive = Builder::new(Vec::new());
    let mut put = |path: &str, kind: EntryType, mode: u32, link: Option<&Path>, content: &[u8]| {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(content.len() as u64);
        let name = path.trim_start_matches('/');
        let done = match link {
            Some(link) => archive.append_link(&mut header, name, link),
            None => archive.append_data(&mut header, name, content),
        };
        if let Err(error) = done {
            tracing::debug!(path, %error, "this path is left out of the skeleton");
        }
    };
    for folder in &root.folders {
        put(folder, EntryType::Directory, root.mode_of(folder), None, b"");
    }
    for (path, link) in &root.links {
        put(path, EntryType::Symlink, 0o777, Some(link), b"");
    }
    for (path, text) in &root.files {
        put(path, EntryType::Regular, 0o644, None, text.as_bytes());
    }
    archive.into_inner().unwrap_or_default()
}
