//! Starts an estate in a few lines: a CA, a CA server, two compilers, and the built program in front of them.
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
    Ca, Enrolment, Program, Protocol, Proxy, ProxyBuilder, Recorded, Response, TestConnection,
    TestCredential, wait_until,
};

/// The built program.
pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_proscenium");
/// Ends a test here if clients use HTTP/2, and prints why the test needs HTTP/1.1.
macro_rules! http1_alone {
    ($why:literal) => {
        if crate::protocol() == testkit::Protocol::Http2 {
            eprintln!("over HTTP/1.1 alone: {}", $why);
            return;
        }
    };
}
pub(crate) use http1_alone;

/// The fingerprint as `openssl x509 -fingerprint -sha256` prints it.
pub(crate) fn fingerprint(credential: &TestCredential) -> String {
    let rustls::SupportedCipherSuite::Tls13(suite) = TLS13_AES_128_GCM_SHA256 else {
        unreachable!("it is one of TLS 1.3")
    };
    let digest = suite.common.hash_provider.hash(&credential.cert_der);
    let pairs: Vec<_> = digest.as_ref().iter().map(|b| format!("{b:02X}")).collect();
    pairs.join(":")
}

/// The name of the protocol in records and responses.
pub(crate) fn version() -> &'static str {
    match crate::protocol() {
        Protocol::Http1 => "HTTP/1.1",
        Protocol::Http2 => "HTTP/2",
    }
}

/// The fields that can be sent over the protocol of this run: an HTTP/2 request with `Connection` is malformed
/// (`http2.rs`).
pub(crate) fn allowed_fields<'a>(fields: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let alone = crate::protocol() == Protocol::Http1;
    let allowed_fields =
        |(name, _): &(&str, &str)| alone || !name.eq_ignore_ascii_case("connection");
    fields.iter().copied().filter(allowed_fields).collect()
}

/// A builder for a proxy whose clients use the protocol of this run. All tests start from here.
pub(crate) fn proxy(ca: &Ca) -> ProxyBuilder {
    Proxy::new(ca, BINARY).speaking(crate::protocol())
}

/// Longer than any operation takes, unless it hangs.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// The check of a pool whose members are probed continuously, and go up or down after one probe.
pub(crate) const QUICK_CHECK: &str = "check = { interval = \"20ms\", rise = 1, fall = 1 }";

/// The name of the account of this process, as the proxy records it.
pub(crate) fn account() -> String {
    let uid = rustix::process::getuid().as_raw().to_string();
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let mut accounts = passwd
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>());
    let account = accounts.find(|fields| fields.get(2) == Some(&&*uid));
    account.map_or_else(|| format!("uid {uid}"), |fields| fields[0].to_owned())
}

/// The setting of a pool that answers requests with 503 at once while no member is available.
pub(crate) const NO_WAIT: &str = "unavailable_wait_max = \"0s\"";

/// The built program, whose clients speak the protocol of this run.
pub(crate) struct BuiltProgram;

impl Program for BuiltProgram {
    fn proxy(ca: &Ca) -> ProxyBuilder {
        proxy(ca)
    }
}

/// A Puppet estate with the built program in front.
pub(crate) type Estate = testkit::Estate<BuiltProgram>;

/// A builder for an estate.
pub(crate) type EstateBuilder = testkit::EstateBuilder<BuiltProgram>;

/// A certificate request for this name, as an agent sends it.
pub(crate) fn certificate_request(certname: &str) -> Vec<u8> {
    Enrolment::new(certname).request_pem().as_bytes().to_vec()
}

/// Sets the administrative state of a member, even if its pool becomes empty; returns the printed output.
#[track_caller]
pub(crate) fn set_state(proxy: &Proxy, verb: &str, pool: &str, member: &str) -> String {
    let force: &[&str] = match verb {
        "ready" => &[],
        _ => &["--force"],
    };
    done(proxy, &[verb, pool, member], force)
}

/// An open connection of the agent web01.
pub(crate) fn connection(estate: &Estate) -> TestConnection {
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

/// Runs a verb that must succeed without a message on standard error; returns its output.
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

/// Asserts the identity that a member got: always one verdict, and a subject only with SUCCESS.
#[track_caller]
pub(crate) fn assert_identity(request: &Recorded, verify: &str, dn: Option<&str>) {
    assert_eq!(
        request.only("x-client-verify"),
        verify,
        "{}",
        request.raw_text()
    );
    let subjects = request.headers.all("x-client-dn");
    assert_eq!(
        subjects,
        dn.into_iter().collect::<Vec<_>>(),
        "{}",
        request.raw_text()
    );
}

/// Asserts that a member got no identity header.
#[track_caller]
pub(crate) fn assert_no_identity(request: &Recorded) {
    let text = request.raw_text().to_lowercase();
    assert!(!text.contains("x-client-"), "{text}");
}

/// Waits until a condition holds.
#[track_caller]
pub(crate) fn wait_for(what: &str, mut met: impl FnMut() -> bool) {
    let held = wait_until(LIMIT, || met().then_some(()));
    assert!(held.is_some(), "{what}");
}

/// Asserts that a text has these words.
#[track_caller]
pub(crate) fn assert_contains(text: &str, words: &str) {
    assert!(text.contains(words), "{words:?} is not in {text}");
}

/// Asserts a refusal by the proxy: its status, and that its text contains each of these words.
#[track_caller]
pub(crate) fn assert_refused(response: &Response, status: u16, words: &[&str]) {
    assert_eq!(response.status, status, "{response:?}");
    for word in words {
        assert_contains(&response.text(), word);
    }
}
