//! What each variable means, as the documentation promises.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::Duration;

use codebridge_images::ImageName;
use codebridge_runtimes::{RuntimeChoice, RuntimeKind, Target, User};

use super::*;
use crate::requirements::Permission;

fn environment(pairs: &[(&str, &str)]) -> Environment {
    let home = ("HOME".to_owned(), OsString::from("/home/someone"));
    std::iter::once(home).chain(pairs.iter().map(|(k, v)| ((*k).to_owned(), OsString::from(v)))).collect()
}

fn resolve(pairs: &[(&str, &str)]) -> Result<Settings, SettingError> {
    Settings::resolve(&RawSettings::from_environment(&environment(pairs))?)
}

fn image(name: &str) -> ImageName {
    name.parse().unwrap()
}

fn message(pairs: &[(&str, &str)]) -> String {
    resolve(pairs).unwrap_err().to_string()
}

#[test]
fn without_anything_the_documented_defaults_hold() {
    let settings = resolve(&[]).unwrap();
    assert_eq!(*settings.runtime, RuntimeChoice::Auto);
    assert_eq!(*settings.image, image("python:3.14-slim"));
    assert_eq!(*settings.timeout, Duration::from_secs(30));
    assert_eq!(*settings.max_timeout, Duration::from_secs(120));
    assert_eq!(*settings.memory, 512 << 20);
    assert_eq!(*settings.pids, 128);
    assert_eq!(*settings.cpus, None);
    assert_eq!(*settings.container_user, User { uid: 65534, gid: 65534 });
    assert_eq!(*settings.runtime_idle_timeout, Some(Duration::from_secs(300)));
    assert_eq!((*settings.max_sessions, *settings.warm), (8, 1));
    assert_eq!(*settings.state_dir, PathBuf::from("/home/someone/MCPs"));
    assert_eq!(*settings.output_mode, OutputMode::Compact);
    assert_eq!(*settings.output_limit, 20_000);
    assert_eq!(*settings.log_level, "INFO");
    assert_eq!((&*settings.packages, settings.with.is_empty()), (&Permission::Off, true));
    assert!(*settings.session_persist);
    assert_eq!(*settings.security_opt, Vec::<String>::new());
    assert!(!*settings.allow_self_server);
    assert_eq!((&*settings.servers_config, &*settings.profile), (&None, &None));
    assert!(!settings.timeout.is_explicit());
}

#[test]
fn an_empty_value_counts_as_none() {
    let empty: Vec<_> = ALL.iter().map(|variable| (variable.name, " ")).collect();
    assert_eq!(resolve(&empty).unwrap(), resolve(&[]).unwrap());
}

#[test]
fn every_name_of_the_table_is_read() {
    let pod = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&pod, "runtimeClassName = 'kata'").unwrap();
    let samples = [
        ("MCP_BRIDGE_RUNTIME", "runc"),
        ("MCP_BRIDGE_IMAGE", "host:"),
        ("MCP_BRIDGE_TIMEOUT", "45s"),
        ("MCP_BRIDGE_MAX_TIMEOUT", "5m"),
        ("MCP_BRIDGE_MAX_BACKGROUND", "2h"),
        ("MCP_BRIDGE_MEMORY", "1g"),
        ("MCP_BRIDGE_MEMORY_LIMIT", "2g"),
        ("MCP_BRIDGE_WORKSPACE_SIZE", "64m"),
        ("MCP_BRIDGE_PIDS", "64"),
        ("MCP_BRIDGE_PIDS_LIMIT", "65"),
        ("MCP_BRIDGE_CPUS", "1.5"),
        ("MCP_BRIDGE_CPU_QUOTA", "50000"),
        ("MCP_BRIDGE_CONTAINER_USER", "1000:1000"),
        ("MCP_BRIDGE_RUNTIME_IDLE_TIMEOUT", "10"),
        ("MCP_BRIDGE_MACHINE_INIT", "0"),
        ("MCP_BRIDGE_MACHINE_ROOTFUL", "1"),
        ("MCP_BRIDGE_MAX_SESSIONS", "2"),
        ("MCP_BRIDGE_WARM", "2"),
        ("MCP_BRIDGE_MAX_RUNS", "2"),
        ("MCP_BRIDGE_USER_RUNS", "2"),
        ("MCP_BRIDGE_USER_SECONDS", "1h"),
        ("MCP_BRIDGE_USER_BYTES", "1g"),
        ("MCP_BRIDGE_ALLOWED_HOSTS", "mcp.example.com,[::1]:8443"),
        ("MCP_BRIDGE_STATE_DIR", "/srv/state"),
        ("MCP_BRIDGE_ARTIFACTS_LIMIT", "2g"),
        ("MCP_BRIDGE_OUTPUT_MODE", "json"),
        ("MCP_BRIDGE_OUTPUT_LIMIT", "100"),
        ("MCP_BRIDGE_MAX_IMAGES", "2"),
        ("MCP_BRIDGE_PACKAGES", "allow"),
        ("MCP_BRIDGE_WITH", "humanize"),
        ("MCP_BRIDGE_POLICY", "/etc/policy.toml"),
        ("MCP_BRIDGE_AUDIT", "required,full"),
        ("MCP_BRIDGE_LOG_LEVEL", "DEBUG"),
        ("MCP_BRIDGE_SESSION_PERSIST", "false"),
        ("MCP_BRIDGE_SHARE", "/srv/data"),
        ("MCP_BRIDGE_SHARE_ANYWAY", "1"),
        ("MCP_BRIDGE_POD", pod.path().to_str().unwrap()),
        ("MCP_BRIDGE_SECURITY_OPT", "label=disable"),
        ("MCP_BRIDGE_ALLOW_SELF_SERVER", "1"),
        ("MCP_BRIDGE_TRUST_PROJECT", "1"),
        ("MCP_BRIDGE_KEYRING", "0"),
        ("MCP_BRIDGE_SEARCH_MODEL", "/srv/model"),
        ("MCP_SERVERS_CONFIG", "/etc/servers.json"),
        ("MCP_BRIDGE_PROFILE", " work "),
        ("MCP_BRIDGE_REGISTRY", "https://registry.example"),
    ];
    let names: Vec<_> =
        ALL.iter().flat_map(|v| std::iter::once(v.name).chain(v.aliases.iter().copied())).collect();
    assert_eq!(samples.iter().map(|(name, _)| *name).collect::<Vec<_>>(), names);
    let defaults = resolve(&[]).unwrap();
    for sample in samples {
        assert_ne!(resolve(&[sample]).unwrap(), defaults, "{sample:?} changes nothing");
    }
}

#[test]
fn values_are_read_in_the_documented_forms() {
    let settings = resolve(&[
        ("MCP_BRIDGE_RUNTIME", "Podman"),
        ("MCP_BRIDGE_IMAGE", "dir:~/roots/python"),
        ("MCP_BRIDGE_TIMEOUT", "30s"),
        ("MCP_BRIDGE_MAX_TIMEOUT", "2m"),
        ("MCP_BRIDGE_MEMORY_LIMIT", "536870912"),
        ("MCP_BRIDGE_CPU_QUOTA", "150000"),
        ("MCP_BRIDGE_RUNTIME_IDLE_TIMEOUT", "0"),
        ("MCP_BRIDGE_SECURITY_OPT", "label=disable  apparmor=unconfined"),
    ])
    .unwrap();
    let podman = Target::from(RuntimeKind::Podman);
    assert_eq!(*settings.runtime, RuntimeChoice::Named(vec![podman]));
    assert_eq!(*settings.image, ImageName::Folder("/home/someone/roots/python".into()));
    assert_eq!(*settings.memory, 512 << 20);
    assert_eq!(*settings.cpus, Some(1.5));
    assert_eq!(settings.cpus.origin, Origin::Variable("MCP_BRIDGE_CPU_QUOTA"));
    assert_eq!(*settings.runtime_idle_timeout, None);
    assert_eq!(*settings.security_opt, ["label=disable", "apparmor=unconfined"]);

    let engines = resolve(&[("MCP_BRIDGE_RUNTIME", "podman:Big, docker:x,crun,podman:Big")]).unwrap();
    assert_eq!(engines.runtime.to_string(), "podman:Big,docker:x,crun");
    for bad in ["podman:", "crun:x", "podman,,docker", "podman:-x", "docker:a b", "lxc:x", "auto,podman"] {
        let text = message(&[("MCP_BRIDGE_RUNTIME", bad)]);
        assert!(text.contains("expected auto, podman, docker"), "{bad}: {text}");
    }
    let path = resolve(&[("MCP_BRIDGE_RUNTIME", "/opt/crun")]).unwrap();
    assert_eq!(*path.runtime, RuntimeChoice::Program("/opt/crun".into()));
    for reference in ["python", "python:3.13", "ghcr.io/x/y"] {
        let settings = resolve(&[("MCP_BRIDGE_IMAGE", reference)]).unwrap();
        assert_eq!(*settings.image, image(reference));
    }
    let forms = [
        ("oci:~/image:v1", "oci:/home/someone/image:v1"),
        ("oci-archive:/srv/image.tar", "oci-archive:/srv/image.tar"),
        ("docker-archive:/srv/image.tar:python:3", "docker-archive:/srv/image.tar:python:3"),
        ("docker-daemon:python:3", "docker-daemon:python:3"),
        ("docker://python:3", "python:3"),
    ];
    for (text, expected) in forms {
        let settings = resolve(&[("MCP_BRIDGE_IMAGE", text), ("HOME", "/home/someone")]).unwrap();
        assert_eq!(*settings.image, image(expected));
    }
}

#[test]
fn the_default_image_is_explicit_when_it_is_asked_for() {
    let settings = resolve(&[("MCP_BRIDGE_IMAGE", "python:3.14-slim")]).unwrap();
    assert_eq!(*settings.image, image("python:3.14-slim"));
    assert!(settings.image.is_explicit() && !resolve(&[]).unwrap().image.is_explicit());
}

#[test]
fn the_first_name_wins_over_its_alias_and_a_flag_over_both() {
    let variables = environment(&[("MCP_BRIDGE_MEMORY_LIMIT", "2g"), ("MCP_BRIDGE_MEMORY", "1g")]);
    let mut raw = RawSettings::from_environment(&variables).unwrap();
    let memory = Settings::resolve(&raw).unwrap().memory;
    assert_eq!((memory.value, memory.origin), (1 << 30, Origin::Variable("MCP_BRIDGE_MEMORY")));
    raw.set_flag(&variables::MEMORY, "64m");
    let memory = Settings::resolve(&raw).unwrap().memory;
    assert_eq!((memory.value, memory.origin), (64 << 20, Origin::Flag("memory")));

    let mut raw = RawSettings::from_environment(&environment(&[("MCP_BRIDGE_CPUS", "1")])).unwrap();
    raw.set_flag(&variables::CPU_QUOTA, "200000");
    assert_eq!(*Settings::resolve(&raw).unwrap().cpus, Some(2.0));
}

#[test]
fn a_longer_default_timeout_raises_the_most_unless_that_was_set() {
    let settings = resolve(&[("MCP_BRIDGE_TIMEOUT", "300")]).unwrap();
    assert_eq!((settings.timeout.as_secs(), settings.max_timeout.as_secs()), (300, 300));
    let settings = resolve(&[("MCP_BRIDGE_TIMEOUT", "300"), ("MCP_BRIDGE_MAX_TIMEOUT", "60")]).unwrap();
    assert_eq!((settings.timeout.as_secs(), settings.max_timeout.as_secs()), (60, 60));
    let settings = resolve(&[("MCP_BRIDGE_MAX_TIMEOUT", "10")]).unwrap();
    assert_eq!((settings.timeout.as_secs(), settings.max_timeout.as_secs()), (10, 10));
}

#[test]
fn a_bad_value_is_an_error_that_names_the_variable_and_the_value() {
    let cases = [
        (
            ("MCP_BRIDGE_TIMEOUT", "soon"),
            "invalid value \"soon\" for MCP_BRIDGE_TIMEOUT: expected a time in whole seconds, such as 30, 30s or 2m",
        ),
        (("MCP_BRIDGE_TIMEOUT", "0"), "invalid value \"0\" for MCP_BRIDGE_TIMEOUT: the minimum is 1 second"),
        (
            ("MCP_BRIDGE_MEMORY_LIMIT", "lots"),
            "invalid value \"lots\" for MCP_BRIDGE_MEMORY_LIMIT: expected a size, such as 512m, 1g or 536870912",
        ),
        (("MCP_BRIDGE_MEMORY", "512"), "invalid value \"512\" for MCP_BRIDGE_MEMORY: the minimum is 16m"),
        (
            ("MCP_BRIDGE_PIDS", "-1"),
            "invalid value \"-1\" for MCP_BRIDGE_PIDS: expected a whole number greater than zero",
        ),
        (("MCP_BRIDGE_PIDS", "3"), "invalid value \"3\" for MCP_BRIDGE_PIDS: the minimum is 4"),
        (
            ("MCP_BRIDGE_PIDS", "4294967296"),
            "invalid value \"4294967296\" for MCP_BRIDGE_PIDS: the maximum is 4294967295",
        ),
        (
            ("MCP_BRIDGE_MAX_SESSIONS", "18446744073709551616"),
            "invalid value \"18446744073709551616\" for MCP_BRIDGE_MAX_SESSIONS: the maximum is 4294967295",
        ),
        (
            ("MCP_BRIDGE_CPUS", "all"),
            "invalid value \"all\" for MCP_BRIDGE_CPUS: expected a number greater than zero",
        ),
        (
            ("MCP_BRIDGE_CONTAINER_USER", "nobody"),
            "invalid value \"nobody\" for MCP_BRIDGE_CONTAINER_USER: expected a user as UID:GID, such as 65534:65534",
        ),
        (
            ("MCP_BRIDGE_OUTPUT_MODE", "xml"),
            "invalid value \"xml\" for MCP_BRIDGE_OUTPUT_MODE: expected one of compact, toon, json",
        ),
        (
            ("MCP_BRIDGE_SESSION_PERSIST", "2"),
            "invalid value \"2\" for MCP_BRIDGE_SESSION_PERSIST: expected true or false",
        ),
        (
            ("MCP_BRIDGE_RUNTIME", "lxc"),
            "invalid value \"lxc\" for MCP_BRIDGE_RUNTIME: expected auto, podman, docker, crun, runc, podman:CONNECTION, docker:CONTEXT, \
             kubernetes:CONTEXT/NAMESPACE, a list of these separated by commas, or a path",
        ),
    ];
    for (pair, expected) in cases {
        assert_eq!(message(&[pair]), expected);
    }
    for image in ["dir:", "host:/usr", "two words", "name:", "--privileged", "sif:/x", "a@sha256:00"] {
        let error = resolve(&[("MCP_BRIDGE_IMAGE", image)]).unwrap_err();
        let message = error.to_string();
        assert!(
            message.starts_with("invalid value for MCP_BRIDGE_IMAGE: ")
                && error.hint().is_some_and(|hint| hint.contains("oci-archive:FILE")),
            "{message}"
        );
    }
}

#[test]
fn a_bad_flag_is_named_as_a_flag() {
    let mut raw = RawSettings::from_environment(&environment(&[])).unwrap();
    raw.set_flag(&variables::PIDS, "many");
    let error = Settings::resolve(&raw).unwrap_err();
    assert_eq!(
        error.to_string(),
        "invalid value \"many\" for --pids: expected a whole number greater than zero"
    );
}

#[test]
fn a_typing_error_gets_a_hint() {
    let hint = |pair| resolve(&[pair]).unwrap_err().hint();
    assert_eq!(hint(("MCP_BRIDGE_RUNTIME", "podmam")), Some("did you mean podman?".into()));
    assert_eq!(hint(("MCP_BRIDGE_OUTPUT_MODE", "compct")), Some("did you mean compact?".into()));
    assert_eq!(hint(("MCP_BRIDGE_RUNTIME", "lxc")), None);
}

#[test]
fn a_value_that_is_not_text_is_an_error_only_where_it_is_read() {
    let mut variables = environment(&[]);
    variables.insert("UNRELATED".into(), OsString::from_vec(vec![0xff]));
    assert!(RawSettings::from_environment(&variables).is_ok());
    variables.insert("MCP_BRIDGE_IMAGE".into(), OsString::from_vec(vec![0xff]));
    let error = RawSettings::from_environment(&variables).unwrap_err();
    assert_eq!(error.to_string(), "invalid value for MCP_BRIDGE_IMAGE: not valid UTF-8");
}

fn warnings(settings: &Settings) -> Vec<String> {
    settings.warnings.iter().map(ToString::to_string).collect()
}

#[test]
fn an_unknown_variable_is_a_warning() {
    let settings = resolve(&[
        ("MCP_BRIDGE_MEMROY", "1g"),
        ("MCP_BRIDGE_SERVERS_CONFIG", "x"),
        ("MCP_BRIDGE_XYZZY", "x"),
        ("MCP_BRIDGE_ABSENT", ""),
        ("MCP_OTHER", "x"),
    ]);
    assert_eq!(
        warnings(&settings.unwrap()),
        [
            "unknown variable MCP_BRIDGE_MEMROY is ignored: did you mean MCP_BRIDGE_MEMORY?",
            "unknown variable MCP_BRIDGE_SERVERS_CONFIG is ignored: did you mean MCP_SERVERS_CONFIG?",
            "unknown variable MCP_BRIDGE_XYZZY is ignored: `codebridge help settings` lists the variables",
        ]
    );
    let all: Vec<_> = ALL.iter().flat_map(|variable| variable.names()).map(|name| (name, "")).collect();
    assert_eq!(warnings(&resolve(&all).unwrap()), [""; 0]);
}

#[test]
fn a_value_that_is_not_used_is_a_warning() {
    let of = |pairs| warnings(&resolve(pairs).unwrap());
    assert_eq!(
        of(&[("MCP_BRIDGE_MEMORY", "1g"), ("MCP_BRIDGE_MEMORY_LIMIT", "2g")]),
        ["MCP_BRIDGE_MEMORY_LIMIT is ignored: MCP_BRIDGE_MEMORY is set"]
    );
    assert_eq!(of(&[("MCP_BRIDGE_MEMORY", "1g"), ("MCP_BRIDGE_MEMORY_LIMIT", "1g")]), [""; 0]);
    assert_eq!(
        of(&[("MCP_BRIDGE_CPUS", "1"), ("MCP_BRIDGE_CPU_QUOTA", "100000")]),
        ["MCP_BRIDGE_CPU_QUOTA is ignored: MCP_BRIDGE_CPUS is set"]
    );
    assert_eq!(
        of(&[("MCP_BRIDGE_TIMEOUT", "300"), ("MCP_BRIDGE_MAX_TIMEOUT", "60")]),
        ["MCP_BRIDGE_TIMEOUT of 300 s is longer than MCP_BRIDGE_MAX_TIMEOUT allows: 60 s is used"]
    );
    assert_eq!(of(&[("MCP_BRIDGE_MAX_TIMEOUT", "10")]), [""; 0]);
}

#[test]
fn a_flag_wins_over_a_variable_without_a_word() {
    let variables = environment(&[("MCP_BRIDGE_MEMORY", "1g"), ("MCP_BRIDGE_CPUS", "1")]);
    let mut raw = RawSettings::from_environment(&variables).unwrap();
    raw.set_flag(&variables::MEMORY, "64m");
    raw.set_flag(&variables::CPU_QUOTA, "200000");
    assert_eq!(warnings(&Settings::resolve(&raw).unwrap()), [""; 0]);
}

#[test]
fn a_setting_is_named_as_its_user_types_it() {
    let served = resolve(&[]).unwrap();
    let typed = Settings { one_shot: true, ..served.clone() };
    assert_eq!(served.name_of(&variables::MEMORY), "MCP_BRIDGE_MEMORY");
    assert_eq!(typed.name_of(&variables::MEMORY), "--memory");
}

fn shares(settings: &Settings) -> Vec<(&str, &str)> {
    settings.share.iter().map(|share| (share.path.to_str().unwrap(), share.name.as_str())).collect()
}

#[test]
fn shares_are_folders_with_names() {
    let settings = resolve(&[("MCP_BRIDGE_SHARE", "~/data,/srv/a b:x,/srv/c:d:e")]).unwrap();
    assert_eq!(shares(&settings), [("/home/someone/data", "data"), ("/srv/a b", "x"), ("/srv/c:d", "e")]);
    assert_eq!(settings.share[0].target(), "/shared/data");
    let problems = [
        ("/srv/a,/mnt/a", "two shares have the name 'a'"),
        ("/", "'/' has no name of its own"),
        ("/srv/a:", "'' cannot be the name of a share"),
        ("/srv/a:..", "'..' cannot be the name of a share"),
        ("/srv/a,,/srv/b", "expected DIR or DIR:NAME"),
    ];
    for (value, problem) in problems {
        let text = message(&[("MCP_BRIDGE_SHARE", value)]);
        assert_eq!(text, format!("invalid value for MCP_BRIDGE_SHARE: {problem}"));
    }
}

#[test]
fn the_flag_of_shares_is_repeated_and_may_have_commas() {
    let mut raw =
        RawSettings::from_environment(&environment(&[("MCP_BRIDGE_SHARE", "/srv/unused")])).unwrap();
    raw.set_flag(&variables::SHARE, "/srv/a,b:one");
    raw.set_flag(&variables::SHARE, "/srv/two");
    let settings = Settings::resolve(&raw).unwrap();
    assert_eq!(shares(&settings), [("/srv/a,b", "one"), ("/srv/two", "two")]);
}

#[test]
fn packages_can_be_named_by_several_flags_and_mistakes_are_told() {
    let mut raw = RawSettings::default();
    raw.set_flag(&variables::WITH, "httpx[http2,cli]");
    raw.set_flag(&variables::WITH, "six");
    let settings = Settings::resolve(&raw).unwrap();
    let names: Vec<_> = settings.with.iter().map(ToString::to_string).collect();
    assert_eq!(names, ["httpx[http2,cli]", "six"]);
    let hint = |pair| resolve(&[pair]).unwrap_err().hint().unwrap();
    assert_eq!(hint(("MCP_BRIDGE_PACKAGES", "alow")), "did you mean allow?");
    assert_eq!(hint(("MCP_BRIDGE_WITH", "reqs.txt")), "name the packages: --with pandas,httpx");
}
