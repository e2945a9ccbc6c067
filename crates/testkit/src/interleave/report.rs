use std::fmt;

/// What came of some specs.
#[derive(Debug, Default)]
pub struct Report {
    /// Specs that were run.
    pub specs: usize,
    /// Orders that were run, over all specs.
    pub orders: usize,
    /// Steps that waited for another session.
    pub waited: usize,
    /// Steps whose turn came while their session waited, and which ran after that.
    pub put_off: usize,
    /// What was wrong, each with its spec and its order.
    pub wrong: Vec<String>,
}

impl Report {
    /// Nothing was wrong.
    ///
    /// # Panics
    /// If something was, with all of it.
    pub fn assert_clean(&self) {
        assert!(self.wrong.is_empty(), "{self}\n{}", self.wrong.join("\n"));
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { specs, orders, waited, put_off, wrong } = self;
        write!(f, "{specs} specs, {orders} orders, {waited} steps waited, {put_off} put off, {} wrong", wrong.len())
    }
}
