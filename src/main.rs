//! The `codebridge` binary.
fn main() {}
