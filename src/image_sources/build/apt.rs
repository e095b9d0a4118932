//! Packages of the distribution: apt resolves, downloads and verifies them in folders of its own, without root and without
//! the package database of this machine.

use std::fs;
use std::path::{Path, PathBuf};

use codebridge_images::{Digest, Lock, Package, Recipe, Staging};
use codebridge_runtimes::exec::{self, CommandLine};
use tokio::io::AsyncReadExt;
use tokio_util::io::SyncIoBridge;

use super::error::BuildError;
use super::work::{Work, program};

/// The keys of Debian.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// Arguments that list the targets of apt, one a line: label, mirror, keys.
const TARGETS: [&str; 4] =
    ["indextargets", "--format", "$(LABEL)|$(REPO_URI)|$(SIGNED_BY)", "Created-By: Packages"];

/// apt with folders of its own.
pub(super) struct Apt {
    folder: PathBuf,
    apt_get: PathBuf,
    dpkg_deb: PathBuf,
    signed_by: String,
    /// By its name in Debian.
    pub(super) architecture: String,
    pub(super) mirror: String,
    /// The suite whose package lists were downloaded.
    suite: Option<String>,
}

impl Apt {
    /// Finds the programs and the mirror.
    pub(super) async fn prepare(work: &Work<'_>) -> Result<Self, BuildError> {
        let (apt_get, dpkg_deb) = (program("apt-get", "apt")?, program("dpkg-deb", "dpkg")?);
        let dpkg = CommandLine::new(program("dpkg", "dpkg")?).arg("--print-architecture");
        let architecture = String::from_utf8_lossy(&work.run(dpkg).await?.stdout).trim().to_string();
        let folder = work.folder.join("apt");
        for name in ["state/lists/partial", "cache/archives/partial"] {
            let path = folder.join(name);
            fs::create_dir_all(&path).map_err(BuildError::io("create the folder", &path))?;
        }
        let mut apt = Self {
            folder,
            apt_get,
            dpkg_deb,
            signed_by: KEYRING.into(),
            architecture,
            mirror: String::new(),
            suite: None,
        };
        apt.write("status", "")?;
        let (mirror, signed_by) = apt.find_mirror(work).await?;
        (apt.mirror, apt.signed_by) = (mirror, signed_by.unwrap_or_else(|| KEYRING.into()));
        if apt.mirror.contains(char::is_whitespace) || !apt.mirror.contains(":/") {
            return Err(BuildError::Mirror(apt.mirror));
        }
        Ok(apt)
    }

    fn write(&self, name: &str, content: &str) -> Result<PathBuf, BuildError> {
        let path = self.folder.join(name);
        fs::write(&path, content).map_err(BuildError::io("write", &path))?;
        Ok(path)
    }

    /// Returns the mirror that this machine uses, and the keys that verify it.
    async fn find_mirror(&self, work: &Work<'_>) -> Result<(String, Option<String>), BuildError> {
        let command = || CommandLine::new(&self.apt_get);
        let mut found = parse_targets(&work.run(command().args(TARGETS)).await?.stdout);
        if found.is_none() && work.order.mirror.is_none() {
            // Without package lists, apt does not know its targets.
            let options = self.own_folders()?;
            work.listener.step("asking apt for its mirrors", None);
            work.run(command().args(&options).arg("update")).await?;
            found = parse_targets(&work.run(command().args(&options).args(TARGETS)).await?.stdout);
        }
        match (&work.order.mirror, found) {
            (Some(mirror), found) => Ok((mirror.clone(), found.and_then(|(_, signed_by)| signed_by))),
            (None, Some((mirror, signed_by))) => {
                let mirror = match mirror.strip_prefix("mirror+file:") {
                    // Cloud images list mirrors in a file.
                    Some(file) => {
                        let path = Path::new(file.trim_end_matches('/'));
                        let text = fs::read_to_string(path).map_err(BuildError::io("read", path))?;
                        first_of_list(&text).ok_or(BuildError::NoMirror)?
                    }
                    None => mirror,
                };
                Ok((mirror, signed_by))
            }
            (None, None) => Err(BuildError::NoMirror),
        }
    }

    /// Returns options for the sources of this machine, with package lists in our folder.
    fn own_folders(&self) -> Result<Vec<String>, BuildError> {
        let own = format!("{}Dir::Etc::SourceList \"/etc/apt/sources.list\";\n", self.configuration());
        let path = self.write("machine.conf", &own)?;
        Ok(vec!["-qq".into(), format!("--config-file={}", path.display())])
    }

    /// Returns a configuration that keeps everything in our folder; proxies and the like stay those of this machine.
    fn configuration(&self) -> String {
        let folder = self.folder.display();
        format!(
            "Dir::State \"{folder}/state\";\nDir::State::status \"{folder}/status\";\nDir::Cache \"{folder}/cache\";\n\
             #clear APT::Update::Post-Invoke;\n#clear APT::Update::Post-Invoke-Success;\n#clear APT::NeverAutoRemove;\n\
             #clear DPkg::Pre-Install-Pkgs;\n#clear DPkg::Post-Invoke;\n#clear APT::Architectures;\n\
             APT::Architecture \"{}\";\nAPT::Install-Recommends \"false\";\nAPT::Install-Suggests \"false\";\n\
             APT::Sandbox::User \"\";\nAcquire::Languages \"none\";\nAcquire::ForceHash \"SHA256\";\n\
             Acquire::Check-Valid-Until \"false\";\nAcquire::Retries \"3\";\nDebug::NoLocking \"true\";\n",
            self.architecture
        )
    }

    /// Returns options for the mirror and one suite.
    fn options(&self, suite: &str) -> Result<Vec<String>, BuildError> {
        let folder = self.folder.display();
        let source = format!("deb [signed-by={}] {} {suite} main\n", self.signed_by, self.mirror);
        let list = self.write("sources.list", &source)?;
        let configuration = format!(
            "{}APT::Update::Error-Mode \"any\";\nDir::Etc::SourceList \"{}\";\nDir::Etc::SourceParts \"{folder}/none\";\n\
             Dir::Etc::Preferences \"{folder}/none\";\nDir::Etc::PreferencesParts \"{folder}/none\";\n",
            self.configuration(),
            list.display()
        );
        let path = self.write("apt.conf", &configuration)?;
        Ok(vec!["-qq".into(), "--yes".into(), format!("--config-file={}", path.display())])
    }

    /// Returns the packages of a recipe with their dependencies, as the mirror has them now.
    pub(super) async fn resolve(&mut self, work: &Work<'_>, recipe: &Recipe) -> Result<Lock, BuildError> {
        let options = self.options(&recipe.suite)?;
        let command = || CommandLine::new(&self.apt_get).args(&options);
        if self.suite.as_ref() != Some(&recipe.suite) {
            work.listener
                .step(&format!("asking {} for the packages of Debian {}", self.mirror, recipe.suite), None);
            work.run(command().arg("update")).await?;
        }
        let install = command().args(["--print-uris", "install", "--"]).args(&recipe.packages);
        let offered = work.run(install).await?;
        self.suite = Some(recipe.suite.clone());
        let text = String::from_utf8_lossy(&offered.stdout);
        let lines = text.lines().filter(|line| line.starts_with('\''));
        lines.map(|line| parse_offer(line).ok_or_else(|| BuildError::Offer(line.into()))).collect()
    }

    /// Downloads packages; returns their files, sorted by name.
    pub(super) async fn download(
        &self,
        work: &Work<'_>,
        recipe: &Recipe,
        packages: &Lock,
    ) -> Result<Vec<(Package, PathBuf)>, BuildError> {
        let command = CommandLine::new(&self.apt_get).args(self.options(&recipe.suite)?);
        // The exact versions, in case the mirror changed meanwhile.
        let wanted = packages.packages().map(|package| format!("{}={}", package.name, package.version));
        let command = command.args(["--download-only", "install", "--"]).args(wanted);
        let archives = self.folder.join("cache/archives");
        let what = format!("{}: downloading packages", recipe.name);
        work.run_watching(command, &what, &archives, packages.bytes()).await?;
        let files = packages.packages().map(|package| (package.clone(), archives.join(file_name(package))));
        let files: Vec<_> = files.collect();
        work.listener.step(&format!("{}: verifying packages", recipe.name), None);
        let checked = files.clone();
        work.blocking(move |_| Ok(checked.iter().try_for_each(check))).await??;
        Ok(files)
    }

    /// Unpacks packages into a new folder.
    pub(super) async fn unpack(
        &self,
        work: &Work<'_>,
        recipe: &Recipe,
        files: Vec<(Package, PathBuf)>,
        root: &Path,
    ) -> Result<(), BuildError> {
        let mut staging = Staging::new(root)?;
        let total = files.len() as u64;
        for (index, (package, file)) in files.into_iter().enumerate() {
            work.listener.step(&format!("{}: unpacking packages", recipe.name), Some((index as u64, total)));
            staging = self.add(work, staging, &package, &file).await?;
            // Images without a package manager list their packages here.
            let fields = CommandLine::new(&self.dpkg_deb).arg("--field").arg(&file);
            let fields = work.run(fields).await?.stdout;
            staging.write(&format!("var/lib/dpkg/status.d/{}", package.name), &fields)?;
            fs::remove_file(&file).map_err(BuildError::io("remove", &file))?;
        }
        let recipe = recipe.clone();
        work.blocking(move |_| staging.finish(&recipe)).await
    }

    async fn add(
        &self,
        work: &Work<'_>,
        mut staging: Staging,
        package: &Package,
        file: &Path,
    ) -> Result<Staging, BuildError> {
        let command = CommandLine::new(&self.dpkg_deb).arg("--fsys-tarfile").arg(file);
        let mut child = exec::spawn_piped(&command)?;
        let group = exec::group_of(&child);
        drop(child.stdin.take());
        let stderr = child.stderr.take();
        let messages = tokio::spawn(async move {
            let mut text = Vec::new();
            if let Some(stderr) = stderr {
                let _ = stderr.take(64 << 10).read_to_end(&mut text).await;
            }
            text
        });
        let Some(archive) = child.stdout.take() else { return Ok(staging) };
        // The bridge has to be created on a thread of the async runtime.
        let archive = SyncIoBridge::new(archive);
        let name = package.name.clone();
        let added = work
            .blocking(move |cancelled| {
                staging.add(&name, archive, cancelled)?;
                Ok(staging)
            })
            .await;
        exec::terminate(&mut child, group, std::time::Duration::ZERO).await;
        let text = messages.await.unwrap_or_default();
        if added.is_err() && !text.is_empty() {
            tracing::warn!("{}", exec::printable(&String::from_utf8_lossy(&text)));
        }
        added
    }
}

/// Verifies a downloaded file.
fn check((package, file): &(Package, PathBuf)) -> Result<(), BuildError> {
    let content = fs::read(file).map_err(BuildError::io("read", file))?;
    if package.digest.verifies(&content) {
        return Ok(());
    }
    Err(BuildError::Digest { file: file_name(package), actual: Digest::of(&content).to_string() })
}

/// Returns the mirror and the keys of the first target that is Debian's own.
fn parse_targets(output: &[u8]) -> Option<(String, Option<String>)> {
    let text = String::from_utf8_lossy(output);
    text.lines().find_map(|line| {
        let mut parts = line.split('|');
        let (label, mirror, signed_by) = (parts.next()?, parts.next()?, parts.next()?);
        let signed_by = Some(signed_by).filter(|path| path.starts_with('/')).map(String::from);
        (label == "Debian").then(|| (mirror.trim_end_matches('/').to_string(), signed_by))
    })
}

/// Returns the first URL in a list of mirrors.
fn first_of_list(text: &str) -> Option<String> {
    let words = text.lines().filter_map(|line| line.split_whitespace().next());
    words.map(|word| word.trim_end_matches('/').to_string()).find(|word| word.starts_with("http"))
}

/// Parses a line of `apt-get --print-uris`: `'http://…/jq_1.8.2-1_amd64.deb' jq_1.8.2-1_amd64.deb 88168 SHA256:b973…`
fn parse_offer(line: &str) -> Option<Package> {
    let mut words = line.split(' ').skip(1);
    let (file, bytes, digest) = (words.next()?, words.next()?, words.next()?);
    let mut parts = file.strip_suffix(".deb")?.split('_');
    let (name, version, architecture) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() {
        return None;
    }
    Some(Package {
        name: name.into(),
        version: version.replace("%3a", ":"),
        architecture: architecture.into(),
        digest: format!("sha256:{}", digest.strip_prefix("SHA256:")?).parse().ok()?,
        bytes: bytes.parse().ok()?,
    })
}

/// Returns the name that apt gives the file of a package.
fn file_name(package: &Package) -> String {
    let Package { name, version, architecture, .. } = package;
    format!("{name}_{}_{architecture}.deb", version.replace(':', "%3a"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_apt_is_a_package_with_its_digest() {
        let digest = "b973a5d304f666845e8ccefab492e3850d4bc2e7aa2a1e7450862095125f2cc0";
        let line = format!(
            "'http://mirror.example/g/git_1%3a2.53.0-1_amd64.deb' git_1%3a2.53.0-1_amd64.deb 9409868 SHA256:{digest}"
        );
        let package = parse_offer(&line).unwrap();
        assert_eq!((package.name.as_str(), package.version.as_str()), ("git", "1:2.53.0-1"));
        assert_eq!((package.bytes, package.digest.hex()), (9_409_868, digest));
        assert_eq!(file_name(&package), "git_1%3a2.53.0-1_amd64.deb");
        assert_eq!(parse_offer("'x' git_1_amd64.deb 5 MD5Sum:00"), None);
    }

    #[test]
    fn the_mirror_is_debians_own() {
        let targets = b"Google|https://x.example/apt/|\nDebian|http://m.example/debian/|/usr/share/keyrings/k.gpg\nDebian|http://n.example/|\n";
        let found = ("http://m.example/debian".to_string(), Some("/usr/share/keyrings/k.gpg".to_string()));
        assert_eq!(parse_targets(targets), Some(found));
        assert_eq!(parse_targets(b"Debian|http://n.example/|\n"), Some(("http://n.example".into(), None)));
        assert_eq!(parse_targets(b"Ubuntu|http://u.example/|\n"), None);
        assert_eq!(
            first_of_list("# x\nhttps://a.example/debian/\tpriority:1\n").unwrap(),
            "https://a.example/debian"
        );
    }
}
