//! `drain --wait` waits until the other proxies of the fleet have no request left on the members either.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use admin::{AdminClient, FleetProxyStatus, FleetStatus, MemberStateOutcome};

use crate::{
    ask::wait,
    exit_codes::{FLEET_LOST, STILL_RUNNING},
    failure::Failure,
    output,
};

/// How long a proxy may be missing before it counts as lost. If the store was emptied, a proxy puts its entry again within this
/// time.
const MISSING_MAX: Duration = Duration::from_secs(2);

/// The other proxies that are waited for.
pub(crate) struct Elsewhere {
    /// The revision of the store that has the drain.
    revision: i64,
    /// The members, as `(pool, address)`.
    members: BTreeSet<(String, String)>,
    waited_for: BTreeMap<String, WaitedFor>,
    unreached: Option<String>,
}

/// What is known about one proxy.
#[derive(Default)]
struct WaitedFor {
    /// Its requests on the members. `None` if it has not confirmed the drain.
    in_flight: Option<u64>,
    missing_since: Option<Instant>,
}

impl Elsewhere {
    /// Starts with the registered proxies except those in `without`, or with no proxy if the drain was not sent.
    pub(crate) fn new(outcome: &MemberStateOutcome, without: &[String]) -> Self {
        let sent = outcome.fleet.as_ref();
        let sent = sent.filter(|fleet| fleet.not_sent.is_none());
        let names = sent.into_iter().flat_map(|fleet| &fleet.proxies);
        let names = names.map(|proxy| proxy.name.clone());
        let members = outcome.members.iter();
        Self {
            revision: sent.map_or(0, |fleet| fleet.revision),
            members: members
                .map(|member| (member.pool.clone(), member.member.address.clone()))
                .collect(),
            waited_for: names
                .filter(|name| !without.contains(name))
                .map(|name| (name, WaitedFor::default()))
                .collect(),
            unreached: None,
        }
    }

    /// Whether no proxy has a request left.
    pub(crate) fn is_done(&self) -> bool {
        self.waited_for.is_empty()
    }

    /// Looks at the entries of the proxies, and prints what has changed.
    ///
    /// # Errors
    /// A proxy is lost, or still uses the members.
    pub(crate) fn update(
        &mut self,
        client: &AdminClient,
        print: &impl Fn(&str) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        if self.is_done() {
            return Ok(());
        }
        let fleet = wait(client.fleet())?;
        self.unreached = fleet
            .unreached
            .as_ref()
            .map(|unreached| unreached.why.clone());
        let names: Vec<_> = self.waited_for.keys().cloned().collect();
        for name in names {
            let in_flight = self.look_at(&fleet, &name)?;
            let Some(known) = self.waited_for.get_mut(&name) else {
                continue;
            };
            if let Some(left) = in_flight
                && known.in_flight != in_flight
                && (left > 0 || known.in_flight.is_some())
            {
                print(&format!("{name}: {left} in flight"))?;
            }
            known.in_flight = in_flight;
            if in_flight == Some(0) {
                self.waited_for.remove(&name);
            }
        }
        Ok(())
    }

    /// The requests of a proxy on the members. `None` if they are unknown for now.
    fn look_at(&mut self, fleet: &FleetStatus, name: &str) -> Result<Option<u64>, Failure> {
        let Some(known) = self.waited_for.get_mut(name) else {
            return Ok(None);
        };
        let mut proxies = fleet.proxies.iter();
        let Some(proxy) = proxies.find(|proxy| proxy.name == *name) else {
            let since = *known.missing_since.get_or_insert_with(Instant::now);
            return if since.elapsed() > MISSING_MAX {
                Err(lost(&format!(
                    "{name} is no longer part of the fleet: its lease has ended, and it may still send requests to the members; look at it, or use --without {name}"
                )))
            } else {
                Ok(None)
            };
        };
        known.missing_since = None;
        if proxy.applied < self.revision {
            return Ok(None);
        }
        let withheld = |(pool, address): &&(String, String)| {
            proxy.withheld.contains(&format!("{pool}/{address}"))
        };
        if let Some((pool, address)) = self.members.iter().find(withheld) {
            return Err(lost(&format!(
                "{name} still sends requests to {address} in {pool}, because no other member of the pool is available there; --force drains it anyway, and --without {name} does not wait for it"
            )));
        }
        Ok(Some(self.in_flight(proxy)))
    }

    fn in_flight(&self, proxy: &FleetProxyStatus) -> u64 {
        let withdrawn = proxy.withdrawn.iter();
        let counted = withdrawn.filter(|member| {
            let name = (member.pool.clone(), member.member.clone());
            self.members.contains(&name)
        });
        counted.map(|member| member.in_flight).sum()
    }

    /// The failure if proxies are left when the time has ended.
    pub(crate) fn not_confirmed(&self, timeout: Duration) -> Failure {
        let seconds = timeout.as_secs();
        let mut code = STILL_RUNNING;
        for (name, known) in &self.waited_for {
            output::print_error(&match (known.in_flight, &self.unreached) {
                (Some(left), None) => {
                    format!("still running after {seconds} s on {name}: {left} in flight")
                }
                (_, Some(why)) => {
                    code = FLEET_LOST;
                    format!(
                        "{name} was not heard of, because the store is not reached: {why}; run it with --wait on {name} too"
                    )
                }
                (None, None) => {
                    code = FLEET_LOST;
                    format!(
                        "{name} has not applied it within {seconds} s; look at it, or use --without {name}"
                    )
                }
            });
        }
        Failure::Found(code)
    }
}

fn lost(text: &str) -> Failure {
    output::print_error(text);
    Failure::Found(FLEET_LOST)
}
