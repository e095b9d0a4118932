//! The progress of a pull in lines of text.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use codebridge_images::{Digest, Event, Progress};

use crate::sizes::bytes_text;

/// The least time between two lines, unless much arrived meanwhile: when the connection stalls, the last line has to be
/// about right.
const PACE: Duration = Duration::from_millis(250);
/// This part of the whole is much.
const PART: u64 = 50;

/// Turns the events of a pull into a few lines.
pub struct Watch<F> {
    name: String,
    say: F,
    state: Mutex<PullState>,
}

#[derive(Default)]
struct PullState {
    received: HashMap<Digest, u64>,
    total: u64,
    last_line: Option<Instant>,
    /// Bytes in the last line.
    reported: u64,
}

impl<F: Fn(String) + Send + Sync> Watch<F> {
    /// Returns a listener that passes lines about the image of this name to `say`.
    pub fn new(name: impl Into<String>, say: F) -> Self {
        Self { name: name.into(), say, state: Mutex::default() }
    }
}

impl<F: Fn(String) + Send + Sync> Progress for Watch<F> {
    fn event(&self, event: Event) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let name = &self.name;
        let line = match event {
            Event::Asking { endpoint } => format!("pulling {name} from {endpoint}"),
            Event::Waiting => format!("waiting for another process that pulls {name}"),
            Event::Layers { bytes } => {
                *state = PullState { total: bytes, ..PullState::default() };
                return;
            }
            Event::Received { layer, received, .. } => {
                state.received.insert(layer, received);
                let received: u64 = state.received.values().sum();
                let little = received.saturating_sub(state.reported) < state.total / PART;
                if little && state.last_line.is_some_and(|line| line.elapsed() < PACE) {
                    return;
                }
                state.reported = received;
                format!("pulling {name}: {} of {}", bytes_text(received), bytes_text(state.total))
            }
            Event::Retrying { why } => format!("pulling {name}: retrying after an error: {why}"),
            Event::Unpacking { layer, of } => {
                if state.received.values().sum::<u64>() < state.total {
                    return;
                }
                format!("unpacking {name}: layer {layer} of {of}")
            }
        };
        state.last_line = Some(Instant::now());
        drop(state);
        (self.say)(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pull_is_reported_in_few_lines() {
        let lines = Mutex::new(Vec::new());
        let watch = Watch::new("python:3", |line| lines.lock().unwrap().push(line));
        let layer = Digest::of(b"layer");
        watch.event(Event::Asking { endpoint: "https://quay.example".into() });
        watch.event(Event::Layers { bytes: 10 << 20 });
        for received in [1 << 20, (1 << 20) + 5, 5 << 20, 10 << 20] {
            watch.event(Event::Received { layer: layer.clone(), received, size: 10 << 20 });
        }
        watch.event(Event::Unpacking { layer: 1, of: 2 });
        let expected = [
            "pulling python:3 from https://quay.example",
            "pulling python:3: 1.0 MiB of 10.0 MiB",
            "pulling python:3: 5.0 MiB of 10.0 MiB",
            "pulling python:3: 10.0 MiB of 10.0 MiB",
            "unpacking python:3: layer 1 of 2",
        ];
        assert_eq!(*lines.lock().unwrap(), expected);
        assert_eq!([0, 1023, 1536, 3 << 30].map(bytes_text), ["0 B", "1023 B", "1.5 KiB", "3.0 GiB"]);
    }
}
