//! What is said of an image on its way, in a line.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use codebridge_images::{Digest, Event, Progress};

/// Lines that come faster than this say nothing more, unless much has come meanwhile: when the connection stalls, the
/// last line has to be about right.
const PACE: Duration = Duration::from_millis(250);
/// So much of the whole is much.
const PART: u64 = 50;

/// Turns steps towards an image into lines, not too many of them.
pub struct Watch<F> {
    name: String,
    say: F,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    received: HashMap<Digest, u64>,
    total: u64,
    said: Option<Instant>,
    /// Bytes that the last line spoke of.
    told: u64,
}

impl<F: Fn(String) + Send + Sync> Watch<F> {
    /// Says what becomes of the image of this name.
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
            Event::Waiting => format!("waiting for another one that fetches {name}"),
            Event::Layers { bytes, .. } => {
                *state = State { total: bytes, ..State::default() };
                return;
            }
            Event::Received { layer, received, .. } => {
                state.received.insert(layer, received);
                let received: u64 = state.received.values().sum();
                let little = received.saturating_sub(state.told) < state.total / PART;
                if little && state.said.is_some_and(|said| said.elapsed() < PACE) {
                    return;
                }
                state.told = received;
                format!("pulling {name}: {} of {}", bytes_text(received), bytes_text(state.total))
            }
            Event::Retrying { why, .. } => format!("pulling {name}: once more, because: {why}"),
            Event::Unpacking { layer, of } => {
                if state.received.values().sum::<u64>() < state.total {
                    return;
                }
                format!("unpacking {name}: layer {layer} of {of}")
            }
        };
        state.said = Some(Instant::now());
        drop(state);
        (self.say)(line);
    }
}

/// A number of bytes as people read it.
pub fn bytes_text(bytes: u64) -> String {
    let units = [(1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "kB")];
    match units.into_iter().find(|(size, _)| bytes >= *size) {
        Some((size, unit)) => {
            let tenths = bytes.saturating_mul(10) / size;
            format!("{}.{} {unit}", tenths / 10, tenths % 10)
        }
        None => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pull_is_told_in_few_lines() {
        let lines = Mutex::new(Vec::new());
        let watch = Watch::new("python:3", |line| lines.lock().unwrap().push(line));
        let layer = Digest::of(b"layer");
        watch.event(Event::Asking { endpoint: "https://quay.example".into() });
        watch.event(Event::Layers { count: 1, bytes: 10 << 20 });
        for received in [1 << 20, (1 << 20) + 5, 5 << 20, 10 << 20] {
            watch.event(Event::Received { layer: layer.clone(), received, size: 10 << 20 });
        }
        watch.event(Event::Unpacking { layer: 1, of: 2 });
        let expected = [
            "pulling python:3 from https://quay.example",
            "pulling python:3: 1.0 MB of 10.0 MB",
            "pulling python:3: 5.0 MB of 10.0 MB",
            "pulling python:3: 10.0 MB of 10.0 MB",
            "unpacking python:3: layer 1 of 2",
        ];
        assert_eq!(*lines.lock().unwrap(), expected);
        assert_eq!([0, 1023, 1536, 3 << 30].map(bytes_text), ["0 B", "1023 B", "1.5 kB", "3.0 GB"]);
    }
}
