//! A Puppet estate in one expression: a CA, a CA server, compilers, and the program under test in front of them.

use std::{collections::BTreeMap, marker::PhantomData, ops::Deref, thread};

use crate::{
    ca::{Ca, TestCredential},
    client::Client,
    proxy::{CommandOutcome, Proxy, ProxyBuilder},
    stand_in::{Recorded, StandIn},
};

/// The program that a crate's tests start, and the protocol that its clients speak.
pub trait Program: 'static {
    /// A builder for a proxy with this CA in its ssldir.
    fn proxy(ca: &Ca) -> ProxyBuilder;
}

/// The servers of an estate, without a proxy.
pub struct Servers {
    /// The Puppet CA.
    pub ca: Ca,
    /// The CA server.
    pub ca_server: StandIn,
    /// The compilers, c1 first.
    pub compilers: Vec<StandIn>,
}

/// A Puppet estate with the proxy in front.
pub struct Estate<P = ()> {
    /// The proxy. It is the first field, so that it is dropped before its members.
    pub proxy: Proxy,
    /// The Puppet CA.
    pub ca: Ca,
    /// The CA server.
    pub ca_server: StandIn,
    /// The compilers, c1 first.
    pub compilers: Vec<StandIn>,
    asserts_settled: bool,
    program: PhantomData<P>,
}

/// How the proxy reaches the members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MemberScheme {
    Http,
    /// Mutual TLS; the stand-ins record the proxy's certificate.
    Https,
}

type Configure = dyn FnOnce(ProxyBuilder, &Servers) -> ProxyBuilder;

/// A builder for an estate.
pub struct EstateBuilder<P = ()> {
    ca: Ca,
    scheme: MemberScheme,
    compilers: usize,
    ca_lines: Vec<String>,
    compiler_lines: Vec<String>,
    compiler_options: BTreeMap<usize, String>,
    is_ready: bool,
    asserts_settled: bool,
    program: Box<dyn FnOnce(&Ca) -> ProxyBuilder>,
    pools: Option<Box<Configure>>,
    changes: Vec<Box<dyn FnOnce(ProxyBuilder) -> ProxyBuilder>>,
    of: PhantomData<P>,
}

impl Servers {
    /// Starts a CA with this name, a CA server and two compilers, with mutual TLS.
    pub fn start(name: &str) -> Self {
        let ca = Ca::named(name);
        Self::of(&ca, MemberScheme::Https, 2)
    }

    /// Starts the same servers with this CA, over plain HTTP.
    pub fn plain(ca: &Ca) -> Self {
        Self::of(ca, MemberScheme::Http, 2)
    }

    fn of(ca: &Ca, scheme: MemberScheme, compilers: usize) -> Self {
        let member = |name: &str| {
            let builder = StandIn::builder(name).ca(ca);
            match scheme {
                MemberScheme::Http => builder.start(),
                MemberScheme::Https => builder.tls(ca, &ca.server(name)).start(),
            }
        };
        Self {
            ca: ca.clone(),
            ca_server: member("ca"),
            compilers: (1..=compilers).map(|n| member(&format!("c{n}"))).collect(),
        }
    }

    /// The CA server and the compilers.
    pub fn members(&self) -> impl Iterator<Item = &StandIn> {
        std::iter::once(&self.ca_server).chain(&self.compilers)
    }

    /// Discards the requests that members recorded.
    pub fn forget(&self) {
        self.members().for_each(StandIn::forget);
    }
}

/// Those methods of [`ProxyBuilder`] whose only argument is a text.
macro_rules! proxy_lines {
    ($($name:ident)*) => {
        $(
            #[doc = concat!("[`ProxyBuilder::", stringify!($name), "`].")]
            pub fn $name(self, text: &str) -> Self {
                let text = text.to_owned();
                self.proxy(move |proxy| proxy.$name(&text))
            }
        )*
    };
}

impl<P: Program> Estate<P> {
    /// Starts an estate with members over plain HTTP and all other defaults.
    #[track_caller]
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// A builder for an estate that differs from the default.
    pub fn builder() -> EstateBuilder<P> {
        EstateBuilder {
            asserts_settled: true,
            ..EstateBuilder::new(P::proxy)
        }
    }
}

impl<P> Estate<P> {
    /// A client that presents this agent's certificate. Each client has a separate session store.
    pub fn client(&self, agent: &TestCredential) -> Client {
        self.proxy.client(Some(agent))
    }

    /// A client with a new certificate for this name.
    pub fn agent(&self, certname: &str) -> Client {
        self.client(&self.ca.agent(certname))
    }

    /// A client without a certificate.
    pub fn anonymous(&self) -> Client {
        self.proxy.client(None)
    }

    /// Requests that arrived at any member, without probes.
    pub fn far_end(&self) -> Vec<Recorded> {
        self.members().flat_map(StandIn::requests).collect()
    }

    /// The only request that reached a member since `forget`.
    ///
    /// # Panics
    /// There is not exactly one request.
    #[track_caller]
    pub fn only_request(&self) -> Recorded {
        let mut requests = self.far_end();
        assert_eq!(
            requests.len(),
            1,
            "one request at the far end: {requests:#?}"
        );
        requests.remove(0)
    }

    /// Discards the requests that members recorded.
    pub fn forget(&self) {
        self.members().for_each(StandIn::forget);
    }

    /// The CA server and the compilers.
    pub fn members(&self) -> impl Iterator<Item = &StandIn> {
        std::iter::once(&self.ca_server).chain(&self.compilers)
    }
}

/// The methods of the proxy, with which a test waits for something or edits files.
impl<P> Deref for Estate<P> {
    type Target = Proxy;

    fn deref(&self) -> &Proxy {
        &self.proxy
    }
}

impl<P> Drop for Estate<P> {
    fn drop(&mut self) {
        if self.asserts_settled && !thread::panicking() && self.proxy.is_running() {
            self.proxy.assert_settled();
        }
    }
}

impl<P> EstateBuilder<P> {
    /// A builder for an estate with this program. At the end, the estate does not check for requests that are still
    /// open.
    pub fn new(program: impl FnOnce(&Ca) -> ProxyBuilder + 'static) -> Self {
        Self {
            ca: Ca::new(),
            scheme: MemberScheme::Http,
            compilers: 2,
            ca_lines: Vec::new(),
            compiler_lines: Vec::new(),
            compiler_options: BTreeMap::new(),
            is_ready: true,
            asserts_settled: false,
            program: Box::new(program),
            pools: None,
            changes: Vec::new(),
            of: PhantomData,
        }
    }

    /// Sets another CA.
    pub fn ca(mut self, ca: &Ca) -> Self {
        self.ca = ca.clone();
        self
    }

    /// Uses mutual TLS to the members.
    pub fn tls_members(mut self) -> Self {
        self.scheme = MemberScheme::Https;
        self
    }

    /// Sets the number of compilers. Default 2.
    pub fn compilers(mut self, n: usize) -> Self {
        self.compilers = n;
        self
    }

    /// Adds a line to `[pools.ca]`.
    pub fn ca_pool(mut self, line: &str) -> Self {
        self.ca_lines.push(line.to_owned());
        self
    }

    /// Adds a line to `[pools.compilers]`.
    pub fn compiler_pool(mut self, line: &str) -> Self {
        self.compiler_lines.push(line.to_owned());
        self
    }

    /// Allows one agent to send as many requests at once as its members accept, so that it can stand for many agents.
    pub fn one_agent_for_many(mut self) -> Self {
        let line = "agent_max = 1000".to_owned();
        if !self.compiler_lines.contains(&line) {
            self.compiler_lines.push(line);
        }
        self
    }

    /// Sets options of the n-th compiler in `members`: `.compiler(1, "weight = 2")`.
    pub fn compiler(mut self, n: usize, options: &str) -> Self {
        self.compiler_options.insert(n - 1, options.to_owned());
        self
    }

    /// Does not wait until the members are up.
    pub fn unready(mut self) -> Self {
        self.is_ready = false;
        self
    }

    /// Makes any other change to the proxy's builder: `.proxy(|p| p.with("[trust]\ndepth = 1"))`.
    pub fn proxy(mut self, change: impl FnOnce(ProxyBuilder) -> ProxyBuilder + 'static) -> Self {
        self.changes.push(Box::new(change));
        self
    }

    /// [`ProxyBuilder::own_copy`].
    pub fn own_copy(self) -> Self {
        self.proxy(ProxyBuilder::own_copy)
    }

    /// [`ProxyBuilder::credential`].
    pub fn credential(self, credential: &TestCredential) -> Self {
        let credential = credential.clone();
        self.proxy(move |proxy| proxy.credential(&credential))
    }

    /// [`ProxyBuilder::file`].
    pub fn file(self, name: &str, text: &str, mode: u32) -> Self {
        let (name, text) = (name.to_owned(), text.to_owned());
        self.proxy(move |proxy| proxy.file(&name, &text, mode))
    }

    proxy_lines! { with listener top fetch materials access_log access_log_alone admin certname argument ulimit }

    /// Sets a function that returns the whole configuration, with the pools, for the servers that were started.
    pub fn configuration(
        mut self,
        configure: impl FnOnce(ProxyBuilder, &Servers) -> ProxyBuilder + 'static,
    ) -> Self {
        self.pools = Some(Box::new(configure));
        self
    }

    /// Starts everything and waits until the members are up.
    #[track_caller]
    pub fn start(mut self) -> Estate<P> {
        let servers = Servers::of(&self.ca, self.scheme, self.compilers);
        let (is_ready, asserts_settled) = (self.is_ready, self.asserts_settled);
        let configure = self.pools.take().unwrap_or_else(|| {
            let pools = self.pool_tables(&servers);
            Box::new(move |proxy, _| proxy.with(&pools))
        });
        let proxy = configure((self.program)(&self.ca), &servers);
        let changes = self.changes.into_iter();
        let proxy = changes.fold(proxy, |proxy, change| change(proxy)).start();
        if is_ready {
            proxy.wait_for_members(&["ca", "compilers"]);
        }
        let Servers {
            ca,
            ca_server,
            compilers,
        } = servers;
        Estate {
            proxy,
            ca,
            ca_server,
            compilers,
            asserts_settled,
            program: PhantomData,
        }
    }

    /// Starts the proxy without servers. The proxy must refuse its configuration.
    #[track_caller]
    pub fn try_start(self) -> CommandOutcome {
        let pools = [("ca", &self.ca_lines), ("compilers", &self.compiler_lines)];
        let pools = pools.map(|(name, lines)| pool(name, "http", "\"127.0.0.1:1\"", lines));
        let proxy = (self.program)(&self.ca).with(&pools.concat());
        let changes = self.changes.into_iter();
        let proxy = changes.fold(proxy, |proxy, change| change(proxy));
        proxy.try_start().map(drop).expect_err("refused at start")
    }

    fn pool_tables(&self, servers: &Servers) -> String {
        let scheme = match self.scheme {
            MemberScheme::Http => "http",
            MemberScheme::Https => "https",
        };
        let compilers = servers.compilers.iter().enumerate().map(|(index, member)| {
            let address = member.address();
            match self.compiler_options.get(&index) {
                None => format!("{address:?}"),
                Some(options) => format!("{{ address = {address:?}, {options} }}"),
            }
        });
        let compilers: Vec<_> = compilers.collect();
        let ca_server = format!("{:?}", servers.ca_server.address());
        [
            pool("ca", scheme, &ca_server, &self.ca_lines),
            pool(
                "compilers",
                scheme,
                &compilers.join(", "),
                &self.compiler_lines,
            ),
        ]
        .concat()
    }
}

/// The tables of both pools over plain HTTP, with these members.
pub fn plain_pools(ca_server: &StandIn, compilers: &[StandIn]) -> String {
    let compilers: Vec<_> = compilers.iter().map(StandIn::address).collect();
    format!(
        "[pools.ca]\nscheme = \"http\"\nmembers = [{:?}]\n\
         [pools.compilers]\nscheme = \"http\"\nmembers = {compilers:?}\n",
        ca_server.address()
    )
}

fn pool(name: &str, scheme: &str, members: &str, lines: &[String]) -> String {
    let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
    format!("[pools.{name}]\nscheme = \"{scheme}\"\nmembers = [{members}]\n{lines}\n")
}
