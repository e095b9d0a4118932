//! Registration of tests: plain functions, run once or once for each runtime.

use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use libtest_mimic::{Completion, Failed, Trial};

use super::env::TestEnv;
use super::matrix::{Kind, Machine, Runtime};
use super::works::works;

/// A test.
pub(crate) type TestFn = fn(&TestEnv);

/// How a test gets its environment.
type Place = fn(Option<Runtime>) -> TestEnv;

/// A list of test functions with their names.
#[macro_export]
macro_rules! tests {
    ($($test:ident),+ $(,)?) => {
        &[$((stringify!($test), $test as $crate::harness::suite::TestFn)),+]
    };
}

/// All tests of this binary.
#[derive(Debug, Default)]
pub(crate) struct Suite {
    pub(crate) trials: Vec<Trial>,
    /// Those that run while no other test of the same user does.
    alone: Vec<Trial>,
}

impl Suite {
    /// Tests that need no runtime.
    pub(crate) fn once(&mut self, topic: &str, tests: &[(&str, TestFn)]) {
        for &(name, test) in tests {
            self.add(format!("{topic}::{name}"), None, TestEnv::new, test);
        }
    }

    /// Tests of what the ordinary user starts for itself, with this kind of client.
    pub(crate) fn as_user(&mut self, topic: &str, tests: &[(&str, TestFn)]) {
        fn place(_: Option<Runtime>) -> TestEnv {
            TestEnv::new(Some(Runtime { kind: Kind::Docker, as_user: true }))
        }
        for &(name, test) in tests {
            self.add(format!("{topic}::{name}"), None, place, test);
        }
    }

    /// Tests that have to hold on every runtime.
    pub(crate) fn each_runtime(&mut self, topic: &str, tests: &[(&str, TestFn)]) {
        self.on(Runtime::rows(), topic, tests);
    }

    /// Likewise, while no other test of the same user runs: what they leave behind, any other bridge would sweep.
    pub(crate) fn each_runtime_alone(&mut self, topic: &str, tests: &[(&str, TestFn)]) {
        for &runtime in Runtime::rows() {
            self.on_alone(runtime, topic, tests);
        }
    }

    /// Likewise, for one row of the matrix.
    pub(crate) fn on_alone(&mut self, runtime: Runtime, topic: &str, tests: &[(&str, TestFn)]) {
        for &(name, test) in tests {
            let name = format!("{runtime}::{topic}::{name}");
            self.alone.push(trial(name, Some(runtime), TestEnv::alone, test));
        }
    }

    /// Tests that have to hold as every user of some kinds of runtimes.
    pub(crate) fn kinds(&mut self, kinds: &[Kind], topic: &str, tests: &[(&str, TestFn)]) {
        let rows: Vec<Runtime> = Runtime::ALL.into_iter().filter(|row| kinds.contains(&row.kind)).collect();
        self.on(&rows, topic, tests);
    }

    /// Tests for these rows of the matrix.
    pub(crate) fn on(&mut self, rows: &[Runtime], topic: &str, tests: &[(&str, TestFn)]) {
        for &runtime in rows {
            for &(name, test) in tests {
                self.add(format!("{runtime}::{topic}::{name}"), Some(runtime), TestEnv::new, test);
            }
        }
    }

    fn add(&mut self, name: String, runtime: Option<Runtime>, place: Place, test: TestFn) {
        self.trials.push(trial(name, runtime, place, test));
    }

    /// Spreads the tests of each topic evenly over those that are registered so far.
    pub(crate) fn take_turns(&mut self) {
        let mut seen: BTreeMap<String, u32> = BTreeMap::new();
        let mut numbered: Vec<(u32, Trial)> = Vec::new();
        for trial in self.trials.drain(..) {
            let number = seen.entry(topic_of(trial.name()).to_string()).or_default();
            *number += 1;
            numbered.push((*number, trial));
        }
        // The number of a test in its topic as a share of the topic's tests.
        let share = |(number, trial): &(u32, Trial)| number * 1000 / seen[topic_of(trial.name())];
        numbered.sort_by_key(share);
        self.trials.extend(numbered.into_iter().map(|(_, trial)| trial));
    }

    /// All tests in the order in which they start. Those that have to be alone come first: later, each would hold up all
    /// others until the longest test that has begun has ended.
    pub(crate) fn into_trials(mut self) -> Vec<Trial> {
        self.alone.append(&mut self.trials);
        self.alone
    }

    /// A runtime that was prepared and does not work is a failure; one that was not prepared is ignored.
    pub(crate) fn runtimes(&mut self) {
        for &runtime in Runtime::rows() {
            let test = move || match works(runtime) {
                Ok(()) => Ok(Completion::Completed),
                Err(reason) if Machine::get().is_prepared(runtime) => {
                    Err(Failed::from(format!("runtime {runtime} was prepared and does not work: {reason}")))
                }
                Err(reason) => Ok(Completion::ignored_with(reason)),
            };
            self.trials.push(Trial::ignorable_test(format!("{runtime}::works_on_this_machine"), test));
        }
    }
}

fn trial(name: String, runtime: Option<Runtime>, place: Place, test: TestFn) -> Trial {
    let run = {
        let name = name.clone();
        move || run(&name, runtime, place, test)
    };
    Trial::ignorable_test(name, run)
}

thread_local! {
    /// Where and why this thread panicked.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Keeps the messages of panics for the report. Only threads of tests have one.
pub(crate) fn keep_panics() {
    panic::set_hook(Box::new(|info| {
        let text = match info.location() {
            Some(place) => format!("{}:{}: {}", place.file(), place.line(), message(info.payload())),
            None => message(info.payload()).to_string(),
        };
        PANIC.set(Some(text));
    }));
}

/// Returns the message of this thread's last panic, once.
pub(crate) fn last_panic() -> String {
    PANIC.take().unwrap_or_default()
}

fn message(payload: &dyn Any) -> &str {
    payload
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| payload.downcast_ref::<&str>().copied())
        .unwrap_or("a panic without a message")
}

/// The panic of a test that finds nothing to test on this machine.
#[derive(Debug)]
struct Ignored(String);

/// Ends the test as ignored.
pub(crate) fn ignore(reason: &str) -> ! {
    panic::resume_unwind(Box::new(Ignored(reason.into())))
}

/// Runs something in an environment of its own that several tests share; returns the message of its panic, if there is one.
pub(crate) fn in_own_env<T>(runtime: Option<Runtime>, run: impl Fn(&TestEnv) -> T) -> Result<T, String> {
    let env = TestEnv::new(runtime);
    let result = panic::catch_unwind(AssertUnwindSafe(|| run(&env)));
    let story = env.guard().story();
    let hung = env.close();
    match result {
        Ok(value) if !hung => Ok(value),
        Ok(_) => Err(format!("it hung{story}")),
        Err(_) => Err(format!("{}{story}", last_panic())),
    }
}

/// How long each test took.
static TIMES: Mutex<Vec<(Duration, String)>> = Mutex::new(Vec::new());

/// Prints the tests that took longest, and the topics with the sum of their tests on all runtimes.
pub(crate) fn print_slowest(count: usize) {
    let mut times = TIMES.lock().unwrap();
    times.sort_by(|a, b| b.cmp(a));
    let mut topics: BTreeMap<&str, Duration> = BTreeMap::new();
    for (time, name) in times.iter() {
        *topics.entry(topic_of(name)).or_default() += *time;
    }
    let mut topics: Vec<_> = topics.into_iter().map(|(topic, time)| (time, topic)).collect();
    topics.sort_by(|a, b| b.cmp(a));
    print_times("slowest tests", times.iter().map(|(time, name)| (*time, name.as_str())).take(count));
    print_times("slowest topics, all runtimes together", topics.into_iter().take(count));
}

fn print_times<'a>(title: &str, times: impl Iterator<Item = (Duration, &'a str)>) {
    eprintln!("{title}:");
    for (time, name) in times {
        eprintln!("{:6.1} s  {name}", time.as_secs_f64());
    }
}

/// The topic of a test: its name without the runtime before it and the function behind it.
fn topic_of(name: &str) -> &str {
    let topic = name.rsplit_once("::").map_or(name, |(topic, _)| topic);
    match topic.split_once("::") {
        Some((row, rest))
            if Runtime::ALL.iter().chain([&Runtime::CLUSTER]).any(|runtime| runtime.to_string() == row) =>
        {
            rest
        }
        _ => topic,
    }
}

fn run(name: &str, runtime: Option<Runtime>, place: Place, test: TestFn) -> Result<Completion, Failed> {
    if let Some(runtime) = runtime
        && let Err(reason) = works(runtime)
    {
        return Ok(Completion::ignored_with(reason));
    }
    let env = place(runtime);
    let started = Instant::now();
    let result = panic::catch_unwind(AssertUnwindSafe(|| test(&env)));
    let story = env.guard().story();
    let hung = env.close();
    TIMES.lock().unwrap().push((started.elapsed(), name.into()));
    match result {
        Ok(()) if !hung => Ok(Completion::Completed),
        Err(payload) if payload.is::<Ignored>() && !hung => {
            let reason = payload.downcast::<Ignored>().map(|ignored| ignored.0).unwrap_or_default();
            Ok(Completion::ignored_with(reason))
        }
        _ => {
            let hung = if hung { "the test hung and was ended; " } else { "" };
            Err(Failed::from(format!("{hung}{}{story}", last_panic())))
        }
    }
}
