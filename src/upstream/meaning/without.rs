//! The encoder of a program that was built without one.

use std::path::Path;
use std::sync::Arc;

use super::{ModelError, Vector};

/// See the module with this feature.
#[derive(Debug)]
pub struct Model;

/// See the module with this feature.
#[derive(Debug)]
pub struct Encoder;

/// See the module with this feature.
#[derive(Debug, Clone, Copy)]
pub enum Priority {
    Usual,
    Low,
}

impl Model {
    /// Returns an error.
    ///
    /// # Errors
    /// Always.
    pub fn load(_folder: &Path) -> Result<Arc<Self>, ModelError> {
        Err(ModelError::NotBuilt)
    }
}

impl Encoder {
    pub fn start(_model: &Arc<Model>, _priority: Priority) -> Self {
        Self
    }

    /// Returns an error.
    ///
    /// # Errors
    /// Always.
    pub fn encode(&self, _text: &str) -> Result<Vector, ModelError> {
        Err(ModelError::NotBuilt)
    }
}
