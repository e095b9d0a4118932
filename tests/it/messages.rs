//! All texts that a person or a model can read, in one file: `messages.txt`, for review.
//!
//! The file has the text literals of the product as they are in the source, those of the guest's Python, and the help of
//! every command. Documents that are files of their own (`src/help`, the tool's description) are not repeated there.
//! `CODEBRIDGE_UPDATE_MESSAGES=1 cargo test --test it messages` writes the file again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use clap::CommandFactory;
use codebridge::cli::Cli;
use proc_macro2::{TokenStream, TokenTree};

use crate::harness::{Suite, TestEnv};
use crate::structure::source::Sources;
use crate::tests;

const SNAPSHOT: &str = "tests/it/messages.txt";

/// The root modules of the product.
const ROOTS: [&str; 4] = ["src/lib.rs", "src/main.rs", "runtimes/src/lib.rs", "images/src/lib.rs"];

/// Attributes whose texts are shown to people.
const SHOWN_ATTRIBUTES: [&str; 5] = ["arg", "command", "error", "group", "value"];

/// Words that our texts do not use: old-fashioned ones, and metaphors where the field has a term.
const FORBIDDEN_WORDS: &[&str] = &[
    "anew", "guardian", "guardians", "house", "houses", "keeper", "keepers", "lend", "lending", "lends",
    "lent", "mend", "mended", "mends", "room", "rooms", "thereof", "whereof", "yard",
];
const FORBIDDEN_PHRASES: &[&str] = &[
    "nothing of theirs", "takes leave", "to be had", "may be had", "how far it is", "what it is at",
    "cleans up later",
];

pub(crate) fn register(suite: &mut Suite) {
    suite.once(
        "messages",
        tests![the_file_of_messages_is_up_to_date, messages_use_plain_words, texts_are_found_in_the_source],
    );
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn the_file_of_messages_is_up_to_date(env: &TestEnv) {
    let path = root().join(SNAPSHOT);
    let current = all_messages(env);
    if std::env::var_os("CODEBRIDGE_UPDATE_MESSAGES").is_some() {
        fs::write(&path, current).unwrap();
        return;
    }
    let stored = fs::read_to_string(&path).unwrap_or_default();
    let lines = |text: &str| text.lines().map(String::from).collect::<BTreeSet<_>>();
    let (old, new) = (lines(&stored), lines(&current));
    let removed: Vec<_> = old.difference(&new).collect();
    let added: Vec<_> = new.difference(&old).collect();
    assert!(
        stored == current,
        "{SNAPSHOT} is out of date; set CODEBRIDGE_UPDATE_MESSAGES=1 to write it again\n\
         removed: {removed:#?}\nadded: {added:#?}"
    );
}

/// Reads the file itself: the test above says whether it is up to date.
fn messages_use_plain_words(_: &TestEnv) {
    let mut wrong = Vec::new();
    for (number, line) in (1..).zip(fs::read_to_string(root().join(SNAPSHOT)).unwrap().lines()) {
        let lower = line.to_lowercase();
        let mut words = lower.split(|c: char| !c.is_alphanumeric());
        let has_word = words.any(|word| FORBIDDEN_WORDS.contains(&word));
        if has_word || FORBIDDEN_PHRASES.iter().any(|phrase| lower.contains(phrase)) {
            wrong.push(format!("{SNAPSHOT}:{number}: {line}"));
        }
    }
    assert!(wrong.is_empty(), "these texts use words that our texts avoid:\n{}", wrong.join("\n"));
}

fn texts_are_found_in_the_source(_: &TestEnv) {
    let source = r##"
        //! Not a comment.
        #[derive(Debug)] #[error("`{0}` failed")] struct A(#[doc = "not this one"] u8);
        #[command(about = "About it")] struct B;
        const C: &str = "single_word";
        fn f() { eprintln!("could not {}: \"{x}\"\nhint: try {y}", 1); g(r#"raw text"#, b"no bytes", "{a} {b}"); }
        #[cfg(test)] mod tests { const D: &str = "in a test"; }
        #[cfg(test)] use x::{y, z};
        fn h() -> &'static str { "after the tests" }
    "##;
    assert_eq!(
        rust_texts(source),
        ["`{0}` failed", "About it", "could not {}: \"{x}\"\nhint: try {y}", "raw text", "after the tests"]
    );
}

fn all_messages(env: &TestEnv) -> String {
    let mut text = String::from(
        "Texts that a person or a model can read. tests/it/messages.rs says how to write this file.\n",
    );
    for (name, source) in rust_files() {
        add(&mut text, &name, &rust_texts(&source));
    }
    for (name, found) in python_texts(env) {
        add(&mut text, &name, &found);
    }
    let mut command = Cli::command();
    command.build();
    add_help(&mut text, &mut command);
    text
}

fn add(text: &mut String, name: &str, found: &[String]) {
    if found.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n== {name}");
    for message in found {
        let _ = writeln!(text, "- {}", message.trim_end().replace('\n', "\n  "));
    }
}

/// Adds the help of a command and of its subcommands, including hidden ones.
fn add_help(text: &mut String, command: &mut clap::Command) {
    let name = command.get_bin_name().unwrap_or("codebridge").to_owned();
    let _ = writeln!(text, "\n== {name} --help");
    let help = command.render_long_help().to_string();
    // The program alone has all settings: they are shown there.
    let own = help.split("\nSettings:").next().filter(|_| name.contains(' ')).unwrap_or(&help);
    for line in own.lines() {
        let _ = writeln!(text, "{}", format!("  {line}").trim_end());
    }
    for subcommand in command.get_subcommands_mut().filter(|subcommand| subcommand.get_name() != "help") {
        add_help(text, subcommand);
    }
}

/// Returns the names and texts of the product's source files, without those that are for tests only.
fn rust_files() -> Vec<(String, String)> {
    let sources = Sources::read(&root(), &ROOTS.map(|file| ("", file.to_owned()))).unwrap();
    let mut files: Vec<_> =
        sources.files.into_iter().map(|file| (file.name, file.lines.join("\n"))).collect();
    files.sort();
    files
}

/// Returns the texts of a source file, in the order of the source.
fn rust_texts(source: &str) -> Vec<String> {
    let mut found = Vec::new();
    collect(source.parse().unwrap(), &mut found);
    found
}

fn collect(tokens: TokenStream, found: &mut Vec<String>) {
    let mut tokens = tokens.into_iter();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Punct(punct) if punct.as_char() == '#' => {
                let mut next = tokens.next();
                if matches!(&next, Some(TokenTree::Punct(punct)) if punct.as_char() == '!') {
                    next = tokens.next();
                }
                if let Some(TokenTree::Group(attribute)) = next {
                    collect_attribute(attribute.stream(), &mut tokens, found);
                }
            }
            TokenTree::Group(group) => collect(group.stream(), found),
            TokenTree::Literal(literal) => {
                if let Ok(text) = syn::parse_str::<syn::LitStr>(&literal.to_string())
                    && is_sentence(&text.value())
                {
                    found.push(text.value());
                }
            }
            TokenTree::Punct(_) | TokenTree::Ident(_) => {}
        }
    }
}

/// Collects the texts of an attribute; skips the item behind `#[cfg(test)]`.
fn collect_attribute(
    attribute: TokenStream,
    behind: &mut impl Iterator<Item = TokenTree>,
    found: &mut Vec<String>,
) {
    if attribute.to_string().replace(' ', "") == "cfg(test)" {
        let _ = behind.find(|token| match token {
            TokenTree::Group(group) => group.delimiter() == proc_macro2::Delimiter::Brace,
            TokenTree::Punct(punct) => punct.as_char() == ';',
            _ => false,
        });
    } else if let Some(TokenTree::Ident(name)) = attribute.clone().into_iter().next()
        && SHOWN_ATTRIBUTES.iter().any(|shown| name == shown)
    {
        collect(attribute, found);
    }
}

/// Returns whether a literal is more than a name, a format or a word of a protocol.
fn is_sentence(text: &str) -> bool {
    let mut depth = 0;
    let plain: String = text
        .chars()
        .filter(|c| {
            depth += i32::from(*c == '{') - i32::from(*c == '}');
            depth == 0 && *c != '}'
        })
        .collect();
    text.trim().contains(' ') && plain.contains(char::is_alphabetic)
}

/// Returns the texts of each file of the guest.
fn python_texts(env: &TestEnv) -> BTreeMap<String, Vec<String>> {
    let script = root().join("tests/it/messages/python_texts.py");
    let printed = env.run([Path::new("/usr/bin/python3"), &script, &root().join("src/guest")]).ok();
    let mut files: BTreeMap<String, Vec<String>> = serde_json::from_str(&printed).unwrap();
    files.values_mut().for_each(|texts| texts.retain(|text| is_sentence(text)));
    files.into_iter().map(|(name, texts)| (format!("src/guest/{name}"), texts)).collect()
}
