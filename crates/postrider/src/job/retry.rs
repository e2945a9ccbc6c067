use std::time::Duration;

use postrider_contract::Retry;
use serde_json::{Value, json};

/// A retry schedule as it is declared and as it stands with a job.
pub(crate) fn write(retry: &Retry) -> Value {
    match retry {
        Retry::Backoff { first, most } => json!({ "first_ms": ms(*first), "most_ms": ms(*most) }),
        Retry::Steps(steps) => json!({ "steps_ms": steps.iter().copied().map(ms).collect::<Vec<_>>() }),
    }
}

/// Reads what [`write`] wrote, or what SQL was given; `None` if it is nothing of the kind, which the database does not let in.
pub(super) fn read(text: &str) -> Option<Retry> {
    let value: Value = serde_json::from_str(text).ok()?;
    if let Some(steps) = value.get("steps_ms") {
        let steps: Option<Vec<Duration>> = steps.as_array()?.iter().map(duration).collect();
        return steps.map(Retry::Steps);
    }
    Some(Retry::Backoff { first: duration(value.get("first_ms")?)?, most: duration(value.get("most_ms")?)? })
}

/// Milliseconds, as a number or as the text of one, as SQL takes both.
fn duration(value: &Value) -> Option<Duration> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok()).map(Duration::from_millis)
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_is_read_as_it_was_written() {
        let schedules = [
            Retry::Backoff { first: Duration::from_millis(10), most: Duration::from_mins(1) },
            Retry::Steps(vec![Duration::ZERO, Duration::from_secs(5)]),
        ];
        for retry in schedules {
            assert_eq!(read(&write(&retry).to_string()), Some(retry));
        }
        assert_eq!(read(r#"{"steps_ms": ["5"]}"#), Some(Retry::Steps(vec![Duration::from_millis(5)])));
        assert_eq!(read("[]"), None);
        assert_eq!(read(r#"{"first_ms": -1, "most_ms": 1}"#), None);
    }
}
