//! Runs a check on many hostile inputs. The checks are unit tests of the crates, in files named `fuzz.rs`.
//!
//! ```text
//! corpus (files) ─▶ pool of inputs ─▶ mutation ─▶ the check ─▶ coverage ─▶ pool
//! ```
//! In `cargo test`, a check gets all inputs of its corpus, and a few hundred variations of them. `tests/fuzz` gives it time:
//! the crates are compiled with counters, and a variation that reaches new code is kept and varied further. All of it
//! works with a stable compiler, and needs no other crate.

mod choices;
mod corpus;
mod coverage;
mod mutation;
mod random;
mod watch;

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

pub use choices::Choices;

use coverage::Coverage;
use mutation::Mutator;
use random::Random;
use watch::Watch;

/// Variations in a test without a time.
const ROUNDS: u64 = 400;
/// Bytes of an input.
const LONGEST: usize = 8 << 10;
/// How often a failing input is tried with less.
const REDUCTIONS: usize = 300;

/// Calls the check with every input of the corpus of this name, and with variations of them.
///
/// `words` are what the inputs consist of, beside the words in the corpus. The check panics at what must not happen.
///
/// # Panics
/// The check did. The message names the file with the input.
pub fn fuzz(name: &str, words: &[&str], check: impl Fn(&[u8])) {
    let time = number("CODEBRIDGE_FUZZ_SECONDS").map(Duration::from_secs);
    let seed = number("CODEBRIDGE_FUZZ_SEED").unwrap_or_else(|| time.map_or(1, |_| random::seed()));
    let mut random = Random::new(seed);
    let mut pool = corpus::read(name, time.is_some(), &mut random);
    let mut run = Run { name, check, watch: Watch::start(name), coverage: Coverage::find(), executions: 0 };
    for input in &pool {
        run.is_new(input);
    }
    let mutator = Mutator::new(words, &pool);
    let mut known: HashSet<Vec<u8>> = pool.iter().cloned().collect();
    let began = Instant::now();
    let mut round = 0;
    while time.map_or(round < ROUNDS, |time| began.elapsed() < time) {
        round += 1;
        // What was found last leads further more often.
        let at = match random.one_in(3) {
            true => pool.len() - 1 - random.below(pool.len().min(16)),
            false => random.below(pool.len()),
        };
        let mut input = pool[at].clone();
        mutator.change(&mut input, &pool, &mut random);
        input.truncate(LONGEST);
        if run.is_new(&input) && known.insert(input.clone()) {
            corpus::keep(name, &input);
            pool.push(input);
        }
    }
    eprintln!(
        "fuzz: {name}: {} executions in {:.0} s, {} inputs, {}",
        run.executions,
        began.elapsed().as_secs_f64(),
        pool.len(),
        run.coverage.summary(),
    );
}

/// Reads a number from the environment.
fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} must be a number")))
}

struct Run<'a, C> {
    name: &'a str,
    check: C,
    watch: Watch,
    coverage: Coverage,
    executions: u64,
}

impl<C: Fn(&[u8])> Run<'_, C> {
    /// Checks an input, and returns whether it reached what no earlier one has.
    fn is_new(&mut self, input: &[u8]) -> bool {
        self.executions += 1;
        self.coverage.clear();
        if !self.passes(input) {
            let reduced = self.reduced(input.to_vec());
            let path = corpus::keep_failure(self.name, &reduced);
            panic!(
                "the check '{}' fails for the {} bytes in {}; once it is repaired, the file belongs into {}",
                self.name,
                reduced.len(),
                path.display(),
                corpus::folder(self.name).display()
            );
        }
        self.coverage.is_new()
    }

    fn passes(&self, input: &[u8]) -> bool {
        self.watch.begin(input);
        let passes = catch_unwind(AssertUnwindSafe(|| (self.check)(input))).is_ok();
        self.watch.end();
        passes
    }

    /// Removes from a failing input what does not matter.
    fn reduced(&self, mut input: Vec<u8>) -> Vec<u8> {
        let mut tries = REDUCTIONS;
        let mut part = input.len() / 2;
        while part > 0 {
            let mut at = 0;
            while at < input.len() && tries > 0 {
                tries -= 1;
                let end = (at + part).min(input.len());
                let shorter = [&input[..at], &input[end..]].concat();
                match self.passes(&shorter) {
                    true => at = end,
                    false => input = shorter,
                }
            }
            part /= 2;
        }
        input
    }
}

#[cfg(test)]
mod tests;
