//! What every engine promises, as cases that run against any of them.
//!
//! A case is generic over "make me a fresh engine on a fresh database". It asks for capabilities: what an engine does not have it must refuse,
//! typed; no case is skipped. [`wrong`] engines each turn exactly the cases red that they should.
#![expect(
    clippy::panic,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::missing_panics_doc,
    reason = "a case is a test: it panics when it does not hold"
)]

mod engine;
mod stage;
mod parts; // kinds, transactions and doors that several families use
pub mod enqueue;
pub mod unique;
pub mod claim;
pub mod attempt;
pub mod crew;
pub mod lease;
pub mod act;
pub mod lifecycle;
pub mod wait;
pub mod relay;
pub mod inspect;
pub mod schedule;
pub mod order;
pub mod wrong;

pub use engine::{App, Engine, Native, Stage};
pub use parts::{Counting, Door, Gate, answering, doors, gated, minute_later, quick, refused};
pub use stage::{Heard, Scene, json, telling};

use futures_util::future::LocalBoxFuture;

/// A case, for those who run them by hand.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// Its name.
    pub name: &'static str,
    /// Runs it; a case that does not hold panics.
    pub run: for<'a> fn(&'a dyn Engine) -> LocalBoxFuture<'a, ()>,
}

/// Makes a test of each case, in a module for each family, against an engine.
///
/// `postrider_testkit::conformance!(Native::default());`
#[macro_export]
macro_rules! conformance {
    ($engine:expr) => {
        $crate::conformance_enqueue!($engine);
        $crate::conformance_unique!($engine);
        $crate::conformance_claim!($engine);
        $crate::conformance_attempt!($engine);
        $crate::conformance_lease!($engine);
        $crate::conformance_act!($engine);
        $crate::conformance_lifecycle!($engine);
        $crate::conformance_wait!($engine);
        $crate::conformance_relay!($engine);
        $crate::conformance_inspect!($engine);
        $crate::conformance_schedule!($engine);
        $crate::conformance_order!($engine);
    };
}

/// One family's cases as tests, or as a list of [`Case`]s. Each family calls it with the names of its cases.
#[macro_export]
macro_rules! conformance_family {
    (@list, $family:ident, [$($case:ident),* $(,)?]) => {
        vec![$($crate::conformance::Case {
            name: stringify!($case),
            run: |engine| Box::pin($crate::conformance::$family::$case(engine)),
        }),*]
    };
    ($engine:expr, $family:ident, [$($case:ident),* $(,)?]) => {
        mod $family {
            use super::*;
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    $crate::conformance::$family::$case(&$engine).await;
                }
            )*
        }
    };
}
