//! Images built from packages: they are reproducible, also by another user, and have their tools on every runtime.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use crate::harness::env::base;
use crate::harness::process::{Output, Prepared, collect, command_line, processes};
use crate::harness::registry::store_of;
use crate::harness::{Runtime, Suite, TestEnv, eventually};
use crate::{display, python, server_access, tests};

/// An image of the recipe `data`, built before: it takes longer than a test may.
const DATA: &str = "CODEBRIDGE_TEST_DATA";

/// The tests that build images.
pub(crate) fn register_builds(suite: &mut Suite) {
    let crun = Runtime::ALL.into_iter().find(|row| row.to_string() == "crun-user");
    suite.on(crun.as_slice(), "recipes", tests![an_ordinary_user_builds_the_very_same_image]);
    suite.once(
        "recipes",
        tests![a_build_that_fails_says_why_and_leaves_nothing, a_build_that_is_interrupted_leaves_nothing,],
    );
}

/// The tests that run what was built.
pub(crate) fn register(suite: &mut Suite) {
    suite.each_runtime("recipes", tests![the_slim_image_has_its_tools]);
    if std::env::var_os(DATA).is_some() {
        suite.each_runtime(
            "recipes",
            tests![
                the_data_image_runs_its_examples,
                the_data_image_has_what_people_expect_beside_pandas,
                a_chart_of_an_earlier_file_goes_to_a_server,
                the_data_image_shows_plots_and_tables,
            ],
        );
    }
}

fn build(env: &TestEnv, words: &[&str]) -> Prepared {
    let mut command = env.command(env.binary());
    command.argv.extend(["image", "build"].into_iter().chain(words.iter().copied()).map(OsString::from));
    command
}

/// The recipe slim pinned to what the mirror has today, and the image that root has built of it.
struct Slim {
    recipe: PathBuf,
    archive: PathBuf,
    digest: String,
}

impl Slim {
    fn get(env: &TestEnv) -> &'static Self {
        static SLIM: OnceLock<Slim> = OnceLock::new();
        SLIM.get_or_init(|| {
            let folder = base().join("recipes");
            let recipe = folder.join("slim");
            fs::create_dir_all(&recipe).unwrap();
            let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("images/recipes/slim/recipe.toml");
            fs::copy(ours, recipe.join("recipe.toml")).unwrap();
            let archive = folder.join("slim.tar");
            // As root, also when the test runs as the user.
            let builder = TestEnv::new(None);
            let words =
                [recipe.to_str().unwrap(), "--update", "-o", &format!("oci-archive:{}", archive.display())];
            let digest = build(&builder, &words).run(env.guard()).ok();
            builder.close();
            Self { recipe, archive, digest }
        })
    }
}

fn an_ordinary_user_builds_the_very_same_image(env: &TestEnv) {
    let slim = Slim::get(env);
    let lock = fs::read_dir(&slim.recipe).unwrap().flatten().map(|entry| entry.path());
    let lock = lock.into_iter().find(|path| path.extension().is_some_and(|ending| ending == "lock")).unwrap();
    let lock = fs::read_to_string(lock).unwrap();
    let archive = env.folder("out").join("slim.tar");
    let words = [slim.recipe.to_str().unwrap(), "-o", &format!("oci-archive:{}", archive.display())];
    let mut command = build(env, &words);
    // Root's files are for all to read by default; these are not, and the image is the same.
    command.argv.splice(0..0, ["/bin/sh", "-c", "umask 077; exec \"$@\"", "sh"].map(OsString::from));
    let output = command.run(env.guard());
    assert_eq!(output.stdout, slim.digest, "{output}");
    assert!(fs::read(&archive).unwrap() == fs::read(&slim.archive).unwrap(), "the archives differ");
    assert_eq!(names_in(archive.parent().unwrap()), ["slim.tar"]);
    // It has said before what it is going to download.
    for line in lock.lines().filter(|line| !line.starts_with('#')) {
        let name: Vec<_> = line.split(' ').take(2).collect();
        assert!(output.stderr.contains(&name.join(" ")), "{line}: {output}");
    }
}

fn names_in(folder: &Path) -> Vec<String> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn exec(env: &TestEnv, archive: &Path, code: &str) -> Output {
    let image = format!("oci-archive:{}", archive.display());
    let bridge = env.bridge().var("XDG_DATA_HOME", store_of(env)).var("MCP_BRIDGE_LOG_LEVEL", "warn");
    let timeout = Duration::from_secs(110).as_secs().to_string();
    bridge.args(&["--image", &image, "--timeout", &timeout, "exec", "-c", code]).command().run(env.guard())
}

fn the_slim_image_has_its_tools(env: &TestEnv) {
    let code = python!("images", "slim_tools");
    let output = exec(env, &Slim::get(env).archive, code);
    let lines: Vec<_> = output.stdout.lines().collect();
    assert_eq!(lines[..3], ["(3, 14) C.UTF-8 Europe/Berlin", "42 42 b", "needle c"], "{output}");
    assert_eq!(lines[3..5], ["42", ""], "{output}");
    assert!(lines[5].ends_with("x text/plain") && lines[6].ends_with(".pyc True"), "{output}");
    let _ = output.ok();
}

fn the_data_image_runs_its_examples(env: &TestEnv) {
    let archive = PathBuf::from(std::env::var_os(DATA).unwrap());
    let code = python!("images", "data_examples");
    let output = exec(env, &archive, code);
    let lines: Vec<_> = output.stdout.lines().collect();
    let expected = ["[3.0, 4.0] 3", "0.0", "True True", "b'\\x89PNG'", "[3.0, 4.0]", "2"];
    assert_eq!(lines[..lines.len().min(6)], expected, "{output}");
    eprintln!("{}: {}, {:.1} s in all", env.runtime(), lines[6], output.elapsed.as_secs_f64());
    let _ = output.ok();
}

fn the_data_image_has_what_people_expect_beside_pandas(env: &TestEnv) {
    let archive = PathBuf::from(std::env::var_os(DATA).unwrap());
    let said = exec(env, &archive, python!("images", "more_data_examples")).ok();
    let expected = "seaborn b'\\x89PNG'\nstatsmodels 2.0\nsympy x**2\nnetworkx [0, 1, 2, 3]\nplotly <div\n\
                    duckdb [(190,)]\nxlsxwriter 42\ndocx word\npypdf 1\nsoup b c\nyaml {'a': [1, 2]} 1 3\n\
                    requests https://example.com/?a=1";
    assert_eq!(said.trim_end(), expected);
}

/// As models write it.
fn a_chart_of_an_earlier_file_goes_to_a_server(env: &TestEnv) {
    let archive = PathBuf::from(std::env::var_os(DATA).unwrap());
    server_access::define(env, &server_access::stubs(env));
    let bridge = env.bridge().var("XDG_DATA_HOME", store_of(env)).var("MCP_BRIDGE_TIMEOUT", "110");
    let bridge = bridge.var("MCP_BRIDGE_IMAGE", format!("oci-archive:{}", archive.display())).start();
    let earlier = "open('/tmp/sales.csv', 'w').write('month,revenue\\n1,1\\n1,2\\n2,4\\n')";
    let _ = bridge.run(earlier).expect("success");
    let code = python!("images", "chart");
    let said = bridge.call(json!({ "code": code, "servers": ["filesystem"] })).ok();
    assert!(said.starts_with("'wrote ") && said.ends_with(" characters to /out/chart.png'"), "{said}");
    bridge.close();
}

fn the_data_image_shows_plots_and_tables(env: &TestEnv) {
    let archive = PathBuf::from(std::env::var_os(DATA).unwrap());
    let bridge = env.bridge().var("XDG_DATA_HOME", store_of(env)).var("MCP_BRIDGE_TIMEOUT", "110");
    let bridge = bridge.var("MCP_BRIDGE_MEMORY", "1g");
    let bridge = bridge.var("MCP_BRIDGE_IMAGE", format!("oci-archive:{}", archive.display())).start();
    display::libraries_are_shown(&bridge);
    bridge.close();
}

fn a_build_that_is_interrupted_leaves_nothing(env: &TestEnv) {
    let folder = env.folder("out");
    let words = ["slim", "--update", "-o", &format!("oci-archive:{}", folder.join("slim.tar").display())];
    // While it asks the mirror, while it downloads, while it unpacks: by what is there then. What one leaves that is
    // killed goes with the next one.
    for (moment, signal, code) in [
        ("apt/sources.list", Signal::KILL, None),
        ("apt/sources.list", Signal::INT, Some(130)),
        ("layer0/usr/bin", Signal::TERM, Some(143)),
    ] {
        let before = names_in(&folder);
        let mut process = build(env, &words).spawn(env.guard(), Stdio::null(), Stdio::null(), Stdio::piped());
        let said = collect(process.child.stderr.take().unwrap(), process.transcript.clone());
        let began = |name: &String| folder.join(name).join(moment).exists();
        eventually("it works alone", env.guard().left(), || {
            let now = names_in(&folder);
            (now.iter().all(|name| !before.contains(name)) && now.iter().any(began)).then_some(())
        });
        process.signal(signal);
        assert_eq!(process.wait().code(), code);
        // Nobody ends the programs of one that was killed: they end when they have done what they were told.
        let here = folder.to_str().unwrap();
        let works_here = |pid: u32| command_line(pid).iter().any(|word| word.contains(here));
        eventually("its programs end", env.guard().left(), || (!processes().any(works_here)).then_some(()));
        assert_eq!(names_in(&folder).len(), usize::from(code.is_none()), "{:?}", names_in(&folder));
        drop(said);
    }
}

fn a_build_that_fails_says_why_and_leaves_nothing(env: &TestEnv) {
    let folder = env.folder("out");
    let output = format!("oci-archive:{}", folder.join("image.tar").display());
    let fails = |words: &[&str], code: i32, why: &str| {
        let output = build(env, words).run(env.guard());
        assert_eq!(output.code(), Some(code), "{output}");
        assert!(output.stderr.contains(why), "no '{why}': {output}");
        assert!(names_in(&folder).is_empty(), "{:?}", names_in(&folder));
    };
    fails(&["slimm", "-o", &output], 2, "use slim, data");
    fails(&["slim", "-o", "docker-archive:x.tar"], 2, "oci-archive:FILE[:TAG]");
    fails(&["slim", "--mirror", "http://127.0.0.1:1/debian", "-o", &output], 72, "127.0.0.1");
    fails(&["slim", "--mirror", "nowhere", "-o", &output], 72, "is not the URL of a mirror");
    let recipe = "suite = \"forky\"\npython = \"3.14\"\npackages = [\"jq\"]\n";
    let _ = env.write("recipe/recipe.toml", recipe);
    let recipe = env.folder("recipe").display().to_string();
    fails(&[&recipe, "-o", &output], 72, "hint: use the current packages with --update");
    // What was pinned once, and what there is now, are not the same.
    let lock = format!("jq 0.1-1 amd64 {} 7\n", "0".repeat(64));
    for architecture in ["amd64", "arm64"] {
        let _ = env.write(&format!("recipe/debian-{architecture}.lock"), &lock);
    }
    fails(&[&recipe, "-o", &output], 72, "instead of 0.1-1");
    let _ = env.write(
        "recipe/recipe.toml",
        "suite = \"forky\"\npython = \"3.14\"\npackages = [\"no-such-package\"]\n",
    );
    fails(&[&recipe, "--update", "-o", &output], 72, "no-such-package");
    // Only a look at what would come: nothing is written.
    let plan = build(env, &["slim", "--update", "--dry-run", "-o", &output]).run(env.guard());
    assert!(plan.stderr.contains("python3.14 ") && plan.stderr.contains(" MiB from "), "{plan}");
    assert_eq!((plan.ok().as_str(), names_in(&folder).len()), ("", 0));
}
