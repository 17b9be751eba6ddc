//! Tests of the rate limiter: single limits with a simulated clock, and many agents that enrol.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use super::{Rate, RateExceeded, RateLimiter, RateScope, Rates, SOURCES_MAX};
use crate::hash::mix;

const WIDE: Rate = Rate {
    per_second: 1_000_000,
    burst: 1_000_000,
};

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn v4(number: u32) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from_bits(number))
}

/// How many of `tries` requests at the same moment pass.
fn passing(limiter: &RateLimiter, rates: &Rates, source: IpAddr, now: Duration, tries: u32) -> u32 {
    let passes = |n: &u32| limiter.count(rates, source, now, u64::from(*n)).is_ok();
    (0..tries).filter(passes).count() as u32
}

#[test]
fn a_burst_passes_and_then_the_rate() {
    let limiter = RateLimiter::new(7);
    let rates = Rates {
        address: Rate {
            per_second: 2,
            burst: 5,
        },
        total: WIDE,
    };
    let one = v4(1);
    assert_eq!(passing(&limiter, &rates, one, seconds(0), 9), 5);
    assert_eq!(passing(&limiter, &rates, one, seconds(0), 9), 0);
    assert_eq!(passing(&limiter, &rates, one, seconds(1), 9), 2);
    // Another address has a burst of its own. A quiet time restores the burst, but no more than that.
    assert_eq!(passing(&limiter, &rates, v4(2), seconds(1), 9), 5);
    assert_eq!(passing(&limiter, &rates, one, seconds(3600), 9), 5);
}

#[test]
fn a_rate_that_is_raised_holds_at_once() {
    let limiter = RateLimiter::new(7);
    let rates = |per_second, burst| Rates {
        address: Rate { per_second, burst },
        total: WIDE,
    };
    let one = v4(1);
    assert_eq!(passing(&limiter, &rates(1, 500), one, seconds(0), 501), 500);
    assert_eq!(passing(&limiter, &rates(20, 500), one, seconds(0), 9), 0);
    let raised = passing(&limiter, &rates(20, 500), one, seconds(1), 50);
    assert_eq!(raised, 20, "from empty, at the new rate");
}

#[test]
fn the_total_holds_for_all_and_costs_a_refused_address_nothing() {
    let limiter = RateLimiter::new(7);
    let rates = Rates {
        address: Rate {
            per_second: 1,
            burst: 2,
        },
        total: Rate {
            per_second: 1,
            burst: 3,
        },
    };
    let ask = |source, at| {
        limiter
            .count(&rates, source, seconds(at), 0)
            .map_err(|e| e.of)
    };
    assert_eq!(ask(v4(1), 0), Ok(()));
    assert_eq!(ask(v4(1), 0), Ok(()));
    assert_eq!(ask(v4(1), 0), Err(RateScope::Address));
    assert_eq!(ask(v4(2), 0), Ok(()));
    assert_eq!(ask(v4(2), 0), Err(RateScope::Total));
    assert_eq!(ask(v4(3), 0), Err(RateScope::Total));
    // A request that the total rate refused was not counted for its address.
    assert_eq!(ask(v4(2), 1), Ok(()));
}

#[test]
fn an_ipv6_network_of_64_bits_is_one_address_and_a_mapped_ipv4_is_itself() {
    let limiter = RateLimiter::new(7);
    let rates = Rates {
        address: Rate {
            per_second: 1,
            burst: 1,
        },
        total: WIDE,
    };
    let ask = |source: &str| {
        let source: IpAddr = source.parse().expect("an address");
        limiter.count(&rates, source, seconds(0), 0).is_ok()
    };
    for (source, passes) in [
        ("2001:db8:0:1::1", true),
        ("2001:db8:0:1::2", false),
        ("2001:db8:0:1:ffff:ffff:ffff:ffff", false),
        ("2001:db8:0:2::1", true),
        ("10.0.0.1", true),
        ("::ffff:10.0.0.1", false),
        ("::ffff:10.0.0.2", true),
    ] {
        assert_eq!(ask(source), passes, "{source}");
    }
}

#[test]
fn those_who_come_too_soon_come_again_spread() {
    let limiter = RateLimiter::new(7);
    let rates = Rates {
        address: Rate {
            per_second: 10,
            burst: 1,
        },
        total: WIDE,
    };
    assert!(limiter.count(&rates, v4(1), seconds(0), 0).is_ok());
    let mut by_second: BTreeMap<u64, u32> = BTreeMap::new();
    for n in 0..5000_u64 {
        let refused = limiter.count(&rates, v4(1), seconds(0), mix(n));
        let RateExceeded { of, retry_after } = refused.expect_err("too soon");
        assert_eq!(of, RateScope::Address);
        assert!(
            retry_after >= seconds(1) && retry_after <= seconds(131),
            "{retry_after:?}"
        );
        *by_second.entry(retry_after.as_secs()).or_default() += 1;
    }
    // 1,200 of the requests have turns, ten per second. The other requests are spread over the same two minutes.
    assert!(by_second.len() > 120, "{by_second:?}");
    assert!(
        by_second.values().all(|count| *count < 100),
        "{by_second:?}"
    );
}

#[test]
fn memory_is_bounded_for_any_number_of_addresses_and_limits_still_hold() {
    let limiter = RateLimiter::new(0x5eed);
    let rates = Rates {
        address: Rate {
            per_second: 1,
            burst: 20,
        },
        total: WIDE,
    };
    let greedy = v4(0x0a00_0001);
    assert_eq!(passing(&limiter, &rates, greedy, seconds(0), 30), 20);
    for number in 0..100_000 {
        let _ = limiter.count(&rates, v4(0xc000_0000 + number), seconds(0), 0);
    }
    assert_eq!(limiter.memory().sources.len(), SOURCES_MAX);
    // A hundred thousand other addresses have made one request each. Some of them were forgotten, but this one was not.
    assert_eq!(passing(&limiter, &rates, greedy, seconds(0), 30), 0);
}

/// The requests that an agent without a certificate sends to the CA until it has one.
struct Enrolling {
    /// 0: CA certificate, 1: CRL, 2: certificate request, 3: the certificate, repeatedly.
    step: u32,
    done: bool,
    refused: u32,
}

/// Simulates agents behind one address that start within `start`. Returns when the last agent has its certificate, the maximum
/// number of refusals, and the maximum number of requests that passed in one second.
fn enrol(agents: usize, start: Duration, signed: Duration) -> (Duration, u32, u32) {
    let limiter = RateLimiter::new(0x5eed);
    let rates = Rates::default();
    let mut fleet: Vec<_> = (0..agents)
        .map(|_| Enrolling {
            step: 0,
            done: false,
            refused: 0,
        })
        .collect();
    let spread = start.as_micros().max(1) as u64;
    let mut queue: BTreeMap<(Duration, usize), ()> = (0..agents)
        .map(|agent| {
            (
                (Duration::from_micros(mix(agent as u64) % spread), agent),
                (),
            )
        })
        .collect();
    let mut chance = 1_u64;
    let mut passed: BTreeMap<u64, u32> = BTreeMap::new();
    let mut last = Duration::ZERO;
    while let Some(((now, index), ())) = queue.pop_first() {
        chance += 1;
        let agent = &mut fleet[index];
        let next = match limiter.count(&rates, v4(0x0a00_0001), now, mix(chance)) {
            Err(RateExceeded { retry_after, .. }) => {
                agent.refused += 1;
                // An agent sleeps for whole seconds, at most a hundred times.
                now + seconds(retry_after.as_secs().max(1))
            }
            Ok(()) => {
                *passed.entry(now.as_secs()).or_default() += 1;
                agent.step += 1;
                match agent.step {
                    0..=3 => now + Duration::from_millis(30),
                    _ if now >= signed => {
                        agent.done = true;
                        last = last.max(now);
                        continue;
                    }
                    // `waitforcert`: two minutes later, the agent sends the request again, which is answered with 400, and then
                    // requests the certificate.
                    _ => {
                        agent.step = 2;
                        now + seconds(120)
                    }
                }
            }
        };
        queue.insert((next, index), ());
    }
    assert!(fleet.iter().all(|agent| agent.done && agent.refused < 100));
    let refused = fleet.iter().map(|agent| agent.refused).sum();
    (
        last,
        refused,
        passed.into_values().max().unwrap_or_default(),
    )
}

#[test]
fn the_defaults_let_500_agents_behind_one_address_enrol_in_ten_minutes() {
    // Agents that all start at one moment, or within five minutes, or whose requests an operator signs after five minutes.
    for (start, signed) in [(0, 0), (300, 0), (0, 300)] {
        let (last, refused, busiest) = enrol(500, seconds(start), seconds(signed));
        assert!(last < seconds(600), "{start} {signed}: {last:?}");
        assert_eq!(refused > 0, start == 0, "{start} {signed}: {refused}");
        assert!(busiest <= 600, "{start} {signed}: {busiest}");
    }
}

#[test]
fn a_herd_of_5000_behind_one_address_gets_there_too() {
    let (last, refused, _) = enrol(5000, seconds(0), seconds(0));
    assert!(refused > 0);
    assert!(last < seconds(3600), "{last:?}");
}
