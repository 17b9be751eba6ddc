//! When the CRL of another proxy is a reason to fetch a newer one from the CA. The CRL itself is never shared.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::ProxyEntry;

/// Minimum time between two fetches for one issuer because of other proxies.
const HINT_INTERVAL_MIN: Duration = Duration::from_secs(10);
/// Maximum wait before such a fetch, so that not all proxies fetch at the same moment.
pub const HINT_JITTER_MAX: Duration = Duration::from_millis(200);
/// Maximum length of a number: RFC 5280 allows 20 bytes.
const NUMBER_LEN_MAX: usize = 64;
/// Maximum number of CRL numbers that are remembered because a fetch was made for them.
const TRIED_MAX: usize = 1024;

/// A CRL that a proxy uses: the newest of its issuer, whose signature the proxy has verified.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ActiveCrlEntry {
    /// The name of its issuer (RFC 2253).
    pub issuer: String,
    /// Its number: decimal, hexadecimal with `0x` from 16 bytes on, or `none`.
    pub number: String,
    /// Its digest, for messages.
    pub digest: String,
}

/// The CRLs of a proxy, by the digest of the issuer's name and key.
pub type ActiveCrls = BTreeMap<String, ActiveCrlEntry>;

/// An issuer, by its digest, and a number of its CRL.
type NumberOfIssuer = (String, String);

/// The CRLs of other proxies that are newer than those of this one.
pub type NewerCrls<'e> = BTreeMap<NumberOfIssuer, (&'e ProxyEntry, &'e ActiveCrlEntry)>;

/// The CRLs of other proxies with a higher number than this proxy has. `own` has the number of each issuer that this
/// proxy trusts, or `none` without a CRL. CRLs of other issuers do not count.
#[must_use]
pub fn newer_crls<'e>(
    own: &BTreeMap<String, String>,
    others: impl IntoIterator<Item = &'e ProxyEntry>,
) -> NewerCrls<'e> {
    let crls = others.into_iter().flat_map(|entry| {
        let crls = entry.crls.iter();
        crls.map(move |(issuer, crl)| (issuer, (entry, crl)))
    });
    let newer = crls.filter(|(issuer, (_, crl))| {
        let own = own.get(*issuer);
        own.is_some_and(|own| rank(&crl.number) > rank(own))
    });
    newer
        .map(|(issuer, (entry, crl))| ((issuer.clone(), crl.number.clone()), (entry, crl)))
        .collect()
}

/// The order of numbers by their text: the longer of two numbers without leading zeros is higher. `None` if there is no
/// number, or one that no proxy writes.
fn rank(number: &str) -> Option<(bool, usize, &str)> {
    let hex = number.strip_prefix("0x");
    let is_number = match hex {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()),
    };
    (is_number && number.len() <= NUMBER_LEN_MAX).then_some((hex.is_some(), number.len(), number))
}

/// Decides when to fetch from the CA because of other proxies. Each number causes one fetch, so that a number that the
/// CA does not serve causes no loop. The fetches at intervals try it again. Times are of a monotonic clock.
#[derive(Debug, Default)]
pub struct CrlHints {
    /// When the next fetch is due, without regard to the interval.
    planned: Option<Duration>,
    /// When a fetch was made for each issuer.
    fetched: BTreeMap<String, Duration>,
    /// The numbers for which a fetch was made.
    tried: BTreeSet<NumberOfIssuer>,
}

impl CrlHints {
    /// When a fetch is due; `None` if there is no reason for one. `jitter` is a random time up to [`HINT_JITTER_MAX`].
    pub fn due(
        &mut self,
        newer: &NewerCrls<'_>,
        now: Duration,
        jitter: Duration,
    ) -> Option<Duration> {
        let untried = newer.keys().filter(|key| !self.tried.contains(key));
        let after_interval = |(issuer, _): &NumberOfIssuer| {
            let at = self.fetched.get(issuer);
            at.map_or(now, |at| *at + HINT_INTERVAL_MIN)
        };
        let Some(earliest) = untried.map(after_interval).min() else {
            self.planned = None;
            return None;
        };
        let planned = *self.planned.get_or_insert(now + jitter);
        Some(planned.max(earliest))
    }

    /// Records that a fetch begins because of these CRLs.
    pub fn note_fetch(&mut self, newer: &NewerCrls<'_>, now: Duration) {
        self.planned = None;
        self.fetched.retain(|_, at| *at + HINT_INTERVAL_MIN > now);
        // One response has the CRLs of all issuers.
        let issuers = newer.keys().map(|(issuer, _)| (issuer.clone(), now));
        self.fetched.extend(issuers);
        self.tried.extend(newer.keys().cloned());
        if self.tried.len() > TRIED_MAX {
            self.note_regular_fetch(newer);
        }
    }

    /// Records that a fetch begins for another reason. It also tries the numbers of all proxies.
    pub fn note_regular_fetch(&mut self, newer: &NewerCrls<'_>) {
        self.tried = newer.keys().cloned().collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(crls: &[(&str, &str)]) -> ProxyEntry {
        let crls = crls.iter().map(|(issuer, number)| {
            let crl = ActiveCrlEntry {
                number: (*number).to_owned(),
                ..ActiveCrlEntry::default()
            };
            ((*issuer).to_owned(), crl)
        });
        ProxyEntry {
            crls: crls.collect(),
            ..ProxyEntry::default()
        }
    }

    fn own(crls: &[(&str, &str)]) -> BTreeMap<String, String> {
        let crls = crls.iter();
        crls.map(|(issuer, number)| ((*issuer).to_owned(), (*number).to_owned()))
            .collect()
    }

    #[test]
    fn only_a_higher_number_of_a_trusted_issuer_is_newer() {
        let long = &*"9".repeat(NUMBER_LEN_MAX + 1);
        for (number, others, expected) in [
            ("7", vec!["7"], false),
            ("7", vec!["6"], false),
            ("7", vec!["8"], true),
            ("9", vec!["10"], true),
            ("10", vec!["9"], false),
            ("7", vec!["6", "9"], true),
            ("7", vec!["none"], false),
            ("none", vec!["none"], false),
            ("none", vec!["0"], true),
            ("none", vec!["", "-1", "1e9", "0xG", "9…"], false),
            ("7", vec!["seven", "99999 ", long], false),
            (
                "1329227995784915872903807060280344575",
                vec!["0x01000000000000000000000000000000"],
                true,
            ),
            (
                "0x01000000000000000000000000000000",
                vec!["1329227995784915872903807060280344575"],
                false,
            ),
            (
                "0x01000000000000000000000000000000",
                vec!["0x0100000000000000000000000000000000"],
                true,
            ),
            (
                "0x01000000000000000000000000000000",
                vec!["0x01000000000000000000000000000001"],
                true,
            ),
        ] {
            let entries: Vec<_> = others.iter().map(|other| entry(&[("ca", other)])).collect();
            let is_newer = |own: &BTreeMap<_, _>| !newer_crls(own, &entries).is_empty();
            assert_eq!(
                is_newer(&own(&[("ca", number)])),
                expected,
                "{number} {others:?}"
            );
            assert!(!is_newer(&own(&[("other", "0")])), "another issuer");
        }
    }

    /// A second, the CRL numbers of other proxies at that time, and the second at which a fetch is due.
    type Step<'a> = (u64, &'a [(&'a str, &'a str)], Option<u64>);

    /// Checks successive decisions. A fetch is made when it is due, and this proxy keeps its CRLs.
    #[track_caller]
    fn check(steps: &[Step<'_>]) {
        let own = own(&[("ca", "5"), ("root", "5")]);
        let mut hints = CrlHints::default();
        let at = Duration::from_secs;
        for (number, (second, crls, expected)) in steps.iter().enumerate() {
            let entries = [entry(crls)];
            let newer = newer_crls(&own, &entries);
            let due = hints.due(&newer, at(*second), Duration::ZERO);
            assert_eq!(due, expected.map(at), "step {number}");
            if due.is_some_and(|due| due <= at(*second)) {
                hints.note_fetch(&newer, at(*second));
            }
        }
    }

    #[test]
    fn a_number_is_a_reason_for_one_fetch_and_an_issuer_for_one_in_ten_seconds() {
        // A number that the CA does not serve is tried once, however long other proxies report it.
        check(&[
            (0, &[("ca", "6")], Some(0)),
            (1, &[("ca", "6")], None),
            (60, &[("ca", "6")], None),
            (61, &[], None),
            (62, &[("ca", "6")], None),
        ]);
        // The next number waits for the end of the interval.
        check(&[
            (0, &[("ca", "6")], Some(0)),
            (3, &[("ca", "7")], Some(10)),
            (4, &[("ca", "8")], Some(10)),
            (10, &[("ca", "8")], Some(10)),
            (11, &[("ca", "9")], Some(20)),
        ]);
        // An endless sequence of numbers, as an attacker with the key could write it.
        let names: Vec<_> = (0..30).map(|n| (1000 - n).to_string()).collect();
        let crls: Vec<_> = names.iter().map(|name| [("ca", &**name)]).collect();
        let steps: Vec<_> = (0..30_u64)
            .map(|n| (n, &crls[n as usize][..], Some(n.div_ceil(10) * 10)))
            .collect();
        check(&steps);
        // Another issuer does not wait, and one response has the CRLs of both.
        check(&[
            (0, &[("ca", "6")], Some(0)),
            (1, &[("ca", "7"), ("root", "6")], Some(1)),
            (2, &[("ca", "7"), ("root", "6")], None),
            (3, &[("ca", "8")], Some(11)),
        ]);
        // Nothing newer, and issuers that are not trusted.
        check(&[
            (0, &[("ca", "5"), ("root", "4"), ("strange", "9")], None),
            (1, &[], None),
        ]);
    }

    #[test]
    fn a_fetch_waits_for_its_jitter_and_needs_its_reason_until_then() {
        let own = own(&[("ca", "5")]);
        let mut hints = CrlHints::default();
        let ms = Duration::from_millis;
        let entries = [entry(&[("ca", "6")])];
        let newer = newer_crls(&own, &entries);
        assert_eq!(hints.due(&newer, ms(0), ms(150)), Some(ms(150)));
        assert_eq!(hints.due(&newer, ms(50), ms(20)), Some(ms(150)), "once");
        let none = NewerCrls::new();
        assert_eq!(hints.due(&none, ms(60), ms(20)), None, "it was fetched");
        assert_eq!(hints.due(&newer, ms(70), ms(200)), Some(ms(270)));
    }

    #[test]
    fn a_regular_fetch_tries_all_numbers_and_what_is_remembered_has_a_limit() {
        let own = own(&[("ca", "5")]);
        let (now, mut hints) = (Duration::ZERO, CrlHints::default());
        let number = |number: usize| [entry(&[("ca", &number.to_string())])];
        let six = number(6);
        let newer = newer_crls(&own, &six);
        hints.note_regular_fetch(&newer);
        assert_eq!(hints.due(&newer, now, Duration::ZERO), None);
        let seven = number(7);
        let higher = newer_crls(&own, &seven);
        assert_eq!(hints.due(&higher, now, Duration::ZERO), Some(now));
        for other in 8..8 + 2 * TRIED_MAX {
            let entries = number(other);
            hints.note_fetch(&newer_crls(&own, &entries), now);
            assert!(hints.tried.len() <= TRIED_MAX);
        }
    }
}
