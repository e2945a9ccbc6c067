//! The binary `postrider`.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    postrider_server::cli::main()
}
