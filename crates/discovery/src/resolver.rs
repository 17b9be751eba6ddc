//! Asking: the hosts file first, then DNS servers, then whatever else this system knows names from.

use std::{collections::BTreeSet, io, net::IpAddr, sync::Arc, time::Duration};

use hickory_resolver::{
    Hosts, TokioResolver,
    config::{
        ConnectionConfig, LookupIpStrategy, NameServerConfig, ProtocolConfig, ResolveHosts,
        ResolverConfig,
    },
    lookup::Lookup,
    net::{NetError, runtime::TokioRuntimeProvider},
    proto::{
        op::Query,
        rr::{Name, RData, RecordType},
    },
};
use tokio::{net::lookup_host, sync::Semaphore, task::JoinSet, time::timeout};

use crate::{
    answer::{Answer, Question, RECORDS_MAX, Target},
    settings::{Server, Settings},
};

/// How long an answer without a TTL is valid: that of a hosts file or of the system's own resolver.
const SYSTEM_TTL: Duration = Duration::from_secs(30);
/// Targets of one service whose addresses are asked for at once.
const TARGETS_AT_ONCE: usize = 16;
/// Lookups by the system's own resolver at once: each occupies a thread until it ends.
const SYSTEM_LOOKUPS_MAX: usize = 2;

static SYSTEM_LOOKUPS: Semaphore = Semaphore::const_new(SYSTEM_LOOKUPS_MAX);

/// Why a question has no answer.
#[derive(Debug, thiserror::Error)]
pub enum LookupError {
    /// Nothing answered in time.
    #[error("no answer within {0:?}")]
    Late(Duration),
    /// A server answered with an error, or could not be reached.
    #[error("{}", explained(.0))]
    Dns(NetError),
    /// The configuration of the system's resolver cannot be read.
    #[error("/etc/resolv.conf is not usable: {0}")]
    ResolvConf(NetError),
    /// More records than a name may have.
    #[error("the answer contains {0} records, and at most {RECORDS_MAX} are accepted")]
    TooMany(usize),
}

/// An answer and how long it is valid.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The answer.
    pub answer: Answer,
    /// The shortest TTL of its records.
    pub ttl: Duration,
}

/// Asks DNS by the settings of `[dns]`, `/etc/resolv.conf` and `/etc/hosts` as they are when it is made.
#[derive(Clone)]
pub struct Resolver {
    dns: Result<TokioResolver, NetError>,
    hosts: Arc<Hosts>,
    limit: Duration,
}

impl Resolver {
    /// Reads the system's files. What is wrong with them is the error of every question.
    pub fn new(settings: &Settings) -> Self {
        Self {
            dns: dns(settings),
            hosts: Arc::new(Hosts::from_system().unwrap_or_default()),
            limit: settings.timeout,
        }
    }

    /// Asks one question.
    ///
    /// # Errors
    /// Says why there is no answer.
    pub async fn resolve(&self, question: &Question) -> Result<Resolved, LookupError> {
        match question {
            Question::Host(name) => {
                let (addresses, ttl) = self.addresses(name).await?;
                let answer = Answer::Host(addresses);
                Ok(Resolved { answer, ttl })
            }
            Question::Service(name) => self.service(name).await,
        }
    }

    async fn service(&self, name: &str) -> Result<Resolved, LookupError> {
        let lookup = self.query(name, RecordType::SRV).await?;
        let records = lookup.answers().iter();
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
        // A target "." says that the service is not offered (RFC 2782).
        let offered = records.iter().filter(|(srv, _)| !srv.target.is_root());
        let mut targets: Vec<_> = offered
            .map(|(srv, _)| Target::new(srv.priority, srv.weight, &srv.target.to_ascii(), srv.port))
            .collect();
        let hosts: BTreeSet<_> = targets.iter().map(|target| target.host.clone()).collect();
        for (host, addresses, valid) in self.hosts(hosts).await {
            ttl = ttl.min(valid);
            for target in targets.iter_mut().filter(|target| target.host == host) {
                target.addresses.clone_from(&addresses);
            }
        }
        let answer = Answer::service(targets);
        Ok(Resolved { answer, ttl })
    }

    /// The addresses of targets; one that does not resolve is left out.
    async fn hosts(&self, names: BTreeSet<String>) -> Vec<(String, BTreeSet<IpAddr>, Duration)> {
        let mut found = Vec::new();
        let mut asking = JoinSet::new();
        let mut names = names.into_iter();
        loop {
            while asking.len() < TARGETS_AT_ONCE
                && let Some(name) = names.next()
            {
                let resolver = self.clone();
                asking.spawn(async move {
                    let addresses = resolver.addresses(&name).await;
                    addresses
                        .ok()
                        .map(|(addresses, ttl)| (name, addresses, ttl))
                });
            }
            match asking.join_next().await {
                Some(done) => found.extend(done.ok().flatten()),
                None => return found,
            }
        }
    }

    async fn addresses(&self, name: &str) -> Result<(BTreeSet<IpAddr>, Duration), LookupError> {
        let listed = self.in_hosts_file(name);
        if !listed.is_empty() {
            return Ok((listed, SYSTEM_TTL));
        }
        let error = match self.by_dns(name).await {
            Ok(answer) => return Ok(answer),
            Err(error @ LookupError::TooMany(_)) => return Err(error),
            Err(error) => error,
        };
        match self.by_system(name).await {
            Some(addresses) if !addresses.is_empty() => Ok((addresses, SYSTEM_TTL)),
            // What DNS said is what an operator can act on.
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

    async fn by_dns(&self, name: &str) -> Result<(BTreeSet<IpAddr>, Duration), LookupError> {
        let lookup = match &self.dns {
            Ok(dns) => timeout(self.limit, dns.lookup_ip(name))
                .await
                .map_err(|_| LookupError::Late(self.limit))?
                .map_err(LookupError::Dns)?,
            Err(error) => return Err(LookupError::ResolvConf(error.clone())),
        };
        let addresses: BTreeSet<_> = lookup.iter().collect();
        if addresses.len() > RECORDS_MAX {
            return Err(LookupError::TooMany(addresses.len()));
        }
        let ttl = lookup.as_lookup().answers().iter().map(|record| record.ttl);
        let ttl = Duration::from_secs(ttl.min().unwrap_or(0).into());
        Ok((addresses, ttl))
    }

    /// By nsswitch.conf: names that no DNS server knows.
    async fn by_system(&self, name: &str) -> Option<BTreeSet<IpAddr>> {
        let permit = SYSTEM_LOOKUPS.try_acquire().ok()?;
        let name = name.to_owned();
        // A task of its own: the thread is occupied until the lookup ends, even if nothing waits for it any more.
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
        timeout(self.limit, looking).await.ok()?.ok()?.ok()
    }

    async fn query(&self, name: &str, kind: RecordType) -> Result<Lookup, LookupError> {
        let dns = match &self.dns {
            Ok(dns) => dns,
            Err(error) => return Err(LookupError::ResolvConf(error.clone())),
        };
        let mut name = Name::from_ascii(name).map_err(|error| LookupError::Dns(error.into()))?;
        // The name as it is, without search domains.
        name.set_fqdn(true);
        timeout(self.limit, dns.lookup(name, kind))
            .await
            .map_err(|_| LookupError::Late(self.limit))?
            .map_err(LookupError::Dns)
    }
}

fn dns(settings: &Settings) -> Result<TokioResolver, NetError> {
    let provider = TokioRuntimeProvider::default();
    let mut builder = match settings.servers.as_slice() {
        [] => TokioResolver::builder(provider)?,
        servers => {
            let servers = servers.iter().map(server).collect();
            let config = ResolverConfig::from_parts(None, Vec::new(), servers);
            TokioResolver::builder_with_config(config, provider)
        }
    };
    let options = builder.options_mut();
    // Two tries, over servers in turn, fit into the limit.
    options.timeout = settings.timeout / 2;
    options.attempts = 1;
    options.cache_size = 0;
    options.edns0 = true;
    options.use_hosts_file = ResolveHosts::Never;
    options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
    builder.build()
}

fn server(Server(address): &Server) -> NameServerConfig {
    let connection = |protocol| {
        let mut connection = ConnectionConfig::new(protocol);
        connection.port = address.port();
        connection
    };
    let connections = vec![
        connection(ProtocolConfig::Udp),
        connection(ProtocolConfig::Tcp),
    ];
    // A name that a server does not have is not asked of the next.
    NameServerConfig::new(address.ip(), true, connections)
}

/// In an operator's words.
fn explained(error: &NetError) -> String {
    match error {
        NetError::Timeout => "the DNS servers do not answer".to_owned(),
        NetError::NoConnections => "no DNS server can be reached".to_owned(),
        NetError::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            "the DNS servers refuse connections".to_owned()
        }
        error if error.is_nx_domain() => "DNS has no such name (NXDOMAIN)".to_owned(),
        error if error.is_no_records_found() => "DNS has no such record for this name".to_owned(),
        error => error.to_string(),
    }
}
