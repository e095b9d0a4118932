//! Images in files of every form, made as other tools make them.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use tar::EntryType;

use crate::digest::Digest;
use crate::image::ensure_root;
use crate::platform::Platform;
use crate::store::{Root, Store};
use crate::unpack::archive::Archive;
use crate::{ImageError, ImageName};

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A layout being made.
#[derive(Default)]
struct Layout {
    blobs: BTreeMap<Digest, Vec<u8>>,
    index: Vec<Value>,
}

impl Layout {
    fn blob(&mut self, media_type: &str, content: Vec<u8>) -> Value {
        let digest = Digest::of(&content);
        let descriptor = json!({ "mediaType": media_type, "digest": digest, "size": content.len() });
        self.blobs.insert(digest, content);
        descriptor
    }

    /// An image of two layers, whose second says which one it is.
    fn image(&mut self, what: &str, architecture: &str) -> Value {
        let below = Archive::new().folder("usr").file("usr/gone", b"1").done();
        let above = Archive::new().file("usr/.wh.gone", b"").file("usr/what", what.as_bytes()).done();
        let diff_ids = [Digest::of(&below), Digest::of(&above)];
        let config = json!({ "os": "linux", "architecture": architecture, "config": { "Env": ["A=b"] },
            "rootfs": { "type": "layers", "diff_ids": diff_ids } });
        let config = self.blob("application/vnd.oci.image.config.v1+json", config.to_string().into());
        let layers = [
            self.blob("application/vnd.oci.image.layer.v1.tar+gzip", gzip(&below)),
            self.blob(
                "application/vnd.oci.image.layer.v1.tar+zstd",
                zstd::encode_all(above.as_slice(), 1).unwrap(),
            ),
        ];
        let manifest = json!({ "schemaVersion": 2, "config": config, "layers": layers });
        self.blob("application/vnd.oci.image.manifest.v1+json", manifest.to_string().into())
    }

    fn named(&mut self, mut descriptor: Value, name: &str) {
        descriptor["annotations"] = json!({ "org.opencontainers.image.ref.name": name });
        self.index.push(descriptor);
    }

    fn files(&self) -> Vec<(String, Vec<u8>)> {
        let index = json!({ "schemaVersion": 2, "manifests": self.index });
        let blobs = self
            .blobs
            .iter()
            .map(|(digest, content)| (format!("blobs/sha256/{}", digest.hex()), content.clone()));
        blobs
            .chain([
                ("oci-layout".to_string(), br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec()),
                ("index.json".to_string(), index.to_string().into_bytes()),
            ])
            .collect()
    }

    fn folder(&self, folder: &Path) {
        for (name, content) in self.files() {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
    }

    fn archive(&self) -> Archive {
        self.files()
            .iter()
            .fold(Archive::new(), |archive, (name, content)| archive.file(&format!("./{name}"), content))
    }
}

fn here() -> String {
    Platform::here().architecture
}

struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// What the image says it is.
    async fn what(&self, form: &str, path: &Path, tag: &str) -> Result<String, ImageError> {
        let root = self.root(&format!("{form}:{}{tag}", path.display())).await?;
        assert_eq!(root.run().env, ["A=b"]);
        assert!(!root.directory().join("usr/gone").exists());
        Ok(fs::read_to_string(root.directory().join("usr/what")).unwrap())
    }

    async fn root(&self, name: &str) -> Result<Root, ImageError> {
        let name: ImageName = name.parse().unwrap();
        let (image, layers) = super::open(&name)?;
        ensure_root(&Store::at(self.path("store")), &image, layers, &(Arc::new(()) as _)).await
    }
}

#[tokio::test]
async fn layouts_are_read_from_folders_and_archives() {
    let place = Place::new();
    let mut layout = Layout::default();
    let one = layout.image("one", &here());
    let two = layout.image("two", &here());
    layout.named(one, "v1");
    layout.named(two, "docker.io/library/x:v2");
    layout.folder(&place.path("layout"));
    fs::write(place.path("a.tar"), layout.archive().done()).unwrap();
    fs::write(place.path("a.tar.gz"), gzip(&layout.archive().done())).unwrap();
    for (form, file) in [("oci", "layout"), ("oci-archive", "a.tar"), ("oci-archive", "a.tar.gz")] {
        let path = place.path(file);
        assert_eq!(place.what(form, &path, ":v1").await.unwrap(), "one");
        assert_eq!(place.what(form, &path, ":v2").await.unwrap(), "two");
        let error = place.what(form, &path, "").await.unwrap_err().to_string();
        assert!(error.contains("more than one image: v1, docker.io"), "{error}");
        let error = place.what(form, &path, ":v3").await.unwrap_err().to_string();
        assert!(error.contains("no image 'v3', only v1, docker.io/library/x:v2"), "{error}");
    }
}

#[tokio::test]
async fn the_entry_for_this_machine_is_also_found_in_a_nested_index() {
    let place = Place::new();
    let mut layout = Layout::default();
    let mut entries = Vec::new();
    for (what, architecture) in [("other", "s390x"), ("ours", here().as_str())] {
        let mut entry = layout.image(what, architecture);
        entry["platform"] = json!({ "os": "linux", "architecture": architecture });
        entries.push(entry);
    }
    let flat = Layout { blobs: layout.blobs.clone(), index: entries.clone() };
    flat.folder(&place.path("flat"));
    let index = json!({ "schemaVersion": 2, "manifests": entries }).to_string();
    let index = layout.blob("application/vnd.oci.image.index.v1+json", index.into());
    layout.named(index, "latest");
    layout.folder(&place.path("nested"));
    for layout in ["flat", "nested"] {
        assert_eq!(place.what("oci", &place.path(layout), "").await.unwrap(), "ours", "{layout}");
    }
}

#[tokio::test]
async fn images_of_another_machine_are_refused_by_name() {
    let place = Place::new();
    let mut layout = Layout::default();
    let image = layout.image("x", "s390x");
    layout.named(image, "latest");
    layout.folder(&place.path("layout"));
    let error = place.what("oci", &place.path("layout"), "").await.unwrap_err().to_string();
    assert!(error.contains("only for linux/s390x"), "{error}");
}

/// What docker and podman have written over the years.
fn docker_archive(layers: [(&str, Option<&str>); 2]) -> Archive {
    let below = Archive::new().folder("usr").file("usr/gone", b"1").done();
    let above = Archive::new().file("usr/.wh.gone", b"").file("usr/what", b"docker").done();
    let config = json!({ "os": "linux", "architecture": here(), "config": { "Env": ["A=b"] },
        "rootfs": { "type": "layers", "diff_ids": [Digest::of(&below), Digest::of(&above)] } })
    .to_string();
    let manifest = json!([{ "Config": "config.json", "RepoTags": ["python:3", "x/y:1"],
        "Layers": [layers[0].0, layers[1].0] }]);
    let mut archive = Archive::new();
    for ((name, link), content) in layers.into_iter().zip([&below, &above]) {
        archive = match link {
            // The content is elsewhere, and this name leads there.
            Some(target) => archive.file("real/layer.tar", content).symlink(name, target),
            None => archive.file(name, content),
        };
    }
    archive.file("config.json", config.as_bytes()).file("manifest.json", manifest.to_string().as_bytes())
}

#[tokio::test]
async fn an_archive_of_docker_save_is_read_with_its_links() {
    let place = Place::new();
    let plain = docker_archive([("1/layer.tar", None), ("2/layer.tar", None)]);
    let linked = docker_archive([("1/layer.tar", None), ("2/layer.tar", Some("../real/layer.tar"))]);
    for (file, archive) in [
        ("plain.tar", plain.done()),
        ("linked.tar", linked.clone().done()),
        ("z.tar.gz", gzip(&linked.done())),
    ] {
        fs::write(place.path(file), archive).unwrap();
        for reference in ["", ":python:3", ":docker.io/library/python:3", ":x/y:1"] {
            assert_eq!(place.what("docker-archive", &place.path(file), reference).await.unwrap(), "docker");
        }
        let error =
            place.what("docker-archive", &place.path(file), ":python:4").await.unwrap_err().to_string();
        assert!(error.contains("no image 'python:4', only python:3, x/y:1"), "{error}");
    }
}

#[tokio::test]
async fn content_that_does_not_match_its_digest_is_refused() {
    let place = Place::new();
    for spoiled in 0..4 {
        let mut layout = Layout::default();
        let image = layout.image("x", &here());
        layout.named(image, "latest");
        let digest = layout.blobs.keys().nth(spoiled).unwrap().clone();
        let content = layout.blobs.get_mut(&digest).unwrap();
        // Valid all the same, where it is compressed or JSON.
        let other = if content.starts_with(b"{") {
            [content.as_slice(), b" "].concat()
        } else {
            gzip(&Archive::new().done())
        };
        *content = other;
        let folder = place.path(&format!("layout{spoiled}"));
        layout.folder(&folder);
        let error = place.what("oci", &folder, "").await.unwrap_err();
        let text = error.to_string();
        assert!(text.contains("does not match its digest") || text.contains("instead of"), "{text}");
    }
    assert_eq!(
        fs::read_dir(place.path("store/roots"))
            .unwrap()
            .filter(|e| e.as_ref().unwrap().path().is_dir())
            .count(),
        0
    );
}

#[tokio::test]
async fn a_file_or_folder_that_is_not_an_image_is_refused() {
    let place = Place::new();
    fs::create_dir(place.path("empty")).unwrap();
    fs::write(place.path("text"), "no archive at all, but long enough to be read as one".repeat(20)).unwrap();
    fs::write(place.path("empty.tar"), Archive::new().done()).unwrap();
    for (form, file, expected) in [
        ("oci", "empty", "its index.json is missing"),
        ("oci", "text", "use `oci-archive:`"),
        ("oci", "missing", "failed to read"),
        ("oci-archive", "empty", "use `oci:`"),
        ("oci-archive", "text", "checksum"),
        ("oci-archive", "empty.tar", "its index.json is missing"),
        ("docker-archive", "empty.tar", "its manifest.json is missing"),
        ("docker-archive", "missing", "failed to read"),
    ] {
        let error = place.what(form, &place.path(file), "").await.unwrap_err().to_string();
        assert!(error.contains(expected), "{form}:{file}: {error}");
    }
}

#[tokio::test]
async fn links_in_an_archive_never_lead_to_files_of_this_machine() {
    let place = Place::new();
    fs::write(place.path("manifest.json"), "[]").unwrap();
    let target = place.path("manifest.json");
    for target in [target.to_str().unwrap(), "../manifest.json"] {
        let archive = Archive::new().entry("manifest.json", EntryType::Symlink, 0o777, target, b"");
        fs::write(place.path("a.tar"), archive.done()).unwrap();
        let error = place.what("docker-archive", &place.path("a.tar"), "").await.unwrap_err().to_string();
        assert!(error.contains("its manifest.json is missing"), "{error}");
    }
}
