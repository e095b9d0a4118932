//! A real registry on loopback, and images in it and in files of every format, made once for all tests.

use std::ffi::OsString;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use serde_json::json;

use super::env::{TestEnv, base};
use super::matrix::{Machine, PATH, which};
use super::process::{Output, Prepared, Running, eventually, free_port};
use super::suite::ignore;

/// What the image of the tests sets, so that one sees whether it is honoured.
pub(crate) const VARIABLE: &str = "from the image";
/// `user:password`, as htpasswd hashes it with bcrypt.
const HTPASSWD: &str = "user:$2y$05$xH3gTQ53hKztNuA5LKBdze.ybEb/hUWY.wLHITqycrwFESJh5sNki\n";

/// Images of CPython in files, and the storage of a registry that has them.
#[derive(Debug)]
pub(crate) struct ImageFiles {
    pub(crate) folder: PathBuf,
}

impl ImageFiles {
    /// The files; the first test that wants them makes them.
    pub(crate) fn get(env: &TestEnv) -> &'static Self {
        static FILES: OnceLock<ImageFiles> = OnceLock::new();
        for name in ["skopeo", "docker-registry"] {
            if let Err(reason) = which(name) {
                ignore(&reason);
            }
        }
        if !root_archive().is_file() {
            ignore("this machine is not prepared, see tests/check");
        }
        FILES.get_or_init(|| Self::make(env))
    }

    /// `docker-archive:`, uncompressed.
    pub(crate) fn docker_archive(&self) -> String {
        format!("docker-archive:{}", self.folder.join("docker.tar").display())
    }

    /// `docker-archive:` of some hundred small files, without any program.
    pub(crate) fn small(&self) -> String {
        format!("docker-archive:{}", self.folder.join("small.tar").display())
    }

    /// `oci:`, with a gzip layer.
    pub(crate) fn layout(&self) -> String {
        format!("oci:{}:gzip", self.folder.join("layout").display())
    }

    /// `oci-archive:`, with a zstd layer.
    pub(crate) fn oci_archive(&self) -> String {
        format!("oci-archive:{}:zstd", self.folder.join("oci.tar").display())
    }

    /// `docker-archive:`, without compiled modules, as images for engines often are.
    pub(crate) fn uncompiled(&self, env: &TestEnv) -> String {
        static MADE: OnceLock<()> = OnceLock::new();
        let Some(root) = Machine::get().rootfs_314.as_ref().and_then(|root| root.to_str()) else {
            ignore("this machine is not prepared, see tests/check")
        };
        MADE.get_or_init(|| {
            let words = ["-cf", "uncompiled-layer.tar", "--exclude=__pycache__", "-C", root, "."];
            let _ = self.run(env, "tar", &words).ok();
            self.write_docker_archive(env, &self.folder.join("uncompiled-layer.tar"), "uncompiled.tar");
        });
        format!("docker-archive:{}", self.folder.join("uncompiled.tar").display())
    }

    fn make(env: &TestEnv) -> Self {
        let files = Self { folder: base().join("images") };
        fs::create_dir_all(files.folder.join("storage")).unwrap();
        let archive = root_archive();
        files.write_docker_archive(env, &archive, "docker.tar");
        files.write_docker_archive(env, &files.small_layer(env), "small.tar");
        let _ = files.skopeo(env, &["copy", "docker-archive:docker.tar", "oci:layout:gzip"]).ok();
        let zstd = [
            "copy", "--dest-compress-format", "zstd", "docker-archive:docker.tar", "oci-archive:oci.tar:zstd",
        ];
        let _ = files.skopeo(env, &zstd).ok();
        files.fill_registry(env);
        // The ordinary user reads them too.
        let _ = files.run(env, "chmod", &["-R", "a+rX", "."]).ok();
        files
    }

    /// An image of one layer, as `docker save` writes it.
    fn write_docker_archive(&self, env: &TestEnv, layer: &Path, file: &str) {
        let digest = self.run(env, "sha256sum", &[layer.to_str().unwrap()]).ok();
        let config = json!({ "architecture": architecture(), "os": "linux", "created": "2026-01-01T00:00:00Z",
            "config": { "Env": ["PATH=/usr/bin:/bin", format!("FOO={VARIABLE}")], "User": "1000:1000",
                "WorkingDir": "/srv", "Cmd": ["python3"] },
            "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{}", digest.split(' ').next().unwrap())] } });
        let manifest = json!([{ "Config": "config.json", "RepoTags": ["localhost/python:test"], "Layers": ["layer.tar"] }]);
        for (name, content) in [("config.json", &config), ("manifest.json", &manifest)] {
            fs::write(self.folder.join(name), content.to_string()).unwrap();
        }
        let (parent, name) =
            (layer.parent().unwrap().to_str().unwrap(), layer.file_name().unwrap().to_str().unwrap());
        let transform = format!("--transform=s/{name}/layer.tar/");
        let words = ["-cf", file, &transform, "manifest.json", "config.json", "-C", parent, name];
        let _ = self.run(env, "tar", &words).ok();
    }

    fn small_layer(&self, env: &TestEnv) -> PathBuf {
        for number in 0..600 {
            let folder = self.folder.join(format!("small/usr/{}", number % 20));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(format!("{number}")), number.to_string().repeat(1000)).unwrap();
        }
        let _ = self.run(env, "tar", &["-cf", "small-layer.tar", "-C", "small", "."]).ok();
        self.folder.join("small-layer.tar")
    }

    /// `python:gzip`, `python:zstd`, `python:v2s2`, and `python:many` for this platform and another; `small:1`.
    fn fill_registry(&self, env: &TestEnv) {
        let registry = Registry::start_with(env, &self.folder.join("storage"), "", "");
        let to = |tag: &str| format!("docker://{}/python:{tag}", registry.host);
        let copy = |words: &[&str], to: &str| {
            let words = [&["copy", "--dest-tls-verify=false", "--preserve-digests"], words, &[to]].concat();
            let _ = self.skopeo(env, &words).ok();
        };
        copy(&["oci:layout:gzip"], &to("gzip"));
        copy(&["oci-archive:oci.tar:zstd"], &to("zstd"));
        let v2s2 = ["copy", "--dest-tls-verify=false", "--format", "v2s2", "oci:layout:gzip", &to("v2s2")];
        let _ = self.skopeo(env, &v2s2).ok();
        let small = format!("docker://{}/small:1", registry.host);
        let _ =
            self.skopeo(env, &["copy", "--dest-tls-verify=false", "docker-archive:small.tar", &small]).ok();
        self.write_index();
        copy(&["--all", "oci:layout:many"], &to("many"));
    }

    /// Adds an index to the layout: the same image for this platform and, as far as one can tell, for another.
    fn write_index(&self) {
        let layout = self.folder.join("layout");
        let path = layout.join("index.json");
        let mut index: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let mut entry = index["manifests"][0].clone();
        entry.as_object_mut().unwrap().remove("annotations");
        let on = |architecture: &str| {
            let mut entry = entry.clone();
            entry["platform"] = json!({ "os": "linux", "architecture": architecture });
            entry
        };
        // The other one's manifest is another document, so that taking it would be seen.
        let other = self.other_manifest(&layout, &entry);
        let many = json!({ "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": [{ "platform": { "os": "linux", "architecture": "s390x" },
                "mediaType": entry["mediaType"], "digest": other.0, "size": other.1 }, on(architecture())] });
        let (digest, size) = put_blob(&layout, many.to_string().as_bytes());
        index["manifests"].as_array_mut().unwrap().push(json!({
            "mediaType": "application/vnd.oci.image.index.v1+json", "digest": digest, "size": size,
            "annotations": { "org.opencontainers.image.ref.name": "many" } }));
        fs::write(&path, index.to_string()).unwrap();
    }

    fn other_manifest(&self, layout: &Path, entry: &serde_json::Value) -> (String, usize) {
        let blob = |digest: &str| fs::read(layout.join("blobs").join(digest.replace(':', "/"))).unwrap();
        let manifest = blob(entry["digest"].as_str().unwrap());
        let mut manifest: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
        let config = blob(manifest["config"]["digest"].as_str().unwrap());
        let mut config: serde_json::Value = serde_json::from_slice(&config).unwrap();
        config["architecture"] = json!("s390x");
        let (digest, size) = put_blob(layout, config.to_string().as_bytes());
        manifest["config"]["digest"] = json!(digest);
        manifest["config"]["size"] = json!(size);
        put_blob(layout, manifest.to_string().as_bytes())
    }

    fn skopeo(&self, env: &TestEnv, words: &[&str]) -> Output {
        self.run(env, "skopeo", words)
    }

    /// A command of root in the folder, also when the test runs as the user.
    fn run(&self, env: &TestEnv, program: &str, words: &[&str]) -> Output {
        let mut argv: Vec<OsString> = vec![which(program).unwrap().into()];
        argv.extend(words.iter().map(Into::into));
        let variables = [("PATH", OsString::from(PATH)), ("HOME", self.folder.clone().into())];
        let variables = variables.into_iter().map(|(name, value)| (name.into(), value));
        Prepared { argv, env: variables.collect(), cwd: self.folder.clone() }.run(env.guard())
    }
}

/// The root filesystem as an archive, where the preparation of the machine has put it.
fn root_archive() -> PathBuf {
    let cache = std::env::var_os("CODEBRIDGE_TEST_CACHE").map(PathBuf::from).unwrap_or_default();
    cache.join("images/python-3.14.tar")
}

/// In the words of images.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn put_blob(layout: &Path, content: &[u8]) -> (String, usize) {
    let digest = codebridge_images::Digest::of(content);
    fs::write(layout.join("blobs/sha256").join(digest.hex()), content).unwrap();
    (digest.to_string(), content.len())
}

/// A registry of one test.
pub(crate) struct Registry {
    /// Address and port.
    pub(crate) host: String,
    process: Running,
}

impl Registry {
    /// A registry with the images of [`ImageFiles`], which it only reads.
    pub(crate) fn start(env: &TestEnv) -> Self {
        let storage = ImageFiles::get(env).folder.join("storage");
        Self::start_with(env, &storage, "  maintenance: {readonly: {enabled: true}}\n", "")
    }

    /// The same, which wants `user` and `password`.
    pub(crate) fn start_locked(env: &TestEnv) -> Self {
        let storage = ImageFiles::get(env).folder.join("storage");
        let passwords = env.write("htpasswd", HTPASSWD);
        let auth = format!("auth: {{htpasswd: {{realm: tests, path: {}}}}}\n", passwords.display());
        Self::start_with(env, &storage, "  maintenance: {readonly: {enabled: true}}\n", &auth)
    }

    fn start_with(env: &TestEnv, storage: &Path, readonly: &str, auth: &str) -> Self {
        let host = format!("127.0.0.1:{}", free_port());
        let config = format!(
            "version: 0.1\nlog: {{level: info}}\nstorage:\n  filesystem: {{rootdirectory: {}}}\n{readonly}\
             http: {{addr: \"{host}\"}}\n{auth}",
            storage.display()
        );
        let path = env.write("registry.yml", config);
        let command = Prepared {
            argv: vec![which("docker-registry").unwrap().into(), "serve".into(), path.into()],
            env: [("PATH".into(), PATH.into())].into(),
            cwd: env.home(),
        };
        let mut process = command.spawn(env.guard(), Stdio::null(), Stdio::piped(), Stdio::null());
        super::process::collect(process.child.stdout.take().unwrap(), process.transcript.clone());
        eventually("the registry listens", env.guard().left(), || TcpStream::connect(&host).ok());
        Self { host, process }
    }

    /// How often something was asked for, by a part of its path.
    pub(crate) fn asked(&self, path: &str) -> usize {
        let log = self.process.transcript.text();
        log.lines().filter(|line| line.contains("\"GET ") && line.contains(path)).count()
    }
}

/// Passes connections on to a registry, and cuts the first ones after so many bytes of answer.
pub(crate) struct CuttingProxy {
    pub(crate) host: String,
    cut: Arc<AtomicUsize>,
}

impl CuttingProxy {
    /// Cuts `times` connections that bring more than `after` bytes.
    pub(crate) fn start(to: &str, after: usize, times: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let cut = Arc::new(AtomicUsize::new(0));
        let (to, count) = (to.to_string(), Arc::clone(&cut));
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (to, count) = (to.clone(), Arc::clone(&count));
                thread::spawn(move || pass_on(client, &to, after, times, &count));
            }
        });
        Self { host, cut }
    }

    /// How many connections were cut.
    pub(crate) fn cut(&self) -> usize {
        self.cut.load(Ordering::SeqCst)
    }
}

/// Passes connections on to a registry, and holds the rest of an answer back once so many bytes of it have passed.
pub(crate) struct HoldingProxy {
    pub(crate) host: String,
    held: Arc<Held>,
}

#[derive(Default)]
struct Held {
    /// Whether something is held, and whether nothing is to be held any more.
    state: Mutex<(bool, bool)>,
    changed: Condvar,
}

impl HoldingProxy {
    /// Holds back what comes after `after` bytes of an answer.
    pub(crate) fn start(to: &str, after: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let held = Arc::<Held>::default();
        let (to, holding) = (to.to_string(), Arc::clone(&held));
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (to, holding) = (to.clone(), Arc::clone(&holding));
                thread::spawn(move || hold_back(client, &to, after, &holding));
            }
        });
        Self { host, held }
    }

    /// Whether something waits here.
    pub(crate) fn holds(&self) -> bool {
        self.held.state.lock().unwrap().0
    }

    /// Lets everything pass from now on.
    pub(crate) fn release(&self) {
        self.held.state.lock().unwrap().1 = true;
        self.held.changed.notify_all();
    }
}

fn hold_back(client: TcpStream, to: &str, after: usize, held: &Held) {
    let Ok(server) = TcpStream::connect(to) else { return };
    let (mut from_client, mut to_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    thread::spawn(move || std::io::copy(&mut from_client, &mut to_server));
    let (mut from_server, mut to_client) = (server, client);
    let mut start = (&mut from_server).take(after as u64);
    if std::io::copy(&mut start, &mut to_client).is_ok_and(|passed| passed == after as u64) {
        let mut state = held.state.lock().unwrap();
        state.0 = true;
        while !state.1 {
            state = held.changed.wait(state).unwrap();
        }
        drop(state);
        let _ = std::io::copy(&mut from_server, &mut to_client);
    }
    for stream in [from_server, to_client] {
        let _ = stream.shutdown(std::net::Shutdown::Both);
    }
}

fn pass_on(client: TcpStream, to: &str, after: usize, times: usize, cut: &AtomicUsize) {
    let Ok(server) = TcpStream::connect(to) else { return };
    let (mut from_client, mut to_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    thread::spawn(move || std::io::copy(&mut from_client, &mut to_server));
    let (mut from_server, mut to_client) = (server, client);
    let mut chunk = vec![0; 16 << 10];
    let mut passed = 0;
    while let Ok(count @ 1..) = from_server.read(&mut chunk) {
        passed += count;
        let one_more = |cuts: usize| (cuts < times).then_some(cuts + 1);
        if passed > after && cut.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_more).is_ok() {
            break;
        }
        if to_client.write_all(&chunk[..count]).is_err() {
            break;
        }
    }
    for stream in [from_server, to_client] {
        let _ = stream.shutdown(std::net::Shutdown::Both);
    }
}

/// A place for a store that ids of sandboxes can pass through.
pub(crate) fn store_of(env: &TestEnv) -> PathBuf {
    let data = env.folder("data");
    fs::set_permissions(&data, fs::Permissions::from_mode(0o755)).unwrap();
    data
}

/// How long a pull from this machine may take, on a loaded one.
pub(crate) const PULL: Duration = Duration::from_secs(60);
