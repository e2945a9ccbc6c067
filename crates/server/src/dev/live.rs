//! The figures as one line for a person.

use std::time::Duration;

/// What the live line tells.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Moment {
    /// Events whose transaction committed.
    pub recorded: u64,
    /// Events that became jobs and deliveries.
    pub fanned_out: u64,
    /// Jobs of the two handlers that were done.
    pub done: u64,
    /// Webhooks that the receiver took, each once.
    pub delivered: u64,
    /// Deliveries that wait for another attempt, or behind others of their endpoint.
    pub waiting: u64,
    /// Median and 99th percentile from commit to delivered.
    pub latency: Option<(Duration, Duration)>,
}

/// The line, without a line end.
pub fn line(moment: &Moment) -> String {
    let mut line = format!(
        "recorded {}  fanned out {}  done {}  delivered {}  waiting {}",
        number(moment.recorded),
        number(moment.fanned_out),
        number(moment.done),
        number(moment.delivered),
        number(moment.waiting),
    );
    if let Some((p50, p99)) = moment.latency {
        let latency = format!("  p50 {}  p99 {} (commit to delivered)", duration(p50), duration(p99));
        line.push_str(&latency);
    }
    line
}

/// The line as it replaces the one before on a terminal of this width: never wider, or the terminal would wrap it and
/// the next one would not cover it.
pub fn rewrite(line: &str, columns: usize) -> String {
    let fitting: String = line.chars().take(columns.saturating_sub(1)).collect();
    format!("\r{fitting}\x1b[K")
}

/// A number with a space between groups of three digits.
pub fn number(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// A duration with two or three digits that mean something, and its unit.
pub fn duration(duration: Duration) -> String {
    let micros = duration.as_micros();
    match micros {
        0..10_000 => format!("{}.{} ms", micros / 1_000, micros % 1_000 / 100),
        10_000..1_000_000 => format!("{} ms", micros / 1_000),
        1_000_000..100_000_000 => format!("{}.{} s", micros / 1_000_000, micros % 1_000_000 / 100_000),
        _ => format!("{} s", micros / 1_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_three_digits() {
        for (n, expected) in [(0, "0"), (999, "999"), (1_000, "1 000"), (12_345, "12 345"), (1_234_567, "1 234 567")] {
            assert_eq!(number(n), expected);
        }
    }

    #[test]
    fn durations_keep_the_digits_that_mean_something() {
        for (micros, expected) in [
            (0, "0.0 ms"),
            (3_149, "3.1 ms"),
            (9_999, "9.9 ms"),
            (12_900, "12 ms"),
            (999_999, "999 ms"),
            (1_250_000, "1.2 s"),
            (100_000_000, "100 s"),
        ] {
            assert_eq!(duration(Duration::from_micros(micros)), expected);
        }
    }

    #[test]
    fn the_line_tells_every_figure_and_no_latency_before_there_is_one() {
        let mut moment =
            Moment { recorded: 1_234, fanned_out: 1_233, done: 2_460, delivered: 2_461, waiting: 5, latency: None };
        assert_eq!(line(&moment), "recorded 1 234  fanned out 1 233  done 2 460  delivered 2 461  waiting 5");
        moment.latency = Some((Duration::from_micros(3_100), Duration::from_millis(12)));
        assert!(line(&moment).ends_with("waiting 5  p50 3.1 ms  p99 12 ms (commit to delivered)"));
    }

    #[test]
    fn a_rewritten_line_never_reaches_the_last_column() {
        assert_eq!(rewrite("recorded 1", 6), "\rrecor\x1b[K");
        assert_eq!(rewrite("recorded 1", 80), "\rrecorded 1\x1b[K");
    }
}
