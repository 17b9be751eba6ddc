//! What a configuration says about a pool.

use std::time::Duration;

/// How a member is picked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Algorithm {
    /// Fewest requests in flight by weight, over all workers. The default.
    #[default]
    LeastConnections,
    /// Smooth weighted rotation.
    RoundRobin,
    /// The less loaded of two members drawn by weight.
    Random,
    /// By the client's address: a member that leaves moves its own clients and no others.
    SourceHash,
}

impl Algorithm {
    /// The word in configuration, API and reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::LeastConnections => "least-connections",
            Self::RoundRobin => "round-robin",
            Self::Random => "random",
            Self::SourceHash => "source-hash",
        }
    }
}

/// What a probe asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CheckKind {
    /// `GET /status/v1/simple`, wanting 200 and `running`; on a port of its own `GET /`, wanting 200. The default.
    #[default]
    Http,
    /// `GET /production/status/no_key`, wanting 200 and `"is_alive":true`: what Puppet 0.25 to 3 answer.
    Legacy,
    /// A connection that opens.
    Tcp,
    /// No probes: members are up until a connect is refused.
    None,
}

/// `[pools.NAME.check]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckSettings {
    /// What a probe asks. Default `http`.
    pub kind: CheckKind,
    /// Port that probes go to, in plain text; none: that of the member, as requests do. With `http` and `tcp` only.
    pub port: Option<u16>,
    /// Time between probes of one member. Default 5 s.
    pub interval: Duration,
    /// Time allowed for one probe. Default 3 s.
    pub timeout: Duration,
    /// Good probes that bring a member up; one that was never probed comes up on its first. Default 2.
    pub rise: u32,
    /// Bad probes that take a member down. Default 3.
    pub fall: u32,
    /// Whether a member counts as up before its first probe. Default false.
    pub assume_up: bool,
}

impl CheckSettings {
    /// Whether the answer to a probe may show the member's clock: an HTTP response of the member itself.
    pub fn shows_clock(&self) -> bool {
        match self.kind {
            CheckKind::Http => self.port.is_none(),
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
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(3),
            rise: 2,
            fall: 3,
            assume_up: false,
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
    /// Most requests in flight at once; none: no limit.
    pub in_flight_max: Option<u32>,
    /// Name its certificate must carry; none: the host of `address`.
    pub server_name: Option<String>,
    /// Whether it is asked only while no ordinary member is available. Default no.
    pub role: Role,
}

impl MemberSettings {
    /// A member with the default of every other setting.
    pub fn new(address: &str) -> Self {
        Self {
            address: address.to_owned(),
            weight: 1,
            in_flight_max: None,
            server_name: None,
            role: Role::Ordinary,
        }
    }
}

/// What a member is there for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// To be asked. The default.
    #[default]
    Ordinary,
    /// To be asked while no ordinary member is available.
    Backup,
}

/// The part of `[pools.NAME]` that picks members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolSettings {
    /// Name in records, metrics and routes.
    pub name: String,
    /// Members, at least one.
    pub members: Vec<MemberSettings>,
    /// How a member is picked. Default least-connections.
    pub algorithm: Algorithm,
    /// How members are probed.
    pub check: CheckSettings,
}
