//! The log on standard error, which never makes the server wait.

use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;

use codebridge_runtimes::exec::visible_between_controls;
use rustix::event::{PollFd, PollFlags, Timespec};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{EnvFilter, Layer};

use crate::settings::{Expected, SettingError, Settings};

/// A pipe that is writable takes this many bytes without blocking the writer.
const ATOMIC: usize = 4096;

/// Starts to log at the level of the settings. Without one, commands log less than `serve`.
pub(super) fn start(settings: &Settings, is_command: bool) -> Result<(), SettingError> {
    let level = match settings.log_level.is_explicit() || !is_command {
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
        .with_ansi(io::stderr().is_terminal())
        .with_filter(filter_fn(|about| !repeats_messages(about.target())));
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
}
