//! Seeded random numbers: the same key gives the same numbers on every machine and in every column.

/// A small generator (SplitMix64). Its statistical quality is sufficient here, and no secret depends on it.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator for one purpose. Columns that use the same key get the same numbers.
    pub fn keyed(parts: &[u64]) -> Self {
        let mut state = 0x9e37_79b9_7f4a_7c15;
        for part in parts {
            state = mixed(state ^ part.wrapping_mul(0xd6e8_feb8_6659_fd93));
        }
        Self(state)
    }

    /// A number that is uniformly distributed over all of `u64`.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed(self.0)
    }

    /// A number that is uniformly distributed over `0 < x < 1`.
    pub fn unit(&mut self) -> f64 {
        ((self.bits() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// A number that is uniformly distributed over `low..high`.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// True with this probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// An exponentially distributed number with this mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -self.unit().ln() * mean
    }

    /// A log-normally distributed number with this median.
    pub fn log_normal(&mut self, median: f64, sigma: f64) -> f64 {
        let normal = (-2.0 * self.unit().ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos();
        median * (sigma * normal).exp()
    }
}

fn mixed(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_those_asked_for() {
        let mut random = Random::keyed(&[1, 2]);
        let draws = 200_000;
        let mean = (0..draws).map(|_| random.exponential(3.0)).sum::<f64>() / f64::from(draws);
        assert!((mean - 3.0).abs() < 0.05, "exponential: {mean}");
        let expected = 2.0 * (0.5f64 * 0.8 * 0.8).exp();
        let mean = (0..draws).map(|_| random.log_normal(2.0, 0.8)).sum::<f64>() / f64::from(draws);
        assert!((mean - expected).abs() < 0.05, "log-normal: {mean}");
    }
}
