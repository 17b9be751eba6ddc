//! Name resolution: the hosts file first, then DNS servers, then the system's resolver.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use hickory_resolver::{
    Hosts, TokioResolver,
    config::{
        ConnectionConfig, LookupIpStrategy, NameServerConfig, ProtocolConfig, ResolveHosts,
        ResolverConfig, ResolverOpts,
    },
    lookup::Lookup,
    net::{DnsError, NetError, runtime::TokioRuntimeProvider},
    proto::{
        op::Query,
        rr::{Name, RData, RecordType},
    },
    system_conf::read_system_conf,
};
use tokio::{
    net::lookup_host,
    sync::Semaphore,
    task::JoinSet,
    time::{Instant, timeout, timeout_at},
};

use crate::{
    answer::{DnsAnswer, DnsQuestion, RECORDS_MAX, ServiceTarget},
    settings::{DnsServer, DnsSettings},
};

/// How long an answer without a TTL is valid, from the hosts file or the system's resolver.
const SYSTEM_TTL: Duration = Duration::from_secs(30);
/// Maximum targets of one service that are resolved concurrently.
const TARGETS_AT_ONCE: usize = 16;
/// Maximum time for resolving all targets of a service, as a multiple of the time for one question. A host that takes
/// longer has no addresses.
const TARGETS_TIMEOUTS: u32 = 4;
/// Maximum aliases (CNAME) on the way to the records of a service.
const ALIASES_MAX: usize = 8;
/// Maximum concurrent lookups by the system's resolver. Each occupies a thread until it ends.
const SYSTEM_LOOKUPS_MAX: usize = 2;

static SYSTEM_LOOKUPS: Semaphore = Semaphore::const_new(SYSTEM_LOOKUPS_MAX);

/// Why a question has no answer.
#[derive(Debug, thiserror::Error)]
pub enum LookupError {
    /// No answer arrived in time.
    #[error("no answer within {0:?}")]
    Late(Duration),
    /// A server answered with an error, or could not be reached.
    #[error("{}", explained(.0))]
    Dns(NetError),
    /// The configuration of the system's resolver cannot be read.
    #[error("/etc/resolv.conf is not usable: {0}")]
    ResolvConf(NetError),
    /// Too many aliases.
    #[error("more than {ALIASES_MAX} aliases (CNAME) lead from {0}")]
    Aliases(String),
    /// More records than a name may have.
    #[error("the answer contains {0} records, and at most {RECORDS_MAX} are accepted")]
    TooMany(usize),
}

impl LookupError {
    /// Whether DNS answered that there is no such record.
    pub fn is_definite(&self) -> bool {
        matches!(self, Self::Dns(error) if lacks_records(error))
    }
}

/// An answer with its lifetime.
#[derive(Debug)]
pub struct Resolved {
    /// The answer.
    pub answer: DnsAnswer,
    /// The shortest TTL of its records.
    pub ttl: Duration,
    /// Hosts for which DNS failed, with the error. The answer has what another source found, such as the system's
    /// resolver. An earlier answer of DNS is more reliable.
    pub doubts: BTreeMap<String, LookupError>,
}

/// The addresses of a host.
struct Found {
    addresses: BTreeSet<IpAddr>,
    ttl: Duration,
    /// The error of DNS, if it failed.
    doubt: Option<LookupError>,
}

/// Resolves names with the settings of `[dns]`, `/etc/resolv.conf` and `/etc/hosts`, as they were when it was created.
#[derive(Clone)]
pub struct Resolver {
    /// One resolver per server. With several servers the library would return the first answer, even an error that
    /// another server would not give.
    dns: Result<Arc<[TokioResolver]>, NetError>,
    servers: Arc<[SocketAddr]>,
    hosts: Arc<Hosts>,
    limit: Duration,
}

impl Resolver {
    /// Reads the system's files. If they are invalid, every question fails with that error.
    pub fn new(settings: &DnsSettings) -> Self {
        Self::with_hosts(settings, Hosts::from_system().unwrap_or_default())
    }

    /// Like [`new`](Self::new), with this text in place of the system's hosts file. Invalid lines are ignored, as the
    /// system does.
    pub fn with_hosts_file(settings: &DnsSettings, text: &str) -> Self {
        let mut hosts = Hosts::default();
        // Reading from memory cannot fail.
        let _ = hosts.read_hosts_conf(text.as_bytes());
        Self::with_hosts(settings, hosts)
    }

    fn with_hosts(settings: &DnsSettings, hosts: Hosts) -> Self {
        let config = config(settings);
        let servers = config
            .iter()
            .flat_map(|(config, _)| config.name_servers())
            .flat_map(addresses_of_server);
        Self {
            servers: servers.collect(),
            dns: config.and_then(|config| dns(settings, config)),
            hosts: Arc::new(hosts),
            limit: settings.timeout,
        }
    }

    /// The DNS servers that are queried.
    pub fn servers(&self) -> &Arc<[SocketAddr]> {
        &self.servers
    }

    /// Resolves one question.
    ///
    /// # Errors
    /// Why there is no answer.
    pub async fn resolve(&self, question: &DnsQuestion) -> Result<Resolved, LookupError> {
        match question {
            DnsQuestion::Host(name) => {
                let found = self.addresses(name, Scope::Searched).await?;
                let doubts = found.doubt.map(|doubt| (name.clone(), doubt));
                Ok(Resolved {
                    answer: DnsAnswer::Host(found.addresses),
                    ttl: found.ttl,
                    doubts: doubts.into_iter().collect(),
                })
            }
            DnsQuestion::Service(name) => self.service(name).await,
        }
    }

    async fn service(&self, name: &str) -> Result<Resolved, LookupError> {
        let lookup = self.records_of_service(name).await?;
        let owner = lookup.query().name();
        let records = lookup
            .answers()
            .iter()
            .filter(|record| record.name == *owner);
        let records = records.filter_map(|record| match &record.data {
            RData::SRV(srv) => Some((srv, record.ttl)),
            _ => None,
        });
        let records: Vec<_> = records.collect();
        if records.len() > RECORDS_MAX {
            return Err(LookupError::TooMany(records.len()));
        }
        let ttl = records.iter().map(|(_, ttl)| *ttl).min().unwrap_or(0);
        let mut ttl = Duration::from_secs(ttl.into());
        // A target "." means that the service is not offered (RFC 2782).
        let offered = records.iter().filter(|(srv, _)| !srv.target.is_root());
        let mut targets: Vec<_> = offered
            .map(|(srv, _)| {
                ServiceTarget::new(srv.priority, srv.weight, &srv.target.to_ascii(), srv.port)
            })
            .collect();
        let mut doubts = BTreeMap::new();
        let hosts: BTreeSet<_> = targets.iter().map(|target| target.host.clone()).collect();
        for (host, found) in self.hosts(hosts).await {
            let doubt = match found {
                Ok(found) => {
                    ttl = ttl.min(found.ttl);
                    for target in targets.iter_mut().filter(|target| target.host == host) {
                        target.addresses.clone_from(&found.addresses);
                    }
                    found.doubt
                }
                Err(error) => Some(error),
            };
            doubts.extend(doubt.map(|doubt| (host, doubt)));
        }
        let answer = DnsAnswer::service(targets);
        Ok(Resolved {
            answer,
            ttl,
            doubts,
        })
    }

    /// SRV records, also behind aliases. hickory follows aliases only to addresses.
    async fn records_of_service(&self, name: &str) -> Result<Lookup, LookupError> {
        let mut name = Name::from_ascii(name).map_err(|error| LookupError::Dns(error.into()))?;
        // Without search domains.
        name.set_fqdn(true);
        let queried = name.clone();
        for _ in 0..ALIASES_MAX {
            let error = match self.query(name.clone(), RecordType::SRV).await {
                Err(error) if error.is_definite() => error,
                result => return result,
            };
            let Ok(alias) = self.query(name.clone(), RecordType::CNAME).await else {
                return Err(error);
            };
            let mut answers = alias.answers().iter();
            let target = answers.find_map(|record| match &record.data {
                RData::CNAME(target) if record.name == name => Some(target.0.clone()),
                _ => None,
            });
            name = target.ok_or(error)?;
        }
        Err(LookupError::Aliases(queried.to_ascii()))
    }

    /// The addresses of targets.
    async fn hosts(&self, names: BTreeSet<String>) -> Vec<(String, Result<Found, LookupError>)> {
        let limit = self.limit * TARGETS_TIMEOUTS;
        let end = Instant::now() + limit;
        let mut found = Vec::new();
        let mut asking = JoinSet::new();
        let mut names = names.into_iter();
        loop {
            while asking.len() < TARGETS_AT_ONCE
                && let Some(name) = names.next()
            {
                let resolver = self.clone();
                asking.spawn(async move {
                    let found = timeout_at(end, resolver.addresses(&name, Scope::Absolute)).await;
                    let late = |_| Err(LookupError::Late(limit));
                    let addresses = found.unwrap_or_else(late);
                    (name, addresses)
                });
            }
            match asking.join_next().await {
                Some(done) => found.extend(done.ok()),
                None => return found,
            }
        }
    }

    async fn addresses(&self, name: &str, scope: Scope) -> Result<Found, LookupError> {
        let listed = self.in_hosts_file(name);
        if !listed.is_empty() {
            return Ok(Found {
                addresses: listed,
                ttl: SYSTEM_TTL,
                doubt: None,
            });
        }
        let name = match scope {
            Scope::Searched => name.to_owned(),
            Scope::Absolute => format!("{name}."),
        };
        let error = match self.by_dns(&name).await {
            Ok(answer) => return Ok(answer),
            Err(error @ LookupError::TooMany(_)) => return Err(error),
            Err(error) => error,
        };
        match self.by_system(&name).await {
            Some(addresses) if !addresses.is_empty() => Ok(Found {
                addresses,
                ttl: SYSTEM_TTL,
                // The system may query servers with other data.
                doubt: Some(error).filter(|error| !error.is_definite()),
            }),
            // The error of DNS is the one that an operator can act on.
            _ => Err(error),
        }
    }

    fn in_hosts_file(&self, name: &str) -> BTreeSet<IpAddr> {
        let Ok(name) = Name::from_ascii(name) else {
            return BTreeSet::new();
        };
        let of = |kind| {
            self.hosts
                .lookup_static_host(&Query::query(name.clone(), kind))
        };
        let lookups = [RecordType::A, RecordType::AAAA].into_iter().filter_map(of);
        let addresses = |lookup: Lookup| {
            let answers = lookup.answers().iter();
            answers
                .filter_map(|record| record.data.ip_addr())
                .collect::<Vec<_>>()
        };
        lookups.flat_map(addresses).collect()
    }

    async fn by_dns(&self, name: &str) -> Result<Found, LookupError> {
        let lookup = self
            .first_answer(|dns| {
                let name = name.to_owned();
                async move { dns.lookup_ip(name).await }
            })
            .await?;
        let lookup = lookup.as_lookup();
        let mut addresses = addresses_of(lookup);
        let ttl = lookup.answers().iter().map(|record| record.ttl);
        let mut ttl = ttl.min().unwrap_or(0);
        // The library treats a family whose query failed like one without addresses.
        let has_four = addresses.iter().any(IpAddr::is_ipv4);
        let missing = match (has_four, addresses.iter().any(IpAddr::is_ipv6)) {
            (true, true) => None,
            (true, false) => Some(RecordType::AAAA),
            (false, _) => Some(RecordType::A),
        };
        let mut doubt = None;
        if let Some(kind) = missing {
            match self.query(lookup.query().name().clone(), kind).await {
                Ok(others) => {
                    addresses.extend(addresses_of(&others));
                    let others = others.answers().iter().map(|record| record.ttl);
                    ttl = others.fold(ttl, u32::min);
                }
                Err(error) => doubt = Some(error).filter(|error| !error.is_definite()),
            }
        }
        if addresses.len() > RECORDS_MAX {
            return Err(LookupError::TooMany(addresses.len()));
        }
        let ttl = Duration::from_secs(ttl.into());
        Ok(Found {
            addresses,
            ttl,
            doubt,
        })
    }

    /// By nsswitch.conf, for names that no DNS server knows.
    async fn by_system(&self, name: &str) -> Option<BTreeSet<IpAddr>> {
        let name = name.to_owned();
        let look = async {
            let permit = SYSTEM_LOOKUPS.acquire().await.ok()?;
            // In its own task, because the thread is occupied until the lookup ends, even if the caller stops waiting.
            let looking = tokio::spawn(async move {
                let found = lookup_host((name.as_str(), 0)).await;
                drop(permit);
                found.map(|found| {
                    found
                        .map(|address| address.ip())
                        .take(RECORDS_MAX)
                        .collect()
                })
            });
            looking.await.ok()?.ok()
        };
        timeout(self.limit, look).await.ok()?
    }

    async fn query(&self, name: Name, kind: RecordType) -> Result<Lookup, LookupError> {
        self.first_answer(|dns| {
            let name = name.clone();
            async move { dns.lookup(name, kind).await }
        })
        .await
    }

    /// Queries the servers in their order, and the next one when a server fails or is late. An answer without records
    /// counts as an answer.
    async fn first_answer<T, A>(&self, ask: impl Fn(TokioResolver) -> A) -> Result<T, LookupError>
    where
        T: Send + 'static,
        A: Future<Output = Result<T, NetError>> + Send + 'static,
    {
        let servers = self.dns.as_ref();
        let servers = servers.map_err(|error| LookupError::ResolvConf(error.clone()))?;
        let late = self.limit / u32::try_from(servers.len() + 1).unwrap_or(u32::MAX);
        let answered = timeout(self.limit, async {
            let mut servers = servers.iter();
            let mut asking = JoinSet::new();
            let mut failure = NetError::NoConnections;
            loop {
                match servers.next() {
                    Some(server) => drop(asking.spawn(ask(server.clone()))),
                    None if asking.is_empty() => return Err(LookupError::Dns(failure)),
                    None => {}
                }
                let next = asking.join_next();
                let done = if servers.as_slice().is_empty() {
                    next.await
                } else {
                    timeout(late, next).await.ok().flatten()
                };
                match done {
                    Some(Ok(Err(error))) if !lacks_records(&error) => failure = error,
                    Some(Ok(answer)) => return answer.map_err(LookupError::Dns),
                    Some(Err(_)) | None => {}
                }
            }
        });
        answered.await.unwrap_or(Err(LookupError::Late(self.limit)))
    }
}

/// How a name is completed.
#[derive(Clone, Copy)]
enum Scope {
    /// As an operator writes it: with search domains.
    Searched,
    /// As DNS writes it: without any suffix.
    Absolute,
}

/// The addresses of the queried name. For an alias, the library returns only those of the alias's target.
fn addresses_of(lookup: &Lookup) -> BTreeSet<IpAddr> {
    let queried = lookup.query().name();
    let found = lookup.answers().iter().filter_map(|record| {
        let address = record.data.ip_addr()?;
        Some((record.name == *queried, address))
    });
    let found: Vec<_> = found.collect();
    let is_named = found.iter().any(|(is_own, _)| *is_own);
    let own = found.iter().filter(|(is_own, _)| *is_own || !is_named);
    own.map(|(_, address)| *address).collect()
}

fn config(settings: &DnsSettings) -> Result<(ResolverConfig, ResolverOpts), NetError> {
    match settings.servers.as_slice() {
        [] => read_system_conf(),
        servers => {
            let servers = servers.iter().map(server).collect();
            let config = ResolverConfig::from_parts(None, Vec::new(), servers);
            Ok((config, ResolverOpts::default()))
        }
    }
}

/// The address of a server, which has one connection each for UDP and TCP.
fn addresses_of_server(server: &NameServerConfig) -> Option<SocketAddr> {
    let connection = server.connections.first()?;
    Some(SocketAddr::new(server.ip, connection.port))
}

fn dns(
    settings: &DnsSettings,
    (config, options): (ResolverConfig, ResolverOpts),
) -> Result<Arc<[TokioResolver]>, NetError> {
    let alone = |server: &NameServerConfig| {
        let (domain, search) = (config.domain().cloned(), config.search().to_vec());
        let config = ResolverConfig::from_parts(domain, search, vec![server.clone()]);
        let provider = TokioRuntimeProvider::default();
        let mut builder =
            TokioResolver::builder_with_config(config, provider).with_options(options.clone());
        let options = builder.options_mut();
        // Two tries fit into the limit.
        options.timeout = settings.timeout / 2;
        options.attempts = 1;
        options.cache_size = 0;
        options.edns0 = true;
        options.use_hosts_file = ResolveHosts::Never;
        options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
        builder.build()
    };
    config.name_servers().iter().map(alone).collect()
}

fn server(DnsServer(address): &DnsServer) -> NameServerConfig {
    let connection = |protocol| {
        let mut connection = ConnectionConfig::new(protocol);
        connection.port = address.port();
        connection
    };
    let connections = vec![
        connection(ProtocolConfig::Udp),
        connection(ProtocolConfig::Tcp),
    ];
    NameServerConfig::new(address.ip(), true, connections)
}

/// Whether DNS answered that there is no such record.
fn lacks_records(error: &NetError) -> bool {
    matches!(error, NetError::Dns(DnsError::NoRecordsFound { .. }))
}

/// An error in terms that operators know.
fn explained(error: &NetError) -> String {
    match error {
        NetError::Timeout => "the DNS servers do not answer".to_owned(),
        NetError::NoConnections => "no DNS server can be reached".to_owned(),
        NetError::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            "the DNS servers refuse connections".to_owned()
        }
        NetError::Dns(DnsError::ResponseCode(code)) => {
            format!("the DNS servers answer with an error ({code})")
        }
        error if error.is_nx_domain() => "DNS has no such name (NXDOMAIN)".to_owned(),
        error if lacks_records(error) => "DNS has no such record for this name".to_owned(),
        error => error.to_string(),
    }
}
