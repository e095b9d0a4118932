//! Checks that nothing of a log was changed, removed or cut off.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::blobs;
use super::chain::{HeadText, read_head};
use super::event::Pruned;
use super::folder::{Part, bridge_of_head, head_of, names, parts};
use super::line::{NO_LINE, digest};
use super::reader::Lines;
use super::record::Record;

/// Problems of one bridge that are named.
const MOST_PROBLEMS: usize = 20;

/// The end of a chain: who keeps it elsewhere finds out if the whole log is rewritten.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    pub bridge: String,
    /// The number and the hash of the last line.
    pub n: u64,
    pub hash: String,
}

/// Something that is not as it was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// FILE or FILE:LINE.
    pub place: String,
    pub what: String,
}

/// The result of a check.
#[derive(Debug, Default, Serialize)]
pub struct Verified {
    pub bridges: usize,
    pub files: usize,
    pub lines: u64,
    /// Bytes of the files of lines.
    pub bytes: u64,
    pub problems: Vec<Problem>,
    /// What is no sign of a change.
    pub notes: Vec<String>,
    pub heads: Vec<Head>,
}

/// Checks all chains of a folder. `expected` are heads that were kept elsewhere.
///
/// # Errors
/// The folder cannot be read.
pub fn verify(folder: &Path, expected: &[Head]) -> io::Result<Verified> {
    // Heads first: a bridge may write meanwhile.
    let heads = read_heads(folder)?;
    let names = names(folder)?;
    let mut bridges: BTreeMap<String, Vec<Part>> =
        heads.keys().map(|bridge| (bridge.clone(), Vec::new())).collect();
    for part in parts(&names) {
        bridges.entry(part.bridge.clone()).or_default().push(part);
    }
    let mut verified = Verified { bridges: bridges.len(), ..Verified::default() };
    let mut pruned = HashSet::new();
    let mut starts = Vec::new();
    for (bridge, parts) in &bridges {
        let mut check =
            Check::new(folder, heads.get(bridge), expected.iter().find(|head| head.bridge == *bridge));
        for part in parts {
            check.part(part, &mut verified, &mut pruned);
        }
        check.end(bridge, &mut verified);
        starts.extend(check.starts);
    }
    for Start { part, before, prev } in starts {
        let gone = Part { bridge: part.bridge.clone(), number: part.number - 1 }.file();
        if !pruned.contains(&(gone.clone(), prev.clone())) {
            let what = match before {
                Some(_) => "the lines before it are missing".to_owned(),
                None => format!("the file before it, {gone}, is missing"),
            };
            verified.problems.push(Problem { place: format!("{}:1", part.file()), what });
        }
    }
    let gone = expected.iter().filter(|head| !bridges.contains_key(&head.bridge));
    for head in gone {
        if !pruned.iter().any(|(file, _)| Part::parse(file).is_some_and(|part| part.bridge == head.bridge)) {
            let what = "all of its files are missing".to_owned();
            verified.problems.push(Problem { place: head.bridge.clone(), what });
        }
    }
    Ok(verified)
}

fn read_heads(folder: &Path) -> io::Result<BTreeMap<String, io::Result<HeadText>>> {
    let names = names(folder)?;
    let bridges = names.iter().filter_map(|name| bridge_of_head(name));
    Ok(bridges.map(|bridge| (bridge.to_owned(), read_head(&folder.join(head_of(bridge))))).collect())
}

/// A file whose first line refers to one that is not there.
struct Start {
    part: Part,
    before: Option<u64>,
    prev: String,
}

/// The check of one chain.
struct Check<'a> {
    folder: &'a Path,
    head: Option<&'a io::Result<HeadText>>,
    expected: Option<&'a Head>,
    /// The last line so far: its place, its number and its hash.
    last: Option<(String, u64, String)>,
    last_part: Option<Part>,
    /// Whether the last line is known to be changed.
    is_flagged: bool,
    has_head: bool,
    has_expected: bool,
    torn: Option<String>,
    problems: Vec<Problem>,
    more: usize,
    starts: Vec<Start>,
}

impl<'a> Check<'a> {
    fn new(folder: &'a Path, head: Option<&'a io::Result<HeadText>>, expected: Option<&'a Head>) -> Self {
        Self {
            folder,
            head,
            expected,
            last: None,
            last_part: None,
            is_flagged: false,
            has_head: false,
            has_expected: false,
            torn: None,
            problems: Vec::new(),
            more: 0,
            starts: Vec::new(),
        }
    }

    fn problem(&mut self, place: impl Into<String>, what: impl Into<String>) {
        match self.problems.len() < MOST_PROBLEMS {
            true => self.problems.push(Problem { place: place.into(), what: what.into() }),
            false => self.more += 1,
        }
    }

    fn part(&mut self, part: &Part, verified: &mut Verified, pruned: &mut HashSet<(String, String)>) {
        verified.files += 1;
        let file = part.file();
        let lines = match Lines::read(&self.folder.join(&file), 0) {
            Ok(lines) => lines,
            Err(error) => return self.problem(file, format!("it cannot be read: {error}")),
        };
        verified.bytes += lines.bytes.len() as u64;
        for (number, line) in lines.iter().enumerate() {
            verified.lines += 1;
            let place = format!("{file}:{}", number + 1);
            let record = str::from_utf8(line).ok().and_then(|line| serde_json::from_str::<Record>(line).ok());
            let Some(record) = record else {
                self.problem(place.clone(), "it was changed: it is no line of the log");
                // The next line says which number this one had.
                let n = self.last.as_ref().map_or(1, |(_, n, _)| n.saturating_add(1));
                self.last = Some((place, n, digest(line)));
                self.is_flagged = true;
                continue;
            };
            self.line(part, number, &place, line, &record);
            if record.event == "pruned" {
                pruned.extend(
                    record.files.iter().map(|Pruned { file, hash, .. }| (file.clone(), hash.clone())),
                );
            }
        }
        self.torn = lines.is_torn().then(|| file.clone());
        self.last_part = Some(part.clone());
    }

    fn line(&mut self, part: &Part, number: usize, place: &str, line: &[u8], record: &Record) {
        if record.event == "open" {
            let (bridge, named) = (record.bridge.as_deref(), record.part);
            if bridge != Some(&part.bridge) || named != Some(part.number) {
                self.problem(place, "it does not belong to this file");
            }
        }
        match &self.last {
            Some((_, n, hash)) if Some(record.n) == n.checked_add(1) && record.prev == *hash => {}
            Some((before, n, _)) if Some(record.n) == n.checked_add(1) => {
                let what = format!("it was changed: the next line, {place}, refers to another text");
                let before = before.clone();
                if !self.is_flagged {
                    self.problem(before, what);
                }
            }
            Some((_, n, _)) if record.n > n.saturating_add(1) => {
                if self
                    .last_part
                    .as_ref()
                    .is_some_and(|last| number == 0 && last.number.saturating_add(1) < part.number)
                {
                    let before = Some(*n);
                    self.starts.push(Start { part: part.clone(), before, prev: record.prev.clone() });
                } else {
                    let what = match record.n - n - 1 {
                        1 => format!("the line before it is missing: number {}", n + 1),
                        _ => {
                            format!("lines before it are missing: the numbers {} to {}", n + 1, record.n - 1)
                        }
                    };
                    self.problem(place, what);
                }
            }
            Some(_) => {
                self.problem(place, format!("it does not belong here: it has the number {}", record.n))
            }
            None if part.number > 1 => {
                self.starts.push(Start { part: part.clone(), before: None, prev: record.prev.clone() });
            }
            None if record.n == 1 && record.prev == NO_LINE => {}
            None => self
                .problem(place, format!("the lines before it are missing: it has the number {}", record.n)),
        }
        self.is_flagged = false;
        let hash = digest(line);
        if let Some(Ok(head)) = self.head
            && head.n == record.n
        {
            self.has_head = true;
            if head.hash != hash {
                self.problem(place, "it was changed: the head of the log refers to another text");
                self.is_flagged = true;
            }
        }
        if let Some(head) = self.expected
            && head.n == record.n
        {
            self.has_expected = true;
            if head.hash != hash {
                self.problem(place, "the log was rewritten: the head that was kept refers to another text");
            }
        }
        for (field, blob) in &record.blobs {
            if let Err(why) = blobs::read(&self.folder.join(part.blobs()), &blob.sha256, blob.bytes) {
                self.problem(place, format!("its {field} is in {}/{}: {why}", part.blobs(), blob.sha256));
            }
        }
        self.last = Some((place.to_owned(), record.n, hash));
    }

    fn end(&mut self, bridge: &str, verified: &mut Verified) {
        let last = self.last.take();
        let (n, hash) = last.as_ref().map_or((0, NO_LINE.to_owned()), |(_, n, hash)| (*n, hash.clone()));
        let place = match (&self.last_part, &last) {
            (_, Some((place, ..))) => place.clone(),
            (Some(part), None) => part.file(),
            (None, None) => head_of(bridge),
        };
        match self.head {
            Some(Ok(head)) if head.n > n => {
                let missing = head.n - n;
                let what = match self.last_part {
                    Some(_) if missing == 1 => "the log is cut off after it: 1 more line was written".into(),
                    Some(_) => format!("the log is cut off after it: {missing} more lines were written"),
                    None => format!("the files of this bridge are missing: {missing} lines were written"),
                };
                self.problem(place, what);
                self.torn = None;
            }
            Some(Ok(head))
                if head.n > 0 && !self.has_head && self.starts.is_empty() && self.problems.is_empty() =>
            {
                self.problem(place, format!("the line with the number {} is missing", head.n));
            }
            Some(Ok(_)) => {}
            Some(Err(error)) => self.problem(head_of(bridge), format!("it cannot be read: {error}")),
            None => self.problem(head_of(bridge), "it is missing: nobody knows how many lines there were"),
        }
        if let Some(head) = self.expected
            && head.n > n
        {
            self.problem(bridge, format!("the log is cut off: the head that was kept has {} lines", head.n));
        } else if self.expected.is_some_and(|head| head.n > 0) && !self.has_expected && self.starts.is_empty()
        {
            self.problem(bridge, "the line of the head that was kept is missing");
        }
        if let Some(file) = self.torn.take() {
            verified.notes.push(format!(
                "{file} ends within a line: its bridge is writing it, or was ended while it wrote it"
            ));
        }
        verified.problems.append(&mut self.problems);
        if self.more > 0 {
            let what = format!("{} more problems", self.more);
            verified.problems.push(Problem { place: bridge.to_owned(), what });
        }
        if n > 0 {
            verified.heads.push(Head { bridge: bridge.to_owned(), n, hash });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is found in a log whose lines have these numbers, each with the hash of the one before it.
    fn found(numbers: &[u64]) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let part = Part { bridge: "aaaaaaaa".into(), number: 1 };
        let (mut text, mut prev) = (String::new(), NO_LINE.to_owned());
        for n in numbers {
            let line =
                format!(r#"{{"n":{n},"time":"2026-11-20T10:00:00Z","event":"close","prev":"{prev}"}}"#);
            prev = digest(line.as_bytes());
            text.push_str(&line);
            text.push('\n');
        }
        std::fs::write(folder.path().join(part.file()), text).unwrap();
        let n = numbers.last().unwrap();
        let head = format!(r#"{{"bridge":"aaaaaaaa","part":1,"n":{n},"hash":"{prev}"}}"#);
        std::fs::write(folder.path().join(head_of("aaaaaaaa")), head).unwrap();
        let verified = verify(folder.path(), &[]).unwrap();
        verified.problems.into_iter().map(|problem| problem.what).collect()
    }

    #[test]
    fn no_line_follows_the_one_with_the_largest_number() {
        const MAX: u64 = u64::MAX;
        assert_eq!(found(&[1, 2]), [""; 0]);
        let many = format!("lines before it are missing: the numbers 2 to {}", MAX - 1);
        assert_eq!(found(&[1, MAX]), std::slice::from_ref(&many));
        for after in [MAX, 0, 1] {
            let out_of_place = format!("it does not belong here: it has the number {after}");
            let all = found(&[1, MAX, after]);
            assert!(all.contains(&many) && all.contains(&out_of_place), "{all:?}");
        }
    }
}
