#![expect(clippy::print_stdout, clippy::print_stderr, reason = "this file is the mouth of the program")]

use std::fmt::Display;
use std::io::{self, IsTerminal as _, Write as _};

use crate::dev::live::rewrite;

/// Tells a line.
pub(super) fn tell(line: impl Display) {
    println!("{line}");
}

/// Tells what went wrong, on the standard error.
pub(super) fn complain(line: impl Display) {
    eprintln!("postrider: {line}");
}

/// The line that is rewritten in place on a terminal, and told now and then elsewhere.
#[derive(Debug)]
pub(super) struct Live {
    columns: Option<usize>,
    open: bool,
}

impl Live {
    /// Looks whether there is a terminal to write to.
    pub(super) fn new() -> Self {
        let columns = terminal_size::terminal_size().map_or(80, |(width, _)| usize::from(width.0));
        Self { columns: io::stdout().is_terminal().then_some(columns), open: false }
    }

    /// Whether the line is rewritten in place.
    pub(super) fn is_in_place(&self) -> bool {
        self.columns.is_some()
    }

    /// Shows a line in the place of the one before.
    pub(super) fn show(&mut self, line: &str) {
        match self.columns {
            Some(columns) => {
                print!("{}", rewrite(line, columns));
                self.open = true;
                // A terminal that is gone takes the program with it soon; there is nobody to tell.
                drop(io::stdout().flush());
            }
            None => tell(line),
        }
    }

    /// Leaves the last line standing.
    pub(super) fn end(&mut self) {
        if std::mem::take(&mut self.open) {
            println!();
        }
    }
}
