//! The encoder of a program that was built without one.

use std::path::Path;

use super::{ModelError, Vector};

/// See the module with this feature.
#[derive(Debug)]
pub struct Encoder;

/// See the module with this feature.
#[derive(Debug)]
pub struct Threads;

impl Threads {
    pub fn new() -> Self {
        Self
    }
}

impl Encoder {
    /// Returns an error.
    ///
    /// # Errors
    /// Always.
    pub fn load(_folder: &Path) -> Result<Self, ModelError> {
        Err(ModelError::NotBuilt)
    }

    /// See the module with this feature.
    ///
    /// # Errors
    /// Always.
    pub fn encode(&self, _text: &str, _threads: &Threads) -> Result<Vector, ModelError> {
        Err(ModelError::NotBuilt)
    }
}
