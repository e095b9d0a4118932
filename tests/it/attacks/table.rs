//! `tests/ATTACKS.md`: every attempt and what refuses it, as a page. It is made from the attacks themselves.
//!
//! `CODEBRIDGE_UPDATE_ATTACKS=1 cargo test --test it attacks::the_page` writes the page again.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use super::catalogue::{Attack, Mechanism};
use super::quick::NOT_TRIED;
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
        let text = match outcome.strip_prefix(NOT_TRIED) {
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

/// How many attempts have to be refused, and how many to end as they say.
#[derive(Default)]
struct Count {
    refused: usize,
    hold: usize,
}

impl Count {
    fn add(&mut self, attack: &Attack) {
        if attack.is_refused() { self.refused += 1 } else { self.hold += 1 }
    }
}

/// Whether it is tried on a cluster.
fn is_tried_in_pods(attack: &Attack) -> bool {
    !attack.outcome(Runtime::CLUSTER, Mechanism::Cgroup).starts_with(NOT_TRIED)
}

/// The page, and how many attempts it has that must be refused: in all, and on a cluster.
fn page() -> (String, usize, usize) {
    let (mut tables, mut all, mut in_pods) = (String::new(), Count::default(), Count::default());
    for (topic, title, wall) in WALLS {
        tables +=
            &format!("\n## {title}\n\nIn the way: {wall}. Source: [{topic}.py](it/attacks/{topic}.py).\n\n");
        tables += "| attempt | has to be | how it ends |\n|---|---|---|\n";
        for attack in attacks_of(topic) {
            let verdict = if attack.is_refused() { "refused" } else { "as expected" };
            all.add(&attack);
            if is_tried_in_pods(&attack) {
                in_pods.add(&attack);
            }
            tables += &format!("| {} | {verdict} | {} |\n", attack.name, cell(&attack));
        }
    }
    let rows: Vec<String> = Runtime::ALL.iter().map(|row| format!("`{row}`")).collect();
    let (Count { refused, hold }, pods) = (&all, &in_pods);
    let head = format!(
        "# Attacks: what code tries in a sandbox, and how it ends\n\n\
         <!-- Made from tests/it/attacks by CODEBRIDGE_UPDATE_ATTACKS=1 cargo test --test it attacks::the_page -->\n\n\
         {refused} attempts must be refused, in exactly this way; {hold} more must end as they say, because they show\n\
         what code can see and have. Each of them is a test on each of these rows:\n\n\
         {}.\n\n\
         `-user` is an ordinary user, the others are root. `tests/check --only attacks::` runs all of them.\n\
         `tests/cluster attacks::` runs them on one more, `kubernetes`: {} are refused there and {} end as they say;\n\
         {} that must be refused and {} more are not tried there, for the reason in the table. Where the table names\n\
         no row, an attempt ends in the same way on all rows. Where it is harmless, an attempt is also made outside of\n\
         a sandbox, where it has to end in another way: this proves that it is the sandbox that refuses it.\n",
        rows.join(", "),
        pods.refused,
        pods.hold,
        refused - pods.refused,
        hold - pods.hold,
    );
    (head + &tables, all.refused, in_pods.refused)
}

fn the_page_lists_every_attack(_: &TestEnv) {
    let (page, refused, in_pods) = page();
    let files = quick::FILES.len() + sessions::FILES.len();
    assert_eq!(WALLS.len(), files, "a file of attacks is missing in the page");
    assert!(refused > 100, "{refused}");
    assert_eq!(Runtime::ALL.len(), 7, "src/help/security.md says how many rows there are");
    for (page, text) in [
        ("README.md", format!("{refused} attempts")),
        ("src/help/security.md", format!("| {refused} for each of 7 rows")),
        ("src/help/security.md", format!("; {in_pods} on Kubernetes |")),
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

/// The names of the tests in a folder: those that files of `tests/it` register, and unit tests.
fn tests_in(folder: PathBuf, names: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            tests_in(path, names);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(path).unwrap();
            let registered = text.split("tests![").skip(1).filter_map(|rest| rest.split_once(']'));
            names.extend(registered.flat_map(|(list, _)| list.split(',').map(|name| name.trim().to_owned())));
            let mut lines = text.lines().map(str::trim);
            while lines.any(|line| line.starts_with("#[test]") || line.starts_with("#[tokio::test")) {
                let function = lines.find(|line| line.contains("fn ")).unwrap_or_default();
                let name = function.split_once("fn ").and_then(|(_, rest)| rest.split_once('('));
                names.extend(name.map(|(name, _)| name.to_owned()));
            }
        }
    }
}

fn each_promise_names_tests_that_exist(_: &TestEnv) {
    let mut known = BTreeSet::new();
    for folder in ["src", "tests/it", "runtimes/src", "images/src"] {
        tests_in(root().join(folder), &mut known);
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
                None => known.contains(name),
            };
            assert!(exists, "there is no test '{name}': {promise}");
        }
    }
}
