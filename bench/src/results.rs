//! What was measured, and as what it is shown.

use std::fmt::Write as _;

use crate::stats::Figure;
use crate::system::Name;

/// Figures by workload, metric and row, each in the order of its first appearance.
#[derive(Debug, Default)]
pub(crate) struct Results(Vec<Cell>);

#[derive(Debug)]
struct Cell {
    workload: String,
    metric: String,
    row: String,
    figure: Figure,
}

impl Results {
    pub(crate) fn add(&mut self, workload: &str, metric: &str, row: &str, value: f64) {
        eprintln!("  {workload}: {row}: {metric} {}", number(value));
        let same = |cell: &&mut Cell| (&*cell.workload, &*cell.metric, &*cell.row) == (workload, metric, row);
        if let Some(cell) = self.0.iter_mut().find(same) {
            return cell.figure.add(value);
        }
        let mut figure = Figure::default();
        figure.add(value);
        let [workload, metric, row] = [workload, metric, row].map(str::to_owned);
        self.0.push(Cell { workload, metric, row, figure });
    }

    fn get(&self, workload: &str, metric: &str, row: &str) -> Option<&Figure> {
        let same = |cell: &&Cell| (&*cell.workload, &*cell.metric, &*cell.row) == (workload, metric, row);
        self.0.iter().find(same).map(|cell| &cell.figure)
    }

    /// One table for each workload: a row for each metric, a column for each system, its ratio to the first column's.
    pub(crate) fn tables(&self) -> String {
        let mut text = String::new();
        for workload in distinct(self.0.iter().map(|cell| cell.workload.as_str())) {
            let here = || self.0.iter().filter(|cell| cell.workload == workload);
            let rows = distinct(here().map(|cell| cell.row.as_str()));
            let rounds = here().map(|cell| cell.figure.rounds()).max().unwrap_or_default();
            let _ = writeln!(text, "\n### {workload}\n\nMedian of {rounds} rounds (range).\n");
            let _ = writeln!(text, "| | {} |\n|---|{}", rows.join(" | "), "---|".repeat(rows.len()));
            for metric in distinct(here().map(|cell| cell.metric.as_str())) {
                let cells: Vec<String> = rows.iter().map(|row| self.cell(workload, metric, row)).collect();
                let _ = writeln!(text, "| {metric} | {} |", cells.join(" | "));
            }
        }
        text
    }

    fn cell(&self, workload: &str, metric: &str, row: &str) -> String {
        let Some(figure) = self.get(workload, metric, row) else { return "–".to_owned() };
        let (low, high) = figure.range();
        format!("{} ({}–{})", number(figure.median()), number(low), number(high))
    }

    /// Postrider beside the best of its peers and beside the limit; a ratio above 1 is better than what it is compared with.
    pub(crate) fn comparison(&self) -> String {
        let ours = Name::Postrider.text();
        let peers: Vec<String> = Name::all().iter().filter(|name| name.is_peer()).map(|name| name.text()).collect();
        let limit = Name::LimitUpdate.text();
        let mut text = String::new();
        let keys = distinct(self.0.iter().map(|cell| (cell.workload.as_str(), cell.metric.as_str())));
        for (workload, metric) in keys.into_iter().filter(|(_, metric)| !metric.starts_with("others")) {
            let Some(own) = self.median(workload, metric, &ours) else { continue };
            let better = if more_is_better(metric) { |a: f64, b: f64| a / b } else { |a: f64, b: f64| b / a };
            let measured = peers.iter().filter_map(|peer| Some((peer, self.median(workload, metric, peer)?)));
            let best = measured.max_by(|a, b| better(a.1, b.1).total_cmp(&1.0));
            let beside_best = best.map_or("– | –".to_owned(), |(peer, value)| {
                format!("{} ({peer}) | {}", number(value), number(better(own, value)))
            });
            let beside_limit = self
                .median(workload, metric, &limit)
                .map_or("– | –".to_owned(), |value| format!("{} | {}", number(value), number(better(own, value))));
            let _ = writeln!(text, "| {workload}: {metric} | {} | {beside_best} | {beside_limit} |", number(own));
        }
        if text.is_empty() {
            return text;
        }
        format!(
            "\n### Beside the best peer and the limit\n\nMedians. A ratio above 1 says that Postrider is better.\n\n\
             | | Postrider | best peer | ratio | {limit} | ratio |\n|---|---|---|---|---|---|\n{text}"
        )
    }

    fn median(&self, workload: &str, metric: &str, row: &str) -> Option<f64> {
        self.get(workload, metric, row).map(Figure::median)
    }
}

/// Rates and what is kept of a rate; everything else is a cost.
fn more_is_better(metric: &str) -> bool {
    ["tx/s", "rows/s", "jobs/s", "held / clean"].iter().any(|rate| metric.starts_with(rate))
}

fn distinct<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut seen = Vec::new();
    for one in all {
        if !seen.contains(&one) {
            seen.push(one);
        }
    }
    seen
}

/// Three digits that count, at least.
pub(crate) fn number(value: f64) -> String {
    let size = value.abs();
    let digits = match size {
        _ if size >= 100.0 => 0,
        _ if size >= 10.0 => 1,
        _ => 2,
    };
    let text = format!("{value:.digits$}");
    let (sign, rest) = text.strip_prefix('-').map_or(("", text.as_str()), |rest| ("-", rest));
    let (whole, part) = rest.split_once('.').map_or((rest, String::new()), |(whole, part)| (whole, format!(".{part}")));
    let mut grouped = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) && size >= 10_000.0 {
            grouped.push(' ');
        }
        grouped.push(digit);
    }
    format!("{sign}{grouped}{part}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_says_how_many_times_better_we_are() {
        let mut results = Results::default();
        for (metric, row, value) in [
            ("jobs/s", "postrider", 300.0),
            ("jobs/s", "graphile-rust", 100.0),
            ("jobs/s", "river-rust", 50.0),
            ("jobs/s", "limit-update", 400.0),
            ("server CPU µs/job", "postrider", 20.0),
            ("server CPU µs/job", "graphile-rust", 50.0),
            ("server CPU µs/job", "river-rust", 30.0),
        ] {
            results.add("drain", metric, row, value);
        }
        let table = results.comparison();
        assert!(table.contains("| drain: jobs/s | 300 | 100 (graphile-rust) | 3.00 | 400 | 0.75 |"), "{table}");
        assert!(table.contains("| drain: server CPU µs/job | 20.0 | 30.0 (river-rust) | 1.50 | – | – |"), "{table}");
    }

    #[test]
    fn numbers_are_short_and_grouped() {
        let shown = [123_456.7, 9_999.4, 12.345, 0.123, -1.5].map(number);
        assert_eq!(shown, ["123 457", "9999", "12.3", "0.12", "-1.50"]);
    }
}
