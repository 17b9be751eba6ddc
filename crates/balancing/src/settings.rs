//! The settings of a pool.

use std::{fmt, str::FromStr, time::Duration};

use crate::hash::mix;

/// How a member is picked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Algorithm {
    /// Shortest expected wait, from the work in flight and the number of JRubies. If the JRubies are not known, it picks like
    /// `LeastConnections`. The default.
    #[default]
    LeastLoad,
    /// Fewest requests in flight for the weight, over all workers.
    LeastConnections,
    /// Smooth weighted rotation.
    RoundRobin,
    /// The less loaded of two members that are drawn by weight.
    Random,
    /// By the client's address. When a member leaves, only its own clients move.
    SourceHash,
    /// By the verified certname. An agent stays on its member, unless that member has far more work than the others.
    CertnameHash,
    /// The first available member, in the configured order.
    First,
}

impl Algorithm {
    /// The word in configuration, API and reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::LeastLoad => "least-load",
            Self::LeastConnections => "least-connections",
            Self::RoundRobin => "round-robin",
            Self::Random => "random",
            Self::SourceHash => "source-hash",
            Self::CertnameHash => "certname-hash",
            Self::First => "first",
        }
    }
}

/// What a probe requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CheckKind {
    /// `GET /status/v1/simple`, expecting 200 and `running`. If probes have a port of their own: `GET /`, expecting 200. The
    /// default.
    #[default]
    Http,
    /// `GET /production/status/no_key`, expecting 200 and `"is_alive":true`, which Puppet 0.25 to 3 return.
    Legacy,
    /// Only a TCP connection.
    Tcp,
    /// No probes. A member is up until it refuses a connection.
    None,
}

/// `[pools.NAME.check]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckSettings {
    /// What a probe requests. Default `http`.
    pub kind: CheckKind,
    /// Port for probes. None: the member's port. Only with `http` and `tcp`.
    pub port: Option<u16>,
    /// Whether probes to `port` use the TLS of the pool. Default false: plain text.
    pub tls: bool,
    /// Path and query of an HTTP probe. None: the path and query of the kind.
    pub path: Option<String>,
    /// Status codes that count as success. Empty: 200. Only with `http`.
    pub expect_status: Vec<StatusRange>,
    /// Text that the body must contain. None: what the kind and the path expect. Only with `http`.
    pub expect_body: Option<String>,
    /// Time between probes of one member. Default 5 s.
    pub interval: Duration,
    /// Time between probes while their results disagree with the member's health. None: `interval`.
    pub fast_interval: Option<Duration>,
    /// Time allowed for one probe. Default 3 s.
    pub timeout: Duration,
    /// Number of successful probes that bring a member up. A member that was never probed is up after its first successful
    /// probe. Default 2.
    pub rise: u32,
    /// Number of failed probes that take a member down. Default 3.
    pub fall: u32,
    /// Whether a member counts as up before its first probe. Default false.
    pub assume_up: bool,
    /// Whether the proxy reads the number of JRubies from the members. None: it does if probes request a Puppet server's
    /// status.
    pub read_jrubies: Option<bool>,
}

/// A range of status codes, including both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusRange {
    first: u16,
    last: u16,
}

impl StatusRange {
    /// Whether it includes a status code.
    pub fn contains(&self, status: u16) -> bool {
        (self.first..=self.last).contains(&status)
    }
}

impl FromStr for StatusRange {
    type Err = ();

    /// Reads `200` or `200-299`.
    fn from_str(text: &str) -> Result<Self, ()> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let code = |text: &str| match text.parse() {
            Ok(code @ 100..=599) if text.len() == 3 => Ok(code),
            _ => Err(()),
        };
        let range = Self {
            first: code(first)?,
            last: code(last)?,
        };
        (range.first <= range.last).then_some(range).ok_or(())
    }
}

impl fmt::Display for StatusRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            write!(f, "{}", self.first)
        } else {
            write!(f, "{}-{}", self.first, self.last)
        }
    }
}

impl CheckSettings {
    /// Time from the end of one probe to the next. `is_changing`: the last probes disagree with the member's health.
    ///
    /// The interval is up to 10 % longer, depending on the member and the turn. Probes that happen at the same time, for
    /// example after the machine was paused, therefore drift apart again.
    pub fn wait(&self, is_changing: bool, member: u64, turn: u64) -> Duration {
        let interval = match self.fast_interval {
            Some(fast) if is_changing => fast.min(self.interval),
            _ => self.interval,
        };
        longer(interval, member, turn)
    }

    /// Whether the response to a probe shows the member's clock, because it is an HTTP response from the member itself.
    pub fn shows_clock(&self) -> bool {
        match self.kind {
            CheckKind::Http => self.port.is_none() || self.tls,
            CheckKind::Legacy => true,
            CheckKind::Tcp | CheckKind::None => false,
        }
    }
}

impl Default for CheckSettings {
    fn default() -> Self {
        Self {
            kind: CheckKind::Http,
            port: None,
            tls: false,
            path: None,
            expect_status: Vec::new(),
            expect_body: None,
            fast_interval: None,
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(3),
            rise: 2,
            fall: 3,
            assume_up: false,
            read_jrubies: None,
        }
    }
}

/// Number of steps of the jitter of an interval.
const JITTER_STEPS: u64 = 1024;

/// Protection of a pool in addition to the checks of its members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardSettings {
    /// `[pools.NAME.agent_check]`. None: no agent checks.
    pub agent_check: Option<AgentCheckSettings>,
    /// `[pools.NAME.ejection]`.
    pub ejection: EjectionSettings,
    /// Retries that are allowed, as a percentage of the pool's requests. Default 20.
    pub retry_budget: u32,
}

impl Default for GuardSettings {
    fn default() -> Self {
        Self {
            agent_check: None,
            ejection: EjectionSettings::default(),
            retry_budget: 20,
        }
    }
}

/// `[pools.NAME.agent_check]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentCheckSettings {
    /// Port on the member's host.
    pub port: u16,
    /// Time between two checks. Default 5 s.
    pub interval: Duration,
}

impl AgentCheckSettings {
    /// Time from the end of one check to the next. Up to 10 % longer than the interval, as with probes.
    pub fn wait(&self, member: u64, turn: u64) -> Duration {
        longer(self.interval, member ^ AGENT_SPREAD, turn)
    }
}

/// The interval, up to 10 % longer, depending on the member and the turn.
fn longer(interval: Duration, member: u64, turn: u64) -> Duration {
    let drawn = mix(member.rotate_left(32) ^ turn) % JITTER_STEPS;
    interval + interval / 10 * (drawn as u32) / (JITTER_STEPS as u32)
}

/// Makes this jitter differ from that of the member's probes, which also depends on the member's number.
const AGENT_SPREAD: u64 = 0x6167_656e;

impl Default for AgentCheckSettings {
    fn default() -> Self {
        Self {
            port: 0,
            interval: Duration::from_secs(5),
        }
    }
}

/// `[pools.NAME.ejection]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EjectionSettings {
    /// Whether members are ejected at all. Default true.
    pub enabled: bool,
    /// Consecutive failures that eject a member. Default 5.
    pub consecutive_failures: u32,
    /// Percentage of failed attempts in a window at which a member is ejected. Default 50.
    pub error_rate: u32,
    /// Length of that window. Default 30 s.
    pub window: Duration,
    /// How long the first ejection lasts. Default 10 s.
    pub eject_time: Duration,
    /// Maximum length of an ejection. Default 5 min.
    pub eject_time_max: Duration,
    /// Maximum percentage of a pool's members that may be ejected at the same time. Default 50.
    pub ejected_max: u32,
    /// Minimum percentage of available members in a priority. If fewer are available, the ejections in that priority end.
    /// Default 0: ejections end only when no member is available.
    pub panic_threshold: u32,
}

impl Default for EjectionSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            consecutive_failures: 5,
            error_rate: 50,
            window: Duration::from_secs(30),
            eject_time: Duration::from_secs(10),
            eject_time_max: Duration::from_secs(300),
            ejected_max: 50,
            panic_threshold: 0,
        }
    }
}

/// One entry of `members`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberSettings {
    /// `host:port`, or `unix:/path` for a Unix socket.
    pub address: String,
    /// Share of the load within the pool. Default 1.
    pub weight: u32,
    /// Maximum requests in flight. None: unlimited.
    pub in_flight_max: Option<u32>,
    /// JRubies of this server. None: the number of the pool, or the number that the status service shows.
    pub jrubies: Option<u32>,
    /// Name that its certificate must have. None: the host of `address`.
    pub server_name: Option<String>,
    /// Whether it gets requests only while no ordinary member is available. Default no.
    pub role: Role,
    /// Members with a lower number get requests first. Default 0.
    pub priority: u16,
    /// How the proxy treats several addresses of the member's name. Default: by their families.
    pub addresses: AddressExpansion,
}

/// How the proxy treats several addresses of a member's name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AddressExpansion {
    /// Several addresses of one family are several members. One address of each family is one host. The default.
    #[default]
    Auto,
    /// Each address is a member.
    All,
    /// All addresses belong to one member, and the proxy tries one after the other.
    First,
}

impl MemberSettings {
    /// A member with the default for every other setting.
    pub fn new(address: &str) -> Self {
        Self {
            address: address.to_owned(),
            weight: 1,
            in_flight_max: None,
            jrubies: None,
            priority: 0,
            server_name: None,
            role: Role::Ordinary,
            addresses: AddressExpansion::Auto,
        }
    }

    /// The name of the service whose SRV records name the members, if this entry is a service.
    pub fn service(&self) -> Option<&str> {
        self.address.strip_prefix("srv:")
    }
}

/// The role of a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// It always gets requests. The default.
    #[default]
    Ordinary,
    /// It gets requests while no ordinary member is available.
    Backup,
}

/// The part of `[pools.NAME]` that decides how members are picked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolSettings {
    /// Name in records, metrics and routes.
    pub name: String,
    /// Members, at least one.
    pub members: Vec<MemberSettings>,
    /// How a member is picked. Default least-load.
    pub algorithm: Algorithm,
    /// JRubies of each server. None: the number that its status service shows.
    pub jrubies: Option<u32>,
    /// Maximum requests in flight that hold a JRuby, as a percentage of a member's JRubies. Default 100.
    pub jruby_load_max: u32,
    /// How members are probed.
    pub check: CheckSettings,
    /// How a restarted member gets its load back.
    pub slow_start: SlowStartSettings,
}

/// Slow start of members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowStartSettings {
    /// Time after which a member has its full weight again. Zero: at once. Default zero.
    pub duration: Duration,
    /// Number of requests per JRuby after which a member has its full weight earlier. 0: only time counts. Default 300.
    pub requests: u32,
}

impl Default for SlowStartSettings {
    fn default() -> Self {
        Self {
            duration: Duration::ZERO,
            requests: 300,
        }
    }
}

impl PoolSettings {
    /// A pool without members, with the default for every other setting.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            members: Vec::new(),
            algorithm: Algorithm::default(),
            jrubies: None,
            jruby_load_max: 100,
            check: CheckSettings::default(),
            slow_start: SlowStartSettings::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_codes_are_read_one_by_one_and_as_ranges() {
        for (text, shown, inside, outside) in [
            ("200", "200", 200, 201),
            ("200-299", "200-299", 299, 300),
            ("404-404", "404", 404, 403),
        ] {
            let range: StatusRange = text.parse().expect(text);
            assert_eq!(range.to_string(), shown);
            assert!(range.contains(inside) && !range.contains(outside));
        }
        for text in [
            "", "20", "0200", "+20", "299-200", "200-", "99", "600", "ok",
        ] {
            assert!(text.parse::<StatusRange>().is_err(), "{text}");
        }
    }

    #[test]
    fn intervals_are_up_to_a_tenth_longer_and_differ_by_member_and_turn() {
        let check = CheckSettings::default();
        let waits = |member: u64| (0..100).map(move |turn| (member, turn));
        let mut seen = std::collections::BTreeSet::new();
        for (member, turn) in (0..10).flat_map(waits) {
            let wait = check.wait(false, member, turn);
            assert!((check.interval..=check.interval * 11 / 10).contains(&wait));
            seen.insert(wait);
        }
        assert!(seen.len() > 500, "{} different intervals", seen.len());
    }

    #[test]
    fn the_fast_interval_applies_while_health_changes_and_is_never_the_slower_one() {
        let mut check = CheckSettings {
            fast_interval: Some(Duration::from_secs(1)),
            ..CheckSettings::default()
        };
        assert!(check.wait(true, 0, 0) <= Duration::from_millis(1100));
        assert!(check.wait(false, 0, 0) >= Duration::from_secs(5));
        check.fast_interval = Some(Duration::from_secs(50));
        assert!(check.wait(true, 0, 0) <= Duration::from_millis(5500));
    }
}
