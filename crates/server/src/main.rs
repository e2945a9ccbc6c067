//! The binary `postrider`.
#![forbid(unsafe_code)]
fn main() {}
