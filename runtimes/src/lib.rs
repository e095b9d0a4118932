//! The driver core.
