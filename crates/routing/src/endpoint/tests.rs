//! Endpoints by table: every row, its near misses, and the layouts of older servers.

use balancing::{Task, Work};
use http::Method;
use proptest::prelude::*;

use super::{RetryClass, classify};
use crate::{CanonicalPath, Class, Layouts};

fn class(method: &str, path: &str) -> Class {
    let method = Method::from_bytes(method.as_bytes()).expect("a method");
    let path = CanonicalPath::check(path).unwrap_or_else(|problem| panic!("{path}: {problem}"));
    classify(&method, &path, Layouts::Modern).class
}

const ENDPOINTS: &[(Class, &[&str])] = &[
    (
        Class::Enrolment,
        &[
            "GET /puppet-ca/v1/certificate/ca",
            "GET /puppet-ca/v1/certificate/web01",
            "HEAD /puppet-ca/v1/certificate/web01",
            "GET /puppet-ca/v1/certificate_revocation_list/ca",
            "GET /puppet-ca/v1/certificate_request/web01",
            "PUT /puppet-ca/v1/certificate_request/web01",
            // With a wrong method, the class of the endpoint stays the same, so that the client gets a 405.
            "PUT /puppet-ca/v1/certificate/web01",
            "DELETE /puppet-ca/v1/certificate/web01",
            "POST /puppet-ca/v1/certificate_request/web01",
            "OPTIONS /puppet-ca/v1/certificate_request/web01",
            "POST /puppet-ca/v1/certificate_revocation_list/ca",
        ],
    ),
    (
        Class::Renewal,
        &[
            "POST /puppet-ca/v1/certificate_renewal",
            "GET /puppet-ca/v1/certificate_renewal",
            "POST /puppet-ca/v1/certificate_renewal/",
            "POST /puppet-ca/v1/certificate_renewal/web01",
        ],
    ),
    (
        Class::CaAdministration,
        &[
            "GET /puppet-ca",
            "GET /puppet-ca/",
            "GET /puppet-ca/v1",
            "GET /puppet-ca/v1/",
            "GET /puppet-ca/v2/certificate/ca",
            "GET /puppet-ca/certificate/ca",
            "GET /puppet-ca/v1/certificate",
            "GET /puppet-ca/v1/certificate/",
            "GET /puppet-ca/v1/certificate/a/b",
            "GET /puppet-ca/v1/certificate/a/",
            "GET /puppet-ca/v1/Certificate/a",
            "GET /puppet-ca/v1/certificate_request",
            "GET /puppet-ca/v1/certificate_request/a/b",
            "GET /puppet-ca/v1/certificate_requests/a",
            "DELETE /puppet-ca/v1/certificate_request/web01",
            "GET /puppet-ca/v1/certificate_status/web01",
            "PUT /puppet-ca/v1/certificate_status/web01",
            "DELETE /puppet-ca/v1/certificate_status/web01",
            "GET /puppet-ca/v1/certificate_statuses/all",
            "GET /puppet-ca/v1/certificate_revocation_list",
            "PUT /puppet-ca/v1/certificate_revocation_list",
            "PUT /puppet-ca/v1/certificate_revocation_list/ca",
            "DELETE /puppet-ca/v1/certificate_revocation_list/ca",
            "GET /puppet-ca/v1/certificate_revocation_list/other",
            "GET /puppet-ca/v1/certificate_revocation_list/ca/",
            "GET /puppet-ca/v1/expirations",
            "PUT /puppet-ca/v1/clean",
            "POST /puppet-ca/v1/sign",
            "POST /puppet-ca/v1/sign/all",
            "POST /puppet-ca/v1/anything/else/at/all",
            // Puppet 0.25 to 3.x, which Puppet Server still serves.
            "GET /production/certificate/web01",
            "GET /production/certificate/",
            "PUT /production/certificate_request/web01",
            "GET /production/certificate_requests/all",
            "GET /production/certificate_revocation_list/ca",
            "DELETE /production/certificate_status/web01",
            "GET /puppet/certificate/web01",
            "GET /packages/certificate/web01",
            "GET /any-thing/certificate_statuses/all",
            "GET /production/key/ca",
            "GET /production/keys/ca",
            "GET /production/certificate_search/all",
            "GET /production/certificate_statuss/all",
            "GET /production/certificatees/all",
            "POST /RPC2",
            "POST /RPC2/",
        ],
    ),
    (
        Class::OwnDocuments,
        &[
            "POST /puppet/v3/catalog/web01",
            "GET /puppet/v3/catalog/web01",
            "GET /puppet/v3/node/web01",
            "PUT /puppet/v3/facts/web01",
            "PUT /puppet/v3/report/web01",
            "DELETE /puppet/v3/report/web01",
        ],
    ),
    (
        Class::Files,
        &[
            "GET /puppet/v3/file_metadata/modules/a/b",
            "GET /puppet/v3/file_metadatas/plugins",
            "POST /puppet/v3/file_metadatas/plugins",
            "GET /puppet/v3/file_content/modules/a/b",
            "GET /puppet/v3/file_content/modules/java/certificates/root.crt",
            "GET /puppet/v3/static_file_content/modules/a/files/b",
            "GET /puppet/v3/environments",
            "GET /puppet/v3/tasks",
            "GET /puppet/v3/tasks/a/b",
        ],
    ),
    (
        Class::Filebucket,
        &[
            "GET /puppet/v3/file_bucket_file/sha256/abc//etc/motd",
            "HEAD /puppet/v3/file_bucket_file/md5/abc",
            "PUT /puppet/v3/file_bucket_file/sha256/abc//etc/motd",
        ],
    ),
    (
        Class::Services,
        &[
            "POST /puppet/v4/catalog",
            "POST /puppet/v4/catalog/",
            "POST /puppet/v4/anything",
            "POST /puppet/v3/compile",
            "GET /puppet/v3/environment_classes",
            "GET /puppet/v3/environment_modules",
            "GET /puppet/v3/environment_transports",
            "GET /puppet/v3/plans",
            "GET /puppet/v3/plans/a/b",
            "GET /puppet/v3/catalog",
            "GET /puppet/v3/catalog/",
            "GET /puppet/v3/catalog/a/b",
            "PUT /puppet/v3/report/web01/",
            "GET /puppet/v3/file_bucket_file",
            "GET /puppet/v3/file_bucket_file/sha256",
            "GET /puppet/v3/file_bucket_file/sha256/",
            "GET /puppet/v3/environments/",
            "GET /puppet/v3/resource_types/x",
            "GET /puppet/v3/new_in_version_12",
            "GET /puppet/v3",
            "GET /puppet/v5/catalog/web01",
            "GET /puppet/",
            "GET /puppet",
            "POST /production/catalog/web01",
            "GET /puppet/catalog/web01",
            "GET /production/file_content/modules/ssl/certificates/foo.pem",
            "PUT /production/report/web01",
            "GET /v2.0/environments",
        ],
    ),
    (
        Class::Status,
        &[
            "GET /status/v1/simple",
            "GET /status/v1/simple/server",
            "GET /status/v1/simple/master",
            "POST /status/v1/simple",
        ],
    ),
    (
        Class::ServerAdministration,
        &[
            "DELETE /puppet-admin-api/v1/environment-cache",
            "DELETE /puppet-admin-api/v1/jruby-pool",
        ],
    ),
    (
        Class::Never,
        &[
            "GET /status",
            "GET /status/",
            "GET /status/v1/services",
            "GET /status/v1/services/puppet-profiler",
            "GET /status/v1/simple/",
            "GET /status/v1/simple/ca",
            "GET /status/v2/simple",
            "GET /metrics",
            "GET /metrics/v1/mbeans",
            "GET /metrics/v2/read/java.lang:type=Memory",
            "GET /puppet-admin-api/v1/environment-cache",
            "POST /puppet-admin-api/v1/jruby-pool",
            "DELETE /puppet-admin-api/v1/jruby-pool/",
            "DELETE /puppet-admin-api/v1/jruby-pool/thread-dump",
            "GET /puppet-admin-api/v1/jruby-pool/thread-dump",
            "DELETE /puppet-admin-api/v2/jruby-pool",
            "DELETE /puppet-admin-api/v1",
            "GET /file-sync/v1/latest-commits",
            "GET /file-sync-git/puppet-code",
        ],
    ),
    (
        Class::Unknown,
        &[
            "GET /",
            "GET /index.html",
            "GET /packages/current/install.bash",
            "GET /Puppet-CA/v1/sign",
            "GET /PUPPET/v3/catalog/web01",
            "GET /puppet-cat/v1/sign",
            "GET /puppetdb/v4/nodes",
            "GET /v3/files/a-b-1.0.0.tar.gz",
            "GET /app/status",
            "POST /rpc2",
            "GET /pcp2/",
        ],
    ),
];
#[test]
fn every_endpoint_of_a_puppet_server_has_its_class() {
    for (expected, requests) in ENDPOINTS {
        for request in *requests {
            let (method, path) = request.split_once(' ').expect("method and path");
            assert_eq!(class(method, path), *expected, "{request}");
        }
    }
}

#[test]
fn a_405_has_the_methods_of_the_endpoint() {
    let cases = [
        ("/puppet-ca/v1/certificate/a", "GET, HEAD"),
        ("/puppet-ca/v1/certificate_request/a", "GET, HEAD, PUT"),
        (
            "/puppet-ca/v1/certificate_status/a",
            "GET, HEAD, PUT, DELETE",
        ),
        ("/puppet-ca/v1/clean", "PUT"),
        ("/puppet-ca/v1/sign/all", "POST"),
        ("/puppet/v3/catalog/a", "GET, POST"),
        ("/puppet/v3/report/a", "PUT"),
        ("/puppet/v3/file_metadata/m/a", "GET, HEAD, POST"),
        ("/puppet/v3/file_bucket_file/md5/a", "GET, HEAD, PUT"),
        ("/puppet/v3/compile", "POST"),
    ];
    for (path, expected) in cases {
        let path = CanonicalPath::check(path).expect("a path");
        let methods = classify(&Method::OPTIONS, &path, Layouts::Modern).methods;
        assert_eq!(methods.allow(), Some(expected), "{}", path.as_str());
        assert!(
            !methods.allows(&Method::OPTIONS)
                && !methods.allows(&Method::from_bytes(b"GE").expect("a method"))
        );
        for method in expected.split(", ") {
            assert!(methods.allows(&Method::from_bytes(method.as_bytes()).expect("a method")));
        }
    }
}

#[test]
fn only_reads_of_endpoints_marked_safe_may_be_repeated() {
    let cases = [
        ("GET", "/puppet-ca/v1/certificate/ca", RetryClass::Safe),
        (
            "GET",
            "/puppet-ca/v1/certificate_revocation_list/ca",
            RetryClass::Safe,
        ),
        (
            "PUT",
            "/puppet-ca/v1/certificate_request/a",
            RetryClass::Never,
        ),
        (
            "POST",
            "/puppet-ca/v1/certificate_renewal",
            RetryClass::Never,
        ),
        ("POST", "/puppet-ca/v1/sign", RetryClass::Never),
        ("GET", "/puppet/v3/catalog/a", RetryClass::Never),
        ("POST", "/puppet/v3/catalog/a", RetryClass::Never),
        ("PUT", "/puppet/v3/report/a", RetryClass::Never),
        ("PUT", "/puppet/v3/facts/a", RetryClass::Never),
        ("GET", "/puppet/v3/node/a", RetryClass::Safe),
        ("GET", "/puppet/v3/file_metadatas/plugins", RetryClass::Safe),
        (
            "POST",
            "/puppet/v3/file_metadatas/plugins",
            RetryClass::Never,
        ),
        (
            "HEAD",
            "/puppet/v3/file_content/modules/a",
            RetryClass::Safe,
        ),
        (
            "PUT",
            "/puppet/v3/file_bucket_file/md5/a",
            RetryClass::Never,
        ),
        ("POST", "/puppet/v3/compile", RetryClass::Never),
        ("GET", "/unknown", RetryClass::Never),
    ];
    for (method, path, expected) in cases {
        let method = Method::from_bytes(method.as_bytes()).expect("a method");
        let path = CanonicalPath::check(path).expect("a path");
        assert_eq!(
            classify(&method, &path, Layouts::Modern).retry,
            expected,
            "{method} {}",
            path.as_str()
        );
    }
}

#[test]
fn names_and_checksums_are_taken_from_the_path() {
    let endpoint = |path| {
        classify(
            &Method::PUT,
            &CanonicalPath::check(path).expect("a path"),
            Layouts::Modern,
        )
    };
    assert_eq!(
        endpoint("/puppet-ca/v1/certificate/web01").certname,
        Some("web01")
    );
    assert_eq!(endpoint("/puppet-ca/v1/certificate/ca").certname, None);
    assert_eq!(endpoint("/puppet/v3/report/web01").certname, Some("web01"));
    assert_eq!(endpoint("/puppet/v3/file_content/web01/x").certname, None);
    let bucket = endpoint("/puppet/v3/file_bucket_file/sha256/0123//etc/motd");
    assert_eq!((bucket.bucket_key, bucket.certname), (Some("0123"), None));
    for path in [
        "/puppet-ca/v1/certificate_request/a",
        "/puppet-ca/v1/clean",
        "/puppet-ca/x",
        "/e/certificate/a",
    ] {
        assert!(endpoint(path).ca_write, "{path}");
    }
    assert!(!endpoint("/puppet/v3/report/web01").ca_write);
}

/// The path as a Puppet server reads it: escapes are decoded, and parameters and empty segments are removed.
fn as_a_server_reads_it(path: &str) -> String {
    let decoded = percent_encoding::percent_decode_str(path).decode_utf8_lossy();
    let cut = decoded
        .split('/')
        .map(|segment| segment.split(';').next().unwrap_or_default());
    let segments: Vec<&str> = cut.filter(|segment| !segment.is_empty()).collect();
    format!("/{}", segments.join("/"))
}

/// Segments that have a meaning in some endpoint, and spellings that a server reads as one of these segments.
const WORDS: &[&str] = &[
    "puppet-ca",
    "puppet",
    "v1",
    "v3",
    "v4",
    "certificate",
    "certificate_request",
    "certificate_status",
    "certificate_renewal",
    "sign",
    "catalog",
    "status",
    "metrics",
    "simple",
    "production",
    "RPC2",
    "web01",
    "ca",
    "all",
    "file_content",
    "",
    "%70uppet-ca",
    "puppet%2dca",
    "sig%6e",
    ";x",
    "sign;y",
    "a%20b",
    "%3b",
    "x",
    "file-sync",
    "puppet-admin-api",
    "v2.0",
    "environments",
    "%76%33",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, ..ProptestConfig::default() })]

    /// If a path is an unknown endpoint for the proxy, so that a route for any client would forward it, it is also unknown to
    /// the server. If a path is open as enrolment, it is the same enrolment request for the server.
    #[test]
    fn no_server_reads_a_guarded_endpoint_where_we_read_an_open_one(
        segments in proptest::collection::vec(
            proptest::sample::select(WORDS),
            0..7,
        ),
        verb in proptest::sample::select(&["GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS"][..]),
        layouts in proptest::sample::select(&[Layouts::Modern, Layouts::ModernAndLegacy][..]),
    ) {
        let raw = format!("/{}", segments.join("/"));
        let method = Method::from_bytes(verb.as_bytes()).expect("a method");
        let Ok(path) = CanonicalPath::check(&raw) else { return Ok(()) };
        let ours = classify(&method, &path, layouts);
        let read = as_a_server_reads_it(&raw);
        let Ok(theirs) = CanonicalPath::check(&read) else { return Ok(()) };
        let theirs = classify(&method, &theirs, layouts);
        match ours.class {
            Class::Unknown => prop_assert_eq!(theirs.class, Class::Unknown, "{} is read as {}", raw, read),
            Class::Enrolment | Class::Status => {
                prop_assert_eq!(theirs.class, ours.class, "{} is read as {}", raw, read);
                prop_assert_eq!(theirs.certname, ours.certname);
            }
            Class::OwnDocuments => prop_assert_eq!(theirs.certname, ours.certname, "{} is read as {}", raw, read),
            _ => {}
        }
    }
}

#[test]
fn a_certificate_request_is_known_on_every_path_that_a_ca_takes_one_on() {
    let requested = |method: &str, path: &str| {
        let method = Method::from_bytes(method.as_bytes()).expect("a method");
        let path = CanonicalPath::check(path).unwrap_or_else(|problem| panic!("{path}: {problem}"));
        classify(&method, &path, Layouts::Modern)
            .certificate_request
            .map(ToOwned::to_owned)
    };
    for (method, path, expected) in [
        (
            "PUT",
            "/puppet-ca/v1/certificate_request/web01",
            Some("web01"),
        ),
        (
            "POST",
            "/puppet-ca/v1/certificate_request/web01",
            Some("web01"),
        ),
        (
            "PUT",
            "/puppet-ca/v1/certificate_request/web01/",
            Some("web01/"),
        ),
        (
            "PUT",
            "/puppet-ca/v1/certificate_request/a/b/c/d",
            Some("a/b/c/d"),
        ),
        (
            "PUT",
            "/puppet-ca/v2/certificate_request/web01",
            Some("web01"),
        ),
        ("PUT", "/puppet-ca/v1/certificate_request", Some("")),
        (
            "PUT",
            "/production/certificate_request/web01",
            Some("web01"),
        ),
        (
            "PUT",
            "/production/certificate_request/web01/x",
            Some("web01/x"),
        ),
        ("PUT", "/puppet/certificate_request/web01", Some("web01")),
        (
            "PUT",
            "/production/certificate_requests/web01",
            Some("web01"),
        ),
        ("GET", "/puppet-ca/v1/certificate_request/web01", None),
        ("HEAD", "/production/certificate_request/web01", None),
        ("DELETE", "/puppet-ca/v1/certificate_request/web01", None),
        ("PUT", "/puppet-ca/v1/certificate_status/web01", None),
        ("PUT", "/puppet/v3/facts/web01", None),
        ("PUT", "/a/b/c/certificate_request", None),
    ] {
        let found = requested(method, path);
        assert_eq!(found.as_deref(), expected, "{method} {path}");
    }
}

#[test]
fn static_files_and_the_ca_hold_no_jruby() {
    for (path, work, without_jruby) in [
        (
            "/puppet/v3/static_file_content/modules/a/files/b",
            Work::File,
            true,
        ),
        ("/puppet/v3/file_content/modules/a/b", Work::File, false),
        ("/puppet/v3/catalog/web01", Work::Catalog, false),
        ("/puppet-ca/v1/certificate/web01", Work::Other, true),
    ] {
        let path = CanonicalPath::check(path).expect(path);
        let expected = Task {
            work,
            without_jruby,
        };
        assert_eq!(
            classify(&Method::GET, &path, Layouts::Modern).task,
            expected
        );
    }
}
