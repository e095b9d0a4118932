//! `tests/ATTACKS.md`: every attempt and what refuses it, as a page. It is made from the attacks themselves.
//!
//! `CODEBRIDGE_UPDATE_ATTACKS=1 cargo test --test it attacks::the_page` writes the page again.

use std::fs;
use std::path::PathBuf;

use super::catalogue::Attack;
use super::{quick, sessions};
use crate::harness::matrix::Runtime;
use crate::harness::{Suite, TestEnv};
use crate::tests;

const PAGE: &str = "tests/ATTACKS.md";
/// What stands between code and what each file of attacks is about.
const WALLS: &[(&str, &str, &str)] = &[
    ("system_calls", "System calls", "a seccomp allow-list, no capabilities, `no-new-privileges`"),
    ("network", "The network", "a network namespace that has only a loopback interface"),
    ("files", "Files and devices", "mount and pid namespaces, a read-only root, an environment of its own"),
    (
        "execution",
        "Programs that were brought along",
        "`noexec,nosuid,nodev` on every writable folder, `no-new-privileges`",
    ),
    ("processes", "Processes", "a pid namespace, a session of its own, no `ptrace`"),
    ("limits", "Limits of one process", "rlimits, control groups, sizes of the writable folders"),
    ("bombs", "Using up a session", "control groups, or rlimits and a watch; the time limit"),
    (
        "frames",
        "Forged frames",
        "the bridge, which checks every frame; the worst effect is the end of the session",
    ),
];

pub(super) fn register(suite: &mut Suite) {
    suite.once("attacks", tests![the_page_lists_every_attack, each_promise_names_tests_that_exist]);
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The attacks of a topic.
fn attacks_of(topic: &str) -> Vec<Attack> {
    let quick = quick::FILES.iter().map(|(name, text)| (*name, *text));
    let mut files = quick.chain(sessions::FILES.iter().map(|(name, text, _)| (*name, *text)));
    let (_, text) = files.find(|(name, _)| *name == topic).unwrap_or_else(|| panic!("no attacks in {topic}"));
    Attack::all_of(text)
}

/// How attempts end on those runtimes, in a cell of a table.
fn cell(attack: &Attack) -> String {
    let one = |(who, outcome): &(Vec<String>, String)| {
        let outcome = outcome.replace('|', "\\|");
        let text = match outcome.strip_prefix("not tried: ") {
            Some(why) => format!("not tried: {why}"),
            None => {
                outcome.split(" or ").map(|outcome| format!("`{outcome}`")).collect::<Vec<_>>().join(" or ")
            }
        };
        let who: Vec<&str> = who.iter().map(|who| place(who)).collect();
        if who.is_empty() { text } else { format!("{}: {text}", who.join(", ")) }
    };
    attack.outcomes().iter().map(one).collect::<Vec<_>>().join("; ")
}

/// The words for a place where an attack ends in another way.
fn place(who: &str) -> &str {
    match who {
        "cgroup" => "with control groups",
        "rlimit" => "with rlimits",
        other => other,
    }
}

/// The page, and how many attempts it has that must be refused.
fn page() -> (String, usize) {
    let (mut tables, mut refused, mut hold) = (String::new(), 0, 0);
    for (topic, title, wall) in WALLS {
        tables +=
            &format!("\n## {title}\n\nIn the way: {wall}. Source: [{topic}.py](it/attacks/{topic}.py).\n\n");
        tables += "| attempt | has to be | how it ends |\n|---|---|---|\n";
        for attack in attacks_of(topic) {
            let verdict = if attack.is_refused() { "refused" } else { "as expected" };
            if attack.is_refused() {
                refused += 1
            } else {
                hold += 1
            }
            tables += &format!("| {} | {verdict} | {} |\n", attack.name, cell(&attack));
        }
    }
    let rows: Vec<String> = Runtime::ALL.iter().map(|row| format!("`{row}`")).collect();
    let head = format!(
        "# Attacks: what code tries in a sandbox, and how it ends\n\n\
         <!-- Made from tests/it/attacks by CODEBRIDGE_UPDATE_ATTACKS=1 cargo test --test it attacks::the_page -->\n\n\
         {refused} attempts must be refused, in exactly this way; {hold} more must end as they say, because they show\n\
         what code can see and have. Each of them is a test on each of these rows:\n\n\
         {}.\n\n\
         `-user` is an ordinary user, the others are root. `tests/check --only attacks::` runs all of them. Where\n\
         the table names no row, an attempt ends in the same way on all rows. Where it is harmless, an attempt is\n\
         also made outside of a sandbox, where it has to end in another way: this proves that it is the sandbox\n\
         that refuses it.\n",
        rows.join(", ")
    );
    (head + &tables, refused)
}

fn the_page_lists_every_attack(_: &TestEnv) {
    let (page, refused) = page();
    let files = quick::FILES.len() + sessions::FILES.len();
    assert_eq!(WALLS.len(), files, "a file of attacks is missing in the page");
    assert!(refused > 100, "{refused}");
    for (page, text) in [
        ("README.md", format!("{refused} attempts")),
        ("src/help/security.md", format!("| {refused} for each of")),
    ] {
        let says = fs::read_to_string(root().join(page)).unwrap().contains(&text);
        assert!(says, "{page} has another number of attempts: it must say '{text}'");
    }
    let path = root().join(PAGE);
    if std::env::var_os("CODEBRIDGE_UPDATE_ATTACKS").is_some() {
        fs::write(&path, &page).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == page, "{PAGE} is out of date; set CODEBRIDGE_UPDATE_ATTACKS=1 to write it again");
}

/// All of the source, where functions of tests are looked for.
fn sources(folder: PathBuf, text: &mut String) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(path, text);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text.push_str(&fs::read_to_string(path).unwrap());
        }
    }
}

fn each_promise_names_tests_that_exist(_: &TestEnv) {
    let mut source = String::new();
    for folder in ["src", "tests/it", "runtimes/src", "images/src"] {
        sources(root().join(folder), &mut source);
    }
    let help = fs::read_to_string(root().join("src/help/security.md")).unwrap();
    let headers = [
        "| threat | protection | tests |",
        "| runtime | user namespace | limits of memory and processes | tests |",
    ];
    let promises = headers.iter().flat_map(|header| {
        let rows = help.lines().skip_while(move |line| line != header).skip(2);
        let rows: Vec<&str> = rows.take_while(|line| line.starts_with('|')).collect();
        assert!(rows.len() > 5, "{header}: {rows:?}");
        rows
    });
    for promise in promises {
        let tests = promise.trim_end_matches('|').rsplit('|').next().unwrap();
        let names: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
        assert!(!names.is_empty(), "no test: {promise}");
        for name in names {
            let exists = match name.strip_prefix("attacks::") {
                Some(topic) => WALLS.iter().any(|(known, ..)| *known == topic),
                None => source.contains(&format!("fn {name}(")),
            };
            assert!(exists, "there is no test '{name}': {promise}");
        }
    }
}
