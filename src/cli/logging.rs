//! Logs on standard error, which must never make the server wait.

use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{EnvFilter, Layer};

use crate::settings::{Expected, SettingError, Settings};

/// A pipe that has room at all takes this much without making the writer wait.
const ATOMIC: usize = 4096;

/// Starts to log what the settings say; where they say nothing, a command of the user is quieter than a server.
pub(super) fn start(settings: &Settings, is_quiet: bool) -> Result<(), SettingError> {
    let level = match settings.log_level.is_explicit() || !is_quiet {
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
    // Somebody who was faster keeps the right to log.
    let _ = tracing::subscriber::set_global_default(subscriber);
    Ok(())
}

/// Whether what speaks there repeats messages and headers as they are: they hold credentials, and what is wrong with them is
/// said by our own code, without.
fn repeats_messages(target: &str) -> bool {
    let library = target.split("::").next().unwrap_or_default();
    matches!(library, "rmcp" | "hyper" | "hyper_util" | "h2" | "reqwest" | "tower_http")
}

/// A level is meant for our own code; the libraries only speak up when something is wrong.
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
    // A lone word would be read as a module, and a mistyped level as silence.
    if level.is_none() && !text.contains(['=', ',', '[']) {
        return None;
    }
    EnvFilter::builder().parse(directives).ok()
}

/// Standard error, as far as it has room. Many clients never read it, and a line is worth less than an answer.
struct Lossy;

impl Write for Lossy {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut stderr = io::stderr().lock();
        for part in line.chunks(ATOMIC) {
            if !has_room(stderr.as_fd()) {
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

fn has_room(fd: impl AsFd) -> bool {
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
    fn a_level_is_for_our_own_code() {
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
    fn what_is_neither_is_refused() {
        for bad in ["verbose", "codebridge=loud"] {
            assert_eq!(filter(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_full_pipe_has_no_room() {
        let (reader, mut writer) = io::pipe().unwrap();
        assert!(has_room(&writer));
        // The smallest pipe there is: one write fills it.
        let size = rustix::pipe::fcntl_setpipe_size(&writer, ATOMIC).unwrap();
        writer.write_all(&vec![0; size]).unwrap();
        assert!(!has_room(&writer));
        drop(reader);
    }
}
