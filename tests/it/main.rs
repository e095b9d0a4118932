//! Tests of the product from outside: the real binary, real runtimes, and fakes for what these will not do on demand.
//!
//! Every test is a plain function that gets a [`harness::TestEnv`]. Tests that depend on the sandbox run once for
//! each row of the matrix and are named after it: `crun-user::interrupts::…`. `tests/check` prepares a machine for
//! all rows; on a machine that is not prepared, tests of runtimes that do not work are reported as ignored, with the
//! reason.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod harness;

mod artifacts;
mod attacks;
mod audit;
mod audit_damage;
mod background;
mod certificates;
mod clients;
mod cluster;
mod command_line;
mod console;
mod console_bridges;
mod console_files;
mod daemon_losses;
mod dependencies;
mod desktops;
mod detection;
mod display;
mod doctor;
mod documentation;
mod exec_scripts;
mod execution;
mod fakes;
mod faults;
mod files;
mod find_registry;
mod find_servers;
mod floods;
mod gc;
mod help;
mod host_faults;
mod http;
mod http_bounds;
mod http_users;
mod image_pulls;
mod image_store;
mod images;
mod in_container;
mod installs;
mod interrupts;
mod leaks;
mod lifecycle;
mod limits;
mod login;
mod login_keyring;
mod login_lies;
mod login_pages;
mod losses;
mod machine;
mod machine_supervisor;
mod manners;
mod mcp;
mod messages;
mod notebook;
mod oidc;
mod openapi;
mod output;
mod packages;
mod pod_losses;
mod pods;
mod policy;
mod questions;
mod real_servers;
mod reaper;
mod recipes;
mod refused_calls;
mod remote;
mod remote_ssh;
mod remote_ssh_refusals;
mod replay;
mod repository;
mod resources;
mod rootless_docker;
mod saved_tools;
mod search_model;
mod server_access;
mod servers;
mod sessions;
mod setup;
mod shares;
mod soak;
mod spares;
mod state_folder;
mod store_faults;
mod structure;
mod tasks;
mod telemetry;
mod trust;
mod two_bridges;
mod workflows;

use std::process::ExitCode;

use libtest_mimic::Arguments;

use harness::Suite;

/// The topics with the longest tests. They start first: a long test that starts last keeps one core busy and the others
/// idle. Some of them wait and some of them compute, so they take turns.
const LONG_TOPICS: &[fn(&mut Suite)] = &[
    recipes::register_builds,
    image_store::register,
    image_pulls::register,
    machine_supervisor::register,
    remote_ssh::register,
    remote::register,
    machine::register,
    leaks::register,
];

/// The other topics. The last one uses what the first long one builds.
const TOPICS: &[fn(&mut Suite)] = &[
    artifacts::register,
    attacks::register,
    audit::register,
    audit_damage::register,
    background::register,
    certificates::register,
    clients::register,
    cluster::register,
    command_line::register,
    console::register,
    console_bridges::register,
    console_files::register,
    daemon_losses::register,
    dependencies::register,
    desktops::register,
    detection::register,
    display::register,
    doctor::register,
    documentation::register,
    exec_scripts::register,
    execution::register,
    fakes::register,
    faults::register,
    files::register,
    find_registry::register,
    find_servers::register,
    floods::register,
    gc::register,
    help::register,
    host_faults::register,
    http::register,
    http_bounds::register,
    http_users::register,
    oidc::register,
    images::register,
    in_container::register,
    installs::register,
    interrupts::register,
    lifecycle::register,
    limits::register,
    login::register,
    login_keyring::register,
    login_lies::register,
    login_pages::register,
    losses::register,
    manners::register,
    mcp::register,
    messages::register,
    openapi::register,
    output::register,
    notebook::register,
    packages::register,
    pod_losses::register,
    pods::register,
    policy::register,
    questions::register,
    real_servers::register,
    reaper::register,
    refused_calls::register,
    remote_ssh_refusals::register,
    repository::register,
    replay::register,
    resources::register,
    rootless_docker::register,
    saved_tools::register,
    server_access::register,
    servers::register,
    search_model::register,
    sessions::register,
    setup::register,
    shares::register,
    soak::register,
    state_folder::register,
    spares::register,
    store_faults::register,
    structure::register,
    tasks::register,
    telemetry::register,
    trust::register,
    two_bridges::register,
    workflows::register,
    recipes::register,
];

/// More than there are cores: most of a test's time is waiting.
const THREADS: usize = 6;

/// How many of the slowest tests and topics are printed at the end.
const SLOWEST: usize = 15;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(THREADS);
    harness::suite::keep_panics();
    let mut suite = Suite::default();
    for register in LONG_TOPICS {
        register(&mut suite);
    }
    suite.take_turns();
    suite.runtimes();
    for register in TOPICS {
        register(&mut suite);
    }
    let conclusion = libtest_mimic::run(&arguments, suite.into_trials());
    harness::suite::print_slowest(SLOWEST);
    harness::env::remove_base();
    conclusion.exit_code()
}
