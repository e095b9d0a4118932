//! Failures on the way to an engine over ssh: each one is reported in bounded time with the engine's name, a reason
//! and a hint, without a prompt, and without credentials in messages and files.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use serde_json::json;

use crate::harness::engines::{PodmanService, bridge_on, need};
use crate::harness::host::instance_of;
use crate::harness::process::{command_line, processes};
use crate::harness::ssh::SshServer;
use crate::harness::{BridgeBuilder, Kind, Outcome, Suite, TestEnv};
use crate::remote_ssh::{docker_over, podman_behind, podman_url};
use crate::tests;

pub(crate) fn register(suite: &mut Suite) {
    suite.once(
        "remote_ssh",
        tests![
            an_unknown_host_key_is_reported,
            a_refused_key_is_reported,
            a_key_with_a_passphrase_does_not_prompt,
            an_sshd_that_does_not_run_is_reported,
            an_engine_on_a_silent_machine_is_given_up_in_time,
            an_invalid_address_is_reported,
            no_question_reaches_a_terminal,
            a_password_in_an_address_is_shown_nowhere,
            a_password_that_docker_refuses_is_shown_nowhere,
        ],
    );
}

/// Runs something where it cannot; the bridge ends as it should.
fn refused(builder: BridgeBuilder<'_>) -> (Outcome, String) {
    let bridge = builder.start();
    let outcome = bridge.run("1").expect("error");
    (outcome, bridge.close().log)
}

/// Likewise, in the time that a client takes that does not wait for anybody.
fn refused_soon(builder: BridgeBuilder<'_>, words: [&str; 3]) {
    let (outcome, _) = refused(builder);
    let _ = words
        .into_iter()
        .fold(outcome, |outcome, word| outcome.because(word))
        .within(Duration::from_secs(20));
}

fn an_unknown_host_key_is_reported(env: &TestEnv) {
    need(Kind::Podman);
    need(Kind::Docker);
    let server = SshServer::start(env);
    let _service = podman_behind(env, &server);
    let said = "ssh does not trust the host key of the engine's machine";
    let hint = "hint: ask the owner of the host for its key";
    server.be_known_by(Some("stranger"));
    refused_soon(bridge_on(env, "podman:far"), ["podman:far does not work: ", said, hint]);
    refused_soon(docker_over(env, &server), ["docker does not work: ", said, hint]);
    // podman's client keeps an unknown key by itself, OpenSSH's asks.
    server.be_known_by(None);
    refused_soon(docker_over(env, &server), ["docker does not work: ", said, hint]);
    let kept = fs::read_to_string(env.folder("sshd").join("known_hosts")).unwrap();
    assert_eq!(kept, "");
}

fn a_refused_key_is_reported(env: &TestEnv) {
    need(Kind::Podman);
    need(Kind::Docker);
    let server = SshServer::start(env);
    let service = PodmanService::start(env, "near");
    let (said, hint) =
        ("ssh could not log in to the engine's machine", "hint: `ssh -o BatchMode=yes USER@HOST`");
    let podman = || bridge_on(env, "podman").var("CONTAINER_HOST", podman_url(&server, &service));
    refused_soon(podman().var("CONTAINER_SSHKEY", server.stranger()), ["podman does not work: ", said, hint]);
    refused_soon(podman(), ["podman does not work: ", said, hint]);
    let missing = env.home().join("no-such-key");
    let (outcome, log) = refused(podman().var("CONTAINER_SSHKEY", &missing));
    let outcome = outcome.because(said).because("no such file");
    for text in [outcome.to_string(), log] {
        assert!(!text.contains("no-such-key"), "{text}");
    }
    server.use_key(Some("stranger"));
    refused_soon(docker_over(env, &server), ["Permission denied (publickey)", said, hint]);
}

fn a_key_with_a_passphrase_does_not_prompt(env: &TestEnv) {
    need(Kind::Podman);
    need(Kind::Docker);
    let server = SshServer::start(env);
    let service = PodmanService::start(env, "near");
    let (said, hint) =
        ("ssh could not log in to the engine's machine", "or one that ssh-agent holds (SSH_AUTH_SOCK)");
    let podman = bridge_on(env, "podman").var("CONTAINER_HOST", podman_url(&server, &service));
    refused_soon(
        podman.var("CONTAINER_SSHKEY", server.key_with_passphrase()),
        ["podman does not work: ", said, hint],
    );
    // A desktop would ask in a window.
    let asked = env.folder("sshd").join("asked");
    let askpass = env.write_program("askpass", &format!("#!/bin/sh\necho \"$1\" >> {}\n", asked.display()));
    server.use_key(Some("guarded"));
    let docker = docker_over(env, &server).var("SSH_ASKPASS", &askpass).var("DISPLAY", ":0");
    refused_soon(docker.var("SSH_ASKPASS_REQUIRE", "prefer"), ["docker does not work: ", said, hint]);
    assert!(!asked.exists(), "{}", fs::read_to_string(&asked).unwrap_or_default());
}

fn an_sshd_that_does_not_run_is_reported(env: &TestEnv) {
    need(Kind::Podman);
    need(Kind::Docker);
    let mut server = SshServer::start(env);
    let _service = podman_behind(env, &server);
    server.kill();
    let port = server.port.to_string();
    let (said, hint) = ("onnection refused", "hint: start the engine, and check that the machine");
    refused_soon(bridge_on(env, "podman:far"), ["podman:far does not work: ", said, hint]);
    refused_soon(docker_over(env, &server), [&format!("port {port}: "), said, hint]);
}

fn an_engine_on_a_silent_machine_is_given_up_in_time(env: &TestEnv) {
    need(Kind::Podman);
    need(Kind::Docker);
    // The kernel takes connections, and nobody ever speaks.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("ssh://root@127.0.0.1:{}", silent.local_addr().unwrap().port());
    let server = SshServer::start(env);
    let podman = bridge_on(env, "podman").var("CONTAINER_HOST", format!("{url}/run/podman.sock"));
    let podman = podman.var("CONTAINER_SSHKEY", server.identity()).start();
    let docker = bridge_on(env, "docker").var("DOCKER_HOST", &url).with_ssh(env).start();
    let calls = [(&podman, "podman does not work: "), (&docker, "docker does not work: ")]
        .map(|(bridge, name)| (bridge.start_call(serde_json::json!({ "code": "1" })), name));
    for (call, name) in calls {
        let outcome = call.outcome().expect("error").within(Duration::from_secs(45));
        let _ =
            outcome.because(name).because("did not start in time").because("the engine's machine is down");
    }
    for bridge in [podman, docker] {
        bridge.close();
    }
    for client in server.clients() {
        let line = command_line(client.pid);
        assert!(!line.iter().any(|word| word == "dial-stdio"), "it lives on: {line:?}");
    }
}

fn an_invalid_address_is_reported(env: &TestEnv) {
    need(Kind::Podman);
    need(Kind::Docker);
    let url = "ssh://root:hunter22/x@127.0.0.1:22/sock";
    for (kind, variable) in [("podman", "CONTAINER_HOST"), ("docker", "DOCKER_HOST")] {
        let (outcome, log) = refused(bridge_on(env, kind).var(variable, url));
        let outcome = outcome.because("there is no such engine").because("CONTAINER_HOST and DOCKER_HOST");
        for text in [outcome.to_string(), log] {
            assert!(!text.contains("hunter22"), "{text}");
        }
    }
}

/// Runs the rest of its command line in a terminal of its own, and prints what is shown there.
const TERMINAL: &str = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))";

fn no_question_reaches_a_terminal(env: &TestEnv) {
    need(Kind::Docker);
    let server = SshServer::start(env);
    let ask = |builder: BridgeBuilder<'_>| {
        let builder = builder.behind(["/usr/bin/python3", "-c", TERMINAL]).args(&["exec", "-c", "1"]);
        let output = builder.command().run(env.guard());
        assert_eq!(output.code(), Some(69), "{output}");
        for question in ["passphrase for", "Are you sure", "assword:"] {
            assert!(!output.stdout.contains(question), "{output}");
        }
        assert!(output.elapsed < Duration::from_secs(20), "{output}");
        output.stdout
    };
    server.be_known_by(None);
    assert!(ask(docker_over(env, &server)).contains("Host key verification failed"));
    // docker's client takes the terminal away from ssh; another one may not.
    let _ = env.write_program(
        "ssh-bin/docker",
        &format!("#!/bin/sh\nexec ssh -p {} root@127.0.0.1 docker version >&2\n", server.port),
    );
    assert!(ask(docker_over(env, &server)).contains("Host key verification failed"));
    server.be_known_by(Some("host"));
    server.use_key(Some("guarded"));
    assert!(ask(docker_over(env, &server)).contains("Permission denied (publickey)"));
    assert!(server.clients().iter().any(|client| client.has_terminal), "there was no terminal to ask on");
}

/// Every file below a folder whose content has this in it.
fn files_with(folder: &Path, what: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files_with(&path, what));
        } else if fs::read(&path).is_ok_and(|text| String::from_utf8_lossy(&text).contains(what)) {
            found.push(path.display().to_string());
        }
    }
    found
}

fn a_password_in_an_address_is_shown_nowhere(env: &TestEnv) {
    need(Kind::Podman);
    let mut server = SshServer::start(env);
    let service = PodmanService::start(env, "near");
    let url = podman_url(&server, &service).replace("root@", "root:hunter22@");
    let identity = server.identity().display().to_string();
    let podman = || {
        let bridge = bridge_on(env, "podman").var("CONTAINER_HOST", &url);
        bridge.var("CONTAINER_SSHKEY", &identity).var("MCP_BRIDGE_LOG_LEVEL", "trace")
    };
    let bridge = podman().start();
    assert_eq!(bridge.run("6 * 7").ok(), "42");
    let (_, folder) = instance_of(env, bridge.pid()).unwrap();
    assert_eq!(files_with(&folder.join("sandboxes"), "127.0.0.1").len(), 1);
    for written in [&folder, &env.home().join(".cache")] {
        assert_eq!(files_with(written, "hunter22"), [""; 0]);
    }
    for pid in processes() {
        let line = command_line(pid).join(" ");
        assert!(!line.contains("hunter22") && !line.contains(&identity), "{line}");
    }
    // What cannot notice stays there.
    let ours = service.containers();
    ours.iter().for_each(|name| drop(service.run(&["pause", name]).ok()));
    server.kill();
    let outcome = bridge.call(json!({ "code": "1", "timeout": 100 })).expect("error");
    let more = bridge.run("1").expect("error").because("refused");
    let log = bridge.close().log;
    let doctor = podman().args(&["doctor", "--json"]).command().run(env.guard());
    assert!(doctor.stdout.contains("refused"), "{doctor}");
    for text in [outcome.to_string(), more.to_string(), log, doctor.to_string()] {
        assert!(!text.contains("hunter22") && !text.contains(&identity), "{text}");
    }
    assert_eq!(files_with(&env.home().join(".cache"), "hunter22"), [""; 0]);
    // What is written down without its password leads there all the same.
    server.start_again();
    assert_eq!(service.containers(), ours);
    let _ = podman().args(&["reap"]).command().run(env.guard());
    assert_eq!(service.containers(), [""; 0]);
    let doctor = podman().args(&["doctor", "--json"]).command().run(env.guard()).diagnosed();
    assert!(!doctor.contains("hunter22"), "{doctor}");
}

fn a_password_that_docker_refuses_is_shown_nowhere(env: &TestEnv) {
    need(Kind::Docker);
    let builder = bridge_on(env, "docker").var("DOCKER_HOST", "ssh://root:hunter22@127.0.0.1:1");
    let (outcome, log) = refused(builder.var("MCP_BRIDGE_LOG_LEVEL", "trace"));
    let outcome =
        outcome.because("plain-text password is not supported").because("a key without a passphrase");
    for text in [outcome.to_string(), log] {
        assert!(!text.contains("hunter22"), "{text}");
    }
}
