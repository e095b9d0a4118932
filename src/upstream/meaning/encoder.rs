//! A sentence encoder: ONNX weights with their tokenizer, run on the processor by `rten`.

use std::fmt;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use rten::{ModelOptions, NodeId, RunOptions, ThreadPool, ValueOrView};
use rten_tensor::prelude::*;
use rten_tensor::{NdTensor, Tensor};
use rten_text::Tokenizer;
use rten_text::tokenizer::EncodeOptions;

use super::operators::operators;
use super::{MODEL, ModelError, TOKENIZER, Vector};
use crate::upstream::tool_doc::floor_char_boundary;

/// Tokens of a text that are read.
const MOST_TOKENS: usize = 128;
/// Bytes of a text that are split into tokens.
const MOST_BYTES: usize = 4 << 10;
/// Bytes of the files of a model.
const LARGEST_MODEL: u64 = 1 << 30;
const LARGEST_TOKENIZER: u64 = 64 << 20;

/// A model in memory.
pub struct Model {
    path: PathBuf,
    weights: rten::Model,
    /// The tokenizer as JSON: once parsed, it stays on its thread.
    tokenizer: String,
    ids: NodeId,
    mask: Option<NodeId>,
    kinds: Option<NodeId>,
    output: NodeId,
}

/// A thread that reads texts, one after the other.
#[derive(Debug)]
pub struct Encoder {
    requests: Mutex<Sender<Request>>,
}

type Answer = Result<Vector, ModelError>;

struct Request {
    text: String,
    answer: Sender<Answer>,
}

/// How soon a text is read while the machine is busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    Usual,
    /// After everything else, where the system has a priority for one thread.
    Low,
}

impl Model {
    /// Loads the model of a folder.
    ///
    /// # Errors
    /// A file cannot be read, or is not of a sentence encoder.
    pub fn load(folder: &Path) -> Result<Arc<Self>, ModelError> {
        let invalid = |path: &Path, why: String| ModelError::Invalid { path: path.into(), why };
        let path = folder.join(TOKENIZER);
        let tokenizer = String::from_utf8(read(&path, LARGEST_TOKENIZER)?)
            .map_err(|error| invalid(&path, error.to_string()))?;
        let parsed = parse_tokenizer(&tokenizer).map_err(|why| invalid(&path, why))?;
        let path = folder.join(MODEL);
        let bytes = read(&path, LARGEST_MODEL)?;
        let load = || ModelOptions::with_ops(operators()).load(bytes).map_err(|error| error.to_string());
        let weights = guarded(load).map_err(|why| invalid(&path, why))?;
        let node = |name: &str| weights.find_node(name).filter(|node| weights.input_ids().contains(node));
        let ids = node("input_ids").ok_or_else(|| invalid(&path, "it has no input `input_ids`".into()))?;
        let (mask, kinds) = (node("attention_mask"), node("token_type_ids"));
        let output =
            *weights.output_ids().first().ok_or_else(|| invalid(&path, "it has no output".into()))?;
        let model = Self { path, weights, tokenizer, ids, mask, kinds, output };
        // One that fails does so at every text.
        let tried = guarded(|| model.encode("test", &parsed, &one_thread()));
        tried.map_err(|why| invalid(&model.path, why))?;
        Ok(Arc::new(model))
    }

    fn encode(&self, text: &str, tokenizer: &Tokenizer, threads: &Arc<ThreadPool>) -> Result<Vector, String> {
        let text = &text[..floor_char_boundary(text, MOST_BYTES)];
        let options = EncodeOptions { max_chunk_len: Some(MOST_TOKENS), overlap: 0 };
        let encoded = tokenizer.encode(text, Some(options)).map_err(|error| error.to_string())?;
        let ids: Vec<i32> = encoded.token_ids().iter().map(|id| id.cast_signed()).collect();
        let count = ids.len();
        let row = |values: Vec<i32>| NdTensor::from_data([1, count], values);
        let (ids, mask, kinds) = (row(ids), row(vec![1; count]), row(vec![0; count]));
        let mut inputs: Vec<(NodeId, ValueOrView<'_>)> = vec![(self.ids, ids.view().into())];
        inputs.extend(self.mask.map(|node| (node, mask.view().into())));
        inputs.extend(self.kinds.map(|node| (node, kinds.view().into())));
        let mut options = RunOptions::default();
        options.thread_pool = Some(Arc::clone(threads));
        let outputs =
            self.weights.run(inputs, &[self.output], Some(options)).map_err(|error| error.to_string())?;
        let output = outputs.into_iter().next().and_then(|value| value.into_tensor::<f32>());
        pooled(&output.ok_or("its output is not a tensor of numbers")?)
    }
}

impl Encoder {
    /// Starts a thread for a model. It ends with this.
    pub fn start(model: &Arc<Model>, priority: Priority) -> Self {
        let model = Arc::clone(model);
        Self::on_thread(move || {
            if priority == Priority::Low {
                lower_priority();
            }
            let threads = one_thread();
            let tokenizer = parse_tokenizer(&model.tokenizer).ok()?;
            Some(move |text: &str| {
                guarded(|| model.encode(text, &tokenizer, &threads)).map_err(ModelError::Failed)
            })
        })
    }

    /// Starts a thread that reads texts with what `prepare` makes there.
    pub(in crate::upstream) fn on_thread<R: FnMut(&str) -> Answer>(
        prepare: impl FnOnce() -> Option<R> + Send + 'static,
    ) -> Self {
        let (requests, received) = mpsc::channel::<Request>();
        let work = move || {
            let Some(mut read) = prepare() else { return };
            for Request { text, answer } in received {
                // Nobody may wait for it any more.
                let _ = answer.send(read(&text));
            }
        };
        // Without a thread, nobody receives what is asked.
        let _ = thread::Builder::new().name("search-model".into()).spawn(work);
        Self { requests: Mutex::new(requests) }
    }

    /// Returns the direction of a text's meaning, of its first 128 tokens. Blocks until the thread has read it.
    ///
    /// # Errors
    /// The model does not work with it, or the thread has ended.
    pub fn encode(&self, text: &str) -> Answer {
        let (answer, answered) = mpsc::channel();
        let request = Request { text: text.to_owned(), answer };
        let sent = self.requests.lock().unwrap_or_else(PoisonError::into_inner).send(request);
        sent.map_err(|_| ModelError::Ended)?;
        answered.recv().map_err(|_| ModelError::Ended)?
    }
}

fn one_thread() -> Arc<ThreadPool> {
    Arc::new(ThreadPool::with_num_threads(1))
}

fn parse_tokenizer(json: &str) -> Result<Tokenizer, String> {
    guarded(|| Tokenizer::from_json(json).map_err(|error| error.to_string()))
}

/// Lets everything else go first.
fn lower_priority() {
    // Elsewhere the system has no priority for one thread, and this would be that of the bridge.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::setpriority_process(None, 19);
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Model").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Returns the mean of the vectors of all tokens; a model that has done this itself has one.
fn pooled(output: &Tensor<f32>) -> Result<Vector, String> {
    let size = match output.shape() {
        [1, size] | [1, _, size] if *size > 0 => *size,
        shape => return Err(format!("its output has the shape {shape:?}")),
    };
    let mut sum = vec![0.0; size];
    for (at, value) in output.iter().enumerate() {
        sum[at % size] += value;
    }
    Vector::new(&sum).ok_or_else(|| "its output is empty".into())
}

fn read(path: &Path, largest: u64) -> Result<Vec<u8>, ModelError> {
    let unreadable = |why: String| ModelError::Unreadable { path: path.into(), why };
    let size = fs::metadata(path).map_err(|error| unreadable(error.to_string()))?.len();
    if size > largest {
        return Err(unreadable(format!("it is larger than {} MiB", largest >> 20)));
    }
    fs::read(path).map_err(|error| unreadable(error.to_string()))
}

/// Runs code of a library that may panic on unusual files.
fn guarded<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err("it is damaged or of an unknown form".into()))
}
