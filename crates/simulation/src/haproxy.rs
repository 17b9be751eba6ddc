//! The balancers that Proscenium is compared with: HAProxy's algorithms, configured by an HAProxy configuration file.

use std::{collections::VecDeque, time::Duration};

use balancing::{AttemptFailure, AttemptStage, Work};

use crate::{
    balancer::{
        Balancer, BalancerDecision, MemberReply, OperatorOrder, RequestId, SimulatedRequest,
        may_repeat,
    },
    random::Random,
    time::{Micros, as_seconds},
};

/// The algorithm of `balance`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Balance {
    /// `roundrobin`: smooth rotation by weight.
    RoundRobin,
    /// `leastconn`: the server with the fewest requests relative to its weight. Servers with the same load take turns.
    LeastConn,
    /// `random(2)`: the less loaded of two random servers.
    Random,
}

/// Settings from an HAProxy configuration file.
#[derive(Clone, Debug, PartialEq)]
pub struct HaproxySettings {
    /// `balance`.
    pub balance: Balance,
    /// `timeout queue`.
    pub queue_timeout: Duration,
    /// `retries`.
    pub retries: u32,
    /// `inter`.
    pub interval: Duration,
    /// `rise`.
    pub rise: u32,
    /// `fall`.
    pub fall: u32,
    /// `slowstart`.
    pub slow_start: Duration,
    /// `error-limit`: consecutive failed connects until `on-error mark-down` applies.
    pub error_limit: u32,
    /// Whether `http-request set-priority-class` puts nodes and files ahead of catalogs and reports.
    pub files_first: bool,
}

/// An error in the configuration file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HaproxyConfigError {
    /// A directive that the simulation needs is missing.
    #[error("the configuration has no `{0}`")]
    Missing(&'static str),
    /// A value is not supported.
    #[error("`{directive} {value}` is not understood")]
    Value {
        /// The directive.
        directive: &'static str,
        /// The value.
        value: String,
    },
}

impl HaproxySettings {
    /// Parses a configuration.
    ///
    /// # Errors
    /// Returns the directive that is missing or has an unsupported value.
    pub fn read(text: &str) -> Result<Self, HaproxyConfigError> {
        let lines = text
            .lines()
            .map(|line| line.split('#').next().unwrap_or_default());
        let words: Vec<Vec<&str>> = lines
            .map(|line| line.split_whitespace().collect())
            .collect();
        // The value after a directive of one or two words.
        let after = |names: &[&str]| {
            words.iter().find_map(|line| {
                let at = line
                    .windows(names.len())
                    .position(|window| window == names)?;
                line.get(at + names.len()).copied()
            })
        };
        let get = |name: &'static str| after(&[name]).ok_or(HaproxyConfigError::Missing(name));
        let balance = match get("balance")? {
            "roundrobin" => Balance::RoundRobin,
            "leastconn" => Balance::LeastConn,
            "random(2)" => Balance::Random,
            value => return Err(unclear("balance", value)),
        };
        let files_first = match after(&["set-priority-class"]) {
            None => false,
            Some("int(-1)") => true,
            Some(value) => return Err(unclear("set-priority-class", value)),
        };
        let count = |name| get(name).and_then(|value| number(name, value));
        let time = |name| get(name).and_then(|value| duration(name, value));
        let queue =
            after(&["timeout", "queue"]).ok_or(HaproxyConfigError::Missing("timeout queue"))?;
        let max = get("maxconn")?;
        if max != "\"${JRUBIES}\"" {
            return Err(unclear("maxconn", max));
        }
        Ok(Self {
            balance,
            queue_timeout: duration("timeout queue", queue)?,
            retries: count("retries")?,
            interval: time("inter")?,
            rise: count("rise")?,
            fall: count("fall")?,
            slow_start: time("slowstart")?,
            error_limit: count("error-limit")?,
            files_first,
        })
    }
}

fn number(directive: &'static str, value: &str) -> Result<u32, HaproxyConfigError> {
    value.parse().map_err(|_| unclear(directive, value))
}

fn duration(directive: &'static str, value: &str) -> Result<Duration, HaproxyConfigError> {
    let digits = value.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let count: u64 = digits.parse().map_err(|_| unclear(directive, value))?;
    let millis = match &value[digits.len()..] {
        "ms" | "" => 1,
        "s" => 1_000,
        "m" => 60_000,
        _ => return Err(unclear(directive, value)),
    };
    Ok(Duration::from_millis(count * millis))
}

fn unclear(directive: &'static str, value: &str) -> HaproxyConfigError {
    HaproxyConfigError::Value {
        directive,
        value: value.to_owned(),
    }
}

/// A simulated HAProxy backend.
pub struct Haproxy {
    settings: HaproxySettings,
    servers: Vec<Server>,
    /// One queue for each priority class, in order of arrival. Entries of requests that no longer wait are skipped.
    queues: [VecDeque<(RequestId, u32)>; 2],
    waiting: usize,
    requests: Vec<Request>,
    random: Random,
    turns: u64,
}

struct Server {
    jrubies: u32,
    up: bool,
    drained: bool,
    /// Consecutive probes whose result contradicts the current state.
    streak: u32,
    errors: u32,
    served: u32,
    /// When the server came up. `None` if it has been up since the start.
    up_since: Option<Micros>,
    /// Credit in the smooth weighted rotation.
    credit: f64,
    /// The turn in which the server was last chosen.
    turn: u64,
}

#[derive(Clone, Default)]
struct Request {
    ask: Option<SimulatedRequest>,
    /// Incremented with each wait, so that an old queue entry is recognized.
    wait: u32,
    waits: bool,
    at: Option<usize>,
    tried: Option<usize>,
    attempts: u32,
}

impl Haproxy {
    /// A backend with one server for each element of `jrubies`, the server's number of JRubies.
    pub fn new(settings: HaproxySettings, jrubies: &[u32], seed: u64) -> Self {
        let server = |jrubies: &u32| Server {
            jrubies: *jrubies,
            up: true,
            drained: false,
            streak: 0,
            errors: 0,
            served: 0,
            up_since: None,
            credit: 0.0,
            turn: 0,
        };
        Self {
            servers: jrubies.iter().map(server).collect(),
            queues: Default::default(),
            waiting: 0,
            requests: Vec::new(),
            random: Random::keyed(&[seed, THEIRS]),
            turns: 0,
            settings,
        }
    }

    fn request(&mut self, id: RequestId) -> &mut Request {
        let index = id as usize;
        if self.requests.len() <= index {
            self.requests.resize_with(index + 1, Request::default);
        }
        &mut self.requests[index]
    }

    /// The fraction of its weight and `maxconn` that a server has reached during slow start.
    fn ramp(&self, server: &Server, now: Micros) -> f64 {
        let whole = self.settings.slow_start.as_secs_f64();
        match server.up_since {
            Some(since) if whole > 0.0 => (as_seconds(now - since) / whole).clamp(0.01, 1.0),
            _ => 1.0,
        }
    }

    fn has_room(&self, server: &Server, now: Micros) -> bool {
        let max = (f64::from(server.jrubies) * self.ramp(server, now))
            .ceil()
            .max(1.0);
        server.up && !server.drained && f64::from(server.served) < max
    }

    fn weight(&self, server: &Server, now: Micros) -> f64 {
        f64::from(server.jrubies) * self.ramp(server, now)
    }

    fn choose(&mut self, avoided: Option<usize>, now: Micros) -> Option<usize> {
        let free = |index: &usize| self.has_room(&self.servers[*index], now);
        let all: Vec<usize> = (0..self.servers.len()).filter(free).collect();
        let others: Vec<usize> = all
            .iter()
            .copied()
            .filter(|index| Some(*index) != avoided)
            .collect();
        let among = if others.is_empty() { all } else { others };
        let chosen = match self.settings.balance {
            Balance::RoundRobin => self.rotate(&among, now),
            Balance::LeastConn => self.least(among.iter().copied(), now),
            Balance::Random => {
                let first = self.draw(&among, now)?;
                let second = self.draw(&among, now)?;
                self.least([first, second].into_iter(), now)
            }
        }?;
        self.turns += 1;
        self.servers[chosen].turn = self.turns;
        Some(chosen)
    }

    fn rotate(&mut self, among: &[usize], now: Micros) -> Option<usize> {
        let mut total = 0.0;
        for index in among {
            let weight = self.weight(&self.servers[*index], now);
            self.servers[*index].credit += weight;
            total += weight;
        }
        let credit = |index: &usize| self.servers[*index].credit;
        let chosen = among
            .iter()
            .copied()
            .max_by(|a, b| credit(a).total_cmp(&credit(b)))?;
        self.servers[chosen].credit -= total;
        Some(chosen)
    }

    fn least(&self, among: impl Iterator<Item = usize>, now: Micros) -> Option<usize> {
        let key = |index: &usize| {
            let server = &self.servers[*index];
            let load = match server.served {
                0 => 0.0,
                served => f64::from(served + 1) / self.weight(server, now),
            };
            (load, server.turn)
        };
        among.min_by(|a, b| {
            let (a, b) = (key(a), key(b));
            a.0.total_cmp(&b.0).then(a.1.cmp(&b.1))
        })
    }

    fn draw(&mut self, among: &[usize], now: Micros) -> Option<usize> {
        let part = self.random.unit();
        let weight = |index: &usize| self.weight(&self.servers[*index], now);
        let mut point = part * among.iter().map(weight).sum::<f64>();
        let chosen = among.iter().find(|index| {
            point -= weight(index);
            point < 0.0
        });
        chosen.or_else(|| among.last()).copied()
    }

    fn attempt(&mut self, id: RequestId, now: Micros) -> BalancerDecision {
        let avoided = self.request(id).tried;
        if !self
            .servers
            .iter()
            .any(|server| server.up && !server.drained)
        {
            self.end(id);
            return BalancerDecision::Refuse(None);
        }
        // New requests do not overtake waiting ones.
        let chosen = match self.waiting {
            0 => self.choose(avoided, now),
            _ => None,
        };
        match chosen {
            Some(server) => self.send(id, server),
            None => {
                let files_first = self.settings.files_first;
                let request = self.request(id);
                request.wait += 1;
                request.waits = true;
                let place = (id, request.wait);
                let is_short = |ask: SimulatedRequest| matches!(ask.work, Work::File | Work::Other);
                let first = files_first && request.ask.is_some_and(is_short);
                self.waiting += 1;
                self.queues[usize::from(!first)].push_back(place);
                BalancerDecision::Wait
            }
        }
    }

    fn send(&mut self, id: RequestId, server: usize) -> BalancerDecision {
        self.servers[server].served += 1;
        let request = self.request(id);
        request.at = Some(server);
        request.attempts += 1;
        BalancerDecision::Send(server)
    }

    fn release(&mut self, id: RequestId) -> Option<usize> {
        let server = self.request(id).at.take()?;
        self.servers[server].served -= 1;
        Some(server)
    }

    fn end(&mut self, id: RequestId) {
        self.release(id);
        let request = self.request(id);
        let waited = request.waits;
        *request = Request {
            wait: request.wait,
            ..Request::default()
        };
        self.waiting -= usize::from(waited);
    }

    fn turn(&mut self, member: usize, up: bool, now: Micros) {
        let server = &mut self.servers[member];
        server.up = up;
        server.streak = 0;
        server.errors = 0;
        server.up_since = up.then_some(now);
    }
}

impl Balancer for Haproxy {
    fn offer(&mut self, id: RequestId, ask: SimulatedRequest, now: Micros) -> BalancerDecision {
        self.request(id).ask = Some(ask);
        self.attempt(id, now)
    }

    fn replied(
        &mut self,
        id: RequestId,
        reply: MemberReply,
        now: Micros,
    ) -> Option<BalancerDecision> {
        let server = self.release(id);
        if let Some(server) = server {
            self.servers[server].errors = 0;
        }
        let retries = self.settings.retries;
        let request = self.request(id);
        // `retry-on 503`, with `disable-l7-retry` for all methods except GET.
        let safe = request.ask.is_some_and(|ask| ask.safe);
        if reply != MemberReply::Served && safe && request.attempts <= retries {
            request.tried = server;
            return Some(self.attempt(id, now));
        }
        self.end(id);
        match reply {
            MemberReply::Unavailable => Some(BalancerDecision::Refuse(None)),
            MemberReply::Served | MemberReply::QueueFull(_) => None,
        }
    }

    fn failed(
        &mut self,
        id: RequestId,
        failure: &AttemptFailure,
        now: Micros,
    ) -> Option<BalancerDecision> {
        let server = self.release(id)?;
        if failure.stage == AttemptStage::Connect {
            self.servers[server].errors += 1;
            if self.servers[server].errors >= self.settings.error_limit && self.servers[server].up {
                self.turn(server, false, now);
            }
        }
        let retries = self.settings.retries;
        let request = self.request(id);
        request.tried = Some(server);
        let safe = request.ask.is_some_and(|ask| ask.safe);
        if may_repeat(failure, request.attempts, retries + 1, safe) {
            return Some(self.attempt(id, now));
        }
        self.end(id);
        None
    }

    fn gone(&mut self, id: RequestId, _now: Micros) {
        self.end(id);
    }

    fn probed(&mut self, member: usize, good: bool, now: Micros) {
        let server = &mut self.servers[member];
        if good == server.up {
            server.streak = 0;
            return;
        }
        server.streak += 1;
        let needed = if server.up {
            self.settings.fall
        } else {
            self.settings.rise
        };
        if server.streak >= needed {
            self.turn(member, good, now);
        }
    }

    fn order(&mut self, member: usize, order: OperatorOrder, _now: Micros) {
        self.servers[member].drained = order == OperatorOrder::Drain;
    }

    fn decided(&mut self, now: Micros, decided: &mut Vec<(RequestId, BalancerDecision)>) {
        let first = |queues: &[VecDeque<(RequestId, u32)>]| {
            let class = queues.iter().position(|queue| !queue.is_empty())?;
            Some((class, *queues[class].front()?))
        };
        while let Some((class, (id, wait))) = first(&self.queues) {
            let request = &self.requests[id as usize];
            if !request.waits || request.wait != wait {
                self.queues[class].pop_front();
                continue;
            }
            let Some(server) = self.choose(self.requests[id as usize].tried, now) else {
                return;
            };
            self.queues[class].pop_front();
            self.waiting -= 1;
            self.requests[id as usize].waits = false;
            decided.push((id, self.send(id, server)));
        }
    }

    fn is_up(&self, member: usize) -> bool {
        self.servers[member].up
    }

    fn in_flight(&self, member: usize) -> u32 {
        self.servers[member].served
    }

    fn waiting(&self) -> usize {
        self.waiting
    }

    fn patience(&self, _id: RequestId) -> Micros {
        u64::try_from(self.settings.queue_timeout.as_micros()).unwrap_or(u64::MAX)
    }

    fn after_wait(&mut self, _id: RequestId) -> Option<f64> {
        None
    }

    fn closed(&mut self, _id: RequestId) {}

    fn probe_interval(&self) -> f64 {
        self.settings.interval.as_secs_f64()
    }
}

const THEIRS: u64 = 3;
