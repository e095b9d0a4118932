//! The log on standard error, which never makes the server wait.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;

use codebridge_runtimes::exec::visible_between_controls;
use rustix::event::{PollFd, PollFlags, Timespec};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::fmt::format::{Format, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{EnvFilter, Layer};

use super::{Command, ServersArgs};
use crate::settings::{Environment, Expected, SettingError, Settings};

/// A pipe that is writable takes this many bytes without blocking the writer.
const ATOMIC: usize = 4096;

/// Who reads the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Audience {
    /// An MCP client, which may keep it.
    Client,
    /// The person who typed a command.
    Person,
    /// A person who gets the state of all definitions anyway.
    Surveyor,
}

impl Audience {
    pub(super) fn of(command: &Command) -> Self {
        match command {
            Command::Serve(_) => Self::Client,
            Command::Doctor(_) | Command::Servers(ServersArgs { command: None, .. }) => Self::Surveyor,
            _ => Self::Person,
        }
    }
}

/// Writes warnings and errors for a person as the command line writes its own, and everything else as a line of a log.
struct Lines {
    audience: Audience,
    whole: Format,
}

impl<S, F> FormatEvent<S, F> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    F: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, F>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let severity = match *event.metadata().level() {
            Level::ERROR => "error",
            Level::WARN => "warning",
            _ => return self.whole.format_event(context, writer, event),
        };
        if self.audience == Audience::Client {
            return self.whole.format_event(context, writer, event);
        }
        let mut remark = Remark::default();
        event.record(&mut remark);
        writeln!(writer, "{severity}: {remark}")
    }
}

/// An event as a sentence: its message, what it is about, and the error.
#[derive(Debug, Default)]
struct Remark {
    message: String,
    about: Vec<String>,
    error: Option<String>,
}

impl Visit for Remark {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            "error" => self.error = Some(format!("{value:?}")),
            name => self.about.push(format!("{name}: {value:?}")),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if !self.about.is_empty() {
            write!(f, " ({})", self.about.join(", "))?;
        }
        self.error.as_ref().map_or(Ok(()), |error| write!(f, ": {error}"))
    }
}

/// Returns whether the user wants colours: <https://no-color.org>.
fn takes_colours(environment: &Environment) -> bool {
    let is_dumb = environment.get("TERM").is_some_and(|terminal| terminal == "dumb");
    !is_dumb && environment.get("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Returns whether a list of definitions says what this module logs.
fn is_surveyed(target: &str) -> bool {
    target.starts_with("codebridge::upstream::discovery")
}

/// Starts to log at the level of the settings. Without one, commands log less than `serve`.
pub(super) fn start(
    settings: &Settings,
    audience: Audience,
    environment: &Environment,
) -> Result<(), SettingError> {
    let level = match settings.log_level.is_explicit() || audience == Audience::Client {
        true => settings.log_level.as_str(),
        false => "WARN",
    };
    let filter = parse_filter(level).ok_or_else(|| SettingError::Invalid {
        origin: settings.log_level.origin,
        value: settings.log_level.value.clone(),
        expected: Expected::LogDirectives,
    })?;
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(|| Lossy)
        .with_ansi(io::stderr().is_terminal() && takes_colours(environment))
        .event_format(Lines { audience, whole: Format::default() })
        .with_filter(filter_fn(move |about| {
            let is_shown = audience == Audience::Surveyor && is_surveyed(about.target());
            !is_shown && !repeats_messages(about.target())
        }));
    let subscriber = tracing_subscriber::registry().with(filter).with(lines);
    // A test may have set another one.
    let _ = tracing::subscriber::set_global_default(subscriber);
    Ok(())
}

/// Returns whether a library logs messages and headers as they are: they hold credentials. Our own code says what is wrong
/// with them.
fn repeats_messages(target: &str) -> bool {
    let library = target.split("::").next().unwrap_or_default();
    matches!(library, "rmcp" | "hyper" | "hyper_util" | "h2" | "reqwest" | "tower_http")
}

/// Parses a level or directives. A level applies to our own code; libraries only log warnings.
fn parse_filter(text: &str) -> Option<EnvFilter> {
    let text = text.trim();
    let level = match text.to_ascii_uppercase().as_str() {
        "WARNING" => Some(LevelFilter::WARN),
        "CRITICAL" | "FATAL" => Some(LevelFilter::ERROR),
        "NOTSET" => Some(LevelFilter::TRACE),
        _ => text.parse().ok(),
    };
    let directives = match level {
        Some(level) => {
            let others = level.min(LevelFilter::WARN);
            format!("{others},codebridge={level},codebridge_runtimes={level},codebridge_images={level}")
        }
        None => text.to_owned(),
    };
    // A single word would be read as a module, so that a mistyped level would log nothing.
    if level.is_none() && !text.contains(['=', ',', '[']) {
        return None;
    }
    EnvFilter::builder().parse(directives).ok()
}

/// Standard error, as far as it takes writes. Many clients never read it, and an answer matters more than a line of log.
struct Lossy;

impl Write for Lossy {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut stderr = io::stderr().lock();
        let text = String::from_utf8_lossy(line);
        for part in visible_between_controls(&text).as_bytes().chunks(ATOMIC) {
            if !is_writable(stderr.as_fd()) {
                break;
            }
            stderr.write_all(part)?;
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn is_writable(fd: impl AsFd) -> bool {
    let mut polled = [PollFd::new(&fd, PollFlags::OUT)];
    match rustix::event::poll(&mut polled, Some(&Timespec::default())) {
        Ok(_) => polled[0].revents().contains(PollFlags::OUT),
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(text: &str) -> Option<String> {
        parse_filter(text).map(|filter| filter.to_string())
    }

    #[test]
    fn a_level_applies_to_our_own_code() {
        let ours = |others, level| {
            Some(format!("codebridge_runtimes={level},codebridge_images={level},codebridge={level},{others}"))
        };
        assert_eq!(filter("INFO"), ours("warn", "info"));
        assert_eq!(filter("debug"), ours("warn", "debug"));
        assert_eq!(filter("WARNING"), ours("warn", "warn"));
        assert_eq!(filter("CRITICAL"), ours("error", "error"));
        assert_eq!(filter("off"), ours("off", "off"));
    }

    #[test]
    fn directives_are_taken_as_they_are() {
        assert_eq!(filter("codebridge=debug,rmcp=info"), Some("codebridge=debug,rmcp=info".into()));
    }

    #[test]
    fn a_mistyped_level_is_refused() {
        for bad in ["verbose", "codebridge=loud"] {
            assert_eq!(filter(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_full_pipe_is_not_writable() {
        let (reader, mut writer) = io::pipe().unwrap();
        assert!(is_writable(&writer));
        // The smallest pipe there is: one write fills it.
        let size = rustix::pipe::fcntl_setpipe_size(&writer, ATOMIC).unwrap();
        writer.write_all(&vec![0; size]).unwrap();
        assert!(!is_writable(&writer));
        drop(reader);
    }

    #[test]
    fn a_warning_is_a_sentence() {
        let remark = Remark {
            message: "could not store it".into(),
            about: vec!["folder: /x".into()],
            error: Some("disk full".into()),
        };
        assert_eq!(remark.to_string(), "could not store it (folder: /x): disk full");
        let short = Remark { message: "it is late".into(), ..Remark::default() };
        assert_eq!(short.to_string(), "it is late");
    }
}
