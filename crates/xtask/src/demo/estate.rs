//! The estate of the demonstration: a CA, a CA server, two compilers, and the built program in front of them.

use std::{ops::Deref, path::Path};

use testkit::{
    Ca, ClientError, Estate, EstateBuilder, Proxy, Recorded, Response, Servers, StandIn,
    TestConnection, TestCredential,
};

/// Everything that runs.
pub(crate) struct DemoEstate {
    estate: Estate,
    /// The proxy's own certificate, shown to agents and to members.
    pub(crate) credential: TestCredential,
}

impl Deref for DemoEstate {
    type Target = Estate;

    fn deref(&self) -> &Estate {
        &self.estate
    }
}

/// A request, its answer, and the requests that arrived behind the proxy meanwhile.
pub(crate) struct Exchange {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) answer: Result<Response, ClientError>,
    pub(crate) arrived: Vec<Recorded>,
}

impl Exchange {
    /// The body of the answer as text; empty if there is no answer.
    pub(crate) fn text(&self) -> String {
        self.answer.as_ref().map(Response::text).unwrap_or_default()
    }
}

impl DemoEstate {
    /// Starts everything and waits until the members are up.
    pub(crate) fn start(binary: &Path) -> Self {
        let ca = Ca::named("demo");
        let credential = ca.server("proxy");
        let (binary, own) = (binary.to_owned(), credential.clone());
        let estate = EstateBuilder::new(move |ca| Proxy::new(ca, binary).credential(&own))
            .ca(&ca)
            .tls_members()
            .configuration(|proxy, servers| proxy.whole(&configuration(servers)))
            .start();
        Self { estate, credential }
    }

    /// Connects through the proxy with this certificate, or without one.
    pub(crate) fn connect(
        &self,
        credential: Option<&TestCredential>,
    ) -> Result<TestConnection, ClientError> {
        self.proxy.client(credential).connect()
    }

    /// Sends one request on this connection and reads the answer.
    pub(crate) fn send(&self, connection: &mut TestConnection, request: &Request<'_>) -> Exchange {
        self.forget();
        let answer = connection.try_request(
            request.method,
            request.target,
            request.headers,
            request.body,
        );
        self.exchange(request, answer)
    }

    /// Collects an exchange: the answer, and every request that arrived since the last `forget`.
    pub(crate) fn exchange(
        &self,
        request: &Request<'_>,
        answer: Result<Response, ClientError>,
    ) -> Exchange {
        Exchange {
            method: request.method.to_owned(),
            target: request.target.to_owned(),
            answer,
            arrived: self.arrived(),
        }
    }

    /// The requests that arrived at members, without the proxy's own fetches of the CA's documents, which have no request
    /// id.
    fn arrived(&self) -> Vec<Recorded> {
        let own = |request: &Recorded| {
            [CRL, CA_CERTIFICATE].contains(&request.path())
                && request.headers.get("x-request-id").is_none()
        };
        let arrived = self.members().flat_map(StandIn::requests);
        arrived.filter(|request| !own(request)).collect()
    }

    /// The tables that an operator writes, as the file has them.
    pub(crate) fn six_lines(&self) -> Vec<String> {
        let text = self.proxy.config_text();
        text.lines()
            .skip_while(|line| !line.starts_with("[listeners"))
            .take_while(|line| !line.is_empty())
            .map(str::to_owned)
            .collect()
    }
}

/// Path of the CA's certificates.
pub(crate) const CA_CERTIFICATE: &str = "/puppet-ca/v1/certificate/ca";

/// Path of the CA's CRL.
pub(crate) const CRL: &str = "/puppet-ca/v1/certificate_revocation_list/ca";

/// A client's request.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) method: &'a str,
    pub(crate) target: &'a str,
    pub(crate) headers: &'a [(&'a str, &'a str)],
    pub(crate) body: &'a [u8],
}

impl<'a> Request<'a> {
    /// A GET.
    pub(crate) fn get(target: &'a str) -> Self {
        Self::with_body("GET", target, b"")
    }

    /// A request with a body.
    pub(crate) fn with_body(method: &'a str, target: &'a str, body: &'a [u8]) -> Self {
        Self {
            method,
            target,
            headers: &[],
            body,
        }
    }
}

/// The six lines that suffice on a machine with a Puppet agent, and the paths that stand in for that machine's
/// defaults.
fn configuration(servers: &Servers) -> String {
    let [first, second] = [0, 1].map(|n| servers.compilers[n].address());
    format!(
        r#"ssldir = "{{dir}}/ssl"
certname = "proxy"

[listeners.agents]
address = "127.0.0.1:{{port}}"
[pools.ca]
members = ["{ca}"]
[pools.compilers]
members = ["{first}", "{second}"]

# A planted fault takes down both compilers for good.
[upstream]
unavailable_wait_max = "1s"
[access_log]
path = "{{dir}}/access.json"
format = "json"
[admin]
socket = "{{dir}}/admin.sock"
[state]
directory = "{{dir}}/state"
"#,
        ca = servers.ca_server.address(),
    )
}
