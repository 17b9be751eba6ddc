//! Compares the path rule with a literal implementation of its text, and the class of each accepted path with the
//! endpoint that a Puppet server would serve.
//!
//! Input: one byte that selects the method, then a request target.

use std::borrow::Cow;
use std::sync::LazyLock;

use http::Method;
use percent_encoding::percent_decode_str;
use regex::Regex;
use routing::{CanonicalPath, Class, Layout, Layouts, check_query, classify};

pub(crate) fn check(input: &[u8]) {
    let Some((method, target)) = input.split_first() else {
        return;
    };
    let Ok(target) = std::str::from_utf8(target) else {
        return;
    };
    let method = &METHODS[usize::from(*method) % METHODS.len()];
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    };
    let broken = broken_rules(path);
    match CanonicalPath::check(path) {
        Ok(passed) => {
            assert!(broken.is_empty(), "{path:?} passes, and breaks {broken:?}");
            assert_eq!(passed.as_str(), path);
            check_reading(method, &passed);
            check_legacy(method, &passed);
        }
        Err(problem) => assert!(
            broken.contains(&problem.as_str()),
            "{path:?} is {problem:?}, not {broken:?}"
        ),
    }
    let query_passes = query.is_none_or(|query| {
        query
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'#')
    });
    assert_eq!(
        query.is_none_or(|query| check_query(query).is_ok()),
        query_passes,
        "{query:?}"
    );
    let whole = CanonicalPath::of_target(path, query).is_ok();
    assert_eq!(whole, broken.is_empty() && query_passes, "{target:?}");
}

/// The names of all rules that a path breaks.
fn broken_rules(path: &str) -> Vec<&'static str> {
    static BAD_ESCAPE: LazyLock<Regex> =
        LazyLock::new(|| pattern("%(?:[^0-9a-fA-F]|.[^0-9a-fA-F]|.?$)"));
    static HIDING: LazyLock<Regex> = LazyLock::new(|| pattern("(?i)%(?:2f|5c|00)"));
    static DOTS: LazyLock<Regex> = LazyLock::new(|| pattern(r"^\.\.?(?:;|$)"));
    static FORBIDDEN: LazyLock<Regex> = LazyLock::new(|| pattern(r"[^!-~]|[\\#?]"));
    let mut broken = Vec::new();
    let mut rule = |name, breaks: bool| {
        if breaks {
            broken.push(name);
        }
    };
    rule("path-not-absolute", !path.starts_with('/'));
    rule("path-byte", FORBIDDEN.is_match(path));
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    let name_is_fourth = matches!(
        segments.get(..3),
        Some(["puppet-ca", ..] | ["puppet", "v3", "catalog" | "node" | "facts" | "report"])
    );
    for (index, segment) in segments.iter().enumerate() {
        let decoded: Vec<u8> = percent_decode_str(segment).collect();
        rule("path-bad-escape", BAD_ESCAPE.is_match(segment));
        rule("path-forbidden-escape", HIDING.is_match(segment));
        rule("path-not-utf8", std::str::from_utf8(&decoded).is_err());
        rule(
            "path-dot-segment",
            DOTS.is_match(&String::from_utf8_lossy(&decoded)),
        );
        if index < 3 || (index == 3 && name_is_fourth) {
            rule("path-escaped-name", segment.contains('%'));
            rule("path-parameters", segment.contains(';'));
            rule(
                "path-empty-segment",
                segment.is_empty() && index + 1 < segments.len(),
            );
        }
    }
    broken
}

fn check_reading(method: &Method, path: &CanonicalPath<'_>) {
    let ours = classify(method, path, Layouts::Modern);
    for parameters in [Parameters::CutFirst, Parameters::CutLast] {
        let read = as_a_server_reads(path.as_str(), parameters).expect("no dot segment");
        let (theirs, name) = served_as(method, &read);
        let is_cas = read == "/puppet-ca" || read.starts_with("/puppet-ca/");
        let looks_cas = path.as_str().split('/').nth(1) == Some("puppet-ca");
        assert_eq!(is_cas, looks_cas, "{path:?} is read as {read}");
        match ours.class {
            // Endpoints that are open to every client, or that a configuration can open to every client: the server
            // must read the same class.
            Class::Unknown | Class::Enrolment | Class::Status | Class::OwnDocuments => {
                assert_eq!(theirs, ours.class, "{method} {path:?} is read as {read}");
            }
            // Endpoints that are open to every agent: the server must read the same first segments.
            Class::Files | Class::Filebucket => {
                let below = |text: &str| {
                    text.split('/')
                        .take(4)
                        .map(str::to_owned)
                        .collect::<Vec<_>>()
                };
                assert_eq!(
                    below(&read),
                    below(path.as_str()),
                    "{path:?} is read as {read}"
                );
            }
            // A Puppet Server must not read another request from a path that a rule opens.
            Class::ServerAdministration => {
                assert_eq!(read, path.as_str(), "{method} {path:?}");
                assert_eq!(theirs, ours.class, "{method} {path:?}");
            }
            Class::Renewal | Class::CaAdministration | Class::Services | Class::Never => {}
        }
        if ours.class == Class::OwnDocuments {
            assert_eq!(ours.certname, name, "{path:?} is read as {read}");
        }
    }
}

/// Checks what `legacy_routes` changes. A guarded path may change its class, and a path of unknown class may become
/// guarded. Other paths keep their class. If a legacy route opens a path, a server must read the same request from it.
fn check_legacy(method: &Method, path: &CanonicalPath<'_>) {
    let without = classify(method, path, Layouts::Modern);
    let with = classify(method, path, Layouts::ModernAndLegacy);
    let guarded = |class| matches!(class, Class::CaAdministration | Class::Services);
    if with.class != without.class {
        let is_closed = guarded(with.class) && without.class == Class::Unknown;
        assert!(
            guarded(without.class) || is_closed,
            "{method} {path:?}: {with:?}"
        );
        assert_ne!(with.class, Class::Unknown, "{method} {path:?}");
    }
    if with.layout == Layout::Modern || guarded(with.class) {
        return;
    }
    for parameters in [Parameters::CutFirst, Parameters::CutLast] {
        let read = as_a_server_reads(path.as_str(), parameters).expect("no dot segment");
        let (theirs, segments) = (read.split('/'), path.as_str().split('/'));
        let named = theirs.take(4).eq(segments.take(4));
        assert!(named, "{method} {path:?} is read as {read}");
        if let Some(certname) = with.certname {
            assert_eq!(read.split('/').nth(3), Some(certname), "{path:?}");
        }
    }
}

/// When a server removes `;parameters`: Jetty removed them before percent-decoding, and trapperkeeper removes them
/// after it.
#[derive(Clone, Copy, Debug)]
enum Parameters {
    CutFirst,
    CutLast,
}

/// trapperkeeper's `normalize-uri-path`: percent-decodes the path, removes parameters, rejects dot segments and merges
/// slashes.
fn as_a_server_reads(path: &str, parameters: Parameters) -> Option<String> {
    static SLASHES: LazyLock<Regex> = LazyLock::new(|| pattern("/{2,}"));
    let segment = |segment: &str| {
        let cut = |text: &str| text.split(';').next().unwrap_or_default().to_owned();
        let decode = |text: &str| percent_decode_str(text).decode_utf8().map(Cow::into_owned);
        let read = match parameters {
            Parameters::CutFirst => decode(&cut(segment)).ok()?,
            Parameters::CutLast => cut(&decode(segment).ok()?),
        };
        (read != "." && read != "..").then_some(read)
    };
    let segments: Option<Vec<String>> = path.split('/').map(segment).collect();
    Some(SLASHES.replace_all(&segments?.join("/"), "/").into_owned())
}

/// The class of the endpoint that a server would serve, and the certname in the path. The patterns resemble those in
/// the server's `auth.conf`.
fn served_as<'p>(method: &Method, path: &'p str) -> (Class, Option<&'p str>) {
    type Rule = (Class, Regex);
    static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| {
        RULES_BY_CLASS
            .iter()
            .map(|(class, text)| (*class, pattern(&format!("^(?s:{text})$"))))
            .collect()
    });
    let put_or_delete = method == Method::PUT || method == Method::DELETE;
    let guarded = |class: &Class| match class {
        Class::ServerAdministration => method != Method::DELETE,
        Class::Enrolment if path.starts_with("/puppet-ca/v1/certificate_request/") => {
            method == Method::DELETE
        }
        Class::Enrolment if path.starts_with("/puppet-ca/v1/certificate_revocation_list/") => {
            put_or_delete
        }
        _ => false,
    };
    let found = RULES.iter().find_map(|(class, rule)| {
        let name = rule.captures(path)?.get(1);
        (!guarded(class)).then(|| (*class, name.map(|name| name.as_str())))
    });
    found.unwrap_or((Class::Unknown, None))
}

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("a pattern")
}

/// The first match applies. From the documentation of Puppet Server; the modern endpoints come before those of Puppet 3.
const RULES_BY_CLASS: &[(Class, &str)] = &[
    (Class::Enrolment, "/puppet-ca/v1/certificate/[^/]+"),
    (Class::Enrolment, "/puppet-ca/v1/certificate_request/[^/]+"),
    (
        Class::Enrolment,
        "/puppet-ca/v1/certificate_revocation_list/ca",
    ),
    (Class::Renewal, "/puppet-ca/v1/certificate_renewal(?:/.*)?"),
    (Class::CaAdministration, "/puppet-ca(?:/.*)?"),
    (
        Class::OwnDocuments,
        "/puppet/v3/(?:catalog|node|facts|report)/([^/]+)",
    ),
    (
        Class::Files,
        "/puppet/v3/(?:file_metadatas?|file_content|static_file_content)/.*",
    ),
    (Class::Files, "/puppet/v3/(?:environments|tasks(?:/.*)?)"),
    (
        Class::Filebucket,
        "/puppet/v3/file_bucket_file/[^/]+/[^/]+(?:/.*)?",
    ),
    (Class::Services, "/puppet/v[34](?:/.*)?"),
    (Class::Status, "/status/v1/simple(?:/server|/master)?"),
    (
        Class::ServerAdministration,
        "/puppet-admin-api/v1/(?:environment-cache|jruby-pool)",
    ),
    (
        Class::Never,
        "/(?:status|metrics|puppet-admin-api|file-sync[^/]*)(?:/.*)?",
    ),
    (Class::CaAdministration, "/RPC2(?:/.*)?"),
    (
        Class::CaAdministration,
        "/[^/]+/(?:certificate|certificate_request|certificate_revocation_list|certificate_status|key)(?:_search|e?s)?/.*",
    ),
    (Class::Services, "/v2\\.0(?:/.*)?"),
    (
        Class::Services,
        "/[^/]+/(?:catalog|node|facts|file_metadata|file_content|file_bucket_file|report)(?:_search|e?s)?/.*",
    ),
    (
        Class::Services,
        "/[^/]+/(?:resource_type|resource|status|inventory|run|environment)(?:_search|e?s)?/.*",
    ),
    (Class::Services, "/puppet(?:/.*)?"),
];

const METHODS: &[Method] = &[
    Method::GET,
    Method::PUT,
    Method::POST,
    Method::DELETE,
    Method::HEAD,
    Method::OPTIONS,
];

pub(crate) const WORDS: &[&[u8]] = &[
    b"/puppet/v3/catalog/web01",
    b"/puppet-ca/v1/certificate_request/web01",
    b"/puppet-ca/v1/certificate_revocation_list/ca",
    b"/puppet-ca/v1/certificate_renewal",
    b"/puppet/v3/file_bucket_file/sha256/00ff//etc/motd",
    b"/production/certificate_status/x",
    b"/production/catalog/web01",
    b"/production/file_content/certificate/ca",
    b"/puppet/certificate_request/web01",
    b"/status/v1/simple/server",
    b"/RPC2",
    b"/v2.0/environments",
    b"puppet-ca",
    b"?environment=production",
    b"/",
    b"//",
    b"/.",
    b"/..",
    b"%2e",
    b"%2E%2e",
    b"%2f",
    b"%5c",
    b"%00",
    b"%3b",
    b"%",
    b"%c3%a9",
    b"%c3",
    b"%f0%9f%90%99",
    b";x",
    b";",
    b"\\",
    b"#",
    b" ",
    b"\xc3\xa9",
];
