//! `docs/metrics.md` and [`Bus::metrics`] say the same.
#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use postrider::{Bus, Measured, Metric};
use postrider_testkit::TestDb;

fn page() -> String {
    std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md")).unwrap()
}

/// The rows of the table below a head.
fn rows<'a>(page: &'a str, head: &str) -> Vec<&'a str> {
    let table = page.lines().skip_while(|line| !line.starts_with(head)).skip(2);
    table.take_while(|line| line.starts_with('|')).collect()
}

async fn metrics() -> Vec<Metric> {
    let db = TestDb::fresh().await;
    Bus::builder(db.pool().clone()).build().await.unwrap().metrics()
}

#[tokio::test]
async fn the_page_of_metrics_and_the_code_say_the_same() {
    let metrics = metrics().await;
    let told = metrics.iter().map(|metric| {
        let attributes = metric.attributes.iter().map(|(name, value)| format!("`{name}` = `{value}`"));
        let attributes = attributes.collect::<Vec<_>>().join(", ");
        let kind = match metric.value {
            Measured::Counter(_) => "counter",
            Measured::Gauge(_) => "gauge",
            Measured::Histogram(_) => "histogram",
            _ => "unknown",
        };
        let Metric { name, unit, says, .. } = metric;
        format!("| `{name}` | {kind} | `{unit}` | {attributes} | {says} |").replace("|  |", "| |")
    });
    assert_eq!(rows(&page(), "| Name |"), told.collect::<Vec<_>>());

    let bounds = metrics.iter().filter_map(|metric| {
        let Measured::Histogram(histogram) = &metric.value else { return None };
        assert_eq!(histogram.counts.len(), histogram.bounds.len() + 1, "one above the last bound");
        let bounds: Vec<String> = histogram.bounds.iter().map(f64::to_string).collect();
        Some(format!("| `{}` | {} |", metric.name, bounds.join(", ")))
    });
    let mut bounds: Vec<String> = bounds.collect();
    bounds.dedup();
    assert_eq!(rows(&page(), "| Histogram |"), bounds);
}

#[tokio::test]
async fn no_two_metrics_are_the_same_series() {
    let metrics = metrics().await;
    let mut names: Vec<_> = metrics.iter().map(|metric| (metric.name, &metric.attributes)).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), metrics.len());
}
