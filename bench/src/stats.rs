//! Medians and ranges over rounds, percentiles over samples.

/// One figure, measured once in each round.
#[derive(Debug, Clone, Default)]
pub(crate) struct Figure(Vec<f64>);

impl Figure {
    pub(crate) fn add(&mut self, value: f64) {
        self.0.push(value);
        self.0.sort_by(f64::total_cmp);
    }

    pub(crate) fn rounds(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn median(&self) -> f64 {
        percentile(&self.0, 0.5)
    }

    pub(crate) fn range(&self) -> (f64, f64) {
        (self.0.first().copied().unwrap_or(f64::NAN), self.0.last().copied().unwrap_or(f64::NAN))
    }
}

/// Of sorted values, the one below which `share` of them lie; between two of them, their mean by distance.
pub(crate) fn percentile(sorted: &[f64], share: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let at = share * f64::from(u32::try_from(last).unwrap_or(u32::MAX));
    let value = |index: f64| {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index of a vector")]
        let index = index as usize;
        sorted.get(index).copied().unwrap_or(f64::NAN)
    };
    let (low, high) = (value(at.floor()), value(at.ceil()));
    low + (high - low) * at.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_of_an_even_number_lies_between_the_two_in_the_middle() {
        let mut figure = Figure::default();
        for value in [4.0, 1.0, 3.0, 2.0] {
            figure.add(value);
        }
        assert!((figure.median() - 2.5).abs() < 1e-9);
        assert_eq!(figure.range(), (1.0, 4.0));
    }

    #[test]
    fn the_99th_percentile_of_1_to_101_is_100() {
        let samples: Vec<f64> = (1..=101).map(f64::from).collect();
        assert!((percentile(&samples, 0.99) - 100.0).abs() < 1e-9);
        assert!(percentile(&[], 0.5).is_nan());
    }
}
