//! When the receiver that fails at times fails: a function of the request's number and of dice.

/// Out of every this many requests …
const ROUND: u64 = 200;
/// … so many in a row meet a receiver that is down.
const OUTAGE: u64 = 10;
/// And otherwise this part of them is refused.
const BAD_LUCK: f64 = 0.1;

/// Whether the receiver that fails at times fails at its `number`th request (from 0); `dice` is within 0..1.
pub fn fails(number: u64, dice: f64) -> bool {
    number % ROUND >= ROUND - OUTAGE || dice < BAD_LUCK
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_fails_by_bad_luck_and_in_a_short_outage_of_each_round() {
        assert!(!fails(0, 0.1) && fails(0, 0.09));
        let without_luck = (0..400).filter(|n| fails(*n, 0.99)).collect::<Vec<_>>();
        assert_eq!(without_luck, (190..200).chain(390..400).collect::<Vec<_>>());
    }
}
