//! Runs real commands.

use super::*;

fn sh(script: &str) -> CommandLine {
    CommandLine::new("/bin/sh").args(["-c", script])
}

#[tokio::test]
async fn output_and_status_are_values() {
    let done = run(sh("echo out; echo err >&2; exit 3"), Duration::from_secs(20)).await.unwrap();
    assert_eq!((done.stdout.as_slice(), done.stderr.as_slice()), (&b"out\n"[..], &b"err\n"[..]));
    assert_eq!(done.status.code(), Some(3));
    let error = done.success().unwrap_err().to_string();
    assert!(error.contains("exit 3") && error.contains("err"), "{error}");
}

#[tokio::test]
async fn a_command_that_hangs_is_killed_with_its_children() {
    let marker = tempfile::NamedTempFile::new().unwrap();
    let script = format!("trap '' TERM; sleep 1000 & echo $! > {}; sleep 1000", marker.path().display());
    let error = run(sh(&script), Duration::from_millis(600)).await.unwrap_err();
    assert!(matches!(error, ExecError::TimedOut { .. }), "{error}");
    let sleeper: u32 = std::fs::read_to_string(marker.path()).unwrap().trim().parse().unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    while crate::owner::start_time(sleeper).is_some() {
        assert!(Instant::now() < deadline, "the grandchild still runs");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_command_that_nobody_waits_for_any_more_is_killed() {
    let marker = tempfile::NamedTempFile::new().unwrap();
    let script = format!("echo $$ > {}; sleep 1000", marker.path().display());
    let written = async {
        loop {
            if let Ok(pid) = std::fs::read_to_string(marker.path()).unwrap().trim().parse::<u32>() {
                return pid;
            }
            tokio::task::yield_now().await;
        }
    };
    let pid = tokio::select! {
        _ = run(sh(&script), Duration::from_secs(100)) => panic!("it ended"),
        pid = written => pid,
    };
    let deadline = Instant::now() + Duration::from_secs(10);
    while crate::owner::start_time(pid).is_some() {
        assert!(Instant::now() < deadline, "it still runs");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn endless_output_is_read_but_not_kept() {
    let done = run(sh("head -c 3000000 /dev/zero"), Duration::from_secs(20)).await.unwrap();
    assert_eq!(done.stdout.len(), CAPTURE_LIMIT);
    assert!(done.status.success());
}

#[tokio::test]
async fn the_environment_is_an_allow_list() {
    let done = run(CommandLine::new("/usr/bin/env"), Duration::from_secs(20)).await.unwrap();
    let text = String::from_utf8(done.stdout).unwrap();
    for forced in ["LC_MESSAGES=C", "SSH_ASKPASS=false", "SSH_ASKPASS_REQUIRE=force"] {
        assert!(text.lines().any(|line| line == forced), "no {forced} in {text}");
    }
    assert!(!text.contains("CARGO_"), "{text}");
}

#[tokio::test]
async fn a_child_has_the_given_environment_and_folder() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().canonicalize().unwrap();
    let child = spawn_in(&sh("pwd; /usr/bin/env"), [("ONLY", "this")], Some(&folder)).unwrap();
    let done = child.wait_with_output().await.unwrap();
    let text = String::from_utf8(done.stdout).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.remove(0), folder.to_str().unwrap());
    // The shell adds these by itself.
    lines.retain(|line| !["PWD=", "SHLVL=", "_=", "OLDPWD="].iter().any(|own| line.starts_with(own)));
    assert_eq!(lines, ["ONLY=this"]);
}

#[test]
fn output_of_others_is_shown_without_control_characters() {
    assert_eq!(
        tail(b"\x1b[31mred\x07\r\n\tnext\x00 \xc2\x9b1m\n"),
        "\u{fffd}[31mred\u{fffd}\u{fffd}\n\tnext\u{fffd} \u{fffd}1m"
    );
}

#[test]
fn a_command_line_prints_as_one_would_type_it() {
    let line = CommandLine::new("/bin/x").args(["a b", "$c", &"y".repeat(300)]);
    let text = line.to_string();
    assert!(text.starts_with("/bin/x 'a b' '$c' ") && text.contains("yyy…") && text.len() < 200, "{text}");
}

#[tokio::test]
async fn a_relative_place_of_the_user_keeps_its_meaning_in_another_folder() {
    let folder = tempfile::tempdir().unwrap();
    let child = spawn_piped_in(&sh("pwd"), Some(folder.path())).unwrap();
    let done = child.wait_with_output().await.unwrap();
    let place = std::fs::canonicalize(folder.path()).unwrap();
    assert_eq!(String::from_utf8_lossy(&done.stdout).trim(), place.display().to_string());
    let relative = command_line::absolute_place(OsStr::new("conf/storage.conf")).unwrap();
    assert_eq!(PathBuf::from(relative), std::env::current_dir().unwrap().join("conf/storage.conf"));
    assert_eq!(command_line::absolute_place(OsStr::new("/etc/x")), None);
    let names = |name: &str| command_line::names_place(OsStr::new(name));
    assert!(
        names("CONTAINERS_CONF") && names("REGISTRY_AUTH_FILE") && !names("DOCKER_HOST") && !names("PATH")
    );
}

#[test]
fn programs_are_not_looked_for_in_the_working_directory() {
    let folder = tempfile::tempdir().unwrap();
    let here = std::env::current_dir().unwrap();
    let up = "../".repeat(here.components().count());
    let program = folder.path().join("engine");
    std::fs::write(&program, "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let relative = format!("{up}{}", folder.path().strip_prefix("/").unwrap().display());
    let find = |path: &str| find_in_absolute("engine".as_ref(), path.as_ref());
    assert!(Path::new(&relative).join("engine").is_file());
    assert_eq!(find(&format!("{relative}::.")), None);
    assert_eq!(find(&format!("{relative}:{}", folder.path().display())), Some(program));
}
