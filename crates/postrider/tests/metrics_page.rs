//! `docs/metrics.md` and [`Figures::metrics`] say the same.

use postrider::Figures;

#[test]
fn the_page_of_metrics_and_the_code_say_the_same() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md")).unwrap();
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
    let told = Figures::default().metrics().map(|metric| {
        let attributes = metric.attributes.iter().map(|(name, value)| format!("`{name}` = `{value}`"));
        let attributes = attributes.collect::<Vec<_>>().join(", ");
        format!("| `{}` | `{}` | {attributes} | {} |", metric.name, metric.unit, metric.says).replace("|  |", "| |")
    });
    assert_eq!(rows, told);
}

#[test]
fn each_figure_is_a_metric_of_its_own() {
    let figures = Figures {
        relayed: 1,
        fanned_out: 2,
        claimed: 3,
        completed: 4,
        retried: 5,
        snoozed: 6,
        discarded: 7,
        released: 8,
        stale: 9,
        rescued: 10,
        flushes: 11,
    };
    let told = figures.metrics();
    assert_eq!(told.map(|metric| metric.value), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
    let mut names: Vec<_> = told.iter().map(|metric| (metric.name, metric.attributes)).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), told.len(), "no two are the same series");
}
