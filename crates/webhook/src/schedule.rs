use std::time::Duration;

use postrider_contract::{Code, Refused, Retry};

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

/// The waits of the schedule `short`: 18 attempts in a little more than half a day.
const SHORT: [Duration; 6] = [
    Duration::from_secs(5),
    Duration::from_secs(30),
    Duration::from_mins(2),
    Duration::from_mins(10),
    Duration::from_mins(30),
    Duration::from_hours(1),
];
const STEPS_MAX: usize = 50;
const STEP_MIN: Duration = Duration::from_secs(1);
const STEP_MAX: Duration = Duration::from_hours(7 * 24);

/// When failed attempts of an endpoint's deliveries are tried again. A wait may be up to a tenth longer, never shorter.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Retries {
    /// After 5 s, 5 min, 30 min, 2 h, 5 h, 10 h, then every 10 h; see [`schedule`].
    #[default]
    Default,
    /// After 5 s, 30 s, 2 min, 10 min, 30 min, then every hour.
    Short,
    /// After these waits, of which the last one stays: 1 to 50 of them, each 1 s to 7 days.
    Steps(Vec<Duration>),
}

impl Retries {
    /// The schedule of this name, `default` or `short`; the error names the field `schedule`.
    pub fn named(name: &str) -> Result<Self, Refused> {
        match name {
            "default" => Ok(Self::Default),
            "short" => Ok(Self::Short),
            _ => Err(refused(
                format!("{name:?} is not the name of a schedule"),
                "use default or short, or a list of waits",
            )),
        }
    }

    /// Its name, if it has one.
    pub fn name(&self) -> Option<&'static str> {
        match self {
            Self::Default => Some("default"),
            Self::Short => Some("short"),
            Self::Steps(_) => None,
        }
    }

    pub(crate) fn check(&self) -> Result<(), Refused> {
        let Self::Steps(steps) = self else { return Ok(()) };
        if steps.is_empty() || steps.len() > STEPS_MAX {
            let message = format!("there are {} waits, not 1 to {STEPS_MAX}", steps.len());
            return Err(refused(message, "the last wait stands for all that follow"));
        }
        match steps.iter().find(|step| !(STEP_MIN..=STEP_MAX).contains(step)) {
            Some(step) => Err(refused(
                format!("a wait of {} ms is not 1 s to 7 days", step.as_millis()),
                "leave it out for the default",
            )),
            None => Ok(()),
        }
    }

    /// The waits that are not those of the kind.
    pub(crate) fn steps(&self) -> Option<&[Duration]> {
        match self {
            Self::Default => None,
            Self::Short => Some(&SHORT),
            Self::Steps(steps) => Some(steps),
        }
    }
}

fn refused(message: impl Into<String>, remedy: &str) -> Refused {
    Refused::new(Code::Option, "schedule", message, remedy)
}

/// The wait of a list after the attempt with this number, counted from 1.
pub(crate) fn step_after(steps: &[Duration], attempt: i16) -> Option<Duration> {
    let index = usize::try_from(attempt).unwrap_or_default().saturating_sub(1);
    steps.get(index).or(steps.last()).copied()
}

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

    #[test]
    fn a_schedule_is_a_name_or_a_list_of_bounded_waits() {
        const S: fn(u64) -> Duration = Duration::from_secs;
        for (name, steps) in [("default", None), ("short", Some(S(5)))] {
            let retries = Retries::named(name).unwrap();
            assert_eq!((retries.name(), retries.steps().map(|s| s[0])), (Some(name), steps));
            assert!(retries.check().is_ok());
        }
        assert_eq!(Retries::named("fast").unwrap_err().field, "schedule");
        let short = Retries::Short;
        // 5 + 30 + 120 + 600 + 1 800 s, and twelve hours.
        let length: Duration = (1..ATTEMPTS_MAX).filter_map(|n| step_after(short.steps().unwrap(), n)).sum();
        assert_eq!(length, S(2_555 + 12 * 3_600));
        for bad in [vec![], vec![S(1); 51], vec![S(1), Duration::from_millis(999)], vec![S(7 * 86_400 + 1)]] {
            assert_eq!(Retries::Steps(bad).check().unwrap_err().field, "schedule");
        }
        assert!(Retries::Steps(vec![S(1), S(7 * 86_400)]).check().is_ok());
        assert_eq!(step_after(&[S(1), S(9)], 1), Some(S(1)));
        assert_eq!(step_after(&[S(1), S(9)], 7), Some(S(9)));
        assert_eq!(step_after(&[], 1), None);
    }
}
