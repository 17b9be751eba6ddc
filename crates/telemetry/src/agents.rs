//! Agents that were seen: their certificates, addresses and last requests. Their number is bounded, and they are in memory
//! only.

use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use crate::record::AccessRecord;

/// Verified agents by certname.
#[derive(Debug)]
pub struct Agents {
    shards: [Mutex<HashMap<Arc<str>, Arc<AgentEntry>>>; SHARDS],
    shard_max: usize,
    hash: std::hash::RandomState,
    forgotten: AtomicU64,
}

/// One agent, shared by the table and the agent's connections.
#[derive(Debug)]
pub struct AgentEntry {
    certname: Arc<str>,
    certificate: SeenCertificate,
    /// The issuers of its earlier certificates: the last issuer that differs from the present one, and the one before that.
    former_issuers: [Option<Arc<str>>; 2],
    /// Whether [`Self::take_change`] was called.
    change_taken: AtomicBool,
    doings: Mutex<Doings>,
    /// Open connections under this certname, including connections with earlier certificates.
    open: Arc<AtomicUsize>,
}

/// Counts one connection of an agent as open until it is dropped.
#[derive(Debug)]
pub struct OpenConnection(Arc<AtomicUsize>);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The certificate that an agent presented, in the form in which operators search for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenCertificate {
    /// The serial number in upper-case hexadecimal.
    pub serial: Box<str>,
    /// Its issuer (RFC 2253).
    pub issuer: Arc<str>,
    /// SHA-256 of its DER. It distinguishes certificates with equal serial numbers, which occur after a CA was set up again.
    pub fingerprint: [u8; 32],
    /// When it becomes valid.
    pub not_before: SystemTime,
    /// When it expires.
    pub not_after: SystemTime,
}

/// What the proxy knows about an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenAgent {
    /// Its certname.
    pub certname: Arc<str>,
    /// The certificate that it presented last.
    pub certificate: SeenCertificate,
    /// When it last connected or sent a request.
    pub at: SystemTime,
    /// Its address at that time.
    pub client: IpAddr,
    /// Its last requests, the newest first.
    pub requests: Vec<SeenRequest>,
    /// Its open connections.
    pub connections: usize,
}

/// How many agents there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentTally {
    /// Agents for each of [`EXPIRY_WORDS`], by the time until their certificates expire.
    pub by_expiry: [u64; EXPIRY_WORDS.len()],
    /// Agents whose certificates are neither expired nor refused, by the issuer (RFC 2253).
    pub by_issuer: BTreeMap<Arc<str>, u64>,
}

/// One request, as far as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenRequest {
    /// When its head was complete.
    pub at: SystemTime,
    /// Method and the beginning of the target; a byte that is not printable ASCII is shown as `?`.
    pub line: String,
    /// Status code sent; none if the client had closed the connection.
    pub status: Option<u16>,
    /// Why it was refused or failed.
    pub reason: Option<&'static str>,
}

#[derive(Debug)]
struct Doings {
    at: SystemTime,
    client: IpAddr,
    requests: [Option<RequestEntry>; REQUESTS_KEPT],
    next: usize,
}

/// A request in a fixed-size entry, so that storing one allocates nothing.
#[derive(Clone, Copy, Debug)]
struct RequestEntry {
    at: SystemTime,
    status: Option<u16>,
    reason: Option<&'static str>,
    line: [u8; LINE_BYTES_MAX],
    length: u8,
}

impl Default for Agents {
    fn default() -> Self {
        Self::with_shards_of(SHARD_AGENTS_MAX)
    }
}

impl Agents {
    fn with_shards_of(shard_max: usize) -> Self {
        Self {
            shard_max,
            shards: std::array::from_fn(|_| Mutex::default()),
            hash: std::hash::RandomState::new(),
            forgotten: AtomicU64::new(0),
        }
    }
}

impl Agents {
    /// Maximum number of agents. Beyond it, the agent seen longest ago is evicted. At 800 bytes each, the agents need at most
    /// 105 MB. The largest known estate has half as many agents.
    pub const AGENTS_MAX: usize = SHARDS * SHARD_AGENTS_MAX;

    /// Records that an agent has connected. `certificate` is called only if the agent presented another certificate before.
    pub fn connected(
        &self,
        certname: &Arc<str>,
        fingerprint: &[u8; 32],
        client: IpAddr,
        at: SystemTime,
        certificate: impl FnOnce() -> Option<SeenCertificate>,
    ) -> Option<Arc<AgentEntry>> {
        let mut shard = self.shard(certname);
        if let Some(agent) = shard.get(certname)
            && agent.certificate.fingerprint == *fingerprint
        {
            let agent = Arc::clone(agent);
            drop(shard);
            agent.came(client, at);
            return Some(agent);
        }
        let before = shard.get(certname).cloned();
        let requests = before.as_ref().map(|agent| {
            let doings = agent.doings();
            (doings.requests, doings.next, Arc::clone(&agent.open))
        });
        let certificate = certificate()?;
        let former_issuers = before.map(|before| before.issuers_before(&certificate.issuer));
        let (requests, next, open) =
            requests.unwrap_or_else(|| ([None; REQUESTS_KEPT], 0, Arc::default()));
        let agent = Arc::new(AgentEntry {
            certname: Arc::clone(certname),
            certificate,
            former_issuers: former_issuers.unwrap_or_default(),
            change_taken: AtomicBool::new(false),
            doings: Mutex::new(Doings {
                at,
                client,
                requests,
                next,
            }),
            open,
        });
        if shard.len() == self.shard_max && !shard.contains_key(certname) {
            self.forget_one(&mut shard);
        }
        shard.insert(Arc::clone(certname), Arc::clone(&agent));
        Some(agent)
    }

    /// Records that a client has connected with the certificate of a known agent, whether the proxy accepts the client or not.
    pub fn came_again(
        &self,
        certname: &str,
        fingerprint: &[u8; 32],
        client: IpAddr,
        at: SystemTime,
    ) -> Option<Arc<AgentEntry>> {
        let agent = self.shard(certname).get(certname).map(Arc::clone)?;
        if agent.certificate.fingerprint != *fingerprint {
            return None;
        }
        agent.came(client, at);
        Some(agent)
    }

    /// Every agent, shard by shard.
    pub fn all(&self) -> impl Iterator<Item = SeenAgent> {
        let entries = self.shards.iter().flat_map(Self::of_shard);
        entries.map(|agent| agent.snapshot())
    }

    /// Adds an agent that an earlier process has seen, unless it has connected to this process.
    pub fn restore(&self, seen: &SeenAgent) {
        let mut shard = self.shard(&seen.certname);
        if shard.contains_key(&seen.certname) || shard.len() == self.shard_max {
            return;
        }
        let mut requests = [None; REQUESTS_KEPT];
        let oldest_first = seen.requests.iter().take(REQUESTS_KEPT).rev();
        let mut next = 0;
        for request in oldest_first {
            requests[next] = Some(RequestEntry::of(request));
            next += 1;
        }
        let entry = AgentEntry {
            certname: Arc::clone(&seen.certname),
            certificate: seen.certificate.clone(),
            former_issuers: [None, None],
            change_taken: AtomicBool::new(true),
            doings: Mutex::new(Doings {
                at: seen.at,
                client: seen.client,
                requests,
                next: next % REQUESTS_KEPT,
            }),
            open: Arc::default(),
        };
        shard.insert(Arc::clone(&seen.certname), Arc::new(entry));
    }

    /// The agent with this certname. Case is ignored.
    pub fn of(&self, certname: &str) -> Option<SeenAgent> {
        // The search visits all agents, because a CA may issue names that differ in case. Only operators call this.
        self.find(|known, _| known.eq_ignore_ascii_case(certname))
    }

    /// The first agent whose name and last certificate `wanted` accepts.
    pub fn find(&self, wanted: impl Fn(&str, &SeenCertificate) -> bool) -> Option<SeenAgent> {
        self.shards.iter().find_map(|shard| {
            let shard = lock(shard);
            let mut agents = shard.values();
            let found = agents.find(|agent| wanted(&agent.certname, &agent.certificate));
            found.map(|agent| agent.snapshot())
        })
    }

    /// The number of agents, and the agents whose certificates expire first, at most `max` of them.
    pub fn ending_first(&self, max: usize) -> (usize, Vec<SeenAgent>) {
        let mut all: Vec<_> = self.shards.iter().flat_map(Self::of_shard).collect();
        let seen = all.len();
        let end =
            |agent: &Arc<AgentEntry>| (agent.certificate.not_after, Arc::clone(&agent.certname));
        all.sort_unstable_by_key(end);
        all.truncate(max);
        (seen, all.iter().map(|agent| agent.snapshot()).collect())
    }

    /// Counts the agents. An agent for which `is_out` is true is refused by now, whenever its certificate expires. `end` returns
    /// when a certificate expires, itself or with a CA above it.
    pub fn tally(
        &self,
        now: SystemTime,
        end: impl Fn(&SeenCertificate) -> SystemTime,
        is_out: impl Fn(&str, &SeenCertificate) -> bool,
    ) -> AgentTally {
        let mut tally = AgentTally::default();
        for agent in self.shards.iter().flat_map(Self::of_shard) {
            let left = end(&agent.certificate).duration_since(now);
            let place = match left {
                _ if is_out(&agent.certname, &agent.certificate) => EXPIRY_WORDS.len() - 1,
                Ok(left) => 1 + LEFT_MAX.iter().take_while(|max| left > **max).count(),
                Err(_) => 0,
            };
            tally.by_expiry[place] += 1;
            if (1..EXPIRY_WORDS.len() - 1).contains(&place) {
                let issuer = Arc::clone(&agent.certificate.issuer);
                *tally.by_issuer.entry(issuer).or_default() += 1;
            }
        }
        tally
    }

    /// The number of agents seen since this time whose certificates the predicate accepts, and the name of the agent among them
    /// whose certificate expires first.
    pub fn count(
        &self,
        since: SystemTime,
        wanted: impl Fn(&str, &SeenCertificate) -> bool,
    ) -> (u64, Option<Arc<str>>) {
        let (mut count, mut first) = (0, None::<Arc<AgentEntry>>);
        for agent in self.shards.iter().flat_map(Self::of_shard) {
            if agent.doings().at < since || !wanted(&agent.certname, &agent.certificate) {
                continue;
            }
            count += 1;
            let end = agent.certificate.not_after;
            if first
                .as_ref()
                .is_none_or(|first| end < first.certificate.not_after)
            {
                first = Some(agent);
            }
        }
        (count, first.map(|agent| Arc::clone(&agent.certname)))
    }

    /// Copies the entries out of the shard before they are examined, so that connections do not wait meanwhile.
    fn of_shard(shard: &Mutex<HashMap<Arc<str>, Arc<AgentEntry>>>) -> Vec<Arc<AgentEntry>> {
        lock(shard).values().cloned().collect()
    }

    /// How many agents were evicted.
    pub fn forgotten(&self) -> u64 {
        self.forgotten.load(Ordering::Relaxed)
    }

    fn forget_one(&self, shard: &mut HashMap<Arc<str>, Arc<AgentEntry>>) {
        let oldest = shard.iter().min_by_key(|(_, agent)| agent.doings().at);
        if let Some(oldest) = oldest.map(|(certname, _)| Arc::clone(certname)) {
            shard.remove(&oldest);
            self.forgotten.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn shard(&self, certname: &str) -> MutexGuard<'_, HashMap<Arc<str>, Arc<AgentEntry>>> {
        lock(&self.shards[self.hash.hash_one(certname) as usize % SHARDS])
    }
}

impl AgentEntry {
    /// Its certname.
    pub fn certname(&self) -> &Arc<str> {
        &self.certname
    }

    /// The issuers (RFC 2253) of its certificate and of two earlier certificates, if the agent has changed its issuer twice.
    /// The newest issuer comes first. They are returned once for each certificate.
    pub fn take_change(&self) -> Option<[&str; 3]> {
        let [Some(former), Some(before)] = &self.former_issuers else {
            return None;
        };
        let is_taken = self.change_taken.swap(true, Ordering::Relaxed);
        (!is_taken).then_some([&self.certificate.issuer, former, before])
    }

    /// The former issuers for the next entry of this agent, if its next certificate has the issuer `next`.
    fn issuers_before(&self, next: &str) -> [Option<Arc<str>>; 2] {
        if *self.certificate.issuer == *next {
            self.former_issuers.clone()
        } else {
            [
                Some(Arc::clone(&self.certificate.issuer)),
                self.former_issuers[0].clone(),
            ]
        }
    }

    /// Counts a connection as open.
    pub fn opened(&self) -> OpenConnection {
        self.open.fetch_add(1, Ordering::Relaxed);
        OpenConnection(Arc::clone(&self.open))
    }

    /// Stores a request. Only the agent's own connections and an operator's query take this lock.
    pub fn asked(&self, record: &AccessRecord) {
        let mut line = [0; LINE_BYTES_MAX];
        let mut length = 0;
        let method = record.request_fields.method().bytes;
        let target = record.request_fields.target().bytes;
        for part in [method, b" ", target] {
            let part = &part[..part.len().min(LINE_BYTES_MAX - length)];
            line[length..length + part.len()].copy_from_slice(part);
            length += part.len();
        }
        let mut doings = self.doings();
        let place = doings.next;
        doings.requests[place] = Some(RequestEntry {
            at: record.when,
            status: record.status,
            reason: record.reason,
            line,
            length: length as u8,
        });
        doings.next = (place + 1) % REQUESTS_KEPT;
        doings.at = record.when;
    }

    fn came(&self, client: IpAddr, at: SystemTime) {
        let mut doings = self.doings();
        (doings.at, doings.client) = (at, client);
    }

    fn snapshot(&self) -> SeenAgent {
        let doings = self.doings();
        let newest_first = (1..=REQUESTS_KEPT).map(|back| {
            let place = (doings.next + REQUESTS_KEPT - back) % REQUESTS_KEPT;
            doings.requests[place]
        });
        SeenAgent {
            certname: Arc::clone(&self.certname),
            certificate: self.certificate.clone(),
            at: doings.at,
            client: doings.client,
            requests: newest_first.flatten().map(|kept| kept.snapshot()).collect(),
            connections: self.open.load(Ordering::Relaxed),
        }
    }

    fn doings(&self) -> MutexGuard<'_, Doings> {
        lock(&self.doings)
    }
}

impl RequestEntry {
    fn of(request: &SeenRequest) -> Self {
        let bytes = request.line.as_bytes();
        let length = bytes.len().min(LINE_BYTES_MAX);
        let mut line = [0; LINE_BYTES_MAX];
        line[..length].copy_from_slice(&bytes[..length]);
        Self {
            at: request.at,
            status: request.status,
            reason: request.reason,
            line,
            length: length as u8,
        }
    }

    fn snapshot(&self) -> SeenRequest {
        let line = self.line[..usize::from(self.length)].iter();
        SeenRequest {
            at: self.at,
            line: line
                .map(|byte| match byte {
                    0x20..=0x7e => char::from(*byte),
                    _ => '?',
                })
                .collect(),
            status: self.status,
            reason: self.reason,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const fn days(days: u64) -> Duration {
    Duration::from_secs(86_400 * days)
}

/// Words for the time until a certificate expires. `1d` means one day or less, `later` means more than 90 days. `refused`
/// counts certificates that are refused whatever their expiry.
pub const EXPIRY_WORDS: [&str; 7] = ["expired", "1d", "7d", "30d", "90d", "later", "refused"];
/// The maximum time for each word, except the first word and the last two.
const LEFT_MAX: [Duration; EXPIRY_WORDS.len() - 3] = [days(1), days(7), days(30), days(90)];

/// Number of shards of the table, so that connections on many workers do not wait for each other or for a reader of the whole
/// table.
const SHARDS: usize = 64;
const SHARD_AGENTS_MAX: usize = 2048;
/// Number of requests stored for each agent. They are the end of an agent run.
const REQUESTS_KEPT: usize = 4;
/// Bytes stored of a request line: method, path and certname.
const LINE_BYTES_MAX: usize = 96;

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::request_fields::{RequestFields, RequestFieldsCopy};

    const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn certificate(serial: &str) -> SeenCertificate {
        SeenCertificate {
            serial: serial.into(),
            issuer: "CN=Puppet CA".into(),
            fingerprint: print(serial),
            not_before: at(0),
            not_after: at(1_000),
        }
    }

    fn print(serial: &str) -> [u8; 32] {
        std::array::from_fn(|place| serial.as_bytes().get(place).copied().unwrap_or(0))
    }

    fn connect(agents: &Agents, name: &str, serial: &str, seconds: u64) -> Arc<AgentEntry> {
        let name = Arc::from(name);
        agents
            .connected(&name, &print(serial), CLIENT, at(seconds), || {
                Some(certificate(serial))
            })
            .unwrap()
    }

    #[test]
    fn a_second_change_of_the_issuer_is_returned_once() {
        let agents = Agents::default();
        let name = Arc::from("web01");
        let shown = |serial: &str, issuer: &str| {
            let certificate = SeenCertificate {
                issuer: issuer.into(),
                ..certificate(serial)
            };
            let agent =
                agents.connected(&name, &print(serial), CLIENT, at(1), || Some(certificate));
            let agent = agent.unwrap();
            let change = agent.take_change();
            change.map(|issuers| issuers.map(str::to_owned))
        };
        for (serial, issuer, expected) in [
            ("01", "a", None),
            ("02", "a", None),
            ("03", "b", None),
            ("04", "b", None),
            ("05", "a", Some(["a", "b", "a"])),
            ("05", "a", None),
            ("03", "b", Some(["b", "a", "b"])),
            ("06", "c", Some(["c", "b", "a"])),
        ] {
            let expected = expected.map(|issuers| issuers.map(str::to_owned));
            assert_eq!(shown(serial, issuer), expected, "{serial}");
        }
    }

    fn ask(agent: &AgentEntry, target: &str, seconds: u64) {
        let mut record = AccessRecord::new(at(seconds), "agents".into(), (CLIENT, 1).into());
        record.request_fields = RequestFieldsCopy::of(&RequestFields {
            method: Some(b"GET"),
            target: Some(target.as_bytes()),
            ..RequestFields::default()
        });
        record.status = Some(200);
        agent.asked(&record);
    }

    #[test]
    fn the_last_requests_are_kept_the_newest_first_and_cut() {
        let agents = Agents::default();
        let agent = connect(&agents, "web01", "05", 1);
        for n in 2..8 {
            ask(&agent, &format!("/{n}"), n);
        }
        let seen = agents.of("WEB01").unwrap();
        let lines: Vec<_> = seen.requests.iter().map(|r| r.line.as_str()).collect();
        assert_eq!(lines, ["GET /7", "GET /6", "GET /5", "GET /4"]);
        assert_eq!(seen.at, at(7));
        ask(&agent, &format!("/\u{1b}{}", "x".repeat(200)), 8);
        let line = &agents.of("web01").unwrap().requests[0].line;
        assert!(line.starts_with("GET /?xxx") && line.len() == LINE_BYTES_MAX);
        assert_eq!(agents.of("web02"), None);
    }

    #[test]
    fn agents_of_an_earlier_process_are_restored_unless_they_have_connected() {
        let earlier = Agents::default();
        let agent = connect(&earlier, "web01", "05", 1);
        for n in 2..8 {
            ask(&agent, &format!("/{n}"), n);
        }
        ask(&connect(&earlier, "web02", "06", 1), "/old", 2);
        let agents = Agents::default();
        connect(&agents, "web02", "07", 9);
        for seen in earlier.all() {
            agents.restore(&seen);
        }
        let expected = earlier.of("web01").unwrap();
        assert_eq!(agents.of("web01").unwrap(), expected);
        // A later request replaces the oldest one.
        ask(&connect(&agents, "web01", "05", 10), "/8", 10);
        let lines = agents.of("web01").unwrap().requests;
        let lines: Vec<_> = lines.iter().map(|r| r.line.as_str()).collect();
        assert_eq!(lines, ["GET /8", "GET /7", "GET /6", "GET /5"]);
        assert_eq!(agents.of("web02").unwrap().requests, []);
    }

    #[test]
    fn a_new_certificate_takes_the_place_of_the_old_and_keeps_what_was_asked() {
        let agents = Agents::default();
        ask(&connect(&agents, "web01", "05", 1), "/1", 2);
        connect(&agents, "web01", "06", 3);
        let seen = agents.of("web01").unwrap();
        assert_eq!(&*seen.certificate.serial, "06");
        assert_eq!((seen.at, seen.requests.len()), (at(3), 1));
        let again = Arc::from("web01");
        let known = agents.connected(&again, &print("06"), CLIENT, at(4), || {
            panic!("a certificate that is known is not read again")
        });
        assert!(known.is_some());
    }

    #[test]
    fn agents_are_counted_by_the_time_their_certificates_have_left() {
        let agents = Agents::default();
        let day = 86_400;
        for (n, left) in [0, 1, day, day + 1, 30 * day, 90 * day, 91 * day]
            .into_iter()
            .enumerate()
        {
            let name = Arc::from(format!("web{n}"));
            let certificate = SeenCertificate {
                not_after: at(1_000 + left),
                ..certificate("05")
            };
            agents.connected(&name, &print("05"), CLIENT, at(1), || Some(certificate));
        }
        let own = |certificate: &SeenCertificate| certificate.not_after;
        let none_refused = |_: &str, _: &SeenCertificate| false;
        assert_eq!(
            agents.tally(at(1_000), own, none_refused).by_expiry,
            [0, 3, 1, 1, 1, 1, 0]
        );
        assert_eq!(
            agents.tally(at(1_001), own, none_refused).by_expiry,
            [1, 3, 0, 1, 1, 1, 0]
        );
        let one = |name: &str, _: &SeenCertificate| name == "web0";
        assert_eq!(
            agents.tally(at(1_001), own, one).by_expiry,
            [0, 3, 0, 1, 1, 1, 1]
        );
        // Their CA expires in a day.
        let of_ca = |certificate: &SeenCertificate| certificate.not_after.min(at(1_000 + day));
        assert_eq!(
            agents.tally(at(1_000), of_ca, none_refused).by_expiry,
            [0, 7, 0, 0, 0, 0, 0]
        );
    }

    #[test]
    fn accepted_agents_are_counted_by_issuer() {
        let agents = Agents::default();
        for (name, issuer, end) in [
            ("web01", "CN=old", 2_000),
            ("web02", "CN=old", 2_000),
            ("web03", "CN=old", 500),
            ("web04", "CN=new", 2_000),
            ("web05", "CN=new", 2_000),
        ] {
            let certificate = SeenCertificate {
                issuer: issuer.into(),
                not_after: at(end),
                ..certificate("05")
            };
            let name = Arc::from(name);
            agents.connected(&name, &print("05"), CLIENT, at(1), || Some(certificate));
        }
        let own = |certificate: &SeenCertificate| certificate.not_after;
        let one = |name: &str, _: &SeenCertificate| name == "web05";
        let by_issuer = agents.tally(at(1_000), own, one).by_issuer;
        assert_eq!(
            by_issuer,
            [("CN=old".into(), 2), ("CN=new".into(), 1)].into()
        );
    }

    #[test]
    fn who_was_seen_longest_ago_makes_room() {
        let agents = Agents::with_shards_of(4);
        // Enough agents to fill every shard several times, whatever the distribution of names.
        let count = 64 * SHARDS;
        for n in 0..count {
            connect(&agents, &format!("web{n}"), "05", n as u64);
        }
        let (kept, seen) = agents.ending_first(3);
        assert!(kept <= 4 * SHARDS, "{kept}");
        let names: Vec<_> = seen.iter().map(|agent| &agent.certname).collect();
        assert!(names.len() == 3 && names.is_sorted(), "{names:?}");
        assert_eq!(kept as u64 + agents.forgotten(), count as u64);
        assert!(agents.of(&format!("web{}", count - 1)).is_some());
        assert!(agents.of("web0").is_none());
    }
}
