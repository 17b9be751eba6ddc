//! The last valid DNS answers for each pool, and when the next lookups are due.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use config::{Config, PoolConfig};
use discovery::{
    AnswerRules, DnsAnswer, DnsQuestion, LookupError, Resolved, question, settings::DnsSettings,
};
use serde::{Deserialize, Serialize};
use telemetry::{Alarm, Alarms};
use tokio::{
    sync::Notify,
    time::{Instant, timeout},
};
use upstream::{Plaintext, Scheme};

use super::lookup::{LastLookup, Lookup, resolve};

/// How long a start or a reload waits for the first answers. Later answers are used when they arrive.
const FIRST_ANSWERS_MAX: Duration = Duration::from_secs(3);

/// The last valid DNS answers, for the life of the process.
#[derive(Debug, Default)]
pub struct Answers {
    pub(super) known: Mutex<Known>,
    /// Notified when a reload is finished, because the configuration may have changed.
    pub(crate) configured: Notify,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// Valid answers by pool, because each pool has its own rules.
    pub(super) accepted: BTreeMap<(String, DnsQuestion), Accepted>,
    /// The last lookup of each name.
    pub(super) lookups: BTreeMap<DnsQuestion, LastLookup>,
    /// The settings of these lookups.
    settings: Option<DnsSettings>,
    /// The member that gets the writes to the CA.
    pub(super) ca_writer: Option<CaWriter>,
    /// Whether something has changed since it was stored.
    pub(super) is_unstored: bool,
}

/// An answer that a pool uses.
#[derive(Clone, Debug)]
pub(super) struct Accepted {
    pub(super) answer: DnsAnswer,
    /// Hosts whose addresses another source supplied while DNS failed.
    pub(super) doubtful: BTreeSet<String>,
    /// Whether it is from an earlier process, and DNS has not confirmed it since.
    pub(super) is_stored: bool,
}

/// The member that gets the writes to the CA.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CaWriter {
    pub(crate) member: String,
    pub(crate) addresses: Vec<IpAddr>,
    /// The members of the pool in the configuration. If an operator configures others, this record is not used.
    pub(crate) configured: Vec<String>,
}

/// The members of a pool as the configuration names them.
pub(crate) fn configured(pool: &PoolConfig) -> Vec<String> {
    let members = pool.pool.members.iter();
    members.map(|member| member.address.clone()).collect()
}

/// The subject of the alarm while writes to the CA stay at a member that DNS no longer names first.
pub(crate) const HELD_WRITES: &str = "writes to the CA";

impl Answers {
    /// The last answer that is valid by the current rules of the pool.
    pub(crate) fn of(&self, pool: &PoolConfig, question: &DnsQuestion) -> Option<DnsAnswer> {
        let known = self.known();
        let accepted = known.valid(&pool.pool.name, question, &rules(pool))?;
        Some(accepted.answer.clone())
    }

    /// The same answers, for a preparation that may learn others. Nothing is stored.
    pub(crate) fn copy(&self) -> Self {
        Self {
            known: Mutex::new(self.known().clone()),
            configured: Notify::new(),
        }
    }

    /// Looks up the `wanted` names of a configuration for which a pool has no answer, within a limit. Members that are not
    /// known by then join their pools later. The results are not learned.
    pub(crate) async fn look_up_new(
        &self,
        config: &Config,
        wanted: impl Fn(&DnsQuestion) -> bool,
    ) -> Vec<Lookup> {
        let mut new = questions(config);
        new.retain(|question| wanted(question));
        {
            let known = self.known();
            new.retain(|question| known.lacks(config, question));
        }
        let mut finished = Vec::new();
        if !new.is_empty() {
            let _ = timeout(FIRST_ANSWERS_MAX, resolve(&config.dns, new, &mut finished)).await;
        }
        finished
    }

    /// Accepts or refuses answers, with alarms about those that cannot be used. Returns the names of pools whose members may
    /// have changed.
    pub(crate) fn learn(
        &self,
        config: &Config,
        lookups: &[Lookup],
        alarms: Option<&Alarms>,
    ) -> BTreeSet<String> {
        let mut changed = BTreeSet::new();
        let mut known = self.known();
        for lookup in lookups {
            let Lookup {
                question,
                result,
                servers,
            } = lookup;
            let mut refused = None;
            for (pool, rules) in pools_with(config, question) {
                let before = known.valid(pool, question, &rules);
                let outcome = accepted(question, result, &rules, before);
                if let Some(alarms) = alarms {
                    note_alarm(alarms, (pool, question), before, &outcome);
                }
                let accepted = match outcome {
                    Ok((accepted, _)) => accepted,
                    Err(why) => {
                        refused = Some(why);
                        continue;
                    }
                };
                let is_new = before.map(|before| &before.answer) != Some(&accepted.answer);
                if is_new {
                    changed.insert(pool.to_owned());
                }
                let key = (pool.to_owned(), question.clone());
                known.accepted.insert(key, accepted);
                known.is_unstored |= is_new;
            }
            let before = known.lookups.get(question);
            let lookup = LastLookup::new(&config.dns, before, (result, servers), refused);
            known.lookups.insert(question.clone(), lookup);
        }
        changed
    }

    /// Hosts for which a server has answered and a pool has no valid answer: the pool, the name, and why.
    pub fn hosts_without_address(&self, config: &Config) -> Vec<(String, String, String)> {
        let known = self.known();
        let mut found = Vec::new();
        for question in questions(config) {
            let DnsQuestion::Host(host) = &question else {
                continue;
            };
            let lookup = known.lookups.get(&question);
            let Some(lookup) = lookup.filter(|lookup| lookup.is_answered) else {
                continue;
            };
            for (pool, rules) in pools_with(config, &question) {
                if known.valid(pool, &question, &rules).is_none() {
                    let why = lookup.failure.clone().unwrap_or_default();
                    found.push((pool.to_owned(), host.clone(), why));
                }
            }
        }
        found
    }

    /// Forgets names that the configuration no longer looks up. Returns when the first lookup is due.
    pub(crate) fn next_due(&self, config: &Config, alarms: &Alarms) -> Option<Instant> {
        let wanted = questions(config);
        let mut known = self.known();
        known
            .lookups
            .retain(|question, _| wanted.contains(question));
        let before = known.settings.replace(config.dns.clone());
        // Other servers may have other answers.
        if before.is_some_and(|before| before != config.dns) {
            let now = Instant::now();
            known
                .lookups
                .values_mut()
                .for_each(|lookup| lookup.due = now);
        }
        let is_looked_up = |pool: &str, question: &DnsQuestion| {
            pools_with(config, question)
                .iter()
                .any(|(named, _)| *named == pool)
        };
        let accepted = known.accepted.len();
        known
            .accepted
            .retain(|(pool, question), _| is_looked_up(pool, question));
        known.is_unstored |= known.accepted.len() < accepted;
        let gone = alarms.active().into_iter().filter(|active| {
            let mut wanted = wanted.iter().flat_map(|question| {
                let pools = pools_with(config, question).into_iter();
                pools.map(move |(pool, _)| about(pool, question))
            });
            let is_other = active.alarm != Alarm::DnsAnswer || active.about == HELD_WRITES;
            !is_other && !wanted.any(|about| about == active.about)
        });
        gone.for_each(|active| alarms.clear(Alarm::DnsAnswer, &active.about));
        let now = Instant::now();
        let due = wanted
            .iter()
            .map(|question| known.lookups.get(question).map_or(now, |lookup| lookup.due));
        let due = due.min()?;
        // While writes are held at a member, its health is checked more often than a TTL may allow.
        let is_held = alarms.get(Alarm::DnsAnswer, HELD_WRITES).is_some();
        Some(if is_held {
            due.min(now + config.dns.ttl_min)
        } else {
            due
        })
    }

    /// The names whose lookup is due now.
    pub(crate) fn due(&self, config: &Config) -> BTreeSet<DnsQuestion> {
        let (now, known) = (Instant::now(), self.known());
        let mut wanted = questions(config);
        wanted.retain(|question| {
            let lookup = known.lookups.get(question);
            lookup.is_none_or(|lookup| lookup.due <= now)
        });
        wanted
    }

    pub(super) fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// The answer that a pool with these rules uses.
    fn valid(
        &self,
        pool: &str,
        question: &DnsQuestion,
        rules: &AnswerRules<'_>,
    ) -> Option<&Accepted> {
        let key = (pool.to_owned(), question.clone());
        let accepted = self.accepted.get(&key)?;
        rules.check(&accepted.answer).ok().map(|()| accepted)
    }

    /// Whether a name was never looked up, or a pool has no valid answer for it.
    fn lacks(&self, config: &Config, question: &DnsQuestion) -> bool {
        let mut pools = pools_with(config, question).into_iter();
        !self.lookups.contains_key(question)
            || pools.any(|(pool, rules)| self.valid(pool, question, &rules).is_none())
    }
}

/// The answer that a pool uses from now on, and the part of it that DNS failed to answer, if any.
///
/// # Errors
/// Why the pool does not use the new answer.
fn accepted(
    question: &DnsQuestion,
    result: &Result<Resolved, LookupError>,
    rules: &AnswerRules<'_>,
    before: Option<&Accepted>,
) -> Result<(Accepted, Option<String>), String> {
    let resolved = result.as_ref().map_err(ToString::to_string)?;
    let (mut answer, doubts) = (resolved.answer.clone(), &resolved.doubts);
    let mut doubtful: BTreeSet<_> = doubts.keys().cloned().collect();
    let mut kept = BTreeSet::new();
    if let Some(before) = before {
        let is_better = |host: &str| !before.doubtful.contains(host);
        if let (DnsQuestion::Host(name), DnsAnswer::Host(_)) = (question, &before.answer)
            && let Some(doubt) = doubts.get(name).filter(|_| is_better(name))
        {
            return Err(doubt.to_string());
        }
        kept = answer.keep_addresses(&before.answer, |host| {
            let found = resolved.answer.has_address_of(host);
            doubts.contains_key(host) && (is_better(host) || !found)
        });
        doubtful.retain(|host| !kept.contains(host) || !is_better(host));
    }
    rules.check(&answer).map_err(|error| error.to_string())?;
    let is_missing = |host: &String| kept.contains(host) || !answer.has_address_of(host);
    let mut missing = doubts.iter().filter(|(host, _)| is_missing(host));
    let missing = missing
        .next()
        .map(|(host, doubt)| format!("{host}: {doubt}"));
    let accepted = Accepted {
        answer,
        doubtful,
        is_stored: false,
    };
    Ok((accepted, missing))
}

fn note_alarm(
    alarms: &Alarms,
    (pool, question): (&str, &DnsQuestion),
    before: Option<&Accepted>,
    outcome: &Result<(Accepted, Option<String>), String>,
) {
    let message = match (outcome, before) {
        (Ok((_, None)), _) => {
            return alarms.clear(Alarm::DnsAnswer, &about(pool, question));
        }
        (Ok((_, Some(missing))), _) => format!(
            "pool {pool}: DNS does not answer for a target of {question}: {missing}; its last valid addresses stay in use, if there are any"
        ),
        (
            Err(why),
            Some(Accepted {
                is_stored: true, ..
            }),
        ) => format!(
            "pool {pool}: cannot use the DNS answer for {question}: {why}; the answer stored before the restart is in use"
        ),
        (Err(why), Some(_)) => format!(
            "pool {pool}: cannot use the DNS answer for {question}: {why}; the last valid answer stays in use"
        ),
        // A host that has never had an answer is a member that is down, and its probes report that.
        (Err(_), None) if matches!(question, DnsQuestion::Host(_)) => return,
        (Err(why), None) => format!(
            "pool {pool}: cannot use the DNS answer for {question}: {why}; it has no members of this name"
        ),
    };
    let about = about(pool, question);
    alarms.raise(Alarm::DnsAnswer, &about, message, SystemTime::now());
}

/// The subject of an alarm about an answer, as `POOL: NAME`.
fn about(pool: &str, question: &DnsQuestion) -> String {
    format!("{pool}: {question}")
}

/// The names that the members of a configuration are looked up by.
pub fn questions(config: &Config) -> BTreeSet<DnsQuestion> {
    let pools = config.pools.iter();
    pools
        .flat_map(|pool| pool.pool.members.iter().filter_map(question))
        .collect()
}

/// The pools that look up a name, with the rules of each for the answer.
pub(super) fn pools_with<'c>(
    config: &'c Config,
    wanted: &DnsQuestion,
) -> Vec<(&'c str, AnswerRules<'c>)> {
    let mut pools = Vec::new();
    for pool in &config.pools {
        let mut members = pool.pool.members.iter();
        if members.any(|member| question(member).as_ref() == Some(wanted)) {
            pools.push((pool.pool.name.as_str(), rules(pool)));
        }
    }
    pools
}

/// The rules of a pool for answers. An entry with its own `server_name` needs no `server_names`, because that name is used for
/// all its targets.
pub(crate) fn rules(pool: &PoolConfig) -> AnswerRules<'_> {
    let upstream = &pool.upstream;
    AnswerRules {
        server_names: (!pool.server_names.is_empty()).then_some(pool.server_names.as_slice()),
        is_loopback_only: upstream.scheme == Scheme::Http
            && upstream.plaintext == Plaintext::Loopback,
    }
}

#[cfg(test)]
mod tests {
    use discovery::ServiceTarget;

    use super::*;

    const HOST: &str = "c1.example.com";

    fn addresses(texts: &[&str]) -> DnsAnswer {
        let addresses = texts.iter().map(|text| text.parse().expect("an address"));
        DnsAnswer::Host(addresses.collect())
    }

    /// A service with one target that has these addresses.
    fn target(address: &[&str]) -> DnsAnswer {
        let mut target = ServiceTarget::new(0, 1, HOST, 8140);
        let addresses = address.iter().map(|text| text.parse().expect("an address"));
        target.addresses = addresses.collect();
        DnsAnswer::service(vec![target])
    }

    fn known(answer: DnsAnswer, is_doubtful: bool) -> Accepted {
        Accepted {
            answer,
            doubtful: is_doubtful.then(|| HOST.to_owned()).into_iter().collect(),
            is_stored: false,
        }
    }

    /// The answer that a pool uses if DNS failed for the host in it, and whether that answer is incomplete. `None` if the pool
    /// does not use it.
    fn after_failure(answer: DnsAnswer, before: Option<&Accepted>) -> Option<(Accepted, bool)> {
        let question = match &answer {
            DnsAnswer::Host(_) => DnsQuestion::Host(HOST.to_owned()),
            DnsAnswer::Service(_) => DnsQuestion::Service("_x-puppet._tcp.example.com".to_owned()),
        };
        let late = LookupError::Late(Duration::from_secs(2));
        let resolved = Resolved {
            answer,
            ttl: Duration::ZERO,
            doubts: [(HOST.to_owned(), late)].into(),
        };
        let rules = AnswerRules {
            server_names: None,
            is_loopback_only: false,
        };
        let outcome = accepted(&question, &Ok(resolved), &rules, before);
        let (accepted, missing) = outcome.ok()?;
        Some((accepted, missing.is_some()))
    }

    #[test]
    fn an_address_found_while_dns_fails_never_replaces_an_answer_of_dns() {
        let (good, other) = (["192.0.2.1"], ["192.0.2.9"]);
        for (before, is_used) in [
            (None, true),
            // A name that only the system's resolver knows may change its addresses.
            (Some(known(addresses(&good), true)), true),
            (Some(known(addresses(&good), false)), false),
        ] {
            let outcome = after_failure(addresses(&other), before.as_ref());
            assert_eq!(outcome.is_some(), is_used, "{before:?}");
            if let Some((accepted, is_missing)) = outcome {
                assert_eq!(accepted.answer, addresses(&other));
                assert!(accepted.doubtful.contains(HOST) && !is_missing);
            }
        }
    }

    #[test]
    fn a_target_keeps_its_addresses_while_dns_fails_for_it() {
        let (good, other) = (["192.0.2.1"], ["192.0.2.9"]);
        for (found, is_before_doubtful, expected, is_missing) in [
            (&other[..], false, &good[..], true),
            (&other[..], true, &other[..], false),
            (&[][..], false, &good[..], true),
            (&[][..], true, &good[..], true),
        ] {
            let before = known(target(&good), is_before_doubtful);
            let outcome = after_failure(target(found), Some(&before)).expect("a valid answer");
            let (accepted, missing) = outcome;
            let shown = format!("{found:?}, doubtful before: {is_before_doubtful}");
            assert_eq!(accepted.answer, target(expected), "{shown}");
            assert_eq!(missing, is_missing, "{shown}");
            assert_eq!(
                accepted.doubtful.contains(HOST),
                is_before_doubtful,
                "{shown}"
            );
        }
        // An answer whose only target has no address is not used.
        assert!(after_failure(target(&[]), None).is_none());
    }
}
