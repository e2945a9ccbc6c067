//! The conformance suite against the native engine: as usual, or with `POSTRIDER_CONFORMANCE=polling` or `pooled`.

use postrider_testkit::conformance;
use postrider_testkit::conformance::Native;

conformance!(Native::as_told());
