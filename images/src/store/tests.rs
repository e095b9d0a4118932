//! Images are whole or absent, unpacked once for all, and never removed while they are in use.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::lock::{Kind, Lock};
use super::*;
use crate::digest::Digest;
use crate::image::{Image, Layers, ensure_root};
use crate::manifest::RunConfig;
use crate::progress::Progress;
use crate::unpack::archive::Archive;
use crate::{CredentialHelper, Event, HelperAnswer, ImageError, ImageResolver, Import};

struct NoHelper;

impl CredentialHelper for NoHelper {
    fn get<'a>(&'a self, _: &'a str, _: &'a str) -> HelperAnswer<'a> {
        Box::pin(async { Ok(None) })
    }
}

/// One archive as often as it is asked for, counted.
struct Counted {
    archive: Vec<u8>,
    opened: AtomicUsize,
}

impl Layers for Counted {
    fn open(&self, _: usize) -> Result<Box<dyn std::io::Read + Send + '_>, ImageError> {
        self.opened.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(self.archive.as_slice()))
    }
}

fn counted(archive: Archive) -> Arc<Counted> {
    Arc::new(Counted { archive: archive.done(), opened: AtomicUsize::new(0) })
}

fn some_root() -> Archive {
    Archive::new().folder("usr").folder("usr/bin").file("usr/bin/python3", b"#!").symlink("bin", "usr/bin")
}

fn image(id: &str) -> Image {
    let run = RunConfig { env: vec!["PATH=/usr/bin".into()], ..RunConfig::default() };
    Image::flat(id.parse().unwrap(), run)
}

fn quiet() -> Arc<dyn Progress> {
    Arc::new(())
}

async fn unpacked(store: &Store, id: &str) -> Root {
    ensure_root(store, &image(id), counted(some_root()), &quiet()).await.unwrap()
}

fn store() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::at(dir.path().join("store"));
    (dir, store)
}

/// What is in the folder of roots, without locks.
fn roots(store: &Store) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(store.dir().join("roots"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.ends_with(".lock"))
        .collect();
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_requests_unpack_an_image_once() {
    let (_dir, store) = store();
    let layers = counted(some_root());
    let tasks: Vec<_> = (0..16)
        .map(|_| {
            let (store, layers) = (store.clone(), Arc::clone(&layers));
            tokio::spawn(async move {
                ensure_root(&store, &image("ab12"), layers, &quiet()).await.unwrap().directory().to_path_buf()
            })
        })
        .collect();
    for task in tasks {
        assert_eq!(task.await.unwrap(), store.dir().join("roots/ab12/rootfs"));
    }
    assert_eq!(layers.opened.load(Ordering::SeqCst), 1);
    let root = store.root(&"ab12".parse().unwrap()).unwrap().unwrap();
    assert_eq!(root.run().env_pairs().collect::<Vec<_>>(), [("PATH", "/usr/bin")]);
    assert_eq!(fs::read(root.directory().join("bin/python3")).unwrap(), b"#!");
}

#[tokio::test]
async fn a_request_that_waits_for_another_is_notified() {
    struct Waiting(AtomicBool);
    impl Progress for Waiting {
        fn event(&self, event: Event) {
            self.0.fetch_or(event == Event::Waiting, Ordering::SeqCst);
        }
    }
    let (_dir, store) = store();
    let id: ImageId = "ab12".parse().unwrap();
    let Claim::Ours(ours) = store.claim(&id, &()).await.unwrap() else { panic!("there is no image yet") };
    let events = Waiting(AtomicBool::new(false));
    let waiting = store.claim(&id, &events);
    tokio::pin!(waiting);
    while !events.0.load(Ordering::SeqCst) {
        let step = tokio::time::timeout(std::time::Duration::from_millis(1), &mut waiting).await;
        assert!(step.is_err(), "two may unpack at once");
    }
    drop(ours);
    assert!(matches!(waiting.await.unwrap(), Claim::Ours(_)), "a dropped claim is left to the next");
}

#[tokio::test]
async fn an_incomplete_archive_leaves_no_image() {
    let (_dir, store) = store();
    let mut archive = some_root().file("big", &[7; 40_000]).done();
    archive.truncate(20_000);
    let layers = Arc::new(Counted { archive, opened: AtomicUsize::new(0) });
    ensure_root(&store, &image("ab12"), layers, &quiet()).await.unwrap_err();
    assert!(store.root(&"ab12".parse().unwrap()).unwrap().is_none());
    assert_eq!(roots(&store), Vec::<String>::new());
}

#[tokio::test]
async fn the_remains_of_a_killed_process_are_removed_by_the_next() {
    let (_dir, store) = store();
    unpacked(&store, "cd34").await;
    for id in ["ab12", "ef56"] {
        fs::create_dir_all(store.dir().join(format!("roots/.new-{id}/rootfs/usr"))).unwrap();
    }
    fs::create_dir_all(store.dir().join("roots/ab12")).unwrap();
    let root = unpacked(&store, "ab12").await;
    assert!(root.directory().join("usr/bin/python3").exists());
    assert_eq!(roots(&store), [".new-ef56", "ab12", "cd34"]);
    assert_eq!(store.prunable().unwrap().count, 2, "the one in use is not counted");
    assert_eq!(roots(&store), [".new-ef56", "ab12", "cd34"], "a look removes nothing");
    store.prune(Prune::default()).unwrap();
    assert_eq!(roots(&store), ["ab12"], "unused and unnamed ones are gone, the one in use is not");
    assert_eq!(store.prunable().unwrap(), Prunable::default());
}

#[tokio::test]
async fn a_changed_root_is_unpacked_again() {
    let (_dir, store) = store();
    let root = unpacked(&store, "ab12").await;
    fs::remove_file(root.directory().join("usr/bin/python3")).unwrap();
    assert!(store.root(root.id()).unwrap().is_none());
    // Not under those who use it.
    let error = store.claim(root.id(), &()).await.err().unwrap();
    assert!(matches!(error, StoreError::Damaged(_)), "{error}");
    drop(root);
    let root = unpacked(&store, "ab12").await;
    assert!(root.directory().join("usr/bin/python3").exists());
}

#[tokio::test]
async fn sandboxes_can_enter_the_folders_but_not_list_them() {
    let (_dir, store) = store();
    let root = unpacked(&store, "ab12").await;
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(root.directory()), 0o755);
    assert_eq!(mode(store.dir()), 0o711);
    assert_eq!(mode(&store.dir().join("roots")), 0o711);
    assert_eq!(mode(&store.dir().join("blobs/sha256")), 0o700);
}

#[test]
fn an_id_that_is_not_hexadecimal_is_refused() {
    for text in ["", "../x", "AB", "sha256:", "sha256:../..", "lock"] {
        assert!(text.parse::<ImageId>().is_err(), "{text}");
    }
    assert_eq!("sha256:ab12".parse::<ImageId>().unwrap().as_str(), "ab12");
}

#[tokio::test]
async fn a_name_moves_to_a_new_image_and_the_unnamed_one_is_pruned() {
    let (_dir, store) = store();
    for id in ["aaaa1111", "bbbb2222"] {
        unpacked(&store, id).await;
        store.set_name("docker.io/library/python:3", &id.parse().unwrap(), None).unwrap();
    }
    store.set_name("quay.io/x:1", &"bbbb2222".parse().unwrap(), None).unwrap();
    let list = store.list().unwrap();
    assert_eq!(list[0].names, ["docker.io/library/python:3", "quay.io/x:1"]);
    assert_eq!((list[1].id.as_str(), list[1].names.len()), ("aaaa1111", 0));
    assert_eq!((list[0].unpacked, list[0].entries, list[0].unpacked_bytes), (true, 4, 2));
    let pruned = store.prune(Prune::default()).unwrap();
    assert_eq!((pruned.images, pruned.in_use.len()), (vec!["aaaa1111".parse().unwrap()], 0));
    assert!(pruned.bytes > 0);
    assert_eq!(roots(&store), ["bbbb2222"]);
}

#[tokio::test]
async fn an_image_is_removed_with_its_last_name_unless_it_is_in_use() {
    let (_dir, store) = store();
    let root = unpacked(&store, "aaaa1111").await;
    for name in ["one", "two"] {
        store.set_name(name, root.id(), None).unwrap();
    }
    assert!(store.list().unwrap()[0].in_use);
    assert_eq!(store.remove("one").unwrap().names, ["one"]);
    assert!(matches!(store.remove("two"), Err(StoreError::InUse(_))));
    assert!(matches!(store.remove("aaaa"), Err(StoreError::InUse(_))));
    let all = Prune { all: true, ..Prune::default() };
    assert_eq!(store.prune(all).unwrap().in_use, ["aaaa1111".parse().unwrap()]);
    assert!(root.directory().exists());
    drop(root);
    assert_eq!(store.remove("aaaa").unwrap().images, ["aaaa1111".parse().unwrap()]);
    assert!(matches!(store.remove("two"), Err(StoreError::Unknown(_))));
    assert_eq!(fs::read_dir(store.dir().join("roots")).unwrap().count(), 0, "locks of what is gone are gone");
}

#[tokio::test]
async fn the_beginning_of_an_id_is_enough_if_it_is_unique() {
    let (_dir, store) = store();
    for id in ["aaaa1111", "aaaa2222"] {
        unpacked(&store, id).await;
    }
    assert!(matches!(store.find("aaaa"), Err(StoreError::NotUnique(_))));
    assert!(matches!(store.find("aaa"), Err(StoreError::Unknown(_))));
    assert_eq!(store.find("sha256:aaaa2").unwrap().id.as_str(), "aaaa2222");
}

#[tokio::test]
async fn unused_blobs_are_pruned_and_those_of_an_image_stay() {
    let (_dir, store) = store();
    store.folders.make().unwrap();
    let layer = b"layer".as_slice();
    let config = b"{}".as_slice();
    let manifest = format!(
        r#"{{"schemaVersion":2,"config":{{"digest":"{}","size":2}},"layers":[{{"mediaType":
            "application/vnd.oci.image.layer.v1.tar","digest":"{}","size":5}}]}}"#,
        Digest::of(config),
        Digest::of(layer)
    );
    for content in [layer, config, manifest.as_bytes(), b"unused"] {
        store.put_blob(&Digest::of(content), content).unwrap();
    }
    let kept = || fs::read_dir(store.dir().join("blobs/sha256")).unwrap().count();
    let id = ImageId::from(&Digest::of(config));
    store.set_name("x", &id, Some(Digest::of(manifest.as_bytes()))).unwrap();
    fs::write(store.dir().join("partial/sha256-0000"), "half").unwrap();
    // Not while content is being added.
    let adding = store.adding().await.unwrap();
    assert_eq!(store.prunable().unwrap().count, 0);
    assert!(store.prune(Prune::default()).unwrap().busy);
    assert_eq!(kept(), 4);
    drop(adding);
    assert_eq!(store.prunable().unwrap().count, 2);
    store.prune(Prune::default()).unwrap();
    assert_eq!((kept(), store.usage().unwrap().partial > 4096), (3, false));
    assert_eq!(
        store.list().unwrap()[0].compressed_bytes,
        (layer.len() + config.len() + manifest.len()) as u64
    );
    // Layers of unpacked images can be downloaded again.
    unpacked(&store, id.as_str()).await;
    store.prune(Prune { layers: true, ..Prune::default() }).unwrap();
    assert_eq!(kept(), 2);
    store.remove("x").unwrap();
    assert_eq!(kept(), 0);
}

#[tokio::test]
async fn an_image_of_another_store_is_imported_once() {
    let (_dir, store) = store();
    let images = ImageResolver::new(store.clone(), Arc::new(NoHelper), false);
    let id: ImageId = "ab12".parse().unwrap();
    let Import::Pending(pending) = images.import(&id, &()).await.unwrap() else {
        panic!("it is not here yet")
    };
    let archive = std::io::Cursor::new(some_root().done());
    let root = pending.unpack(RunConfig::default(), archive, &quiet()).await.unwrap();
    assert!(root.directory().join("usr/bin").is_dir());
    assert!(matches!(images.import(&id, &()).await.unwrap(), Import::Ready(_)));
}

#[tokio::test]
async fn a_dropped_request_stops_the_unpacking() {
    /// An archive without end.
    struct Endless(tokio::sync::mpsc::UnboundedSender<()>);
    impl Layers for Endless {
        fn open(&self, _: usize) -> Result<Box<dyn std::io::Read + Send + '_>, ImageError> {
            let _ = self.0.send(());
            let header = Archive::new().raw("f", tar::EntryType::Regular, 0o644, "", b"", 1 << 35).0;
            Ok(Box::new(std::io::Read::chain(std::io::Cursor::new(header), std::io::repeat(1))))
        }
    }
    let (_dir, store) = store();
    let (sender, mut opened) = tokio::sync::mpsc::unbounded_channel();
    let layers: Arc<dyn Layers> = Arc::new(Endless(sender));
    let (image, progress) = (image("ab12"), quiet());
    tokio::select! {
        done = ensure_root(&store, &image, layers, &progress) => panic!("{:?}", done.map(|_| ())),
        _ = opened.recv() => {}
    }
    // The lock is free when the thread has removed what it had made.
    let lock = store.dir().join("roots/ab12.lock");
    Lock::take(&lock, Kind::Exclusive, || ()).await.unwrap();
    assert_eq!(roots(&store), Vec::<String>::new());
}
