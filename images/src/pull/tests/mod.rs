//! Pulling from a registry that behaves, and from one that does not.

mod registries;

use std::fs;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::AsyncWriteExt;

use super::puller::Puller;
use crate::digest::Digest;
use crate::error::ImageError;
use crate::manifest::ManifestError;
use crate::platform::Platform;
use crate::progress::{Event, Progress};
use crate::registry::credentials::{CredentialHelper, HelperAnswer, HelperError};
use crate::registry::endpoints::{Endpoint, Scheme};
use crate::registry::environment::Environment;
use crate::registry::error::{ConnectionFailure, PullError, Reason, Tried};
use crate::registry::fake_registry::{FakeRegistry, Fault, Login, blob_path};
use crate::registry::http::{self, Timeouts};
use crate::store::{Root, Store, StoreError};
use crate::unpack::archive::Archive;

const INDEX: &str = "application/vnd.oci.image.index.v1+json";

struct NoHelper;

impl CredentialHelper for NoHelper {
    fn get<'a>(&'a self, name: &'a str, registry: &'a str) -> HelperAnswer<'a> {
        Box::pin(async move { Err(HelperError::NotInstalled(format!("{name} for {registry}"))) })
    }
}

/// Records all events.
#[derive(Default)]
struct Recorder(Mutex<Vec<Event>>);

impl Progress for Recorder {
    fn event(&self, event: Event) {
        self.0.lock().unwrap().push(event);
    }
}

/// A registry, a store and a puller.
struct Scene {
    registry: FakeRegistry,
    store: Store,
    dir: tempfile::TempDir,
    puller: Puller,
    recorder: Arc<Recorder>,
}

impl Scene {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let scene = Self {
            registry: FakeRegistry::start().await,
            store: Store::at(dir.path().join("store")),
            puller: puller(&[("HOME", dir.path().to_str().unwrap())]),
            dir,
            recorder: Arc::default(),
        };
        drop(scene.store.adding().await.unwrap());
        scene
    }

    async fn pull(&self, name: &str) -> Result<Root, ImageError> {
        let name = format!("{}/{name}", self.registry.host).parse().unwrap();
        let progress: Arc<dyn Progress> = self.recorder.clone();
        self.puller.pull(&self.store, &name, &progress).await
    }

    async fn refused(&self, name: &str) -> Vec<Tried> {
        match self.pull(name).await {
            Err(ImageError::Pull(PullError::Refused { tried, .. })) => tried,
            other => panic!("{:?}", other.map(|root| root.id().clone())),
        }
    }

    fn login(&self, text: &str) {
        let folder = self.dir.path().join(".docker");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("config.json"), text.replace("HOST", &self.registry.host)).unwrap();
    }

    /// Requests for content, without what it takes to log in.
    fn fetched(&self) -> usize {
        self.registry
            .asked()
            .iter()
            .filter(|line| line.contains("/blobs/") || line.contains("/manifests/"))
            .count()
    }

    fn retries(&self) -> usize {
        self.recorder.0.lock().unwrap().iter().filter(|event| matches!(event, Event::Retrying { .. })).count()
    }

    fn roots(&self) -> usize {
        let Ok(entries) = fs::read_dir(self.dir.path().join("store/roots")) else { return 0 };
        entries.filter(|entry| entry.as_ref().unwrap().path().is_dir()).count()
    }
}

fn puller(variables: &[(&str, &str)]) -> Puller {
    let lookup = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into());
    let timeouts = Timeouts::default();
    Puller {
        environment: Environment::from_lookup(lookup),
        helper: Arc::new(NoHelper),
        plain_http: false,
        timeouts,
    }
}

/// Two layers, the second of which does not compress.
fn layers() -> [Archive; 2] {
    let mut seed = 1_u32;
    let noise: Vec<u8> = (0..300_000)
        .map(|_| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 24) as u8
        })
        .collect();
    [Archive::new().folder("usr").file("usr/what", b"image"), Archive::new().file("usr/noise", &noise)]
}

fn what(root: &Root) -> String {
    fs::read_to_string(root.directory().join("usr/what")).unwrap()
}

#[tokio::test]
async fn an_image_is_downloaded_verified_unpacked_and_named() {
    let scene = Scene::new().await;
    let (manifest, digests) = scene.registry.image("team/app", Some("v1"), &layers());
    let root = scene.pull("team/app:v1").await.unwrap();
    assert_eq!((what(&root).as_str(), root.run().env.as_slice()), ("image", ["A=b".to_string()].as_slice()));
    let listed = &scene.store.list().unwrap()[0];
    assert_eq!(listed.names, [format!("{}/team/app:v1", scene.registry.host)]);
    assert_eq!(listed.manifest.as_ref().unwrap().to_string(), manifest["digest"].as_str().unwrap());
    let recorder = scene.recorder.0.lock().unwrap();
    for digest in &digests {
        let whole = |event: &Event| matches!(event, Event::Received { layer, received, size } if layer == digest && received == size);
        assert!(recorder.iter().any(whole));
    }
    assert!(recorder.contains(&Event::Unpacking { layer: 2, of: 2 }));
}

#[tokio::test]
async fn damaged_content_in_the_store_is_downloaded_again() {
    let scene = Scene::new().await;
    let (_, digests) = scene.registry.image("a", Some("1"), &layers());
    drop(scene.pull("a:1").await.unwrap());
    let store = scene.dir.path().join("store");
    fs::remove_dir_all(store.join("roots")).unwrap();
    let blob = store.join("blobs/sha256").join(digests[1].hex());
    let mut content = fs::read(&blob).unwrap();
    content[200_000] ^= 1;
    fs::write(&blob, content).unwrap();
    scene.registry.asked();
    let root = scene.pull("a:1").await.unwrap();
    assert_eq!(what(&root), "image");
    let fetched: Vec<String> =
        scene.registry.asked().into_iter().filter(|line| line.contains("/blobs/")).collect();
    assert!(fetched.len() == 1 && fetched[0].contains(digests[1].hex()), "{fetched:?}");
}

#[tokio::test]
async fn content_of_the_store_is_not_downloaded_again() {
    let scene = Scene::new().await;
    scene.registry.image("a", Some("1"), &layers());
    scene.pull("a:1").await.unwrap();
    scene.registry.asked();
    scene.pull("a:1").await.unwrap();
    assert_eq!(scene.fetched(), 1, "the manifest alone tells whether anything is new");
    // A layer that another image has is shared.
    scene.registry.image("a", Some("2"), &[layers()[0].clone(), Archive::new().file("usr/more", b"x")]);
    scene.registry.asked();
    scene.pull("a:2").await.unwrap();
    assert_eq!(scene.fetched(), 3, "manifest, configuration, one layer");
}

#[tokio::test]
async fn the_image_for_this_machine_is_taken_from_an_index_by_tag_and_by_digest() {
    let scene = Scene::new().await;
    let other = scene.registry.image_for(
        "m",
        None,
        &[Archive::new().folder("usr").file("usr/what", b"other")],
        "s390x",
    );
    let ours = scene.registry.image("m", None, &layers());
    let entry = |image: &serde_json::Value, architecture: &str| {
        let mut entry = image.clone();
        entry["platform"] = json!({ "os": "linux", "architecture": architecture });
        entry
    };
    let entries = [entry(&other.0, "s390x"), entry(&ours.0, &Platform::here().architecture)];
    for (tag, media_type) in
        [("oci", INDEX), ("docker", "application/vnd.docker.distribution.manifest.list.v2+json")]
    {
        let index = json!({ "schemaVersion": 2, "mediaType": media_type, "manifests": entries });
        let index = scene.registry.manifest("m", Some(tag), media_type, &index);
        assert_eq!(what(&scene.pull(&format!("m:{tag}")).await.unwrap()), "image");
        let by_digest = format!("m@{}", index["digest"].as_str().unwrap());
        assert_eq!(what(&scene.pull(&by_digest).await.unwrap()), "image");
    }
    let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [entries[0]] });
    scene.registry.manifest("m", Some("foreign"), INDEX, &index);
    let tried = scene.refused("m:foreign").await;
    assert!(matches!(tried[0].why, Reason::Manifest(ManifestError::Platform { .. })), "{}", tried[0]);
}

#[tokio::test]
async fn a_broken_download_resumes_where_it_broke() {
    let scene = Scene::new().await;
    let (_, digests) = scene.registry.image("a", Some("1"), &layers());
    let path = blob_path("a", &digests[1]);
    scene.registry.fault(&path, Fault::Cut { after: 50_000, times: 4 });
    assert_eq!(what(&scene.pull("a:1").await.unwrap()), "image");
    let asked = scene.registry.asked();
    let ranges: Vec<_> = asked
        .iter()
        .filter(|line| line.starts_with(&path))
        .map(|line| line.split(' ').nth(1).unwrap())
        .collect();
    assert_eq!(ranges.len(), 5, "{asked:?}");
    assert!(ranges.windows(2).all(|pair| pair[0] != pair[1]), "each goes on behind the last: {ranges:?}");
    assert_eq!(scene.retries(), 4);
}

#[tokio::test]
async fn without_ranges_a_download_starts_over_and_succeeds() {
    let scene = Scene::new().await;
    let (_, digests) = scene.registry.image("a", Some("1"), &layers());
    scene.registry.without_ranges();
    scene.registry.fault(blob_path("a", &digests[1]), Fault::Cut { after: 50_000, times: 2 });
    assert_eq!(what(&scene.pull("a:1").await.unwrap()), "image");
}

#[tokio::test]
async fn the_next_pull_resumes_an_interrupted_one() {
    let scene = Scene::new().await;
    let (_, digests) = scene.registry.image("a", Some("1"), &layers());
    let path = blob_path("a", &digests[1]);
    scene.registry.fault(&path, Fault::Cut { after: 50_000, times: 1 });
    {
        let pull = scene.pull("a:1");
        tokio::pin!(pull);
        let broken = || scene.retries() > 0;
        while !broken() {
            let _ = tokio::time::timeout(Duration::from_millis(1), &mut pull).await;
        }
    }
    scene.registry.asked();
    assert_eq!(what(&scene.pull("a:1").await.unwrap()), "image");
    let asked = scene.registry.asked();
    let range = asked.iter().find(|line| line.starts_with(&path));
    // The retry may have brought the rest before the first one was given up.
    assert!(range.is_none_or(|line| !line.ends_with("bytes=0-")), "{asked:?}");
}

#[tokio::test]
async fn a_connection_that_always_breaks_is_given_up() {
    let scene = Scene::new().await;
    let (_, digests) = scene.registry.image("a", Some("1"), &layers());
    scene.registry.fault(blob_path("a", &digests[1]), Fault::Cut { after: 0, times: usize::MAX });
    let tried = scene.refused("a:1").await;
    assert!(matches!(&tried[0].why, Reason::Unreachable { .. }), "{}", tried[0]);
    assert_eq!((scene.retries(), scene.roots()), (3, 0));
}

#[tokio::test]
async fn content_that_does_not_match_its_digest_is_refused() {
    let archive = zstd::encode_all(Archive::new().file("usr/what", b"evil!").done().as_slice(), 1).unwrap();
    for (layer, content) in [(0, archive), (0, b"short".to_vec()), (1, vec![0; 1 << 20])] {
        let scene = Scene::new().await;
        let (_, digests) = scene.registry.image("a", Some("1"), &layers());
        let path = blob_path("a", &digests[layer]);
        scene.registry.fault(&path, Fault::WrongContent(content));
        let tried = scene.refused("a:1").await;
        let told = matches!(
            tried[0].why,
            Reason::Store(StoreError::WrongDigest { .. } | StoreError::WrongSize { .. })
                | Reason::Unreachable { .. }
        );
        assert!(told, "{}", tried[0]);
        assert_eq!((scene.roots(), scene.store.list().unwrap().len()), (0, 0));
        scene.registry.fault(&path, Fault::Cut { after: 0, times: 0 });
        assert_eq!(what(&scene.pull("a:1").await.unwrap()), "image", "and the truth is taken after all that");
    }
    let scene = Scene::new().await;
    let (manifest, _) = scene.registry.image("a", Some("1"), &layers());
    // A manifest that is asked for by its digest.
    let digest = manifest["digest"].as_str().unwrap();
    scene
        .registry
        .fault(format!("/v2/a/manifests/{digest}"), Fault::WrongContent(b"{\"schemaVersion\":2}".to_vec()));
    let tried = scene.refused(&format!("a@{digest}")).await;
    assert!(tried[0].to_string().contains("igest"), "{}", tried[0]);
}

#[tokio::test]
async fn a_configuration_that_does_not_match_its_digest_is_refused() {
    let scene = Scene::new().await;
    scene.registry.image("a", Some("1"), &layers());
    scene.pull("a:1").await.unwrap();
    let asked = scene.registry.asked();
    let config =
        asked.iter().find(|line| line.contains("/blobs/")).unwrap().split(' ').next().unwrap().to_string();
    let fresh = Scene { store: Store::at(scene.dir.path().join("fresh")), ..scene };
    drop(fresh.store.adding().await.unwrap());
    fresh.registry.fault(config, Fault::WrongContent(vec![b' '; 80]));
    let tried = fresh.refused("a:1").await;
    assert!(matches!(tried[0].why, Reason::Store(_)), "{}", tried[0]);
}

#[tokio::test]
async fn a_layer_whose_content_is_not_what_the_configuration_promises_is_refused() {
    let scene = Scene::new().await;
    // Right by its compressed digest, wrong by what it unpacks to.
    let other = zstd::encode_all(Archive::new().file("usr/what", b"evil").done().as_slice(), 1).unwrap();
    let config = json!({ "rootfs": { "diff_ids": [Digest::of(b"something else")] } }).to_string();
    let config = scene.registry.blob("a", "application/vnd.oci.image.config.v1+json", config.as_bytes());
    let layer = scene.registry.blob("a", "application/vnd.oci.image.layer.v1.tar+zstd", &other);
    let manifest = json!({ "schemaVersion": 2, "config": config, "layers": [layer] });
    scene.registry.manifest("a", Some("1"), "application/vnd.oci.image.manifest.v1+json", &manifest);
    let error = scene.pull("a:1").await.map(|root| root.id().clone()).unwrap_err().to_string();
    assert!(error.contains("a layer's content has digest"), "{error}");
    assert_eq!((scene.roots(), scene.store.list().unwrap().len()), (0, 0));
}

#[tokio::test]
async fn a_busy_registry_is_asked_again_and_a_silent_one_is_given_up() {
    let scene = Scene::new().await;
    let (_, digests) = scene.registry.image("a", Some("1"), &layers());
    scene.registry.fault(blob_path("a", &digests[0]), Fault::Status { code: 503, times: 2 });
    scene.registry.fault("/v2/a/manifests/1", Fault::Status { code: 429, times: 3 });
    scene.registry.fault("/v2/", Fault::Status { code: 500, times: 2 });
    scene.pull("a:1").await.unwrap();
    scene.registry.asked();
    scene.registry.fault("/v2/a/manifests/1", Fault::Status { code: 429, times: usize::MAX });
    scene.refused("a:1").await;
    let asked = scene.registry.asked().iter().filter(|line| line.starts_with("/v2/a/manifests/1")).count();
    assert_eq!(asked, 4);
    scene.registry.image("b", Some("1"), &[Archive::new().file("usr/b", b"")]);
    scene.registry.fault("/v2/b/manifests/1", Fault::Silence);
    let mut scene = scene;
    scene.puller.timeouts.read = Duration::from_millis(100);
    let tried = scene.refused("b:1").await;
    assert!(matches!(tried[0].why, Reason::Unreachable { .. }), "{}", tried[0]);
    scene.puller.timeouts = Timeouts { document: Duration::from_millis(100), ..Timeouts::default() };
    let tried = scene.refused("b:1").await;
    assert!(tried[0].to_string().contains("no answer within"), "{}", tried[0]);
}

#[tokio::test]
async fn a_manifest_without_an_end_is_refused() {
    let scene = Scene::new().await;
    scene.registry.image("a", Some("1"), &layers());
    scene.registry.fault("/v2/a/manifests/1", Fault::Endless);
    let tried = scene.refused("a:1").await;
    assert!(tried[0].to_string().contains("more than 4194304 bytes"), "{}", tried[0]);
}
