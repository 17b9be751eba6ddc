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

use std::time::Duration;

use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
pub(crate) use testkit::readers;
use testkit::{
    Ca, Connection, Credential, Enrolment, Program, Protocol, Proxy, ProxyBuilder, Recorded,
    Response,
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

/// The built program, whose clients speak the protocol of this run.
pub(crate) struct BuiltProgram;

impl Program for BuiltProgram {
    fn proxy(ca: &Ca) -> ProxyBuilder {
        proxy(ca)
    }
}

/// A Puppet estate with the built program in front.
pub(crate) type Estate = testkit::Estate<BuiltProgram>;

/// An estate in the making.
pub(crate) type EstateBuilder = testkit::EstateBuilder<BuiltProgram>;

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
