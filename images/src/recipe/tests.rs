use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::AtomicBool;

use super::*;
use crate::name::ImageName;
use crate::platform::Platform;
use crate::unpack::archive::Archive;

static NOT_CANCELLED: AtomicBool = AtomicBool::new(false);

fn write(folder: &Path, name: &str, content: &str, mode: u32) {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, content).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
}

/// A recipe in a folder of this text, with a lock for any architecture.
fn recipe(folder: &Path, text: &str) -> Result<Recipe, RecipeError> {
    write(folder, "recipe.toml", text, 0o644);
    Recipe::find(&format!("{}/.", folder.display()))
}

const SMALL: &str = "suite = \"forky\"\npython = \"3.14\"\ncreated = 1795132800\npackages = [\"python3\"]\n";

#[test]
fn the_built_in_recipes_are_pinned() {
    for name in ["slim", "data"] {
        let recipe = Recipe::find(name).unwrap();
        for architecture in ["amd64", "arm64"] {
            let lock = recipe.layers()[0].lock(architecture).unwrap().unwrap();
            let versions: Vec<_> = lock.packages().map(|package| package.name.as_str()).collect();
            for wanted in ["python3.14", "jq", "git", "ripgrep", "sqlite3"] {
                assert!(versions.contains(&wanted), "{name} for {architecture}: {versions:?}");
            }
            assert!(lock.packages().all(|package| ["all", architecture].contains(&&*package.architecture)));
        }
    }
    let data = Recipe::find("data").unwrap();
    let names: Vec<_> = data.requirements().into_iter().map(|one| one.name).collect();
    for wanted in ["numpy", "pandas", "scikit-learn", "scipy", "matplotlib", "polars", "pyarrow", "openpyxl"]
    {
        assert!(names.iter().any(|name| name.starts_with(&format!("{wanted}=="))), "{names:?}");
    }
    assert!(data.requirements().iter().all(|one| one.bytes > 0));
    // Every line is pinned by a digest, or pip would refuse it.
    let lines = data.requirements.as_deref().unwrap().lines().filter(|line| !line.starts_with('#'));
    assert!(lines.into_iter().all(|line| line.contains("==") && line.contains("--hash=sha256:")));
    assert_eq!((data.env["LANG"].as_str(), data.env["MPLBACKEND"].as_str()), ("C.UTF-8", "Agg"));
}

#[test]
fn an_invalid_recipe_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    assert!(recipe(dir.path(), SMALL).is_ok());
    for (more, why) in [
        ("odd = 1\n", "odd"),
        ("base = \"slim\"\n", "belong to its `base`"),
        ("leave_out = [\"../etc\"]\n", "'../etc' is not a path in an image"),
        ("[links]\n\"/usr/bin/awk\" = \"mawk\"\n", "'/usr/bin/awk' is not a path in an image"),
        ("[files]\n\"etc//motd\" = \"x\"\n", "'etc//motd' is not a path in an image"),
        ("[copies]\n\"etc/passwd\" = \"../../etc/passwd\"\n", "'../../etc/passwd' is not a path in an image"),
        ("requirements = \"none.txt\"\n", "no file 'none.txt' beside it"),
    ] {
        let error = recipe(dir.path(), &format!("{SMALL}{more}")).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    for (text, why) in [
        (SMALL.replace("python3", "--option=x"), "not the name of a package"),
        (SMALL.replace("forky", "forky main"), "not the name of a package or suite"),
        (SMALL.replace("3.14", "three"), "has to be a version"),
        (String::new(), "needs `suite` and `packages`"),
        ("base = \"./.\"\n".into(), "too many recipes are based on each other"),
    ] {
        let error = recipe(dir.path(), &text).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    let error = Recipe::find("slimm").unwrap_err().to_string();
    assert!(error.contains("use slim, data"), "{error}");
}

#[test]
fn a_lock_parses_as_it_was_written_and_lists_differences() {
    let package = |name: &str, version: &str, content: &[u8]| Package {
        name: name.into(),
        version: version.into(),
        architecture: "amd64".into(),
        digest: crate::Digest::of(content),
        bytes: 7,
    };
    let lock: Lock = [package("git", "1:2.5-1", b"g"), package("awk", "1", b"a"), package("jq", "1.8", b"j")]
        .into_iter()
        .collect();
    assert_eq!(Lock::parse("x", &lock.to_string()).unwrap(), lock);
    assert_eq!((lock.len(), lock.bytes()), (3, 21));
    assert!(lock.differences(&lock).is_empty());
    let offered =
        [package("git", "1:2.6-1", b"h"), package("jq", "1.8", b"other"), package("sed", "4", b"s")]
            .into_iter();
    let expected = [
        "awk is not needed any more",
        "git 1:2.6-1 instead of 1:2.5-1",
        "jq 1.8 has another digest than before",
        "sed 4 is new",
    ];
    assert_eq!(lock.differences(&offered.collect()), expected);
    for line in ["git", "git 1 amd64 abc 7", &format!("git 1 amd64 {} x", "a".repeat(64))] {
        assert!(Lock::parse("x", line).is_err(), "{line}");
    }
}

#[test]
fn a_lock_of_another_version_does_not_hold() {
    let dir = tempfile::tempdir().unwrap();
    let lock = "Numpy==1.26.4 --hash=sha256:00 # 7\npandas==2.2.0 --hash=sha256:00\n";
    write(dir.path(), "python-amd64.lock", lock, 0o644);
    for (wanted, holds) in [
        ("numpy\npandas>=2\n", true),
        ("numpy==1.26.4 ; python_version >= \"3.9\"\n", true),
        ("numpy == 1.26.4 # why\n", true),
        ("numpy>=1,==1.*\n", true),
        ("numpy==2.0\n", false),
        ("numpy\npandas===2.3.0\n", false),
        ("scipy\n", false),
    ] {
        write(dir.path(), "wanted.txt", wanted, 0o644);
        let recipe = recipe(dir.path(), &format!("{SMALL}requirements = \"wanted.txt\"\n")).unwrap();
        let pinned = recipe.pinned_requirements("amd64").unwrap();
        assert_eq!(pinned.as_deref(), holds.then_some(lock), "{wanted}");
    }
}

#[test]
fn a_left_out_folder_keeps_its_licence() {
    let dir = tempfile::tempdir().unwrap();
    let text = format!(
        "{SMALL}leave_out = [\"usr/share/doc\", \"usr/share/none\"]\nleave_out_everywhere = [\"tests\"]\n\
         [links]\n\"usr/bin/awk\" = \"mawk\"\n[copies]\n\"etc/passwd\" = \"usr/share/passwd\"\n\
         [files]\n\"etc/motd\" = \"hello\"\n"
    );
    let recipe = recipe(dir.path(), &text).unwrap();
    let root = dir.path().join("root");
    let mut staging = Staging::new(&root).unwrap();
    let one = Archive::new().file("usr/share/doc/a/copyright", b"c").file("usr/share/doc/a/long", b"x");
    staging.add("a", one.file("usr/lib/x/tests/t", b"").done().as_slice(), &NOT_CANCELLED).unwrap();
    let two = Archive::new().file("usr/share/doc/b/long", b"x").file("usr/share/passwd", b"root");
    staging.add("b", two.done().as_slice(), &NOT_CANCELLED).unwrap();
    staging.write("var/lib/note", b"n").unwrap();
    staging.finish(&recipe).unwrap();
    for (name, there) in [
        ("usr/share/doc/a/copyright", true),
        ("usr/share/doc/a/long", false),
        ("usr/share/doc/b", false),
        ("usr/lib/x", true),
        ("usr/lib/x/tests", false),
        ("etc/passwd", true),
        ("etc/motd", true),
        ("var/lib/note", true),
    ] {
        assert_eq!(root.join(name).exists(), there, "{name}");
    }
    assert_eq!(fs::read_link(root.join("usr/bin/awk")).unwrap(), Path::new("mawk"));
}

#[test]
fn the_same_content_gives_the_same_archive() {
    let dir = tempfile::tempdir().unwrap();
    let recipe = recipe(dir.path(), &format!("{SMALL}[env]\nA = \"b\"\n")).unwrap();
    let long = format!("usr/{}/{}", "d".repeat(120), "f".repeat(120));
    let make = |name: &str, order: [usize; 3], file: u32, program: u32| {
        let root = dir.path().join(name);
        for index in order {
            match index {
                0 => write(&root, "usr/bin/tool", "#!/bin/sh", program),
                1 => write(&root, "usr/lib/data", &"x".repeat(100_000), file),
                _ => write(&root, &long, "deep", file),
            }
        }
        fs::hard_link(root.join("usr/bin/tool"), root.join("usr/bin/zool")).unwrap();
        symlink("usr/bin", root.join("bin")).unwrap();
        let layer = pack_layer(&root, &dir.path().join(format!("{name}.gz")), recipe.created, &NOT_CANCELLED)
            .unwrap();
        let archive = dir.path().join(format!("{name}.tar"));
        let digest = write_archive(&recipe, &Platform::here(), &[layer], "small", &archive).unwrap();
        (digest, fs::read(archive).unwrap())
    };
    let first = make("one", [0, 1, 2], 0o644, 0o755);
    let second = make("two", [2, 1, 0], 0o600, 0o700);
    assert_eq!(first.0, second.0);
    assert!(first.1 == second.1);
    // And it is an image, with all that was in the folder.
    let name = ImageName::OciArchive { path: dir.path().join("one.tar"), tag: Some("small".into()) };
    let (image, layers) = crate::local::open(&name).unwrap();
    assert_eq!((image.manifest.as_ref(), &image.run.env[..]), (Some(&first.0), &["A=b".to_string()][..]));
    let root = dir.path().join("unpacked");
    let mut staging = Staging::new(&root).unwrap();
    staging.add("layer", layers.open(0).unwrap(), &NOT_CANCELLED).unwrap();
    let mode = |name: &str| fs::metadata(root.join(name)).unwrap().mode() & 0o777;
    assert_eq!((mode("usr/bin/tool"), mode("usr/lib/data"), mode(&long)), (0o755, 0o644, 0o644));
    let number = |name: &str| fs::metadata(root.join(name)).unwrap().ino();
    assert_eq!(number("bin/tool"), number("usr/bin/zool"));
    assert_eq!(fs::metadata(root.join("usr/lib/data")).unwrap().mtime(), 1_795_132_800);
}

#[test]
fn cancelled_packing_ends() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "root/file", "x", 0o644);
    let done = pack_layer(&dir.path().join("root"), &dir.path().join("x.gz"), 0, &AtomicBool::new(true));
    assert!(matches!(done, Err(RecipeError::Cancelled)));
}
