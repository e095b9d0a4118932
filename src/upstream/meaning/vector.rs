//! The direction of a text's meaning, small enough to keep many.

use serde::{Deserialize, Serialize};

/// A vector of length one, its components in 256 steps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Vector {
    /// What one step is.
    step: f32,
    #[serde(with = "serde_bytes")]
    components: Vec<u8>,
}

impl Vector {
    /// Returns the vector of these components; None for one without a direction.
    pub fn new(components: &[f32]) -> Option<Self> {
        let length = components.iter().map(|c| c * c).sum::<f32>().sqrt();
        let largest = components.iter().fold(0.0f32, |largest, c| largest.max(c.abs()));
        if !length.is_normal() || !largest.is_normal() {
            return None;
        }
        let byte = |c: &f32| ((c / largest * 127.0).round() as i8).cast_unsigned();
        Some(Self { step: largest / 127.0 / length, components: components.iter().map(byte).collect() })
    }

    /// Returns how similar two meanings are, from -1 to 1; 0 for vectors of different models.
    pub fn similarity(&self, other: &Self) -> f32 {
        if self.components.len() != other.components.len() {
            return 0.0;
        }
        let pairs = self.components.iter().zip(&other.components);
        let sum: i32 = pairs.map(|(a, b)| i32::from(a.cast_signed()) * i32::from(b.cast_signed())).sum();
        sum as f32 * self.step * other.step
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similarity_is_the_cosine() {
        let vector = |components: &[f32]| Vector::new(components).unwrap();
        let a = vector(&[3.0, 4.0, 0.0]);
        for (other, expected) in [
            (vector(&[6.0, 8.0, 0.0]), 1.0),
            (vector(&[-3.0, -4.0, 0.0]), -1.0),
            (vector(&[0.0, 0.0, 9.0]), 0.0),
            (vector(&[4.0, 3.0, 0.0]), 0.96),
            (vector(&[1.0]), 0.0),
        ] {
            assert!((a.similarity(&other) - expected).abs() < 0.01, "{other:?}");
        }
    }

    #[test]
    fn what_has_no_direction_is_no_vector() {
        for components in [&[][..], &[0.0, 0.0], &[f32::NAN, 1.0], &[f32::INFINITY, 1.0]] {
            assert_eq!(Vector::new(components), None, "{components:?}");
        }
    }
}
