//! An estate in five lines: a CA, a CA server, two compilers, and the built program in front of them.
//!
//! `let estate = Estate::start(); let agent = estate.ca.agent("web01");`
//! `assert_eq!(estate.client(&agent).get("/puppet/v3/catalog/web01?environment=production").status, 200)`

pub(crate) mod agent_check;
pub(crate) mod crl_fetch;
pub(crate) mod discovery;
pub(crate) mod doctor;
pub(crate) mod exchanges;
pub(crate) mod fixtures;
pub(crate) mod header_forms;
pub(crate) mod http2;
pub(crate) mod layer4;
pub(crate) mod materials;
pub(crate) mod passthrough;
pub(crate) mod paths;
pub(crate) mod pools;
pub(crate) mod reload;
pub(crate) mod routes;
pub(crate) mod tunnels;

use std::{collections::BTreeMap, thread, time::Duration};

use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
pub(crate) use testkit::readers;
use testkit::{
    Ca, Client, Connection, Credential, Enrolment, Outcome, Protocol, Proxy, ProxyBuilder,
    Recorded, Response, StandIn,
};

/// The built program.
pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_proscenium");
/// Ends a test here where clients speak HTTP/2, and says why: what it does can be done in HTTP/1.1 alone.
macro_rules! http1_alone {
    ($why:literal) => {
        if crate::SPOKEN == testkit::Protocol::Http2 {
            eprintln!("over HTTP/1.1 alone: {}", $why);
            return;
        }
    };
}
pub(crate) use http1_alone;

/// As `openssl x509 -fingerprint -sha256` writes it.
pub(crate) fn fingerprint(credential: &Credential) -> String {
    let rustls::SupportedCipherSuite::Tls13(suite) = TLS13_AES_128_GCM_SHA256 else {
        unreachable!("it is one of TLS 1.3")
    };
    let digest = suite.common.hash_provider.hash(&credential.cert_der);
    let pairs: Vec<_> = digest.as_ref().iter().map(|b| format!("{b:02X}")).collect();
    pairs.join(":")
}

/// What records and answers call what is spoken.
pub(crate) const VERSION: &str = match crate::SPOKEN {
    Protocol::Http1 => "HTTP/1.1",
    Protocol::Http2 => "HTTP/2",
};

/// Those of the fields that can be said in what clients speak: HTTP/2 has no Connection, and what has one is no request
/// (`http2.rs`).
pub(crate) fn sayable<'a>(fields: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let alone = crate::SPOKEN == Protocol::Http1;
    let sayable = |(name, _): &(&str, &str)| alone || !name.eq_ignore_ascii_case("connection");
    fields.iter().copied().filter(sayable).collect()
}

/// A proxy in the making, whose clients speak what this run is about. Nobody else begins one.
pub(crate) fn proxy(ca: &Ca) -> ProxyBuilder {
    Proxy::new(ca, BINARY).speaking(crate::SPOKEN)
}

/// Longer than anything takes that is not stuck.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// A line of a pool whose members are probed all the time, and are up or down after one probe.
pub(crate) const QUICK_CHECK: &str = "check = { interval = \"20ms\", rise = 1, fall = 1 }";

/// A Puppet estate with the proxy in front.
pub(crate) struct Estate {
    /// The proxy; first, so that it ends before its members.
    pub(crate) proxy: Proxy,
    /// The Puppet CA.
    pub(crate) ca: Ca,
    /// The CA server.
    pub(crate) ca_server: StandIn,
    /// The compilers c1 and c2.
    pub(crate) compilers: Vec<StandIn>,
}

/// How members are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Members {
    /// Plain HTTP on loopback.
    Plain,
    /// Mutual TLS; the stand-ins record the proxy's certificate.
    Tls,
}

/// An estate in the making.
pub(crate) struct EstateBuilder {
    ca: Ca,
    members: Members,
    compilers: usize,
    ca_lines: Vec<String>,
    compiler_lines: Vec<String>,
    compiler_options: BTreeMap<usize, String>,
    ready: bool,
    change: Vec<Box<dyn FnOnce(ProxyBuilder) -> ProxyBuilder>>,
}

impl Estate {
    /// Plain members, everything else as it is by default.
    pub(crate) fn start() -> Self {
        Self::builder().start()
    }

    /// One that differs.
    pub(crate) fn builder() -> EstateBuilder {
        EstateBuilder {
            ca: Ca::new(),
            members: Members::Plain,
            compilers: 2,
            ca_lines: Vec::new(),
            compiler_lines: Vec::new(),
            compiler_options: BTreeMap::new(),
            ready: true,
            change: Vec::new(),
        }
    }

    /// A client that shows this agent's certificate; each has a session store of its own.
    pub(crate) fn client(&self, agent: &Credential) -> Client {
        self.proxy.client(Some(agent))
    }

    /// A client without a certificate.
    pub(crate) fn anonymous(&self) -> Client {
        self.proxy.client(None)
    }

    /// Requests at every far end, probes left out.
    pub(crate) fn far_end(&self) -> Vec<Recorded> {
        self.members().flat_map(StandIn::requests).collect()
    }

    /// The one request that reached a far end since `forget`.
    #[track_caller]
    pub(crate) fn only_request(&self) -> Recorded {
        let mut requests = self.far_end();
        assert_eq!(
            requests.len(),
            1,
            "one request at the far end: {requests:#?}"
        );
        requests.remove(0)
    }

    /// Forgets what the far ends recorded.
    pub(crate) fn forget(&self) {
        self.members().for_each(StandIn::forget);
    }

    /// CA server and compilers.
    pub(crate) fn members(&self) -> impl Iterator<Item = &StandIn> {
        std::iter::once(&self.ca_server).chain(&self.compilers)
    }
}

impl Drop for Estate {
    fn drop(&mut self) {
        if !thread::panicking() && self.proxy.is_running() {
            self.proxy.assert_settled();
        }
    }
}

impl EstateBuilder {
    /// Another CA.
    pub(crate) fn ca(mut self, ca: &Ca) -> Self {
        self.ca = ca.clone();
        self
    }

    /// Members over mutual TLS.
    pub(crate) fn tls_members(mut self) -> Self {
        self.members = Members::Tls;
        self
    }

    /// Another number of compilers.
    pub(crate) fn compilers(mut self, n: usize) -> Self {
        self.compilers = n;
        self
    }

    /// A line of `[pools.ca]`.
    pub(crate) fn ca_pool(mut self, line: &str) -> Self {
        self.ca_lines.push(line.to_owned());
        self
    }

    /// A line of `[pools.compilers]`.
    pub(crate) fn compiler_pool(mut self, line: &str) -> Self {
        self.compiler_lines.push(line.to_owned());
        self
    }

    /// One agent may send as many requests at once as its members take: it stands for many.
    pub(crate) fn one_agent_for_many(mut self) -> Self {
        let line = "agent_max = 1000".to_owned();
        if !self.compiler_lines.contains(&line) {
            self.compiler_lines.push(line);
        }
        self
    }

    /// What `members` says of the n-th compiler beside its address: `.compiler(1, "weight = 2")`.
    pub(crate) fn compiler(mut self, n: usize, options: &str) -> Self {
        self.compiler_options.insert(n - 1, options.to_owned());
        self
    }

    /// Does not wait for members to be up.
    pub(crate) fn unready(mut self) -> Self {
        self.ready = false;
        self
    }

    /// Any other change of the proxy's configuration: `.proxy(|p| p.with("[trust]\ndepth = 1"))`.
    pub(crate) fn proxy(
        mut self,
        change: impl FnOnce(ProxyBuilder) -> ProxyBuilder + 'static,
    ) -> Self {
        self.change.push(Box::new(change));
        self
    }

    /// Starts everything and waits until the members are up.
    #[track_caller]
    pub(crate) fn start(self) -> Estate {
        let ca_server = self.member("ca");
        let compilers: Vec<_> = (1..=self.compilers)
            .map(|n| self.member(&format!("c{n}")))
            .collect();
        let pools = [
            self.pool(
                "ca",
                std::slice::from_ref(&ca_server),
                &self.ca_lines,
                &BTreeMap::new(),
            ),
            self.pool(
                "compilers",
                &compilers,
                &self.compiler_lines,
                &self.compiler_options,
            ),
        ];
        let ready = self.ready;
        let proxy = proxy(&self.ca).with(&pools.concat());
        let proxy = self
            .change
            .into_iter()
            .fold(proxy, |proxy, change| change(proxy))
            .start();
        if ready {
            proxy.wait_for_members(&["ca", "compilers"]);
        }
        Estate {
            proxy,
            ca: self.ca,
            ca_server,
            compilers,
        }
    }

    /// Starts everything, where the proxy is expected to refuse.
    #[track_caller]
    pub(crate) fn try_start(self) -> Outcome {
        let pools = ["ca", "compilers"].map(|name| {
            let lines = if name == "ca" {
                &self.ca_lines
            } else {
                &self.compiler_lines
            };
            let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
            format!("[pools.{name}]\nscheme = \"http\"\nmembers = [\"127.0.0.1:1\"]\n{lines}\n")
        });
        let proxy = proxy(&self.ca).with(&pools.concat());
        let proxy = self
            .change
            .into_iter()
            .fold(proxy, |proxy, change| change(proxy));
        proxy.try_start().map(drop).expect_err("refused at start")
    }

    fn member(&self, name: &str) -> StandIn {
        let builder = StandIn::builder(name).ca(&self.ca);
        match self.members {
            Members::Plain => builder.start(),
            Members::Tls => builder.tls(&self.ca, &self.ca.server(name)).start(),
        }
    }

    fn pool(
        &self,
        name: &str,
        members: &[StandIn],
        lines: &[String],
        options: &BTreeMap<usize, String>,
    ) -> String {
        let scheme = match self.members {
            Members::Plain => "http",
            Members::Tls => "https",
        };
        let entry = |(index, member): (usize, &StandIn)| match options.get(&index) {
            None => format!("{:?}", member.address()),
            Some(options) => format!("{{ address = {:?}, {options} }}", member.address()),
        };
        let entries: Vec<_> = members.iter().enumerate().map(entry).collect();
        let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
        format!(
            "[pools.{name}]\nscheme = \"{scheme}\"\nmembers = [{}]\n{lines}\n",
            entries.join(", ")
        )
    }
}

/// A certificate request of this name, as an agent sends it.
pub(crate) fn certificate_request(certname: &str) -> Vec<u8> {
    Enrolment::new(certname).request_pem().as_bytes().to_vec()
}

/// Sets the administrative state of a member, whatever is left of its pool; yields what the command printed.
#[track_caller]
pub(crate) fn set_state(proxy: &Proxy, verb: &str, pool: &str, member: &str) -> String {
    let force: &[&str] = match verb {
        "ready" => &[],
        _ => &["--force"],
    };
    done(proxy, &[verb, pool, member], force)
}

/// An open connection of the agent web01.
pub(crate) fn connection(estate: &Estate) -> Connection {
    let agent = estate.ca.agent("web01");
    estate.client(&agent).connect().expect("connects")
}

/// Asserts a 503 with a `Retry-After` between 10 and 30 seconds.
#[track_caller]
pub(crate) fn assert_unavailable(response: &Response) {
    assert_eq!(response.status, 503, "{response:?}");
    let seconds: u64 = response
        .headers
        .only("retry-after")
        .parse()
        .expect("seconds");
    assert!((10..=30).contains(&seconds), "{seconds}");
}

/// What a verb of the program says that must do without a complaint.
#[track_caller]
pub(crate) fn done(proxy: &Proxy, words: &[&str], arguments: &[&str]) -> String {
    let outcome = proxy.command(words, arguments);
    assert_eq!(
        (outcome.code, outcome.stderr.as_str()),
        (Some(0), ""),
        "{words:?} {arguments:?}"
    );
    outcome.stdout
}

/// Asserts what a far end was told of its client: one verdict, always; a subject beside SUCCESS alone.
#[track_caller]
pub(crate) fn assert_told(request: &Recorded, verify: &str, dn: Option<&str>) {
    assert_eq!(
        request.only("x-client-verify"),
        verify,
        "{}",
        request.raw_text()
    );
    let told = request.headers.all("x-client-dn");
    assert_eq!(
        told,
        dn.into_iter().collect::<Vec<_>>(),
        "{}",
        request.raw_text()
    );
}

/// Asserts a refusal of ours: its status, and every one of these words in its text.
#[track_caller]
pub(crate) fn assert_refused(response: &Response, status: u16, words: &[&str]) {
    assert_eq!(response.status, status, "{response:?}");
    for word in words {
        assert!(
            response.text().contains(word),
            "{word:?} is not said: {response:?}"
        );
    }
}
