//! Packs folders into an `oci-archive:`, the same bytes for the same content.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use tar::{Builder, EntryType, Header};

use super::{Recipe, RecipeError};
use crate::digest::{Digest, Hasher};
use crate::manifest::{OCI_INDEX, OCI_MANIFEST};
use crate::platform::Platform;

const CONFIG_TYPE: &str = "application/vnd.oci.image.config.v1+json";
/// All engines of the last ten years read it.
const LAYER_TYPE: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// A packed layer.
#[derive(Debug, Clone)]
pub struct Layer {
    file: PathBuf,
    diff_id: Digest,
    digest: Digest,
    /// The size of the file.
    pub bytes: u64,
}

/// Hashes bytes and passes them on.
struct Hashing<W> {
    inner: W,
    hasher: Hasher,
    bytes: u64,
}

impl<W> Hashing<W> {
    fn new(inner: W) -> Self {
        Self { inner, hasher: Hasher::sha256(), bytes: 0 }
    }
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(bytes)?;
        self.hasher.update(&bytes[..count]);
        self.bytes += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Packs a folder as a layer into a file. All files get the same time and belong to root.
///
/// # Errors
/// The folder cannot be read, or the file cannot be written.
pub fn pack_layer(
    folder: &Path,
    into: &Path,
    created: u64,
    cancelled: &AtomicBool,
) -> Result<Layer, RecipeError> {
    let file = File::create(into).map_err(RecipeError::io("write", into))?;
    let compressed = Hashing::new(BufWriter::new(file));
    let plain = Hashing::new(GzEncoder::new(compressed, Compression::default()));
    let mut packer = Packer { archive: Builder::new(plain), created, links: HashMap::new(), cancelled };
    packer.folder(folder, Path::new(""))?;
    let finish = || -> io::Result<Layer> {
        let plain = packer.archive.into_inner()?;
        let compressed = plain.inner.finish()?;
        compressed.inner.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        Ok(Layer {
            file: into.into(),
            diff_id: plain.hasher.finish(),
            digest: compressed.hasher.finish(),
            bytes: compressed.bytes,
        })
    };
    finish().map_err(RecipeError::io("write", into))
}

struct Packer<'a, W: Write> {
    archive: Builder<W>,
    created: u64,
    /// Files with several names, by number; the first name holds the content.
    links: HashMap<u64, PathBuf>,
    cancelled: &'a AtomicBool,
}

impl<W: Write> Packer<'_, W> {
    fn folder(&mut self, folder: &Path, inside: &Path) -> Result<(), RecipeError> {
        let entries = fs::read_dir(folder).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let mut entries = entries.map_err(RecipeError::io("read the folder", folder))?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            if self.cancelled.load(Ordering::Relaxed) {
                return Err(RecipeError::Cancelled);
            }
            let (path, name) = (entry.path(), inside.join(entry.file_name()));
            self.entry(&path, &name).map_err(RecipeError::io("pack", &path))?;
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                self.folder(&path, &name)?;
            }
        }
        Ok(())
    }

    fn entry(&mut self, path: &Path, name: &Path) -> io::Result<()> {
        let meta = fs::symlink_metadata(path)?;
        // Independent of the umask of whoever builds it.
        let mode = if meta.is_dir() || meta.mode() & 0o100 != 0 { 0o755 } else { 0o644 };
        let header = |kind, mode| header(kind, mode, 0, self.created);
        if meta.is_symlink() {
            let mut header = header(EntryType::Symlink, 0o777);
            return self.archive.append_link(&mut header, name, fs::read_link(path)?);
        }
        if meta.is_dir() {
            let mut header = header(EntryType::Directory, mode);
            // With a slash at its end.
            return self.archive.append_data(&mut header, name.join(""), io::empty());
        }
        if meta.nlink() > 1 {
            if let Some(first) = self.links.get(&meta.ino()) {
                let mut header = header(EntryType::Link, mode);
                return self.archive.append_link(&mut header, name, first);
            }
            self.links.insert(meta.ino(), name.into());
        }
        let mut header = header(EntryType::Regular, mode);
        header.set_size(meta.len());
        self.archive.append_data(&mut header, name, BufReader::with_capacity(128 << 10, File::open(path)?))
    }
}

/// Writes the image of these layers, the lowest first; returns the digest of its manifest.
///
/// # Errors
/// The file cannot be written.
pub fn write_archive(
    recipe: &Recipe,
    platform: &Platform,
    layers: &[Layer],
    tag: &str,
    into: &Path,
) -> Result<Digest, RecipeError> {
    let created = recipe.time().to_string();
    let env: Vec<_> = recipe.env.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let history: Vec<_> = recipe.layers().iter().map(|recipe| {
        json!({ "created": created, "created_by": format!("codebridge image build {}", recipe.name) })
    }).collect();
    let mut config = json!({
        "created": created, "architecture": platform.architecture, "os": platform.os,
        "config": { "Env": env, "Cmd": ["python3"], "WorkingDir": "/" },
        "rootfs": { "type": "layers", "diff_ids": layers.iter().map(|layer| &layer.diff_id).collect::<Vec<_>>() },
        "history": history,
    });
    if let Some(variant) = &platform.variant {
        config["variant"] = json!(variant);
    }
    let config = config.to_string().into_bytes();
    let manifest = json!({
        "schemaVersion": 2, "mediaType": OCI_MANIFEST,
        "config": described(CONFIG_TYPE, &config),
        "layers": layers.iter().map(|layer| {
            json!({ "mediaType": LAYER_TYPE, "digest": layer.digest, "size": layer.bytes })
        }).collect::<Vec<_>>(),
    })
    .to_string()
    .into_bytes();
    let mut entry = described(OCI_MANIFEST, &manifest);
    entry["annotations"] = json!({ "org.opencontainers.image.ref.name": tag });
    let index = json!({ "schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [entry] }).to_string();
    let write = || -> io::Result<()> {
        let mut archive = Builder::new(BufWriter::new(File::create(into)?));
        for folder in ["blobs/", "blobs/sha256/"] {
            archive.append_data(
                &mut header(EntryType::Directory, 0o755, 0, recipe.created),
                folder,
                io::empty(),
            )?;
        }
        let small = [(Digest::of(&config), config.as_slice()), (Digest::of(&manifest), manifest.as_slice())];
        let mut file = |name: &str, size, content: &mut dyn io::Read| {
            archive.append_data(&mut header(EntryType::Regular, 0o644, size, recipe.created), name, content)
        };
        // The description of the rest comes first, for readers of a stream.
        file("oci-layout", 30, &mut &br#"{"imageLayoutVersion":"1.0.0"}"#[..])?;
        file("index.json", index.len() as u64, &mut index.as_bytes())?;
        for (digest, content) in small {
            file(&format!("blobs/sha256/{}", digest.hex()), content.len() as u64, &mut &*content)?;
        }
        for layer in layers {
            file(
                &format!("blobs/sha256/{}", layer.digest.hex()),
                layer.bytes,
                &mut File::open(&layer.file)?,
            )?;
        }
        archive.into_inner()?.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
    };
    write().map_err(RecipeError::io("write", into))?;
    Ok(Digest::of(&manifest))
}

fn header(kind: EntryType, mode: u32, size: u64, created: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(created);
    header.set_size(size);
    header
}

fn described(media_type: &str, content: &[u8]) -> Value {
    json!({ "mediaType": media_type, "digest": Digest::of(content), "size": content.len() })
}
