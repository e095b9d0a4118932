//! The structure of the code: layers are used in one direction only, and no two files import each other.
//!
//! Everything that a file imports or mentions counts as a use of the file that defines it; re-exports are followed.
//! Declaring a module, re-exporting a name, and code that is compiled for tests only do not count.

mod graph;
mod layers;
mod report;
pub(crate) mod source;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::harness::{Suite, TestEnv};
use crate::tests;
use layers::part_of;
use report::{Report, check};

/// The parts of the workspace and what each one may use.
const LAYERS: &str = include_str!("structure/layers.txt");

/// The only parts of `src` that may name these crates.
const USERS_OF: &[(&str, &[&str])] = &[
    (
        "codebridge_runtimes",
        &[
            "activity", "artifacts", "audit", "cli", "console", "doctor", "gc", "guest", "housekeeping",
            "image_sources", "machine_supervisor", "packages", "reaper", "saved", "server", "session",
            "settings", "setup", "telemetry", "upstream", "workflows",
        ],
    ),
    (
        "codebridge_images",
        &["gc", "image_sources", "packages", "requirements", "session", "settings", "cli", "doctor"],
    ),
    ("rmcp", &["server", "upstream", "mcp"]),
    ("clap", &["cli"]),
    ("indicatif", &["cli"]),
    ("toon_format", &["server"]),
    ("opentelemetry", &["telemetry"]),
    ("opentelemetry_sdk", &["telemetry"]),
];

/// What each crate must not depend on: the command line and MCP belong to the root package.
const FORBIDDEN_PACKAGES: &[(&str, &[&str])] = &[
    ("runtimes/Cargo.toml", &["rmcp", "clap", "codebridge =", "codebridge."]),
    ("images/Cargo.toml", &["rmcp", "clap", "codebridge-runtimes", "codebridge =", "codebridge."]),
];

pub(crate) fn register(suite: &mut Suite) {
    suite.once(
        "structure",
        tests![
            no_files_import_each_other_in_a_cycle,
            each_part_uses_only_what_the_list_allows,
            outside_crates_are_used_only_where_the_list_allows,
            inner_crates_do_not_depend_on_outer_ones,
            a_cycle_is_found,
            a_use_that_the_list_forbids_is_found,
            declarations_reexports_and_tests_do_not_count_as_uses,
        ],
    );
}

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn report_of_the_repository() -> &'static Report {
    static REPORT: OnceLock<Report> = OnceLock::new();
    let report = REPORT.get_or_init(|| check(&repository(), LAYERS).unwrap());
    let Report { files, arrows, .. } = report;
    assert!(*files > 250 && *arrows > 800, "only {files} files and {arrows} arrows were found");
    report
}

fn no_files_import_each_other_in_a_cycle(_: &TestEnv) {
    let cycles = &report_of_the_repository().cycles;
    assert!(cycles.is_empty(), "{} import cycles:\n{}", cycles.len(), cycles.join("\n"));
}

fn each_part_uses_only_what_the_list_allows(_: &TestEnv) {
    let found = &report_of_the_repository().layers;
    assert!(found.arrows_seen > 100, "only {} arrows between parts were found", found.arrows_seen);
    for (problem, list) in [
        ("uses that tests/it/structure/layers.txt does not allow", &found.forbidden),
        ("cycles between parts in tests/it/structure/layers.txt", &found.cycles),
        ("arrows of tests/it/structure/layers.txt that nothing uses: remove them", &found.unused),
    ] {
        assert!(list.is_empty(), "{problem}:\n{}", list.join("\n"));
    }
}

fn outside_crates_are_used_only_where_the_list_allows(_: &TestEnv) {
    let used = &report_of_the_repository().used_crates;
    for (name, allowed) in USERS_OF {
        let parts: BTreeSet<_> = used[*name].iter().filter_map(|file| part_of("src", file)).collect();
        assert!(!parts.is_empty(), "{name} is used nowhere: the scan or the list is wrong");
        let others: Vec<_> = parts.iter().filter(|part| !allowed.contains(*part)).collect();
        assert!(others.is_empty(), "{name} is used by {others:?}");
    }
}

fn inner_crates_do_not_depend_on_outer_ones(_: &TestEnv) {
    for (manifest, forbidden) in FORBIDDEN_PACKAGES {
        let text = fs::read_to_string(repository().join(manifest)).unwrap();
        for name in *forbidden {
            let used = text.lines().any(|line| line.trim_start().starts_with(name));
            assert!(!used, "{manifest} depends on {name}");
        }
    }
}

/// Checks a made-up repository: pairs of a file's name and its text.
fn check_files(env: &TestEnv, files: &[(&str, &str)], layers: &str) -> Report {
    let root = env.folder("repository");
    for (name, text) in files {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).unwrap();
        fs::write(path, text).unwrap();
    }
    check(&root, layers).unwrap()
}

fn a_cycle_is_found(env: &TestEnv) {
    let report = check_files(
        env,
        &[
            ("src/lib.rs", "mod a;\nmod b;\nmod c;\n"),
            // Through a re-export of a folder, a path without an import, and one inside a macro.
            ("src/a.rs", "use crate::b::Facade;\npub struct A(Facade);\n"),
            ("src/b/mod.rs", "mod inner;\npub use inner::Inner as Facade;\n"),
            ("src/b/inner.rs", "pub struct Inner;\nfn f() { vec![1, super::super::c::size()]; }\n"),
            ("src/c.rs", "pub fn size() -> usize { size_of::<crate::a::A>() }\n"),
        ],
        "",
    );
    assert_eq!(
        report.cycles,
        ["  src/a.rs:1: use crate::b::Facade;\n    uses src/b/inner.rs\n  \
           src/b/inner.rs:2: fn f() { vec![1, super::super::c::size()]; }\n    uses src/c.rs\n  \
           src/c.rs:1: pub fn size() -> usize { size_of::<crate::a::A>() }\n    uses src/a.rs\n"]
    );
}

fn a_use_that_the_list_forbids_is_found(env: &TestEnv) {
    let files = [
        ("src/lib.rs", "mod low;\nmod high;\n"),
        ("src/low.rs", "use codebridge_runtimes::Driver;\npub struct Low(Driver, crate::high::High);\n"),
        ("src/high/mod.rs", "pub struct High;\n"),
        ("runtimes/src/lib.rs", "mod driver;\npub use driver::Driver;\n"),
        ("runtimes/src/driver.rs", "pub struct Driver;\n"),
    ];
    let layers = "[crates]\nimages: src\n[src]\n# Comments do not count.\nhigh: low\nlow: low2\nlow2: high\n";
    let found = check_files(env, &files, layers).layers;
    assert_eq!(
        found.forbidden,
        [
            "[crates] src uses runtimes\n  src/low.rs:1: use codebridge_runtimes::Driver;\n    uses runtimes/src/driver.rs\n",
            "[src] low uses high\n  src/low.rs:2: pub struct Low(Driver, crate::high::High);\n    uses src/high/mod.rs\n",
        ]
    );
    assert_eq!(found.cycles, ["[src] high → low → low2 → high"]);
    assert_eq!(
        found.unused,
        [
            "[crates] images does not use src",
            "[src] high does not use low",
            "[src] low does not use low2",
            "[src] low2 does not use high"
        ]
    );
}

fn declarations_reexports_and_tests_do_not_count_as_uses(env: &TestEnv) {
    let report = check_files(
        env,
        &[
            ("src/lib.rs", "pub mod a;\nmod b;\npub use b::B;\npub struct Shared;\n"),
            ("src/a.rs", "use crate::Shared;\n#[cfg(test)]\nmod tests {\n    use crate::b::B;\n}\n"),
            (
                "src/b.rs",
                "// crate::a::A\npub struct B(crate::Shared);\nconst TEXT: &str = \"crate::a::A\";\n\
                 fn f(a: usize) -> usize { a }\n",
            ),
        ],
        "",
    );
    assert_eq!((report.files, report.arrows), (3, 2));
    assert_eq!(report.cycles, [""; 0]);
}
