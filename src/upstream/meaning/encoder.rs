//! A sentence encoder: ONNX weights with their tokenizer, run on the processor by `rten`.

use std::fmt;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rten::{Model, ModelOptions, NodeId, RunOptions, ThreadPool, ValueOrView};
use rten_tensor::prelude::*;
use rten_tensor::{NdTensor, Tensor};
use rten_text::Tokenizer;
use rten_text::tokenizer::EncodeOptions;

use super::{MODEL, ModelError, TOKENIZER, Vector};

/// Tokens of a text that are read.
const MOST_TOKENS: usize = 128;
/// Bytes of a text that are split into tokens.
const MOST_BYTES: usize = 4 << 10;
/// Bytes of the files of a model.
const LARGEST_MODEL: u64 = 1 << 30;
const LARGEST_TOKENIZER: u64 = 64 << 20;

/// A model in memory.
pub struct Encoder {
    path: PathBuf,
    model: Model,
    tokenizer: Tokenizer,
    ids: NodeId,
    mask: Option<NodeId>,
    kinds: Option<NodeId>,
    output: NodeId,
}

/// The threads that a model runs on.
#[derive(Clone)]
pub struct Threads(Arc<ThreadPool>);

impl Threads {
    /// Starts one thread. It has the priority of the thread that calls this.
    pub fn new() -> Self {
        Self(Arc::new(ThreadPool::with_num_threads(1)))
    }
}

impl Encoder {
    /// Loads the model of a folder.
    ///
    /// # Errors
    /// A file cannot be read, or is not of a sentence encoder.
    pub fn load(folder: &Path) -> Result<Self, ModelError> {
        let tokenizer = folder.join(TOKENIZER);
        let invalid = |path: &Path, why: String| ModelError::Invalid { path: path.into(), why };
        let json = read(&tokenizer, LARGEST_TOKENIZER)?;
        let json = String::from_utf8(json).map_err(|error| invalid(&tokenizer, error.to_string()))?;
        let tokenizer = guarded(|| Tokenizer::from_json(&json).map_err(|error| error.to_string()))
            .map_err(|why| invalid(&tokenizer, why))?;
        let path = folder.join(MODEL);
        let bytes = read(&path, LARGEST_MODEL)?;
        let model =
            guarded(|| ModelOptions::with_all_ops().load(bytes).map_err(|error| error.to_string()))
                .map_err(|why| invalid(&path, why))?;
        let node = |name: &str| model.find_node(name).filter(|node| model.input_ids().contains(node));
        let ids = node("input_ids").ok_or_else(|| invalid(&path, "it has no input `input_ids`".into()))?;
        let (mask, kinds) = (node("attention_mask"), node("token_type_ids"));
        let output = *model.output_ids().first().ok_or_else(|| invalid(&path, "it has no output".into()))?;
        let encoder = Self { path, model, tokenizer, ids, mask, kinds, output };
        // One that fails does so at every text.
        encoder.encode("test", &Threads::new()).map_err(|error| invalid(&encoder.path, error.to_string()))?;
        Ok(encoder)
    }

    /// Returns the direction of a text's meaning, of its first 128 tokens.
    ///
    /// # Errors
    /// The model does not work with it.
    pub fn encode(&self, text: &str, threads: &Threads) -> Result<Vector, ModelError> {
        let text = &text[..text.floor_char_boundary(MOST_BYTES)];
        guarded(|| self.run(text, threads)).map_err(ModelError::Failed)
    }

    fn run(&self, text: &str, threads: &Threads) -> Result<Vector, String> {
        let options = EncodeOptions { max_chunk_len: Some(MOST_TOKENS), overlap: 0 };
        let encoded = self.tokenizer.encode(text, Some(options)).map_err(|error| error.to_string())?;
        let ids: Vec<i32> = encoded.token_ids().iter().map(|id| id.cast_signed()).collect();
        let count = ids.len();
        let row = |values: Vec<i32>| NdTensor::from_data([1, count], values);
        let (ids, mask, kinds) = (row(ids), row(vec![1; count]), row(vec![0; count]));
        let mut inputs: Vec<(NodeId, ValueOrView<'_>)> = vec![(self.ids, ids.view().into())];
        inputs.extend(self.mask.map(|node| (node, mask.view().into())));
        inputs.extend(self.kinds.map(|node| (node, kinds.view().into())));
        let options = RunOptions { thread_pool: Some(Arc::clone(&threads.0)), ..RunOptions::default() };
        let outputs = self.model.run(inputs, &[self.output], Some(options)).map_err(|error| error.to_string())?;
        let output = outputs.into_iter().next().and_then(|value| value.into_tensor::<f32>());
        pooled(&output.ok_or("its output is not a tensor of numbers")?)
    }
}

impl fmt::Debug for Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encoder").field("path", &self.path).finish_non_exhaustive()
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
