//! Questions to the person at the terminal. Standard input belongs to the code, so they go to the terminal itself.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::sync::Arc;

use codebridge_runtimes::exec::{visible, visible_line};
use indicatif::ProgressBar;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::QueueSelector;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::login::open_browser;
use crate::upstream::{Answering, Answers, ClientId, Offers, Question, Refusal};

/// How often a question looks whether it was withdrawn.
const PACE: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
const METHOD: &str = "elicitation/create";
const INVALID_PARAMS: i32 = -32602;

/// The terminal, which has one question or output of the code at a time: code must not write into a question.
#[derive(Debug, Clone, Default)]
pub(super) struct Screen(Arc<tokio::sync::Mutex<()>>);

impl Screen {
    /// Waits until no question is open.
    pub(super) async fn turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.0.lock().await
    }
}

/// Asks the person at the terminal, one question at a time.
#[derive(Debug)]
pub(super) struct TerminalAnswers {
    client: ClientId,
    /// Drawn on the terminal until the first question.
    progress: Option<ProgressBar>,
    screen: Screen,
}

impl TerminalAnswers {
    /// Returns None if this process has no terminal.
    pub(super) fn open(progress: Option<ProgressBar>, screen: Screen) -> Option<Arc<dyn Answers>> {
        terminal().ok()?;
        Some(Arc::new(Self { client: ClientId::next(), progress, screen }))
    }
}

fn terminal() -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open("/dev/tty")
}

impl Answers for TerminalAnswers {
    fn client(&self) -> ClientId {
        self.client
    }

    fn offers(&self) -> Offers {
        Offers { elicitation: true, elicitation_by_url: true, ..Offers::default() }
    }

    fn answer(&self, question: Question) -> Answering<'_> {
        Box::pin(async move {
            let (METHOD, Some(params)) = (question.method.as_str(), question.params) else {
                return Err(Refusal::not_supported(&question.method));
            };
            let _turn = self.screen.turn().await;
            if let Some(progress) = &self.progress {
                progress.finish_and_clear();
            }
            // A question that is withdrawn must not take the line that is typed for the next one.
            let stop = CancellationToken::new();
            let (stopped, _stop) = (stop.clone(), stop.drop_guard());
            let ask = move || -> io::Result<Value> {
                let terminal = terminal()?;
                // What was typed before the question is no answer to it.
                rustix::termios::tcflush(&terminal, QueueSelector::IFlush)?;
                let mut typed = Typed { lines: BufReader::new(terminal.try_clone()?), stop: stopped };
                match params["mode"].as_str() {
                    Some("url") => {
                        show_page(&question.server, &params, &mut &terminal, &mut typed, open_browser)
                    }
                    _ => fill_in(&question.server, &params, &mut &terminal, &mut typed),
                }
            };
            match tokio::task::spawn_blocking(ask).await {
                Ok(Ok(answer)) => Ok(answer),
                Ok(Err(error)) if error.kind() == io::ErrorKind::InvalidInput => {
                    Err(Refusal { code: INVALID_PARAMS, message: error.to_string(), data: None })
                }
                Ok(Err(error)) => Err(Refusal::unanswered(&error.to_string())),
                Err(error) => Err(Refusal::unanswered(&error.to_string())),
            }
        })
    }
}

/// What is typed.
trait Lines {
    /// Returns the next line; None at the end.
    fn next_line(&mut self) -> io::Result<Option<String>>;
}

struct Typed {
    lines: BufReader<File>,
    stop: CancellationToken,
}

impl Lines for Typed {
    fn next_line(&mut self) -> io::Result<Option<String>> {
        while self.lines.buffer().is_empty() {
            if self.stop.is_cancelled() {
                return Err(io::Error::other("the question was withdrawn"));
            }
            let ready = poll(&mut [PollFd::new(&self.lines.get_ref().as_fd(), PollFlags::IN)], Some(&PACE));
            if ready.is_ok_and(|ready| ready > 0) {
                break;
            }
        }
        let mut line = String::new();
        Ok((self.lines.read_line(&mut line)? > 0).then(|| line.trim().to_owned()))
    }
}

/// Shows the address of a page, and opens it if the person wants that.
fn show_page(
    server: &str,
    params: &Value,
    screen: &mut impl Write,
    typed: &mut impl Lines,
    open: impl FnOnce(&str) -> bool,
) -> io::Result<Value> {
    let message = params["message"].as_str().unwrap_or_default();
    let url = params["url"].as_str().unwrap_or_default();
    if !["https://", "http://"].iter().any(|scheme| url.starts_with(scheme)) || visible_line(url) != url {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the URL of the page is invalid"));
    }
    writeln!(screen, "\n{} asks:\n{}\n{url}", visible_line(server), visible(message.trim_end()))?;
    let field = json!({ "type": "boolean" });
    match read_field("Open this page in a browser?", &field, screen, typed)? {
        None => Ok(json!({ "action": "cancel" })),
        Some(Value::Bool(true)) => {
            if !open(url) {
                writeln!(screen, "no browser could be opened: open the page yourself, on this machine")?;
            }
            Ok(json!({ "action": "accept" }))
        }
        Some(_) => Ok(json!({ "action": "decline" })),
    }
}

/// Shows a form and reads its fields; what is not required keeps its default.
fn fill_in(
    server: &str,
    params: &Value,
    screen: &mut impl Write,
    typed: &mut impl Lines,
) -> io::Result<Value> {
    let message = params["message"].as_str().unwrap_or_default();
    writeln!(screen, "\n{} asks:\n{}", visible_line(server), visible(message.trim_end()))?;
    let schema = &params["requestedSchema"];
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let mut content = Map::new();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let default = field.get("default").cloned();
        if !required.contains(&name.as_str()) {
            content.extend(default.map(|default| (name.clone(), default)));
            continue;
        }
        let title = visible_line(field["title"].as_str().unwrap_or(name));
        match read_field(&title, field, screen, typed)? {
            Some(value) => drop(content.insert(name.clone(), value)),
            None => return Ok(json!({ "action": "cancel" })),
        }
    }
    Ok(json!({ "action": "accept", "content": content }))
}

/// Reads one field until it is right; None at the end of the input.
fn read_field(
    title: &str,
    field: &Value,
    screen: &mut impl Write,
    typed: &mut impl Lines,
) -> io::Result<Option<Value>> {
    let choices: Vec<&str> =
        field["enum"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (number, choice) in (1..).zip(&choices) {
        writeln!(screen, "  {number}  {}", visible_line(choice))?;
    }
    loop {
        match (field["type"].as_str(), choices.len()) {
            (Some("boolean"), _) => write!(screen, "{title} [y/N] ")?,
            (_, 0) => write!(screen, "{title}: ")?,
            (_, most) => write!(screen, "{title} [1-{most}, default 1] ")?,
        }
        screen.flush()?;
        let Some(line) = typed.next_line()? else { return Ok(None) };
        if let Some(value) = parse(&line, field, &choices) {
            return Ok(Some(value));
        }
        writeln!(screen, "'{}' is no answer to this", visible_line(&line))?;
    }
}

/// Nothing typed means no, or the first choice.
fn parse(line: &str, field: &Value, choices: &[&str]) -> Option<Value> {
    match field["type"].as_str() {
        _ if !choices.is_empty() => {
            let number: usize = match line.to_ascii_lowercase().as_str() {
                "" => 1,
                "y" | "yes" => choices.iter().position(|choice| choice.starts_with("yes"))? + 1,
                "n" | "no" => choices.iter().position(|choice| choice.starts_with("no"))? + 1,
                line => line.parse().ok()?,
            };
            choices.get(number.checked_sub(1)?).map(|choice| (*choice).into())
        }
        Some("boolean") => Some(matches!(line.to_ascii_lowercase().as_str(), "y" | "yes").into()),
        Some("integer") => line.parse::<i64>().ok().map(Into::into),
        Some("number") => line.parse::<f64>().ok().map(Into::into),
        _ => Some(line.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    struct Script(VecDeque<&'static str>);

    impl Lines for Script {
        fn next_line(&mut self) -> io::Result<Option<String>> {
            Ok(self.0.pop_front().map(str::to_owned))
        }
    }

    fn fill(schema: Value, typed: &[&'static str]) -> (Value, String) {
        let params = json!({ "message": "May I?\u{1b}[2J", "requestedSchema": schema });
        let mut screen = Vec::new();
        let answer =
            fill_in("s", &params, &mut screen, &mut Script(typed.iter().copied().collect())).unwrap();
        (answer, String::from_utf8(screen).unwrap())
    }

    fn choices() -> Value {
        json!({
            "properties": {
                "answer": { "type": "string", "title": "Allow it?", "enum": ["no", "yes"] },
                "calls": { "type": "integer", "default": 10 },
            },
            "required": ["answer"],
        })
    }

    #[test]
    fn a_choice_is_a_number_and_nothing_typed_is_the_first() {
        let (answer, screen) = fill(choices(), &["7", "maybe", "2"]);
        assert_eq!(answer, json!({ "action": "accept", "content": { "answer": "yes", "calls": 10 } }));
        assert!(screen.contains("  2  yes\n") && screen.contains("'7' is no answer"), "{screen}");
        assert!(!screen.contains('\u{1b}'), "{screen}");
        for (typed, answer) in [("", "no"), ("y", "yes"), ("Yes", "yes"), ("n", "no")] {
            assert_eq!(fill(choices(), &[typed]).0["content"]["answer"], answer, "{typed}");
        }
        assert_eq!(fill(choices(), &[]).0, json!({ "action": "cancel" }));
    }

    #[test]
    fn a_page_is_opened_after_a_yes_only() {
        let show = |url: &str, typed: &'static str, opens: bool| {
            let (params, mut screen) =
                (json!({ "mode": "url", "message": "Log in", "url": url }), Vec::new());
            let mut opened = None;
            let open = |url: &str| {
                opened = Some(url.to_owned());
                opens
            };
            let answer = show_page("s", &params, &mut screen, &mut Script([typed].into()), open);
            (answer.map(|answer| answer["action"].clone()).ok(), opened, String::from_utf8(screen).unwrap())
        };
        let url = "https://login.example/?a=b";
        let (answer, opened, screen) = show(url, "y", true);
        assert_eq!((answer, opened.as_deref()), (Some("accept".into()), Some(url)));
        assert!(screen.contains(&format!("s asks:\nLog in\n{url}\n")), "{screen}");
        assert!(show(url, "y", false).2.ends_with("open the page yourself, on this machine\n"));
        assert_eq!(show(url, "", true).0, Some("decline".into()));
        for odd in ["file:///etc/passwd", "javascript:x", "", "https://a/\u{1b}[2J"] {
            assert_eq!((show(odd, "y", true).0, show(odd, "y", true).1), (None, None), "{odd}");
        }
    }

    #[test]
    fn fields_have_their_types() {
        let schema = json!({
            "properties": { "b": { "type": "boolean" }, "n": { "type": "integer" }, "s": { "type": "string" } },
            "required": ["b", "n", "s"],
        });
        let (answer, _) = fill(schema, &["y", "x", "3", "a b"]);
        assert_eq!(answer["content"], json!({ "b": true, "n": 3, "s": "a b" }));
    }
}
