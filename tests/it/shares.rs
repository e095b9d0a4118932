//! Folders that are shared with code: what it reads there, and what it cannot do there.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, makedev, mknodat, open};
use rustix::process::Signal;
use serde_json::json;

use crate::harness::engines::{DockerDaemon, PodmanService, bridge_on, need};
use crate::harness::host::{REMOVAL, traces};
use crate::harness::matrix::Kind;
use crate::harness::process::{kill, reaper_of};
use crate::harness::{Runtime, Suite, TestEnv, eventually};
use crate::{python, tests};

pub(crate) fn register(suite: &mut Suite) {
    suite.each_runtime("shares", tests![code_reads_a_share_as_its_owner_and_changes_nothing]);
    let mounting =
        [Runtime::of_user(Kind::Podman), Runtime::of_user(Kind::Crun), Runtime::of_root(Kind::Runc)];
    suite.on(&mounting, "shares", tests![a_share_with_a_named_pipe_is_copied]);
    suite.on(
        &[Runtime::of_user(Kind::Crun)],
        "shares",
        tests![a_share_that_cannot_be_used_is_named, a_share_may_change_and_vanish],
    );
    suite.once(
        "shares",
        tests![
            an_engine_elsewhere_gets_copies_that_go_with_the_session,
            a_docker_daemon_elsewhere_gets_copies_that_go_with_the_session,
        ],
    );
}

/// A folder with all that may be in one. Its name is one that command lines have trouble with.
fn folder_of_everything(env: &TestEnv) -> (PathBuf, UnixListener) {
    let folder = env.folder("a:b, c\nd");
    let place = |name: &str| folder.join(name);
    let write = |name: &str, mode: u32| {
        let path = env.write(&format!("a:b, c\nd/{name}"), format!("{name} text\n"));
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    write("private", 0o600);
    write("kept", 0o600);
    write("below/public", 0o644);
    fs::copy("/usr/bin/id", place("tool")).unwrap();
    fs::set_permissions(place("tool"), fs::Permissions::from_mode(0o4755)).unwrap();
    symlink("private", place("within")).unwrap();
    symlink(env.write("outside", "not for code"), place("out")).unwrap();
    let socket = UnixListener::bind(place("socket")).unwrap();
    let mode = Mode::from_raw_mode(0o666);
    // The memory of the kernel's zeros.
    mknodat(CWD, place("device"), FileType::CharacterDevice, mode, makedev(1, 5)).unwrap();
    // As of one person who keeps a secret in the folder of another one.
    let owner = env.user().map_or((4321, 4321), |user| (user.uid, user.gid));
    for entry in fs::read_dir(&folder).unwrap().flatten().map(|entry| entry.path()).chain([folder.clone()]) {
        std::os::unix::fs::lchown(entry, Some(owner.0), Some(owner.1)).unwrap();
    }
    chown(place("kept"), Some(1234), Some(1234)).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
    (folder, socket)
}

fn share(folder: &Path, name: &str) -> String {
    format!("--share={}:{name}", folder.display())
}

const SEEN: &str = "\
private: private text
below: below/public text
link within: private text
link out: ENOENT
beside: ENOENT
only it: ['data name']
write: EROFS
new: EROFS
new below: EROFS
beside it: EROFS
mode: EROFS
owner: EROFS
time: EROFS
remove: EROFS
rename: EROFS
hard link: EXDEV
through process 1: EROFS
through its descriptor: EROFS
remount: EPERM
mount over: EPERM
unmount: 1
set-user-id: True";

fn code_reads_a_share_as_its_owner_and_changes_nothing(env: &TestEnv) {
    let (folder, _socket) = folder_of_everything(env);
    let bridge = env.bridge().args(&["serve", &share(&folder, "data name")]).start();
    let first = bridge.run(python!("shares", "look"));
    let copied = matches!(
        env.runtime(),
        Runtime { kind: Kind::Docker, .. } | Runtime { kind: Kind::Runc, as_user: true }
    );
    // A copy belongs to nobody in the sandbox, which is said before what is read-only, and has nothing but files.
    let (seen, special, unread) = if copied {
        let refused = ["write", "through process 1", "through its descriptor"];
        let change = |line: &str| match line.split_once(": ") {
            Some((name, "EROFS")) if refused.contains(&name) => format!("{name}: EACCES"),
            _ => line.to_owned(),
        };
        let seen = SEEN.lines().map(change).collect::<Vec<_>>().join("\n");
        (seen, "device: ENOENT\nsocket: ENOENT\nkept: ENOENT", ["device", "kept", "socket"].as_slice())
    } else {
        (SEEN.into(), "device: EACCES\nsocket: ENXIO\nkept: EACCES", ["kept"].as_slice())
    };
    assert_eq!(first.stdout().trim_end(), seen);
    let notice = first.notices();
    let (start, names) = notice.split_once("': ").expect("a notice with names");
    assert!(start.starts_with("code cannot read in the shared folder '"), "{notice}");
    let mut names: Vec<_> = names.split(", ").collect();
    names.sort_unstable();
    assert_eq!(names, unread);
    let sockets = "stream: EPERM\ndatagram: EPERM\npair of datagrams: EPERM\npair: open";
    let second = bridge.run(python!("shares", "ends"));
    assert_eq!(second.ok(), format!("{special}\n{sockets}"));
    assert_eq!(bridge.run("1").notices(), "");
    assert_eq!(fs::read_to_string(folder.join("private")).unwrap(), "private text\n");
    let traces = traces(&bridge);
    bridge.close();
    traces.assert_nothing_left();
}

fn a_share_with_a_named_pipe_is_copied(env: &TestEnv) {
    let _ = env.write("work/file", "text");
    let folder = env.folder("work");
    let owner = env.user().map_or((4321, 4321), |user| (user.uid, user.gid));
    let mode = Mode::from_raw_mode(0o666);
    mknodat(CWD, folder.join("pipe"), FileType::Fifo, mode, 0).unwrap();
    for path in [folder.join("pipe"), folder.join("file"), folder.clone()] {
        chown(path, Some(owner.0), Some(owner.1)).unwrap();
    }
    // A program of the host that reads it, whoever writes.
    let reading = OFlags::RDONLY | OFlags::NONBLOCK;
    let reader = open(folder.join("pipe"), reading, Mode::empty()).unwrap();
    let bridge = env.bridge().args(&["serve", &share(&folder, "work")]).start();
    let first = bridge.run(python!("shares", "pipe"));
    assert_eq!(
        first.stdout(),
        "file: text\nwrite to the pipe: ENOENT\nopen it: ENOENT\nnew: EROFS\nmanager: {1: 2}"
    );
    let notice = first.notices();
    let why = "/work' is copied, because it has named pipes, which a read-only mount cannot protect";
    assert!(notice.contains(why), "{notice}");
    assert_eq!(bridge.run_in("another", "1").notices(), "");
    // The end of the file: nobody has written, and nobody can.
    assert_eq!(rustix::io::read(&reader, &mut [0]), Ok(0));
    let large = folder.join("large");
    fs::write(&large, "").unwrap();
    chown(&large, Some(owner.0), Some(owner.1)).unwrap();
    fs::File::options().write(true).open(&large).unwrap().set_len((64 << 20) + 1).unwrap();
    let refused = bridge.run_in("third", "1").expect("error");
    let _ = refused.because("it is copied because of its named pipes (pipe): remove them, or share a folder");
    bridge.close();
}

fn a_share_that_cannot_be_used_is_named(env: &TestEnv) {
    let ssh = env.write("home/.ssh/id", "key");
    let file = env.write("file", "");
    let missing = env.home().join("missing");
    let one = env.folder("one");
    let cases = [
        (vec![missing.clone()], format!("could not share '{}': No such file", missing.display())),
        (vec![file.clone()], format!("could not share '{}': it is not a folder", file.display())),
        (vec![env.home()], "contains the home folder".into()),
        (vec![ssh.parent().unwrap().into()], "contains credentials".into()),
        (
            vec![one.clone(), one.clone()],
            "two shares have the name 'one'\nhint: give one of them another name: DIR:NAME".into(),
        ),
    ];
    for (folders, why) in cases {
        let flags: Vec<_> = folders.iter().map(|folder| format!("--share={}", folder.display())).collect();
        let words: Vec<_> = ["exec", "-c", "1"].into_iter().chain(flags.iter().map(String::as_str)).collect();
        let output = env.bridge().args(&words).command().run(env.guard());
        assert_eq!(output.status.code(), Some(2), "{output}");
        assert!(output.stderr.contains(&why), "{output}");
    }
    let home = share(&env.home(), "home");
    let words = ["exec", "-c", "import os; print(os.listdir('/shared/home/.ssh'))", &home, "--share-anyway"];
    let output = env.bridge().args(&words).command().run(env.guard());
    assert_eq!(output.stdout.trim_end(), "['id']", "{output}");
}

fn a_share_may_change_and_vanish(env: &TestEnv) {
    let folder = env.folder("work");
    let bridge = env.bridge().var("MCP_BRIDGE_SHARE", &folder).start();
    let _ = bridge.run("import os; os.listdir('/shared/work')").expect("success");
    let _ = env.write("work/later", "x");
    assert_eq!(bridge.run("os.listdir('/shared/work')").ok(), "['later']");
    fs::remove_dir_all(&folder).unwrap();
    assert_eq!(bridge.run("os.listdir('/shared/work')").ok(), "[]");
    let another = bridge.run_in("another", "1");
    let _ = another.expect("error").because("does not exist, or is not a folder");
    // A share is checked once: what takes its place later was not.
    let _ = env.write("secret/key", "x");
    symlink(env.folder("secret"), &folder).unwrap();
    let linked = bridge.run_in("linked", "1");
    let _ = linked.expect("error").because("it, or a folder above it, was replaced by a link");
    assert_eq!(bridge.run("6 * 7").ok(), "42");
    bridge.close();
}

/// Two of them, one too large.
fn copies(env: &TestEnv) -> (PathBuf, PathBuf) {
    let small = env.write("small/sub/secret", "secret text");
    fs::set_permissions(&small, fs::Permissions::from_mode(0o600)).unwrap();
    let large = env.write("large/file", "");
    fs::File::options().write(true).open(&large).unwrap().set_len((64 << 20) + 1).unwrap();
    (env.folder("small"), env.folder("large"))
}

const READ: &str = "open('/shared/small/sub/secret').read(), os.access('/shared/small', os.W_OK)";

fn an_engine_elsewhere_gets_copies_that_go_with_the_session(env: &TestEnv) {
    need(Kind::Podman);
    let service = PodmanService::start(env, "one");
    let volumes = || service.run(&["volume", "ls", "--quiet"]).ok().lines().count();
    use_copies(env, &service.target(), &volumes);
}

fn a_docker_daemon_elsewhere_gets_copies_that_go_with_the_session(env: &TestEnv) {
    need(Kind::Docker);
    let daemon = DockerDaemon::start(env, "far");
    let volumes = || {
        let url = format!("unix://{}", daemon.socket().display());
        env.run(["docker", "--host", &url, "volume", "ls", "--quiet"]).ok().lines().count()
    };
    use_copies(env, &daemon.target(), &volumes);
}

fn use_copies(env: &TestEnv, target: &str, volumes: &dyn Fn() -> usize) {
    let (small, large) = copies(env);
    let with_small = || bridge_on(env, target).var("MCP_BRIDGE_SHARE", &small);
    let bridge = with_small().start();
    let _ = bridge.run("import os").expect("success");
    assert_eq!(bridge.run(READ).ok(), "('secret text', False)");
    assert_eq!(volumes(), 1);
    bridge.close();
    assert_eq!(volumes(), 0);
    // Killed, the bridge leaves it to its reaper; killed with that, to the next bridge.
    let bridge = with_small().start();
    let _ = bridge.run("1").expect("success");
    bridge.signal(Signal::KILL);
    let _ = bridge.wait(REMOVAL);
    eventually("the volumes are gone", REMOVAL, || (volumes() == 0).then_some(()));
    let bridge = with_small().start();
    let _ = bridge.run("1").expect("success");
    kill(reaper_of(bridge.pid()), Signal::KILL);
    bridge.signal(Signal::KILL);
    let _ = bridge.wait(REMOVAL);
    let bridge = bridge_on(env, target).var("MCP_BRIDGE_SHARE", &large).start();
    let refused = bridge.call(json!({ "code": "1" })).expect("error");
    let _ = refused.because("cannot be copied to the sandbox: it has more than 64 MiB");
    bridge.close();
    let bridge = bridge_on(env, target).start();
    let _ = bridge.run("1").expect("success");
    eventually("the volumes are gone", REMOVAL, || (volumes() == 0).then_some(()));
    bridge.close();
}
