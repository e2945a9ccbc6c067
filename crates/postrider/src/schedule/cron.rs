//! Cron expressions: what they may say, which wall clock times they name, and which instants those are.
//!
//! croner knows which wall clock times match. What a change of the clock does to them is decided here.

use jiff::Timestamp as Instant;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};

/// The longest expression, in bytes.
const BYTES_MAX: usize = 200;
/// Wall clock times that may map to an instant that has passed already, or segments of one offset that hold no time: far more than there are.
const STEPS_MOST: usize = 5_000;

const MONTHS: &[&str] = &["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const DAYS: &[&str] = &["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];
const NICKNAMES: &[(&str, &str)] = &[
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

struct Field {
    name: &'static str,
    least: u32,
    most: u32,
    names: &'static [&'static str],
    /// The number of the first name.
    first: u32,
}

const fn field(name: &'static str, least: u32, most: u32, names: &'static [&'static str], first: u32) -> Field {
    Field { name, least, most, names, first }
}

const FIELDS: [Field; 5] = [
    field("minute", 0, 59, &[], 0),
    field("hour", 0, 23, &[], 0),
    field("day of the month", 1, 31, &[], 0),
    field("month", 1, 12, MONTHS, 1),
    field("day of the week", 0, 7, DAYS, 0),
];
const DAY: usize = 2;
const WEEKDAY: usize = 4;

/// Why an expression is none: the column, counted from 1, and what is wrong there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Malformed {
    pub(super) column: usize,
    pub(super) what: String,
}

fn wrong<T>(column: usize, what: impl Into<String>) -> Result<T, Malformed> {
    Err(Malformed { column, what: what.into() })
}

/// An expression that was checked.
#[derive(Debug, Clone)]
pub(super) struct Cron {
    pattern: croner::Cron,
    /// Its minute or its hour begins with `*`: it runs through a change of the clock in real time. Any other one means wall clock times, each
    /// of which comes once.
    real_time: bool,
}

impl Cron {
    /// Reads an expression: five fields, or one of the names such as `@daily`.
    pub(super) fn parse(text: &str) -> Result<Self, Malformed> {
        if text.len() > BYTES_MAX {
            return wrong(BYTES_MAX + 1, format!("it is longer than {BYTES_MAX} bytes"));
        }
        let plain = match text.trim() {
            name if name.starts_with('@') => {
                match NICKNAMES.iter().find(|(known, _)| name.eq_ignore_ascii_case(known)) {
                    Some((_, fields)) => fields,
                    None => return wrong(1, format!("{name:?} is not a name of a schedule")),
                }
            }
            _ => text,
        };
        let words = words(plain);
        if words.len() != FIELDS.len() {
            let column = words.get(FIELDS.len()).map_or(plain.chars().count() + 1, |(column, _)| *column);
            return wrong(column, format!("it has {} fields, not 5", words.len()));
        }
        let mut fields = Vec::with_capacity(FIELDS.len());
        for (n, (of, (column, word))) in FIELDS.iter().zip(&words).enumerate() {
            fields.push(read_field(n, of, *column, word)?);
        }
        let real_time = fields.iter().take(2).any(|field| field.starts_with('*'));
        let parser = croner::parser::CronParser::builder().seconds(croner::parser::Seconds::Disallowed).build();
        let pattern = match parser.parse(&fields.join(" ")) {
            Ok(pattern) => pattern,
            Err(error) => return wrong(1, error.to_string()),
        };
        let cron = Self { pattern, real_time };
        if cron.match_after(DateTime::constant(2000, 1, 1, 0, 0, 0, 0), true).is_none() {
            return wrong(words.get(DAY).map_or(1, |(column, _)| *column), "no such day ever comes");
        }
        Ok(cron)
    }

    /// The first wall clock time after this one that matches.
    fn match_after(&self, time: DateTime, inclusive: bool) -> Option<DateTime> {
        self.pattern.find_next_occurrence(&time, inclusive).ok()
    }

    /// The first instant after this one at which it is due in the zone.
    pub(super) fn after(&self, time: Instant, zone: &TimeZone) -> Option<Instant> {
        if self.real_time { self.real_after(time, zone) } else { self.fixed_after(time, zone) }
    }

    /// Each wall clock time comes once: the first time if the clock shows it twice; as soon as it is over if the clock leaps over it.
    fn fixed_after(&self, time: Instant, zone: &TimeZone) -> Option<Instant> {
        let mut wall = whole_second(zone.to_datetime(time))?;
        for _ in 0..STEPS_MOST {
            wall = self.match_after(wall, false)?;
            let at = instant(wall, zone)?;
            if at > time {
                return Some(at);
            }
        }
        None
    }

    /// Each instant at which the clock shows a time that matches, however often it shows it.
    fn real_after(&self, time: Instant, zone: &TimeZone) -> Option<Instant> {
        let (mut from, mut inclusive) = (time, false);
        for _ in 0..STEPS_MOST {
            let offset = zone.to_offset(from);
            let wall = self.match_after(whole_second(offset.to_datetime(from))?, inclusive)?;
            let at = offset.to_timestamp(wall).ok()?;
            // up to the next change of the clock the offset is the same
            match zone.following(from).next() {
                Some(change) if at >= change.timestamp() => (from, inclusive) = (change.timestamp(), true),
                _ => return Some(at),
            }
        }
        None
    }
}

fn whole_second(wall: DateTime) -> Option<DateTime> {
    wall.with().subsec_nanosecond(0).build().ok()
}

/// When the clock shows this time first; if it leaps over it, when it has leapt.
fn instant(wall: DateTime, zone: &TimeZone) -> Option<Instant> {
    let at = zone.to_ambiguous_timestamp(wall);
    match at.offset() {
        AmbiguousOffset::Unambiguous { .. } | AmbiguousOffset::Fold { .. } => at.earlier().ok(),
        AmbiguousOffset::Gap { .. } => {
            // by the clock from before the leap it is not earlier than the leap
            let after = at.later().ok()?.checked_add(jiff::SignedDuration::from_secs(1)).ok()?;
            Some(zone.preceding(after).next()?.timestamp())
        }
    }
}

/// The words of a text with their columns.
fn words(text: &str) -> Vec<(usize, &str)> {
    let mut words = Vec::new();
    let mut column = 1;
    for piece in text.split([' ', '\t']) {
        if !piece.is_empty() {
            words.push((column, piece));
        }
        column += piece.chars().count() + 1;
    }
    words
}

/// A field in numbers.
fn read_field(n: usize, of: &Field, column: usize, word: &str) -> Result<String, Malformed> {
    let mut items = Vec::new();
    let mut at = column;
    for item in word.split(',') {
        items.push(read_item(n, of, at, item)?);
        if item.starts_with('*') && word.contains(',') {
            return wrong(at, format!("* stands alone in the {}", of.name));
        }
        at += item.chars().count() + 1;
    }
    Ok(items.join(","))
}

fn read_item(n: usize, of: &Field, column: usize, item: &str) -> Result<String, Malformed> {
    if item.is_empty() {
        return wrong(column, format!("a {} is missing", of.name));
    }
    if n == DAY && item.eq_ignore_ascii_case("L") {
        return Ok("L".to_owned());
    }
    if n == WEEKDAY
        && let Some(day) = item.strip_suffix(['L', 'l']).filter(|day| !day.is_empty())
    {
        return Ok(format!("{}#L", number(of, column, day)? % 7));
    }
    if n == WEEKDAY
        && let Some((day, nth)) = item.split_once('#')
    {
        let day = number(of, column, day)? % 7;
        return match nth.parse::<u32>() {
            Ok(nth @ 1..=5) => Ok(format!("{day}#{nth}")),
            _ => wrong(column, format!("{item:?} is not one of the first five weekdays of a month")),
        };
    }
    let (range, step) = match item.split_once('/') {
        Some((range, step)) => (range, Some(read_step(of, column + range.chars().count() + 1, step)?)),
        None => (item, None),
    };
    if range == "*" {
        return Ok(step.map_or_else(|| "*".to_owned(), |step| format!("*/{step}")));
    }
    let Some((from, to)) = range.split_once('-') else {
        let value = number(of, column, range)?;
        if step.is_some() {
            return wrong(column, format!("a step needs a range: {value}-{}/… or */…", of.most));
        }
        return Ok(if n == WEEKDAY { value % 7 } else { value }.to_string());
    };
    let to_column = column + from.chars().count() + 1;
    let (from, mut to) = (number(of, column, from)?, number(of, to_column, to)?);
    if n == WEEKDAY && to == 0 && from > 0 {
        to = 7; // up to Sunday
    }
    if to < from {
        return wrong(column, format!("{range:?} runs backwards"));
    }
    let values = (from..=to).step_by(step.unwrap_or(1));
    let values: Vec<String> = values.map(|v| if n == WEEKDAY { v % 7 } else { v }.to_string()).collect();
    Ok(values.join(","))
}

fn read_step(of: &Field, column: usize, step: &str) -> Result<usize, Malformed> {
    match step.parse::<usize>() {
        Ok(value) if value >= 1 && value <= of.most as usize && is_digits(step) => Ok(value),
        _ => wrong(column, format!("{step:?} is not a step of 1 to {}", of.most)),
    }
}

fn number(of: &Field, column: usize, word: &str) -> Result<u32, Malformed> {
    if let Some((value, _)) = (of.first..).zip(of.names).find(|(_, name)| word.eq_ignore_ascii_case(name)) {
        return Ok(value);
    }
    match word.parse::<u32>() {
        Ok(value) if (of.least..=of.most).contains(&value) && is_digits(word) => Ok(value),
        _ => wrong(column, format!("{word:?} is not in {} to {} ({})", of.least, of.most, of.name)),
    }
}

fn is_digits(word: &str) -> bool {
    word.len() <= 4 && word.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d9_what_is_wrong_is_told_with_its_column() {
        for (text, column, what) in [
            ("*0 2 * * *", 1, "\"*0\" is not in 0 to 59 (minute)"),
            ("60 * * * *", 1, "\"60\" is not in 0 to 59 (minute)"),
            ("0 24 * * *", 3, "\"24\" is not in 0 to 23 (hour)"),
            ("0 0 31 2 *", 5, "no such day ever comes"),
            ("0 0 30 FEB *", 5, "no such day ever comes"),
            ("0 0 31 4,6,9,11 *", 5, "no such day ever comes"),
            ("* * * *", 8, "it has 4 fields, not 5"),
            ("* * * * * 2026", 11, "it has 6 fields, not 5"),
            ("", 1, "it has 0 fields, not 5"),
            ("   ", 4, "it has 0 fields, not 5"),
            ("@dayly", 1, "\"@dayly\" is not a name of a schedule"),
            ("1,,2 * * * *", 3, "a minute is missing"),
            ("5-1 * * * *", 1, "\"5-1\" runs backwards"),
            ("0  2-x * * *", 6, "\"x\" is not in 0 to 23 (hour)"),
            ("*/0 * * * *", 3, "\"0\" is not a step of 1 to 59"),
            ("*/x * * * *", 3, "\"x\" is not a step of 1 to 59"),
            ("5/10 * * * *", 1, "a step needs a range: 5-59/… or */…"),
            ("*,5 * * * *", 1, "* stands alone in the minute"),
            ("0 0 * JANUARY *", 7, "\"JANUARY\" is not in 1 to 12 (month)"),
            ("0 0 * * 1#6", 9, "\"1#6\" is not one of the first five weekdays of a month"),
            ("0 0 ? * *", 5, "\"?\" is not in 1 to 31 (day of the month)"),
            ("+1 * * * *", 1, "\"+1\" is not in 0 to 59 (minute)"),
        ] {
            let expected = Malformed { column, what: what.to_owned() };
            assert_eq!(Cron::parse(text).map(drop), Err(expected), "{text:?}");
        }
        let commas = ",".repeat(10_000);
        assert_eq!(Cron::parse(&commas).unwrap_err().column, 201);
    }

    #[test]
    fn what_may_be_said_is_taken() {
        for text in [
            "* * * * *",
            "0 0 1 1 *",
            "@hourly",
            "@Daily",
            "*/5 0-23/2 1,15 JAN-MAR mon-fri",
            "0 0 L * *",
            "0 0 * * 5L",
            "0 0 * * FRI#2",
            "0 0 * * 5-7",
            "0 0 * * FRI-SUN",
            "0 0 29 2 *",
            "0\t12 * * 0",
            "0 0 31 2 1",
            " 0 0 * * 7 ",
        ] {
            assert!(Cron::parse(text).is_ok(), "{text:?}: {:?}", Cron::parse(text).map(drop));
        }
    }
}
