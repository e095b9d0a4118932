//! The output of the last runs that a result does not contain, on disk: streams that were cut, and displayed objects.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::session::OutputStream;

/// Bytes of one stream of one run, or of all that it displayed, that are kept; the rest is counted and dropped.
const KEPT_PER_STREAM: u64 = 128 << 20;
/// Runs whose output is kept.
const KEPT_RUNS: usize = 32;
/// Bytes of all output that is kept or being captured: the folder of temporary files may be in memory.
const KEPT_IN_ALL: u64 = 512 << 20;

/// One stream of a run that was cut, as far as it is kept.
#[derive(Debug, Clone)]
pub(in crate::session) struct KeptStream {
    file: Arc<KeptFile>,
    length: u64,
}

/// A file without a name, so that it is deleted with its last descriptor.
#[derive(Debug)]
struct KeptFile {
    file: File,
    /// Its share of all output that is kept.
    share: AtomicU64,
    used: Arc<AtomicU64>,
}

impl Drop for KeptFile {
    fn drop(&mut self) {
        self.used.fetch_sub(self.share.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

impl KeptStream {
    pub(in crate::session) fn start(outputs: &Mutex<Outputs>) -> Option<Self> {
        let used = Arc::clone(&lock(outputs).used);
        match tempfile::tempfile() {
            Ok(file) => {
                Some(Self { file: Arc::new(KeptFile { file, share: AtomicU64::new(0), used }), length: 0 })
            }
            Err(error) => {
                tracing::warn!(%error, "could not keep the output beyond the budget");
                None
            }
        }
    }

    /// Appends as much as there is space for.
    pub(in crate::session) fn append(&mut self, bytes: &[u8], outputs: &Mutex<Outputs>) {
        // A gap would be read as if there were none.
        let is_whole = self.file.share.load(Ordering::Relaxed) == self.length;
        let wanted = (bytes.len() as u64).min(KEPT_PER_STREAM.saturating_sub(self.length));
        if wanted == 0 || !is_whole {
            return;
        }
        let share = lock(outputs).reserve(wanted);
        self.file.share.fetch_add(share, Ordering::Relaxed);
        let bytes = &bytes[..usize::try_from(share).unwrap_or(0)];
        // The disk may be full: what was written so far stays readable.
        if self.file.file.write_all_at(bytes, self.length).is_ok() {
            self.length += share;
        }
    }

    pub(in crate::session) fn length(&self) -> u64 {
        self.length
    }

    /// Returns bytes from `start`, at most `length` and 64 MiB.
    pub(in crate::session) fn read(&self, start: u64, length: u64) -> Vec<u8> {
        let length = length.min(self.length.saturating_sub(start)).min(64 << 20);
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        match self.file.file.read_exact_at(&mut bytes, start) {
            Ok(()) => bytes,
            Err(error) => {
                tracing::warn!(%error, "could not read kept output");
                Vec::new()
            }
        }
    }
}

/// The kept outputs of the last runs.
#[derive(Debug, Default)]
pub(in crate::session) struct Outputs {
    runs: VecDeque<(u32, Kept)>,
    /// What runs that are under way have displayed so far.
    under_way: HashMap<u32, KeptDisplays>,
    /// Bytes of them, and of what is being captured.
    used: Arc<AtomicU64>,
}

/// What is kept of one run.
#[derive(Debug, Default)]
pub(in crate::session) struct Kept {
    /// The streams that were cut, in the order of [`OutputStream`].
    pub(in crate::session) streams: [Option<KeptStream>; 3],
    pub(in crate::session) displays: Option<KeptDisplays>,
}

pub(in crate::session) fn lock(outputs: &Mutex<Outputs>) -> MutexGuard<'_, Outputs> {
    outputs.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Outputs {
    pub(in crate::session) fn keep(&mut self, run: u32, kept: Kept) {
        if kept.streams.iter().all(Option::is_none) && kept.displays.is_none() {
            return;
        }
        self.runs.push_back((run, kept));
        while self.runs.len() > KEPT_RUNS {
            self.runs.pop_front();
        }
    }

    /// Takes bytes for output that is being captured, from that of the oldest runs if necessary; returns how many.
    fn reserve(&mut self, wanted: u64) -> u64 {
        let used = |this: &Self| this.used.load(Ordering::Relaxed);
        while used(self) + wanted > KEPT_IN_ALL && self.runs.pop_front().is_some() {}
        let share = wanted.min(KEPT_IN_ALL.saturating_sub(used(self)));
        self.used.fetch_add(share, Ordering::Relaxed);
        share
    }

    pub(in crate::session) fn runs(&self) -> Vec<u32> {
        self.runs.iter().map(|(run, _)| *run).collect()
    }

    pub(in crate::session) fn get(&self, run: u32, stream: OutputStream) -> Option<KeptStream> {
        self.of(run)?.streams[stream as usize].clone()
    }

    pub(in crate::session) fn displays(&self, run: u32) -> Option<KeptDisplays> {
        let kept = self.of(run).and_then(|kept| kept.displays.as_ref());
        kept.or_else(|| self.under_way.get(&run)).cloned()
    }

    /// Adds an object that a run has displayed that is under way.
    pub(super) fn show(&mut self, run: u32, file: &KeptStream, item: &Item) {
        let empty = || KeptDisplays { file: file.clone(), items: Vec::new() };
        let displays = self.under_way.entry(run).or_insert_with(empty);
        displays.file = file.clone();
        displays.items.push(item.clone());
    }

    fn of(&self, run: u32) -> Option<&Kept> {
        self.runs.iter().find_map(|(id, kept)| (*id == run).then_some(kept))
    }
}

/// What a run displays is readable while it is under way, and not longer than this lives: then it is kept, or gone.
#[derive(Debug)]
pub(in crate::session) struct UnderWay {
    outputs: Arc<Mutex<Outputs>>,
    run: u32,
}

impl UnderWay {
    pub(in crate::session) fn new(outputs: Arc<Mutex<Outputs>>, run: u32) -> Self {
        Self { outputs, run }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        lock(&self.outputs).under_way.remove(&self.run);
    }
}

/// A displayed object.
#[derive(Debug, Clone)]
pub(in crate::session) struct Item {
    /// Bytes of standard output before it.
    pub(in crate::session) after: u64,
    pub(in crate::session) forms: Vec<KeptForm>,
}

/// A form in the file.
#[derive(Debug, Clone)]
pub(in crate::session) struct KeptForm {
    pub(in crate::session) mime: String,
    pub(in crate::session) start: u64,
    pub(in crate::session) length: u64,
}

/// What a run displayed, on disk.
#[derive(Debug, Clone)]
pub(in crate::session) struct KeptDisplays {
    pub(in crate::session) file: KeptStream,
    pub(in crate::session) items: Vec<Item>,
}

impl KeptDisplays {
    /// Returns the MIME types of each object.
    pub(in crate::session) fn types(&self) -> Vec<Vec<String>> {
        let types = |item: &Item| item.forms.iter().map(|form| form.mime.clone()).collect();
        self.items.iter().map(types).collect()
    }

    /// Returns the forms of an object by its number, from 1 on.
    pub(in crate::session) fn read(&self, number: usize) -> Option<Vec<(String, Vec<u8>)>> {
        let item = self.items.get(number.checked_sub(1)?)?;
        Some(item.forms.iter().map(|form| (form.mime.clone(), self.bytes(form))).collect())
    }

    pub(in crate::session) fn bytes(&self, form: &KeptForm) -> Vec<u8> {
        self.file.read(form.start, form.length)
    }
}

#[cfg(test)]
mod tests {
    use super::super::capture::Capture;
    use super::*;

    #[test]
    fn the_oldest_outputs_are_dropped_when_there_are_too_many() {
        let outputs = Arc::<Mutex<Outputs>>::default();
        let stream = |length: u64| {
            let mut kept = KeptStream::start(&outputs).unwrap();
            kept.length = lock(&outputs).reserve(length);
            kept.file.share.store(kept.length, Ordering::Relaxed);
            Some(kept)
        };
        let keep = |run, streams| lock(&outputs).keep(run, Kept { streams, displays: None });
        (1..=3).for_each(|run| keep(run, [stream(KEPT_IN_ALL / 4), stream(KEPT_IN_ALL / 4), None]));
        assert_eq!(lock(&outputs).runs(), [2, 3]);
        (4..=100).for_each(|run| keep(run, [stream(1), None, None]));
        let outputs = lock(&outputs);
        assert_eq!(
            (outputs.runs().len(), outputs.used.load(Ordering::Relaxed)),
            (KEPT_RUNS, KEPT_RUNS as u64)
        );
        assert!(outputs.get(100, OutputStream::Stdout).is_some());
        assert!(outputs.get(100, OutputStream::Stderr).is_none());
    }

    #[test]
    fn output_that_is_being_captured_counts_like_that_which_is_kept() {
        let outputs = Arc::<Mutex<Outputs>>::default();
        let used = || lock(&outputs).used.load(Ordering::Relaxed);
        lock(&outputs).used.store(KEPT_IN_ALL - 1000, Ordering::Relaxed);
        let mut captures = [(); 3].map(|()| Capture::new(100, Arc::clone(&outputs)));
        for _ in 0..6 {
            captures.iter_mut().for_each(|capture| capture.push(&[b'x'; 100]));
        }
        assert_eq!(used(), KEPT_IN_ALL);
        let [first, second, third] = captures;
        let (shown, kept) = first.finish(|| "ask".into());
        let kept = kept.unwrap();
        assert!(shown.text.starts_with("[output cut: 600 bytes in total, "), "{}", shown.text);
        assert!(shown.text.contains("the first 400 are kept: ask"), "{}", shown.text);
        assert_eq!(kept.read(0, 1000), [b'x'; 400]);
        drop((kept, second, third));
        assert_eq!(used(), KEPT_IN_ALL - 1000);
    }
}
