use std::time::Duration;

use postrider_contract::Retry;

/// Attempts of a delivery: with the schedule about 5.3 days.
pub const ATTEMPTS_MAX: i16 = 18;

/// The waits after the first failed attempts; the last one stands for all that follow.
const STEPS: [Duration; 6] = [
    Duration::from_secs(5),
    Duration::from_mins(5),
    Duration::from_mins(30),
    Duration::from_hours(2),
    Duration::from_hours(5),
    Duration::from_hours(10),
];

/// When a delivery is tried again: at once, after 5 s, 5 min, 30 min, 2 h, 5 h, 10 h, then every 10 h.
pub fn schedule() -> Retry {
    Retry::Steps(STEPS.to_vec())
}

/// The wait after the attempt with this number, counted from 1, without the dice.
pub(crate) fn wait_after(attempt: i16) -> Duration {
    let last = STEPS.len() - 1;
    let step = usize::try_from(attempt).unwrap_or_default().saturating_sub(1).min(last);
    STEPS.get(step).copied().unwrap_or_default()
}

/// How old a delivery may get that only ever waits because its endpoint asks it to: the sum of the schedule.
pub(crate) fn age_max() -> Duration {
    (1..ATTEMPTS_MAX).map(wait_after).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eighteen_attempts_take_five_days_and_a_third() {
        assert_eq!(wait_after(1), Duration::from_secs(5));
        assert_eq!(wait_after(6), Duration::from_hours(10));
        assert_eq!(wait_after(17), Duration::from_hours(10));
        assert_eq!(wait_after(i16::MAX), Duration::from_hours(10));
        assert_eq!(wait_after(i16::MIN), Duration::from_secs(5));
        // 5 s + 5 min + 30 min + 2 h + 5 h, and twelve times 10 h.
        assert_eq!(age_max(), Duration::from_secs(5 + 300 + 1_800 + 7_200 + 18_000 + 12 * 36_000));
        let Retry::Steps(steps) = schedule() else { panic!("not steps") };
        assert_eq!(steps.len(), 6);
    }
}
