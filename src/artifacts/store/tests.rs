use std::io::Read;

use super::super::Origin;
use super::*;

fn save(artifacts: &Artifacts, name: &str, content: &[u8]) -> Result<Artifact, ArtifactError> {
    let mut staged = artifacts.begin(name, Some("why".into()))?;
    content.chunks(3).try_for_each(|piece| staged.write(piece))?;
    staged.commit(Origin { session: Some("main".into()), run: 7 })
}

fn content(artifacts: &Artifacts, artifact: &Artifact) -> Vec<u8> {
    let mut bytes = Vec::new();
    artifacts.open(artifact).unwrap().read_to_end(&mut bytes).unwrap();
    bytes
}

fn staged(dir: &Path) -> Vec<String> {
    names_in(&dir.join("artifacts/.staging"))
}

#[test]
fn a_name_that_is_used_again_gets_a_new_version() {
    let dir = tempfile::tempdir().unwrap();
    let artifacts = Artifacts::at(dir.path(), 1 << 20);
    assert!(artifacts.all().is_empty() && !dir.path().join("artifacts").exists());
    let first = save(&artifacts, "report ä.csv", b"one").unwrap();
    let second = save(&artifacts, "report ä.csv", b"three").unwrap();
    assert_eq!((first.version, second.version, second.bytes), (1, 2, 5));
    assert_eq!(first.uri(), "codebridge://artifacts/report%20%C3%A4.csv");
    assert_eq!(second.version_uri(), "codebridge://artifacts/report%20%C3%A4.csv?version=2");
    assert_eq!(first.sha256, "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed");
    assert_eq!((first.mime_type.as_str(), first.run), ("text/csv", 7));
    assert_eq!(artifacts.find("report ä.csv", None).unwrap(), second);
    assert_eq!(artifacts.latest(), std::slice::from_ref(&second));
    assert_eq!(artifacts.all(), [first.clone(), second.clone()]);
    assert_eq!((content(&artifacts, &first), content(&artifacts, &second)), (b"one".into(), b"three".into()));
    assert!(matches!(
        artifacts.find("report ä.csv", Some(3)),
        Err(ArtifactError::UnknownVersion { version: 3, .. })
    ));
    let hint = |name| artifacts.find(name, None).unwrap_err().hint().unwrap();
    assert_eq!(hint("reprot ä.csv"), "did you mean report ä.csv? `codebridge artifact ls` lists all");
    assert!(hint("wombat").contains("artifact ls"));
    assert!(matches!(artifacts.find("../x", None), Err(ArtifactError::Name { .. })));
    artifacts.remove("report ä.csv", Some(2)).unwrap();
    assert_eq!(artifacts.find("report ä.csv", None).unwrap(), first);
    artifacts.remove("report ä.csv", None).unwrap();
    assert!(matches!(artifacts.find("report ä.csv", None), Err(ArtifactError::Unknown { .. })));
    assert!(staged(dir.path()).is_empty() && artifacts.used() == 0);
}

#[test]
fn what_is_not_complete_is_not_seen_and_not_kept() {
    let dir = tempfile::tempdir().unwrap();
    let artifacts = Artifacts::at(dir.path(), 1 << 20);
    let mut dropped = artifacts.begin("x", None).unwrap();
    dropped.write(b"half").unwrap();
    assert!(artifacts.all().is_empty());
    drop(dropped);
    assert!(staged(dir.path()).is_empty());
    // As a bridge that was killed leaves it.
    let left = dir.path().join("artifacts/.staging/left");
    fs::create_dir(&left).unwrap();
    fs::write(left.join("content"), "half").unwrap();
    let other = artifacts.begin("y", None).unwrap();
    assert!(!left.exists());
    // The one of a living bridge stays.
    let another = artifacts.begin("z", None).unwrap();
    assert_eq!(staged(dir.path()).len(), 2);
    for staged in [other, another] {
        staged.commit(Origin::default()).unwrap();
    }
    assert_eq!(artifacts.latest().len(), 2);
}

#[test]
fn the_limit_holds_for_all_versions_and_for_two_bridges_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let bridges = [100_000, 100_000].map(|limit| Artifacts::at(dir.path(), limit));
    let bytes = |count: usize| vec![b'x'; count];
    save(&bridges[0], "a", &bytes(40_000)).unwrap();
    let error = save(&bridges[0], "a", &bytes(70_000)).unwrap_err();
    assert!(matches!(error, ArtifactError::Full { used: 40_000, limit: 100_000, .. }), "{error}");
    assert!(staged(dir.path()).is_empty());
    let mut both = [0, 1].map(|bridge| bridges[bridge].begin("b", None).unwrap());
    both.iter_mut().for_each(|staged| staged.write(&bytes(50_000)).unwrap());
    let done = both.map(|staged| staged.commit(Origin::default()).is_ok());
    assert_eq!(done, [true, false]);
    // Empty ones count too.
    save(&bridges[0], "c", b"").unwrap();
    save(&bridges[0], "c", b"").unwrap();
    assert!(matches!(bridges[1].begin("d", None), Err(ArtifactError::Full { used: 98_192, .. })));
}

#[test]
fn what_one_bridge_is_saving_counts_together() {
    let dir = tempfile::tempdir().unwrap();
    let artifacts = Artifacts::at(dir.path(), 100_000);
    let mut staged = [(); 3].map(|()| artifacts.clone().begin("a", None).unwrap());
    let written = staged.each_mut().map(|staged| staged.write(&[0; 45_000]).is_ok());
    assert_eq!(written, [true, true, false]);
    let [first, second, mut third] = staged;
    first.commit(Origin::default()).unwrap();
    assert!(third.write(&[0; 45_000]).is_err(), "what was committed meanwhile counts");
    drop(second);
    third.write(&[0; 45_000]).unwrap();
    third.commit(Origin::default()).unwrap();
    let many = Artifacts::at(dir.path(), 1 << 30);
    let places: Vec<_> = (0..16).map(|_| many.begin("b", None).unwrap()).collect();
    assert!(matches!(many.begin("b", None), Err(ArtifactError::Busy(16))));
    drop(places);
    many.begin("b", None).unwrap();
}

#[test]
fn the_number_of_versions_has_a_limit() {
    let dir = tempfile::tempdir().unwrap();
    let artifacts = Artifacts::at(dir.path(), 1 << 40);
    for version in 1..=MOST_VERSIONS {
        fs::create_dir_all(dir.path().join(format!("artifacts/a/{version}"))).unwrap();
    }
    assert!(matches!(save(&artifacts, "b", b""), Err(ArtifactError::Many { most: MOST_VERSIONS, .. })));
}

#[test]
fn the_number_of_a_removed_version_is_not_used_again() {
    let dir = tempfile::tempdir().unwrap();
    let artifacts = Artifacts::at(dir.path(), 1 << 20);
    let save = |content| save(&artifacts, "a", content).unwrap().version;
    assert_eq!((save(b"1"), save(b"2"), save(b"3")), (1, 2, 3));
    artifacts.remove("a", Some(3)).unwrap();
    assert_eq!(save(b"4"), 4);
    artifacts.remove("a", Some(1)).unwrap();
    artifacts.remove("a", None).unwrap();
    assert!(artifacts.latest().is_empty());
    assert_eq!(save(b"5"), 5);
}

#[test]
fn a_version_can_be_removed_from_a_full_disk() {
    let dir = tempfile::tempdir().unwrap();
    let artifacts = Artifacts::at(dir.path(), 1 << 20);
    save(&artifacts, "a", b"1").unwrap();
    // What is written to this device finds no space.
    std::os::unix::fs::symlink("/dev/full", dir.path().join("artifacts/a/.last.new")).unwrap();
    artifacts.remove("a", None).unwrap();
    assert!(artifacts.latest().is_empty());
    assert_eq!(artifacts.used(), 0);
}

#[test]
fn adding_and_removing_at_once_never_fails() {
    let dir = tempfile::tempdir().unwrap();
    let bridges = [(); 4].map(|()| Artifacts::at(dir.path(), 1 << 20));
    std::thread::scope(|scope| {
        for bridge in &bridges {
            scope.spawn(move || {
                for _ in 0..20 {
                    let version = save(bridge, "a", b"x").unwrap().version;
                    bridge.remove("a", Some(version)).unwrap();
                }
            });
        }
    });
    assert_eq!(save(&bridges[0], "a", b"x").unwrap().version, 81);
}

#[test]
fn old_versions_are_pruned() {
    let dir = tempfile::tempdir().unwrap();
    let artifacts = Artifacts::at(dir.path(), 1 << 20);
    for name in ["a", "a", "a", "b"] {
        save(&artifacts, name, b"1").unwrap();
    }
    let nothing = Prune { before: Some(Timestamp::UNIX_EPOCH), keep: Some(3) };
    assert!(artifacts.prune(nothing).unwrap().is_empty());
    artifacts.prune(Prune { keep: Some(1), ..Prune::default() }).unwrap();
    let left: Vec<_> = artifacts.all().into_iter().map(|left| (left.name, left.version)).collect();
    assert_eq!(left, [("a".to_owned(), 3), ("b".to_owned(), 1)]);
    artifacts.prune(Prune { before: Some(Timestamp::MAX), ..Prune::default() }).unwrap();
    assert!(artifacts.all().is_empty());
}
