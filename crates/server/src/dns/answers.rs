//! What DNS answered last that the pools accept, and when it is asked again.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use config::{Config, PoolConfig};
use discovery::{
    AnswerRules, DnsAnswer, DnsQuestion, LookupError, Resolved, question, settings::DnsSettings,
};
use telemetry::{Alarm, Alarms};
use tokio::{
    sync::Notify,
    time::{Instant, timeout},
};
use upstream::{Plaintext, Scheme};

use super::{HELD_WRITES, Lookup, ask, status::LastLookup, stored::Writer};

/// Time that a start and a reload wait for the first answers; later ones are used as they come.
const FIRST_ANSWERS_MAX: Duration = Duration::from_secs(3);

/// What DNS answered last that the pools accept.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    pub(super) known: Mutex<Known>,
    /// Notified when another configuration is active.
    pub(crate) configured: Notify,
}

#[derive(Debug, Default)]
pub(super) struct Known {
    /// By pool, because each has its own rules.
    pub(super) accepted: BTreeMap<(String, DnsQuestion), Accepted>,
    /// When each question was asked, and is asked again.
    pub(super) lookups: BTreeMap<DnsQuestion, LastLookup>,
    /// The settings by which the questions were asked.
    settings: Option<DnsSettings>,
    /// The member that gets the writes to the CA.
    pub(super) writer: Option<Writer>,
    /// Whether something differs from what is stored.
    pub(super) is_unstored: bool,
}

/// An answer that a pool uses.
#[derive(Clone, Debug)]
pub(super) struct Accepted {
    pub(super) answer: DnsAnswer,
    /// Hosts whose addresses are not those that DNS answers when it works.
    pub(super) doubtful: BTreeSet<String>,
    /// Whether an earlier process stored it, and DNS has not confirmed it since.
    pub(super) is_stored: bool,
}

impl Answers {
    /// The last valid answer. One that was valid by other rules of the pool may be valid no longer.
    pub(crate) fn of(&self, pool: &PoolConfig, question: &DnsQuestion) -> Option<DnsAnswer> {
        let known = self.known();
        let accepted = known.valid(&pool.pool.name, question, &rules(pool))?;
        Some(accepted.answer.clone())
    }

    /// Asks those questions of a configuration that are `wanted` and that a pool has no answer to, within a limit: members
    /// that are not known by then join their pools later.
    pub(crate) async fn ask_new(
        &self,
        config: &Config,
        wanted: impl Fn(&DnsQuestion) -> bool,
        alarms: &Alarms,
    ) {
        let mut new = questions(config);
        new.retain(|question| wanted(question));
        {
            let known = self.known();
            new.retain(|question| known.lacks(config, question));
        }
        if new.is_empty() {
            return;
        }
        let mut answered = Vec::new();
        let _ = timeout(FIRST_ANSWERS_MAX, ask(&config.dns, new, &mut answered)).await;
        self.learn(config, answered, alarms);
    }

    /// Accepts or refuses answers; the names of pools whose members may have changed come back.
    pub(super) fn learn(
        &self,
        config: &Config,
        asked: Vec<Lookup>,
        alarms: &Alarms,
    ) -> BTreeSet<String> {
        let mut changed = BTreeSet::new();
        let mut known = self.known();
        for lookup in asked {
            let Lookup {
                question,
                result,
                servers,
            } = lookup;
            let mut refused = None;
            for (pool, rules) in asking(config, &question) {
                let before = known.valid(pool, &question, &rules);
                let outcome = accepted(&question, &result, &rules, before);
                note_alarm(alarms, (pool, &question), before, &outcome);
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
            let before = known.lookups.get(&question);
            let lookup = LastLookup::new(&config.dns, before, (&result, servers), refused);
            known.lookups.insert(question, lookup);
        }
        changed
    }

    /// Forgets what no configuration asks any more; the first time that a question is due comes back.
    pub(super) fn next_due(&self, config: &Config, alarms: &Alarms) -> Option<Instant> {
        let wanted = questions(config);
        let mut known = self.known();
        known
            .lookups
            .retain(|question, _| wanted.contains(question));
        let before = known.settings.replace(config.dns.clone());
        // Other servers may answer otherwise.
        if before.is_some_and(|before| before != config.dns) {
            let now = Instant::now();
            known
                .lookups
                .values_mut()
                .for_each(|lookup| lookup.due = now);
        }
        let is_asked = |pool: &str, question: &DnsQuestion| {
            asking(config, question)
                .iter()
                .any(|(named, _)| *named == pool)
        };
        let accepted = known.accepted.len();
        known
            .accepted
            .retain(|(pool, question), _| is_asked(pool, question));
        known.is_unstored |= known.accepted.len() < accepted;
        let gone = alarms.active().into_iter().filter(|active| {
            let mut wanted = wanted.iter().flat_map(|question| {
                let pools = asking(config, question).into_iter();
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
        // Whether the CA that keeps the writes still answers has nothing to do with TTLs.
        let is_held = alarms.get(Alarm::DnsAnswer, HELD_WRITES).is_some();
        Some(if is_held {
            due.min(now + config.dns.ttl_min)
        } else {
            due
        })
    }

    pub(super) fn due(&self, config: &Config) -> BTreeSet<DnsQuestion> {
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

    /// Whether a question was never asked, or a pool has no valid answer to it.
    fn lacks(&self, config: &Config, question: &DnsQuestion) -> bool {
        let mut asking = asking(config, question).into_iter();
        !self.lookups.contains_key(question)
            || asking.any(|(pool, rules)| self.valid(pool, question, &rules).is_none())
    }
}

/// The answer that a pool uses, with what is missing in it if something is; or why it uses none.
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
        // A host without any answer so far is a member that is down, as its probes show.
        (Err(_), None) if matches!(question, DnsQuestion::Host(_)) => return,
        (Err(why), None) => format!(
            "pool {pool}: cannot use the DNS answer for {question}: {why}; it has no members of this name"
        ),
    };
    let about = about(pool, question);
    alarms.raise(Alarm::DnsAnswer, &about, message, SystemTime::now());
}

/// What the alarm about an answer is about.
fn about(pool: &str, question: &DnsQuestion) -> String {
    format!("{pool}: {question}")
}

/// What the members of a configuration need answered.
pub(crate) fn questions(config: &Config) -> BTreeSet<DnsQuestion> {
    let pools = config.pools.iter();
    pools
        .flat_map(|pool| pool.pool.members.iter().filter_map(question))
        .collect()
}

/// The pools that ask a question, with what each requires of the answer.
pub(super) fn asking<'c>(
    config: &'c Config,
    asked: &DnsQuestion,
) -> Vec<(&'c str, AnswerRules<'c>)> {
    let mut asking = Vec::new();
    for pool in &config.pools {
        let mut members = pool.pool.members.iter();
        if members.any(|member| question(member).as_ref() == Some(asked)) {
            asking.push((pool.pool.name.as_str(), rules(pool)));
        }
    }
    asking
}

/// An entry with a `server_name` of its own needs no `server_names`: one name holds for all targets.
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

    /// A service with one target at this address, or at none.
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

    /// What is used after an answer about whose host DNS failed, and whether something is missing in it; none: it is not used.
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
    fn what_is_found_while_dns_fails_never_replaces_an_answer_of_dns() {
        let (good, other) = (["192.0.2.1"], ["192.0.2.9"]);
        for (before, is_used) in [
            (None, true),
            // A name that only the system's resolver knows may move.
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
    fn a_target_about_which_dns_fails_keeps_its_addresses() {
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
        // Without any address it is not used at all where it is the only target.
        assert!(after_failure(target(&[]), None).is_none());
    }
}
