//! Random names.

/// Returns `BYTES` random bytes as hexadecimal digits, which nobody can guess.
///
/// # Panics
/// The system has no random numbers.
pub fn random_hex<const BYTES: usize>() -> String {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes).expect("the system has random numbers");
    hex::encode(bytes)
}
