//! Reads the arguments of `run_python`. The error messages are part of the contract.

use std::time::Duration;

use serde_json::{Map, Value};

use crate::nearest::nearest;
use crate::session::{Clamped, Look, RunRequest};
use crate::settings::{Origin, parse_time};

/// Names become labels; longer ones are a mistake.
const LONGEST_SESSION_NAME: usize = 64;

/// Names of servers in one call.
const MOST_SERVERS: usize = 1_000;

/// How long a call may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Timeouts {
    pub(super) default: Duration,
    pub(super) max: Duration,
    /// Where `max` comes from.
    pub(super) max_from: Origin,
    /// The longest time in the background.
    pub(super) background: Duration,
    /// Where `background` comes from.
    pub(super) background_from: Origin,
}

/// What a call asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Asked {
    Run(RunRequest),
    Background(RunRequest),
    Look(Look),
}

/// The names of all arguments.
const NAMES: [&str; 7] = ["code", "servers", "timeout", "session", "background", "run", "stop"];
/// Names that a note shows, and characters of each: whoever calls chooses both.
const MOST_SHOWN: usize = 5;
const LONGEST_SHOWN: usize = 40;

/// Returns the request, or what is wrong with the arguments; and notes on what is not used as it was given.
pub(super) fn parse_arguments(
    mut arguments: Map<String, Value>,
    timeouts: Timeouts,
) -> (Result<Asked, String>, Vec<String>) {
    // Models write `null` for an argument that they leave out.
    arguments.retain(|_, value| !value.is_null());
    let mut notes = unknown(&arguments);
    (request(arguments, timeouts, &mut notes), notes)
}

fn request(
    mut arguments: Map<String, Value>,
    timeouts: Timeouts,
    notes: &mut Vec<String>,
) -> Result<Asked, String> {
    let background = flag(&mut arguments, "background")?;
    let stop = flag(&mut arguments, "stop")?;
    if let Some(run) = arguments.remove("run") {
        return look(run, stop, arguments, timeouts, notes).map(Asked::Look);
    }
    if stop {
        return Err("'stop' needs 'run', the number of the run".into());
    }
    let code = code(arguments.remove("code"))?;
    let servers = servers(arguments.remove("servers"), notes)?;
    let limits = match background {
        false => timeouts,
        true => Timeouts {
            default: timeouts.background,
            max: timeouts.background,
            max_from: timeouts.background_from,
            ..timeouts
        },
    };
    let (timeout, clamped) = timeout(arguments.remove("timeout"), limits, notes)?;
    let session = session(arguments.remove("session"), notes)?;
    let request = RunRequest { code, servers, timeout, session, clamped };
    Ok(if background { Asked::Background(request) } else { Asked::Run(request) })
}

/// Reads a look at a run; code and its arguments are left out.
fn look(
    run: Value,
    stop: bool,
    mut arguments: Map<String, Value>,
    timeouts: Timeouts,
    notes: &mut Vec<String>,
) -> Result<Look, String> {
    // Models write numbers as text, and empty code for a look.
    let number = run.as_u64().or_else(|| run.as_str()?.trim().parse().ok());
    let run =
        number.and_then(|number| u32::try_from(number).ok()).ok_or("'run' must be the number of a run")?;
    if arguments.remove("code").is_some_and(|code| code.as_str().is_none_or(|code| !code.trim().is_empty())) {
        return Err("'run' looks at a run: leave 'code' out, or 'run'".into());
    }
    let (timeout, _) = timeout(arguments.remove("timeout"), timeouts, notes)?;
    Ok(Look { run, timeout, stop })
}

fn flag(arguments: &mut Map<String, Value>, name: &str) -> Result<bool, String> {
    match arguments.remove(name) {
        None => Ok(false),
        Some(Value::Bool(flag)) => Ok(flag),
        Some(Value::String(text)) if text == "true" || text == "false" => Ok(text == "true"),
        Some(_) => Err(format!("'{name}' must be true or false")),
    }
}

fn unknown(arguments: &Map<String, Value>) -> Vec<String> {
    let unknown = arguments.keys().filter(|name| !NAMES.contains(&name.as_str()));
    let note = |name: &String| {
        let meant = nearest(name, NAMES).map(|name| format!(": did you mean '{name}'?"));
        let shown: String = name.chars().take(LONGEST_SHOWN).collect();
        format!("unknown argument '{}' is ignored{}", shown.escape_debug(), meant.unwrap_or_default())
    };
    unknown.take(MOST_SHOWN).map(note).collect()
}

fn code(value: Option<Value>) -> Result<String, String> {
    match value {
        None => Err("Missing 'code' argument".into()),
        Some(Value::String(code)) if code.trim().is_empty() => Err("Missing 'code' argument".into()),
        Some(Value::String(code)) => Ok(RunRequest::without_byte_order_mark(code)),
        Some(_) => Err("'code' must be a string".into()),
    }
}

fn servers(value: Option<Value>, notes: &mut Vec<String>) -> Result<Vec<String>, String> {
    let items = match value {
        None => return Ok(Vec::new()),
        Some(Value::Array(items)) => items,
        Some(Value::String(text)) => {
            // Some models write the list as text.
            let items = serde_json::from_str(&text).unwrap_or_else(|_| vec![Value::String(text)]);
            notes.push(format!("'servers' is text: read as {}", shown_names(&items)));
            items
        }
        Some(_) => return Err("'servers' must be a list".into()),
    };
    if items.len() > MOST_SERVERS {
        return Err(format!("'servers' must have at most {MOST_SERVERS} names"));
    }
    let mut names: Vec<String> = Vec::with_capacity(items.len());
    for item in items {
        match item {
            Value::String(name) if names.contains(&name) => {}
            Value::String(name) => names.push(name),
            _ => return Err("'servers' must be a list of strings".into()),
        }
    }
    Ok(names)
}

/// Returns the start of a list, to show how it was read.
fn shown_names(items: &[Value]) -> String {
    let shown = |name: &str| format!("{:?}", name.chars().take(LONGEST_SHOWN).collect::<String>());
    let mut names: Vec<String> = items.iter().filter_map(Value::as_str).take(MOST_SHOWN).map(shown).collect();
    if items.len() > names.len() {
        names.push("…".into());
    }
    format!("[{}]", names.join(", "))
}

fn timeout(
    value: Option<Value>,
    timeouts: Timeouts,
    notes: &mut Vec<String>,
) -> Result<(Duration, Option<Clamped>), String> {
    let wanted = match value {
        None => return Ok((timeouts.default, None)),
        Some(Value::Number(number)) => number.as_f64(),
        Some(Value::String(text)) => {
            let seconds =
                parse_time(&text).map(|time| time.as_secs_f64()).or_else(|| text.trim().parse().ok());
            notes.extend(seconds.map(|seconds| format!("'timeout' is text: read as {seconds} s")));
            seconds
        }
        Some(_) => None,
    };
    let wanted = wanted.filter(|seconds| seconds.is_finite()).ok_or("'timeout' must be an integer")?;
    // A part of a second counts as a whole one. The cast saturates.
    let requested = Duration::from_secs((wanted.ceil() as u64).max(1));
    if requested.as_secs_f64() > wanted {
        notes.push(format!("timeout {wanted} s is raised to {} s", requested.as_secs()));
    }
    let clamped = Clamped { requested, limit_from: timeouts.max_from };
    Ok((requested.min(timeouts.max), Some(clamped).filter(|_| requested > timeouts.max)))
}

fn session(value: Option<Value>, notes: &mut Vec<String>) -> Result<String, String> {
    let name = match value {
        None => String::new(),
        Some(Value::String(name)) => name,
        Some(Value::Number(number)) => {
            notes.push("'session' is a number: read as text".into());
            number.to_string()
        }
        Some(_) => return Err("'session' must be a string".into()),
    };
    if name.is_empty() {
        return Ok(RunRequest::DEFAULT_SESSION.into());
    }
    if name.chars().count() > LONGEST_SESSION_NAME || name.chars().any(char::is_control) {
        return Err(format!("'session' must be at most {LONGEST_SESSION_NAME} printable characters"));
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const TIMEOUTS: Timeouts = Timeouts {
        default: Duration::from_secs(30),
        max: Duration::from_secs(120),
        max_from: Origin::Default,
        background: Duration::from_secs(3600),
        background_from: Origin::Default,
    };

    fn parse(arguments: Value) -> Result<RunRequest, String> {
        noted(arguments).0
    }

    fn noted(arguments: Value) -> (Result<RunRequest, String>, Vec<String>) {
        let (asked, notes) = asked(arguments);
        let request = asked.map(|asked| match asked {
            Asked::Run(request) => request,
            other => panic!("{other:?}"),
        });
        (request, notes)
    }

    fn asked(arguments: Value) -> (Result<Asked, String>, Vec<String>) {
        let Value::Object(arguments) = arguments else { panic!("not an object") };
        parse_arguments(arguments, TIMEOUTS)
    }

    #[test]
    fn a_run_in_the_background_has_its_own_limit() {
        for (timeout, seconds) in [(json!(null), 3600), (json!(600), 600), (json!(7200), 3600)] {
            let call = json!({ "code": "1", "background": true, "timeout": timeout });
            let Ok(Asked::Background(request)) = asked(call).0 else { panic!("{timeout}") };
            assert_eq!(
                (request.timeout.as_secs(), request.clamped.is_some()),
                (seconds, timeout == json!(7200))
            );
        }
        assert!(matches!(asked(json!({ "code": "1", "background": "false" })).0, Ok(Asked::Run(_))));
    }

    #[test]
    fn a_look_names_its_run_and_has_no_code() {
        let look =
            |run, seconds, stop| Ok(Asked::Look(Look { run, timeout: Duration::from_secs(seconds), stop }));
        for (call, expected) in [
            (json!({ "run": 17 }), look(17, 30, false)),
            (json!({ "run": "17", "timeout": 600, "code": "" }), look(17, 120, false)),
            (json!({ "run": 17, "stop": true }), look(17, 30, true)),
            (
                json!({ "run": 17, "code": "1" }),
                Err("'run' looks at a run: leave 'code' out, or 'run'".into()),
            ),
            (json!({ "run": -1 }), Err("'run' must be the number of a run".into())),
            (json!({ "run": 99_999_999_999_u64 }), Err("'run' must be the number of a run".into())),
            (json!({ "code": "1", "stop": true }), Err("'stop' needs 'run', the number of the run".into())),
            (json!({ "code": "1", "background": 1 }), Err("'background' must be true or false".into())),
        ] {
            assert_eq!(asked(call.clone()).0, expected, "{call}");
        }
    }

    fn seconds(timeout: &str) -> Result<u64, String> {
        let text = format!(r#"{{"code":"1","timeout":{timeout}}}"#);
        parse(serde_json::from_str(&text).unwrap()).map(|request| request.timeout.as_secs())
    }

    #[test]
    fn only_code_is_required() {
        let expected = RunRequest {
            code: "1".into(),
            servers: Vec::new(),
            timeout: Duration::from_secs(30),
            session: "main".into(),
            clamped: None,
        };
        assert_eq!(parse(json!({"code": "1"})), Ok(expected.clone()));
        let nulls = json!({"code": "1", "servers": null, "timeout": null, "session": null});
        assert_eq!(parse(nulls), Ok(expected.clone()));
        assert_eq!(parse(json!({"code": "\u{feff}1"})), Ok(expected.clone()));
        assert_eq!(parse(json!({"code": "1", "session": "", "unknown": 1})), Ok(expected));
    }

    #[test]
    fn all_arguments_are_read() {
        let request =
            parse(json!({"code": "1", "servers": ["a", "b", "a"], "timeout": 5, "session": "täst"}));
        let request = request.unwrap();
        assert_eq!(request.servers, ["a", "b"]);
        assert_eq!(request.timeout.as_secs(), 5);
        assert_eq!(request.session, "täst");
    }

    #[test]
    fn a_timeout_out_of_range_is_clamped() {
        for (timeout, expected) in [
            ("1", 1),
            ("120", 120),
            ("0", 1),
            ("-5", 1),
            ("121", 120),
            ("30.0", 30),
            ("3e1", 30),
            ("-1e30", 1),
            ("99999999999999999999999", 120),
        ] {
            assert_eq!(seconds(timeout), Ok(expected), "{timeout}");
        }
        let clamped = |seconds| parse(json!({ "code": "1", "timeout": seconds })).unwrap().clamped;
        assert_eq!(clamped(600).unwrap().requested.as_secs(), 600);
        assert_eq!((clamped(120), clamped(0)), (None, None));
    }

    #[test]
    fn wrong_arguments_get_the_messages_of_the_contract() {
        let cases = [
            (json!({}), "Missing 'code' argument"),
            (json!({"code": null}), "Missing 'code' argument"),
            (json!({"code": " \n"}), "Missing 'code' argument"),
            (json!({"code": 1}), "'code' must be a string"),
            (json!({"code": "1", "servers": {}}), "'servers' must be a list"),
            (json!({"code": "1", "servers": [1]}), "'servers' must be a list of strings"),
            (json!({"code": "1", "timeout": "soon"}), "'timeout' must be an integer"),
            (json!({"code": "1", "timeout": "inf"}), "'timeout' must be an integer"),
            (json!({"code": "1", "servers": "[1]"}), "'servers' must be a list of strings"),
            (json!({"code": "1", "timeout": true}), "'timeout' must be an integer"),
            (json!({"code": "1", "session": true}), "'session' must be a string"),
            (
                json!({"code": "1", "session": "a".repeat(65)}),
                "'session' must be at most 64 printable characters",
            ),
            (json!({"code": "1", "session": "a\nb"}), "'session' must be at most 64 printable characters"),
        ];
        for (arguments, message) in cases {
            assert_eq!(parse(arguments.clone()), Err(message.to_owned()), "{arguments}");
        }
    }

    #[test]
    fn what_is_not_used_as_it_was_given_is_noted() {
        for (argument, value, notes) in [
            ("timeout", json!(5), vec![]),
            ("timeout", json!(30.0), vec![]),
            ("timeout", json!(600), vec![]),
            ("timeout", json!(0), vec!["timeout 0 s is raised to 1 s"]),
            ("timeout", json!(1.5), vec!["timeout 1.5 s is raised to 2 s"]),
            ("timeout", json!("5"), vec!["'timeout' is text: read as 5 s"]),
            ("timeout", json!("30s"), vec!["'timeout' is text: read as 30 s"]),
            ("servers", json!(["x"]), vec![]),
            ("servers", json!("x"), vec![r#"'servers' is text: read as ["x"]"#]),
            ("servers", json!("[\"x\", \"y\"]"), vec![r#"'servers' is text: read as ["x", "y"]"#]),
            ("session", json!(7), vec!["'session' is a number: read as text"]),
            ("server", json!("x"), vec!["unknown argument 'server' is ignored: did you mean 'servers'?"]),
            ("colour", json!("x"), vec!["unknown argument 'colour' is ignored"]),
            ("colour", json!(null), vec![]),
        ] {
            let (request, found) = noted(json!({"code": "1", argument: value}));
            assert!(request.is_ok() && found == notes, "{argument}: {found:?}");
        }
        let (request, notes) = noted(json!({"script": "1"}));
        assert_eq!(request, Err("Missing 'code' argument".into()));
        assert_eq!(notes, ["unknown argument 'script' is ignored"]);
    }

    #[test]
    fn text_is_read_as_a_list_and_as_a_time() {
        let request =
            parse(json!({"code": "1", "servers": "github", "timeout": "1m", "session": 7})).unwrap();
        assert_eq!((request.servers, request.timeout.as_secs()), (vec!["github".to_owned()], 60));
        assert_eq!(request.session, "7");
        let clamped = |timeout| parse(json!({"code": "1", "timeout": timeout})).unwrap().clamped;
        assert_eq!(clamped(json!("10m")).unwrap().requested.as_secs(), 600);
        assert_eq!((clamped(json!(120)), clamped(json!(0))), (None, None));
        let request = parse(json!({"code": "1", "servers": "[\"a\", \"b\"]"})).unwrap();
        assert_eq!(request.servers, ["a", "b"]);
    }

    #[test]
    fn unknown_arguments_cost_little() {
        let mut arguments = Map::from_iter([("code".to_owned(), json!("1"))]);
        arguments.extend((0..100).map(|at| (format!("{at}{}", "x".repeat(1000)), json!(1))));
        let (_, notes) = noted(Value::Object(arguments));
        assert_eq!(notes.len(), MOST_SHOWN);
        assert!(notes.iter().all(|note| note.len() < 100), "{notes:?}");
        let servers = json!(vec!["x".repeat(1000); 900]).to_string();
        let (_, notes) = noted(json!({ "code": "1", "servers": servers }));
        assert!(notes[0].len() < 300 && notes[0].ends_with(", …]"), "{notes:?}");
    }
}
