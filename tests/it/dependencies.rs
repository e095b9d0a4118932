//! The packages that the product depends on: licences, sources and bans. The lists are in `.cargo/deny.toml`, which
//! cargo-deny reads as well.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;

use serde::Deserialize;

use crate::harness::{Suite, TestEnv};
use crate::tests;

pub(crate) fn register(suite: &mut Suite) {
    suite.once(
        "dependencies",
        tests![
            every_licence_is_allowed,
            every_package_comes_from_the_default_registry,
            no_package_is_banned,
            no_version_is_a_wildcard,
            licence_expressions_are_understood,
        ],
    );
}

/// What `.cargo/deny.toml` says, as far as it is checked here.
#[derive(Deserialize)]
struct Rules {
    licenses: LicenceRules,
    bans: Bans,
}

#[derive(Deserialize)]
struct LicenceRules {
    allow: Vec<String>,
    exceptions: Vec<Exception>,
}

#[derive(Deserialize)]
struct Exception {
    #[serde(rename = "crate")]
    package: String,
    allow: Vec<String>,
}

#[derive(Deserialize)]
struct Bans {
    deny: Vec<Ban>,
}

#[derive(Deserialize)]
struct Ban {
    #[serde(rename = "crate")]
    package: String,
}

/// What `cargo metadata` says.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    license: Option<String>,
    source: Option<String>,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    req: String,
    path: Option<String>,
}

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn rules() -> Rules {
    toml::from_str(&fs::read_to_string(repository().join(".cargo/deny.toml")).unwrap()).unwrap()
}

/// All packages of the lock file, whatever the platform and the features.
fn packages(env: &TestEnv) -> &'static [Package] {
    static METADATA: OnceLock<Metadata> = OnceLock::new();
    let metadata = METADATA.get_or_init(|| {
        let mut command = env.command(env!("CARGO"));
        let words = ["metadata", "--format-version=1", "--locked", "--all-features"];
        command.argv.extend(words.map(Into::into));
        command.cwd = repository();
        // Cargo needs its own settings, and perhaps a proxy.
        command.env = std::env::vars_os().collect();
        serde_json::from_str(&command.run(env.guard()).ok()).unwrap()
    });
    assert!(metadata.packages.len() > 100, "only {} packages were found", metadata.packages.len());
    &metadata.packages
}

fn every_licence_is_allowed(env: &TestEnv) {
    let LicenceRules { allow, exceptions } = rules().licenses;
    let refused: Vec<_> = packages(env)
        .iter()
        .filter(|package| {
            let own = exceptions.iter().filter(|exception| exception.package == package.name);
            let allowed: BTreeSet<_> = allow.iter().chain(own.flat_map(|own| &own.allow)).collect();
            let is_allowed = |licence: &str| allowed.iter().any(|allowed| *allowed == licence);
            !package.license.as_deref().is_some_and(|expression| satisfies(expression, &is_allowed))
        })
        .map(|package| format!("{}: {:?}", package.name, package.license))
        .collect();
    assert!(refused.is_empty(), "licences that .cargo/deny.toml does not allow: {refused:#?}");
}

fn every_package_comes_from_the_default_registry(env: &TestEnv) {
    let sources: BTreeSet<_> = packages(env).iter().filter_map(|package| package.source.as_deref()).collect();
    let is_default = |source: &&str| source.starts_with("registry+") && source.ends_with("/crates.io-index");
    assert!(sources.len() == 1 && sources.iter().all(is_default), "{sources:?}");
    let local: Vec<_> = packages(env).iter().filter(|package| package.source.is_none()).collect();
    assert!(local.iter().all(|package| package.name.starts_with("codebridge")), "a package is a path");
}

fn no_package_is_banned(env: &TestEnv) {
    for ban in rules().bans.deny {
        assert!(packages(env).iter().all(|package| package.name != ban.package), "{} is banned", ban.package);
    }
}

fn no_version_is_a_wildcard(env: &TestEnv) {
    for package in packages(env) {
        let wildcard = package.dependencies.iter().find(|one| one.path.is_none() && one.req == "*");
        assert!(wildcard.is_none(), "{} takes any version of {}", package.name, wildcard.unwrap().name);
    }
}

/// Whether an SPDX expression can be satisfied with licences that are allowed. `/` is how older packages write `OR`.
fn satisfies(expression: &str, is_allowed: &dyn Fn(&str) -> bool) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = &words[..];
    parse_or(&mut rest, is_allowed) == Some(true) && rest.is_empty()
}

fn parse_or(words: &mut &[&str], is_allowed: &dyn Fn(&str) -> bool) -> Option<bool> {
    let mut satisfied = parse_and(words, is_allowed)?;
    while let ["OR", rest @ ..] = *words {
        *words = rest;
        satisfied |= parse_and(words, is_allowed)?;
    }
    Some(satisfied)
}

fn parse_and(words: &mut &[&str], is_allowed: &dyn Fn(&str) -> bool) -> Option<bool> {
    let mut satisfied = parse_licence(words, is_allowed)?;
    while let ["AND", rest @ ..] = *words {
        *words = rest;
        satisfied &= parse_licence(words, is_allowed)?;
    }
    Some(satisfied)
}

fn parse_licence(words: &mut &[&str], is_allowed: &dyn Fn(&str) -> bool) -> Option<bool> {
    let (satisfied, rest) = match *words {
        ["(", rest @ ..] => {
            *words = rest;
            let satisfied = parse_or(words, is_allowed)?;
            (satisfied, words.strip_prefix(&[")"])?)
        }
        [licence, "WITH", exception, rest @ ..] => (is_allowed(&format!("{licence} WITH {exception}")), rest),
        [licence, rest @ ..] => (is_allowed(licence), rest),
        [] => return None,
    };
    *words = rest;
    Some(satisfied)
}

fn licence_expressions_are_understood(_: &TestEnv) {
    let is_allowed = |licence: &str| ["MIT", "ISC", "Apache-2.0 WITH LLVM-exception"].contains(&licence);
    for expression in [
        "MIT",
        "MIT OR GPL-3.0",
        "GPL-3.0/MIT",
        "MIT AND ISC",
        "(GPL-3.0 OR MIT) AND ISC",
        "GPL-3.0 AND LGPL-2.1 OR MIT",
        "Apache-2.0 WITH LLVM-exception OR GPL-3.0",
    ] {
        assert!(satisfies(expression, &is_allowed), "{expression}");
    }
    for expression in [
        "", "GPL-3.0", "MIT AND GPL-3.0", "MIT OR", "MIT ISC", "(MIT", "MIT)",
        "(MIT OR GPL-3.0) AND GPL-3.0", "Apache-2.0", "MIT WITH LLVM-exception",
    ] {
        assert!(!satisfies(expression, &is_allowed), "{expression}");
    }
}
