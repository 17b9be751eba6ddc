//! Memory for request bodies that are buffered until they are complete. One client may use an eighth of the total.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use crate::share::Holding;

/// One client may hold this part (one eighth) of the budget.
const CLIENT_PART: u64 = 8;

/// Bytes of buffered request bodies, over all workers and generations.
#[derive(Debug, Default)]
pub struct BodyBudget {
    held: AtomicU64,
}

impl BodyBudget {
    /// Bytes held now.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    fn raise(&self, bytes: u64, max: u64) -> bool {
        self.held
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |held| {
                held.checked_add(bytes).filter(|held| *held <= max)
            })
            .is_ok()
    }
}

/// The part of the budget that one request holds: the bytes that were received, not those that the request has declared.
/// Dropping it gives the bytes back.
#[derive(Debug)]
pub struct BodyCharge {
    budget: Arc<BodyBudget>,
    client: Arc<Holding>,
    bytes: u64,
}

impl BodyCharge {
    /// The charge of a request from this client. It holds nothing yet.
    pub fn new(budget: &Arc<BodyBudget>, client: Arc<Holding>) -> Self {
        Self {
            budget: Arc::clone(budget),
            client,
            bytes: 0,
        }
    }

    /// Takes further `bytes`. `max` is the limit for all clients together. False: there is no room, and nothing was taken.
    pub fn grow(&mut self, bytes: u64, max: u64) -> bool {
        if !self.client.raise(bytes, max / CLIENT_PART) {
            return false;
        }
        if !self.budget.raise(bytes, max) {
            self.client.lower(bytes);
            return false;
        }
        self.bytes += bytes;
        true
    }

    /// Whether all clients together hold more than half of `max`.
    pub fn is_scarce(&self, max: u64) -> bool {
        self.budget.held() > max / 2
    }

    /// Gives back up to `bytes`, which have left the buffer.
    pub fn shrink(&mut self, bytes: u64) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        self.client.lower(bytes);
        self.budget.held.fetch_sub(bytes, Ordering::AcqRel);
    }
}

impl Drop for BodyCharge {
    fn drop(&mut self) {
        self.shrink(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::share::{ClientKey, Holdings};

    /// A repeatable sequence of numbers (splitmix64).
    fn numbers(mut state: u64) -> impl FnMut(u64) -> u64 {
        move |below| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            (mixed ^ (mixed >> 27)) % below
        }
    }

    fn charge(budget: &Arc<BodyBudget>, holdings: &Arc<Holdings>, client: u64) -> BodyCharge {
        let name = Arc::from(format!("web{client}"));
        let key = ClientKey::new(Some(&name), [192, 0, 2, 1].into());
        BodyCharge::new(budget, holdings.of(&"bodies".into(), key))
    }

    #[test]
    fn one_client_has_an_eighth_and_all_together_have_the_whole() {
        let (budget, holdings) = (Arc::default(), Arc::default());
        let mut first = charge(&budget, &holdings, 0);
        let mut more = charge(&budget, &holdings, 0);
        assert!(first.grow(60, 800) && more.grow(40, 800));
        assert!(!first.grow(1, 800), "an eighth of all");
        let mut others: Vec<_> = (1..8).map(|n| charge(&budget, &holdings, n)).collect();
        assert!(others.iter_mut().all(|other| other.grow(100, 800)));
        assert_eq!(budget.held(), 800);
        let mut late = charge(&budget, &holdings, 9);
        assert!(!late.grow(1, 800), "the whole");
        more.shrink(1);
        assert!(late.grow(1, 800));
        drop((first, more, others, late));
        assert_eq!(budget.held(), 0);
    }

    #[test]
    fn whatever_is_taken_and_dropped_the_limits_hold_and_all_comes_back() {
        for seed in 0..50 {
            let (budget, holdings) = (Arc::default(), Arc::default());
            let mut number = numbers(seed);
            let mut charges: Vec<BodyCharge> = Vec::new();
            for _ in 0..300 {
                match number(4) {
                    0 => charges.push(charge(&budget, &holdings, number(10))),
                    1 if !charges.is_empty() => {
                        let index = number(charges.len() as u64) as usize;
                        drop(charges.swap_remove(index));
                    }
                    _ if !charges.is_empty() => {
                        let index = number(charges.len() as u64) as usize;
                        let bytes = number(40);
                        if number(3) == 0 {
                            charges[index].shrink(bytes);
                        } else {
                            charges[index].grow(bytes, 800);
                        }
                    }
                    _ => {}
                }
                let sum: u64 = charges.iter().map(|charge| charge.bytes).sum();
                assert_eq!(budget.held(), sum, "seed {seed}");
                assert!(sum <= 800, "seed {seed}");
                assert!(
                    charges.iter().all(|charge| charge.client.held() <= 100),
                    "seed {seed}"
                );
            }
            drop(charges);
            assert_eq!(budget.held(), 0, "seed {seed}");
            assert!(holdings.is_empty(), "seed {seed}");
        }
    }
}
