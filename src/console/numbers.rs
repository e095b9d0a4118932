//! Runs of the last days as numbers and small charts.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use jiff::{SignedDuration, Timestamp};

use super::frame::Frame;
use super::history::{LoggedRun, Wanted};
use super::page::{page, problem};
use super::text::milliseconds;
use super::visitor::{Console, Visitor};

/// The size of a chart.
const WIDTH: f64 = 600.0;
const HEIGHT: f64 = 120.0;

#[derive(Debug, Template)]
#[template(path = "numbers.html")]
struct Numbers {
    frame: Frame,
    tiles: Vec<Tile>,
    charts: Vec<Chart>,
}

/// One number.
#[derive(Debug)]
struct Tile {
    name: &'static str,
    value: String,
}

/// Bars, one for each span of time, the last one until now.
#[derive(Debug)]
struct Chart {
    title: &'static str,
    /// What it says, for those who do not see it.
    summary: String,
    first: String,
    highest: String,
    bars: Vec<Bar>,
}

/// A bar of two parts, from below.
#[derive(Debug)]
struct Bar {
    left: String,
    width: String,
    lower: (String, String),
    upper: (String, String),
    text: String,
}

/// What happened in a span of time.
#[derive(Debug, Default, Clone)]
struct Span {
    good: usize,
    bad: usize,
    times: Vec<f64>,
}

impl Span {
    fn add(&mut self, run: &LoggedRun) {
        let Some(end) = &run.end else { return };
        let count = if end.outcome == "ok" { &mut self.good } else { &mut self.bad };
        *count += 1;
        self.times.push(end.milliseconds);
    }

    /// Returns the time that such a part of the runs took at most; 0 without runs.
    fn time(&self, part: f64) -> f64 {
        let mut times = self.times.clone();
        times.sort_by(f64::total_cmp);
        let at = ((times.len() as f64 * part).ceil() as usize).clamp(1, times.len().max(1)) - 1;
        times.get(at).copied().unwrap_or_default()
    }
}

/// Returns what happened in spans of so many seconds, the last one until now.
fn spans(runs: &[LoggedRun], now: Timestamp, seconds: i64, count: usize) -> Vec<Span> {
    let mut spans = vec![Span::default(); count];
    for run in runs {
        let Some(began) = run.began else { continue };
        let before =
            usize::try_from(now.duration_since(began).as_secs().max(0) / seconds).unwrap_or(usize::MAX);
        if let Some(span) = count.checked_sub(before + 1).and_then(|at| spans.get_mut(at)) {
            span.add(run);
        }
    }
    spans
}

/// Returns bars for pairs of a lower and an upper part.
fn bars(parts: &[(f64, f64, String)]) -> Vec<Bar> {
    let most = parts.iter().map(|(lower, upper, _)| lower + upper).fold(0.0, f64::max);
    let step = WIDTH / parts.len().max(1) as f64;
    let scale = if most > 0.0 { (HEIGHT - 4.0) / most } else { 0.0 };
    let part = |below: f64, value: f64| {
        let height = value * scale;
        (format!("{:.1}", HEIGHT - below * scale - height), format!("{height:.1}"))
    };
    let bar = |(at, (lower, upper, text)): (usize, &(f64, f64, String))| Bar {
        left: format!("{:.1}", at as f64 * step + 1.0),
        width: format!("{:.1}", step - 2.0),
        lower: part(0.0, *lower),
        upper: part(*lower, *upper),
        text: text.clone(),
    };
    parts.iter().enumerate().map(bar).collect()
}

fn runs_chart(title: &'static str, spans: &[Span], unit: &str, first: String) -> Chart {
    let ago = |at: usize| match spans.len() - 1 - at {
        0 => format!("the last {unit}"),
        ago => format!("{ago} {unit}s before"),
    };
    let parts: Vec<_> = spans
        .iter()
        .enumerate()
        .map(|(at, span)| {
            (
                span.good as f64,
                span.bad as f64,
                format!("{}: {} runs, {} failed", ago(at), span.good + span.bad, span.bad),
            )
        })
        .collect();
    let (good, bad) = spans.iter().fold((0, 0), |(good, bad), span| (good + span.good, bad + span.bad));
    let highest = spans.iter().map(|span| span.good + span.bad).max().unwrap_or_default();
    Chart {
        title,
        summary: format!("{} runs, {bad} of which failed; at most {highest} in one {unit}", good + bad),
        first,
        highest: highest.to_string(),
        bars: bars(&parts),
    }
}

fn times_chart(spans: &[Span], first: String) -> Chart {
    let parts: Vec<_> = spans
        .iter()
        .map(|span| {
            let (half, most) = (span.time(0.5), span.time(0.95));
            (
                half,
                most - half,
                format!("median {}, 95th percentile {}", milliseconds(half), milliseconds(most)),
            )
        })
        .collect();
    let highest = spans.iter().map(|span| span.time(0.95)).fold(0.0, f64::max);
    Chart {
        title: "Time of a run by the hour: median and 95th percentile",
        summary: format!("the 95th percentile of the slowest hour is {}", milliseconds(highest)),
        first,
        highest: milliseconds(highest),
        bars: bars(&parts),
    }
}

pub(super) async fn numbers(State(console): State<Arc<Console>>, visitor: Visitor) -> Response {
    let folder = visitor.workspace().audit.folder().map(ToOwned::to_owned);
    let runs = match &folder {
        Some(folder) => console.histories.runs(folder, Wanted::default()).await,
        None => Ok(Vec::new()),
    };
    let Ok(runs) = runs else {
        return problem(
            StatusCode::INTERNAL_SERVER_ERROR,
            "The audit log cannot be read",
            "The log of the bridge says why.",
        );
    };
    let now = Timestamp::now();
    let day = SignedDuration::from_hours(24);
    let mut today = Span::default();
    let of_today: Vec<&LoggedRun> =
        runs.iter().filter(|run| run.began.is_some_and(|began| now.duration_since(began) < day)).collect();
    of_today.iter().for_each(|run| today.add(run));
    let calls: u64 = of_today.iter().filter_map(|run| run.end.as_ref()).map(|end| end.calls).sum();
    let refused: u64 = of_today.iter().filter_map(|run| run.end.as_ref()).map(|end| end.refused).sum();
    let tile = |name, value: String| Tile { name, value };
    let hours = spans(&runs, now, 3600, 24);
    page(&Numbers {
        frame: Frame::new(&console, &visitor, "numbers", "Numbers").await,
        tiles: vec![
            tile("runs", (today.good + today.bad).to_string()),
            tile("failed", today.bad.to_string()),
            tile("median time", milliseconds(today.time(0.5))),
            tile("95th percentile", milliseconds(today.time(0.95))),
            tile("calls", calls.to_string()),
            tile("refused calls", refused.to_string()),
        ],
        charts: vec![
            runs_chart("Runs by the hour", &hours, "hour", "24 hours ago".into()),
            times_chart(&hours, "24 hours ago".into()),
            runs_chart("Runs by the day", &spans(&runs, now, 86_400, 14), "day", "14 days ago".into()),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::console::history::LoggedEnd;

    #[test]
    fn runs_are_counted_in_their_span() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let run = |ago: i64, outcome: &str, milliseconds: f64| LoggedRun {
            began: Timestamp::from_second(1_000_000 - ago).ok(),
            end: Some(LoggedEnd { outcome: outcome.into(), milliseconds, ..LoggedEnd::default() }),
            ..LoggedRun::default()
        };
        let runs = [
            run(-5, "ok", 1.0),
            run(10, "error", 3.0),
            run(61, "ok", 5.0),
            run(180, "ok", 9.0),
            LoggedRun::default(),
        ];
        let spans = spans(&runs, now, 60, 3);
        assert_eq!(
            spans.iter().map(|span| (span.good, span.bad)).collect::<Vec<_>>(),
            [(0, 0), (1, 0), (1, 1)]
        );
        assert_eq!((spans[2].time(0.5), spans[2].time(0.95), spans[0].time(0.5)), (1.0, 3.0, 0.0));
    }

    #[test]
    fn bars_fill_the_chart() {
        let bars = bars(&[(1.0, 1.0, String::new()), (0.0, 0.0, String::new())]);
        assert_eq!((&*bars[0].lower.0, &*bars[0].lower.1), ("62.0", "58.0"));
        assert_eq!((&*bars[0].upper.0, &*bars[0].upper.1), ("4.0", "58.0"));
        assert_eq!((&*bars[1].left, &*bars[1].lower.1), ("301.0", "0.0"));
    }
}
