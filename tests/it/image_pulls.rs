//! Pulls that break, are killed, or need a login; and that the store is in order after them.

use std::process::Stdio;

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::matrix::{PATH, which};
use crate::harness::process::{Prepared, collect};
use crate::harness::registry::{CuttingProxy, HoldingProxy, ImageFiles, Registry, VARIABLE, store_of};
use crate::harness::{Suite, TestEnv, eventually};
use crate::image_store::{ANSWER, codebridge, exec, listing, roots, run};
use crate::tests;

pub(crate) fn register(suite: &mut Suite) {
    suite.once(
        "image_pulls",
        tests![
            every_kind_of_manifest_is_the_same_image,
            a_registry_that_requires_a_login_gets_one,
            a_broken_download_is_resumed,
            a_connection_may_break_at_any_byte,
            an_interrupted_pull_says_so_and_is_resumed,
            two_bridges_that_pull_the_same_image_fetch_and_unpack_it_once,
            a_full_disk_leaves_no_half_image,
            fifty_kills_leave_the_store_right,
            a_host_without_root_certificates_says_so,
        ],
    );
}

fn every_kind_of_manifest_is_the_same_image(env: &TestEnv) {
    let registry = Registry::start(env);
    let mut ids = Vec::new();
    for tag in ["gzip", "zstd", "v2s2", "many"] {
        ids.push(run(env, &["image", "pull", &format!("{}/python:{tag}", registry.host)]).ok());
    }
    ids.dedup();
    assert_eq!((ids.len(), roots(env).len()), (1, 1), "{ids:?}");
    let inspected = run(env, &["image", "inspect", &format!("{}/python:many", registry.host)]).ok();
    let inspected: Value = serde_json::from_str(&inspected).unwrap();
    assert_eq!(inspected["run"]["env"][1], format!("FOO={VARIABLE}"));
    assert_eq!(
        (&inspected["run"]["user"], &inspected["run"]["working_dir"]),
        (&"1000:1000".into(), &"/srv".into())
    );
    let by_digest = format!("{}/python@{}", registry.host, inspected["manifest"].as_str().unwrap());
    assert_eq!(run(env, &["image", "pull", &by_digest]).ok(), ids[0]);
    let table = run(env, &["image", "ls"]).ok();
    assert!(table.contains(&by_digest) && table.contains("on disk: "), "{table}");
    let removed = run(env, &["image", "prune", "--all"]).ok();
    assert!(removed.contains("\nfreed ") && removed.contains(" MiB"), "{removed}");
    assert_eq!(run(env, &["image", "ls"]).ok(), "no images\n");
}

fn a_registry_that_requires_a_login_gets_one(env: &TestEnv) {
    let registry = Registry::start_locked(env);
    let image = format!("{}/python:gzip", registry.host);
    let pull = |change: &dyn Fn(&mut Prepared)| {
        let mut command = codebridge(env, &["image", "pull", &image]);
        change(&mut command);
        let output = command.run(env.guard());
        let _ = run(env, &["image", "prune", "--all"]).ok();
        output
    };
    let output = pull(&|_| ());
    assert_eq!(output.code(), Some(72), "{output}");
    assert!(
        output.stderr.contains(" wants a login, or has no such image\n")
            && output.stderr.contains("podman login"),
        "{output}"
    );
    // As skopeo, podman and docker write it.
    let file = env.folder("home").join("auth.json");
    let login =
        ["skopeo", "login", "--tls-verify=false", "--username=user", "--password=password", "--authfile"];
    let _ = env.run([&login[..], &[file.to_str().unwrap(), &registry.host]].concat()).ok();
    let _ = pull(&|command| drop(command.env.insert("REGISTRY_AUTH_FILE".into(), file.clone().into()))).ok();
    // Out of a program.
    let helper = "#!/bin/sh\nread -r registry\n[ \"$1 $registry\" = 'get HOST' ] || exit 1\n\
                  echo '{\"ServerURL\":\"x\",\"Username\":\"user\",\"Secret\":\"SECRET\"}'\n";
    let helper = helper.replace("HOST", &registry.host);
    let _ = env.write(
        "home/.docker/config.json",
        format!("{{\"credHelpers\":{{\"{}\":\"tests\"}}}}", registry.host),
    );
    let path = format!("{}:{}", env.folder("bin").display(), PATH);
    for (secret, code) in [("password", 0), ("wrong", 72)] {
        let _ = env.write_program("bin/docker-credential-tests", &helper.replace("SECRET", secret));
        let output = pull(&|command| drop(command.env.insert("PATH".into(), path.clone().into())));
        assert_eq!(output.code(), Some(code), "{output}");
        assert!(!format!("{}{}", output.stdout, output.stderr).contains("password\""), "{output}");
    }
    let output = pull(&|_| ());
    assert!(
        output.stderr.contains("credential helper 'docker-credential-tests' is not installed"),
        "{output}"
    );
}

fn a_broken_download_is_resumed(env: &TestEnv) {
    let registry = Registry::start(env);
    let proxy = CuttingProxy::start(&registry.host, 10 << 20, 3);
    let image = format!("{}/python:gzip", proxy.host);
    let _ = run(env, &["image", "pull", &image]).ok();
    assert_eq!(proxy.cut(), 3);
    let straight = format!("{}/python:gzip", registry.host);
    assert_eq!(run(env, &["image", "pull", &straight]).ok(), run(env, &["image", "pull", &image]).ok());
}

fn an_interrupted_pull_says_so_and_is_resumed(env: &TestEnv) {
    let registry = Registry::start(env);
    let proxy = HoldingProxy::start(&registry.host, 10 << 20);
    let image = format!("{}/python:gzip", proxy.host);
    let command = codebridge(env, &["image", "pull", &image]);
    let mut process = command.spawn(env.guard(), Stdio::null(), Stdio::null(), Stdio::piped());
    let said = collect(process.child.stderr.take().unwrap(), process.transcript.clone());
    eventually("half of the layer is there", env.guard().left(), || proxy.holds().then_some(()));
    process.signal(Signal::INT);
    assert_eq!(process.wait().code(), Some(130));
    drop(said);
    eventually("it says so", env.guard().left(), || {
        process.transcript.text().contains("the pull was stopped; fetched layers are kept").then_some(())
    });
    proxy.release();
    assert_eq!(exec(env, &image).ok(), ANSWER);
}

fn a_connection_may_break_at_any_byte(env: &TestEnv) {
    let registry = Registry::start(env);
    let straight = format!("{}/small:1", registry.host);
    let id = run(env, &["image", "pull", &straight]).ok();
    let right = listing(&roots(env)[0].join("rootfs"));
    let mut gone_on = 0;
    // In the first answer, in the manifest, in the configuration, in the layer.
    for after in [0, 1, 100, 300, 700, 1_000, 3_000, 10_000, 15_000] {
        let _ = run(env, &["image", "prune", "--all"]).ok();
        let proxy = CuttingProxy::start(&registry.host, after, 1);
        let image = format!("{}/small:1", proxy.host);
        let output = run(env, &["image", "pull", &image]);
        if output.code() == Some(0) {
            gone_on += 1;
        } else {
            // Said clearly, with nothing half done, and the next one gets it.
            assert_eq!(output.code(), Some(72), "{after}: {output}");
            assert!(output.stderr.contains(&proxy.host), "{after}: {output}");
            assert_eq!(roots(env).len(), 0, "{after}");
            let _ = run(env, &["image", "pull", &image]).ok();
        }
        assert_eq!(run(env, &["image", "pull", &straight]).ok(), id);
        assert!(listing(&roots(env)[0].join("rootfs")) == right, "{after}");
    }
    assert!(gone_on > 0, "a layer that breaks off is gone on with");
}

fn two_bridges_that_pull_the_same_image_fetch_and_unpack_it_once(env: &TestEnv) {
    let registry = Registry::start(env);
    let image = format!("{}/python:gzip", registry.host);
    let spawn = || {
        let command = codebridge(env, &["image", "pull", &image]);
        command.spawn(env.guard(), Stdio::null(), Stdio::null(), Stdio::null())
    };
    let mut both = [spawn(), spawn(), spawn()];
    for one in &mut both {
        assert!(one.wait().success());
    }
    // The configuration and the one layer.
    assert_eq!(registry.asked("/blobs/"), 2);
    assert_eq!(roots(env).len(), 1);
}

fn a_full_disk_leaves_no_half_image(env: &TestEnv) {
    let image = ImageFiles::get(env).layout();
    let registry = Registry::start(env);
    let data = store_of(env);
    // Room for the layer and not for what is in it, then not even for the layer.
    for (size, image) in [
        ("90m", format!("{}/python:gzip", registry.host)),
        ("20m", format!("{}/python:gzip", registry.host)),
        ("60m", image),
    ] {
        let script = format!(
            "mount -t tmpfs -o size={size} none {0} && {1} image pull {image}; echo status $?; \
             find {0}/codebridge/roots {0}/codebridge/partial -mindepth 1 ! -name '*.lock'; {1} image ls; \
             du -sm {0} | cut -f 1",
            data.display(),
            env.binary().display()
        );
        let unshare = which("unshare").unwrap();
        let mut command = codebridge(env, &[]);
        command.argv =
            vec![unshare.into(), "--mount".into(), "--".into(), "sh".into(), "-c".into(), script.into()];
        let output = command.run(env.guard());
        assert!(output.stderr.contains("No space left on device"), "{output}");
        assert!(output.stderr.contains("hint: free disk space"), "{output}");
        let lines: Vec<_> = output.stdout.lines().collect();
        assert_eq!(lines[..2], ["status 72", "no images"], "{output}");
    }
}

fn fifty_kills_leave_the_store_right(env: &TestEnv) {
    let image = ImageFiles::get(env).small();
    let pull = ["image", "pull", &image];
    let prune = || run(env, &["image", "prune", "--all"]);
    // How long a whole one takes here and now.
    let whole = run(env, &pull);
    let mut longest = whole.elapsed;
    let id = whole.ok();
    let right = listing(&roots(env)[0].join("rootfs"));
    assert!(right.len() > 500);
    let mut killed = 0_u32;
    for round in 0.. {
        if killed == 50 {
            break;
        }
        assert!(round < 500, "only {killed} of them could be killed before their end");
        let _ = prune().ok();
        let mut process =
            codebridge(env, &pull).spawn(env.guard(), Stdio::null(), Stdio::null(), Stdio::null());
        // At moments spread over the whole of it.
        std::thread::sleep(longest * killed / 50);
        process.signal(Signal::KILL);
        if process.wait().success() {
            // The machine has become quicker meanwhile.
            longest = longest * 9 / 10;
        } else {
            killed += 1;
        }
        for root in roots(env) {
            let name = root.file_name().unwrap().to_str().unwrap();
            if !name.starts_with('.') {
                assert_eq!(name, id.trim());
                assert!(listing(&root.join("rootfs")) == right, "half an image in round {round}");
            }
        }
    }
    // Over what the last one left, without a removal in between.
    assert_eq!(run(env, &pull).ok(), id);
    let left = roots(env);
    assert_eq!(left.len(), 1, "{left:?}");
    assert!(listing(&left[0].join("rootfs")) == right);
}

fn a_host_without_root_certificates_says_so(env: &TestEnv) {
    let mut command = codebridge(env, &["image", "pull", "127.0.0.1:9/python:slim"]);
    // A minimal system has no certificates of authorities.
    let nowhere = env.folder("nowhere").into_os_string();
    command.env.insert("SSL_CERT_FILE".into(), nowhere.clone());
    command.env.insert("SSL_CERT_DIR".into(), nowhere);
    let output = command.run(env.guard());
    assert_eq!(output.code(), Some(72), "{output}");
    assert!(output.stderr.contains("No CA certificates were loaded from the system"), "{output}");
}
