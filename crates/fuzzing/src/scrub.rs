//! Checks the removal and stamping of identity headers: which headers are removed, which remain, and which client the
//! servers identify afterwards.
//!
//! Input, one name per line: first the configured name of the subject header, then the names of the request's headers.

use std::sync::{Arc, LazyLock};

use http::header::{CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING};
use http::{Method, Uri, Version};
use http1::{Fields, Framing, RequestLine, write_head};
use identity::{
    Agent, ChainVerified, ClientIdentity, HeaderForm, HeaderRole, HeaderSet, IdentityHeaders,
    IdentityName, IdentitySettings, OwnNames, ScrubReport, is_removed,
};
use regex::Regex;
use testkit::readers;
use upstream::{OwnFields, OwnName, Scrubbed, remove_hop_by_hop};

use crate::dn;

pub(crate) fn check(input: &[u8]) {
    let mut lines = input.split(|byte| *byte == b'\n');
    let own = lines.next().and_then(|line| std::str::from_utf8(line).ok());
    // The configuration rejects a well-known name that has a meaning other than the subject.
    let may_name_subject =
        |name: &IdentityName| name.known_role().is_none_or(|role| role == HeaderRole::Dn);
    let own = own
        .and_then(|name| IdentityName::parse(name).ok())
        .filter(may_name_subject);
    let form = HeaderForm {
        dn: own
            .iter()
            .cloned()
            .chain(HeaderForm::default().dn)
            .take(1)
            .collect(),
        ..HeaderForm::default()
    };
    let names = OwnNames::of([&form]);
    let mut headers = HeaderMap::new();
    let (mut identity, mut underscore) = (0, 0);
    let mut kept = Vec::new();
    for (number, line) in lines.take(LINES_MAX).enumerate() {
        let Ok(name) = HeaderName::from_bytes(line) else {
            continue;
        };
        let value = HeaderValue::from(number);
        let is_identity = seems_identity(name.as_str(), own.as_ref());
        let is_underscore = !is_identity && name.as_str().contains('_');
        identity += u32::from(is_identity);
        underscore += u32::from(is_underscore);
        assert_eq!(
            is_removed(name.as_str().as_bytes(), &names),
            is_identity || is_underscore,
            "{name}"
        );
        if !is_identity && !is_underscore {
            kept.push((name.clone(), value.clone()));
        }
        headers.append(name, value);
    }
    let found = scrub(&mut headers, &names);
    assert_eq!((found.identity, found.underscore), (identity, underscore));
    assert_eq!(headers.len(), kept.len());
    for (name, value) in &kept {
        assert!(
            headers.get_all(name).iter().any(|left| left == value),
            "{name} is lost"
        );
    }
    check_stamped(&form, &headers, kept.len());
    check_sent((&form, &names), &headers);
    check_rfc_9440_and_envoy(&headers, kept.len());
}

/// Removes the lines that must be removed.
fn scrub(headers: &mut HeaderMap, names: &OwnNames) -> ScrubReport {
    let mut report = ScrubReport::default();
    let lines = std::mem::take(headers);
    for (name, value) in &lines {
        if !report.scrubs(name.as_str(), names) {
            headers.append(name, value.clone());
        }
    }
    report
}

/// Asserts that the headers of RFC 9440 and of Envoy are each sent once for a verified client, and not for other
/// clients.
fn check_rfc_9440_and_envoy(scrubbed: &HeaderMap, kept: usize) {
    let form = HeaderForm {
        sets: vec![
            HeaderSet::ClientCert,
            HeaderSet::ClientCertChain,
            HeaderSet::Xfcc,
        ],
        ..HeaderForm::default()
    };
    for identity in [AGENT.clone(), ClientIdentity::Anonymous] {
        let leaf = identity.agent().map(|agent| agent.leaf().to_vec());
        let mut headers = scrubbed.clone();
        IdentityHeaders::new(&identity, leaf.as_deref()).stamp(&form, &mut headers, true);
        let each = usize::from(leaf.is_some());
        for name in form.other_names() {
            assert_eq!(
                headers.get_all(name.as_str()).iter().count(),
                each,
                "{name}"
            );
        }
        assert_eq!(headers.len(), kept + 3 * each);
    }
}

/// Asserts that the member receives one request with exactly the expected header fields, each as often as in the
/// expected map.
fn check_sent((form, names): (&HeaderForm, &OwnNames), scrubbed: &HeaderMap) {
    for identity in [AGENT.clone(), ClientIdentity::Anonymous] {
        let leaf = identity.agent().map(|agent| agent.leaf().to_vec());
        let identity_headers = IdentityHeaders::new(&identity, leaf.as_deref());
        let mut expected = Fields::from(scrubbed);
        remove_hop_by_hop(&mut expected);
        let mut expected = expected.to_map();
        expected.insert("x-request-id", HeaderValue::from_static("ours"));
        expected.remove("host");
        identity_headers.stamp(form, &mut expected, true);
        for framing in [CONTENT_LENGTH, TRANSFER_ENCODING] {
            expected.remove(framing);
        }
        let (clients, _) = Scrubbed::new(Fields::from(scrubbed), names);
        let mut own = OwnFields::new();
        own.set(&REQUEST_ID, b"ours");
        own.remove(&HOST);
        let stamped = clients.stamp(own, &identity_headers, form, true);
        let line = RequestLine {
            method: &Method::GET,
            target: &Uri::from_static("/puppet/v3/catalog/web01"),
            version: Version::HTTP_11,
        };
        let mut sent = Vec::new();
        let written = write_head(
            &mut sent,
            line,
            stamped.fields(),
            stamped.lines(),
            Framing::None,
        );
        assert_eq!(written, Ok(()));
        assert_eq!(sorted(&read_request(&sent)), sorted(&expected));
    }
}

/// Parses the bytes as exactly one request and returns its header fields.
fn read_request(bytes: &[u8]) -> HeaderMap {
    let text = std::str::from_utf8(bytes).expect("ASCII");
    let fields = text.strip_suffix("\r\n\r\n").expect("an end");
    let mut lines = fields.split("\r\n");
    assert_eq!(lines.next(), Some("GET /puppet/v3/catalog/web01 HTTP/1.1"));
    let field = |line: &str| {
        let (name, value) = line.split_once(": ").expect("a field");
        let name = name.parse::<HeaderName>().expect("a name");
        (name, HeaderValue::from_str(value).expect("a value"))
    };
    let mut read = HeaderMap::new();
    for (name, value) in lines.map(field) {
        read.append(name, value);
    }
    read
}

fn sorted(headers: &HeaderMap) -> Vec<(&str, &[u8])> {
    let fields = headers.iter();
    let mut fields: Vec<_> = fields.map(|(n, v)| (n.as_str(), v.as_bytes())).collect();
    fields.sort_unstable();
    fields
}

static REQUEST_ID: OwnName = OwnName::new("x-request-id");
static HOST: OwnName = OwnName::new("host");

fn check_stamped(form: &HeaderForm, scrubbed: &HeaderMap, kept: usize) {
    for identity in [AGENT.clone(), ClientIdentity::Anonymous] {
        let leaf = identity.agent().map(|agent| agent.leaf().to_vec());
        let mut headers = scrubbed.clone();
        IdentityHeaders::new(&identity, leaf.as_deref()).stamp(form, &mut headers, true);
        assert_eq!(headers.len(), kept + if leaf.is_some() { 3 } else { 1 });
        let said = form
            .names()
            .flat_map(|(name, _)| headers.get_all(name.as_str()));
        assert_eq!(said.count(), if leaf.is_some() { 3 } else { 1 });
        // The server readers know only the default name of the subject header.
        let lines = dn::lines(&headers);
        for (server, read) in readers::all(&lines) {
            let read = read.expect("no server is broken by what is left");
            let is_sent = leaf.is_some() && form.dn[0].as_str() == "x-client-dn";
            assert_eq!(read.authenticated, is_sent, "{server}: {lines:?}");
            assert_eq!(
                read.name.as_deref(),
                is_sent.then_some("web01"),
                "{server}: {lines:?}"
            );
        }
    }
}

/// Whether the name belongs to a header family in docs/threats.md, T1 and T2. Like the most lenient server, this folds
/// every character except letters and digits to a hyphen and removes the `HTTP_` prefix of a CGI variable.
pub(crate) fn seems_identity(name: &str, own: Option<&IdentityName>) -> bool {
    static FAMILIES: LazyLock<Regex> = LazyLock::new(|| {
        let certificates = "(x-)?(ssl|tls|mtls)-?client-?.*|x-(ssl|tls|mtls)-.*|mtls-.*|x-client-.*|(x-)?clientcert.*\
            |client-cert.*|x-cert(-.*|ificate.*)?|cert-chain.*|x-(amzn-mtls|arr|rhsm-ssl|spiffe)-.*|cf-client-cert.*\
            |cloudfront-viewer-cert.*|(wl-proxy|proxy-client|proxy-remote)-.*|-ws.*|l5d-client-id.*";
        let users = "(x-)?remote(-|user).*|x-user|x-user-?(id|name|info).*|x-user-(email|group|role|dn|claim|principal|login).*\
            |x-(email|groups?|roles?|login|principal|webauth|authenticated|auth-request|anonymous-consumer)\
            |x-(webauth|authenticated|auth-request|authentik|consumer|amzn-oidc|goog-iap|ms-token|vouch|pomerium|proxy-ext)-.*\
            |x-(shib|iisnode|cas|oidc)-.*|x-(rstudio-user|sp-user|current-user|token-user|token-subject).*|x-auth-(user|email|group|role|subject|id|name|first-|last-|rsc-).*|x-proxy-(user|role).*\
            |x-(credential-identifier|goog-authenticated-user|ms-client-principal|rh-identity|sso-user|jwt-assertion).*\
            |x-(endpoint|apigateway)-api-userinfo.*|(oam|osso|cf-access|tailscale|teleport|oidc|mellon|shib|sm|iv|ynh)-.*\
            |(cas|logon|cp)-user.*|auth-(user|mail|group|cn).*|cp-consumer.*|eppn";
        let forwarding = "x-client|x-forwarded(-.*)?|forwarded|x-real-ip|proxy|x-(original-forwarded|azure|cluster-client)-.*\
            |(true-client|cf-connecting|fastly-client)-ip.*";
        let others = "x-ssl|x-tls|ssl-client|x-authentication";
        let families = [certificates, users, forwarding, others].join("|");
        Regex::new(&format!("^(?:http-)*(?:{families})$")).expect("a pattern")
    });
    let fold = |name: &str| {
        name.to_lowercase()
            .replace(|c: char| !c.is_ascii_alphanumeric(), "-")
    };
    let folded = fold(name);
    let is_own = |own: &IdentityName| {
        let mut rest = folded.as_str();
        while let Some(shorter) = rest.strip_prefix("http-") {
            rest = shorter;
        }
        rest == fold(own.as_str())
    };
    FAMILIES.is_match(&folded) || own.is_some_and(is_own)
}

static AGENT: LazyLock<ClientIdentity> = LazyLock::new(|| {
    let leaf = dn::leaf_of("web01");
    let agent = Agent::from_leaf(
        &leaf,
        &IdentitySettings::default(),
        ChainVerified::assertion(),
    );
    let agent = agent.expect("the CA writes such subjects");
    let above: Arc<[u8]> = leaf.as_slice().into();
    ClientIdentity::Verified(Arc::new(agent.with_path([7; 32], Arc::new([above]))))
});

const LINES_MAX: usize = 64;

pub(crate) const WORDS: &[&[u8]] = &[
    b"X-Client-DN",
    b"X-Client-Verify",
    b"X-Client-Cert",
    b"X-SSL-Subject",
    b"SSL-Client-S-DN",
    b"Client-Cert-Chain",
    b"X-Forwarded-For",
    b"Forwarded",
    b"X-Real-IP",
    b"X-Authentication",
    b"Proxy",
    b"Remote-User",
    b"X-Auth-Request-User",
    b"X-User-Id",
    b"X-TLS-Client-Cert",
    b"HTTP_",
    b"http-",
    b"X-Agent-Name",
    b"Accept",
    b"X-Request-Id",
    b"Host",
    b"Connection",
    b"Content-Length",
    b"X-Puppet-Version",
    b"\n",
    b"_",
    b".",
    b"~",
    b"-",
];
