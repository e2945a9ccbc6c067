//! The conformance suite against the native engine.

use postrider_testkit::conformance;
use postrider_testkit::conformance::Native;

conformance!(Native::default());
