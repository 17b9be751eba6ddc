//! The legacy layout as a table: every row with its class, methods and kind of work, and the paths that stay closed.

use balancing::Work;
use http::Method;

use super::*;
use crate::{RetryClass, classify};

fn endpoint<'a>(request: &'a str, layouts: Layouts) -> Endpoint<'a> {
    let (method, path) = request.split_once(' ').expect("method and path");
    let method = Method::from_bytes(method.as_bytes()).expect("a method");
    let path = CanonicalPath::check(path).unwrap_or_else(|problem| panic!("{path}: {problem}"));
    classify(&method, &path, layouts)
}

/// Request | class | kind of work | methods | certname | whether a GET may be sent twice.
const ROWS: &str = "\
GET /production/certificate/ca                           | enrolment | other | GET, HEAD | - | safe
GET /production/certificate/web01                        | enrolment | other | GET, HEAD | web01 | safe
GET /production/certificate_request/web01                | enrolment | other | GET, HEAD, PUT | web01 | never
PUT /production/certificate_request/web01                | enrolment | other | GET, HEAD, PUT | web01 | never
GET /production/certificate_revocation_list/ca           | enrolment | other | GET, HEAD | - | safe
POST /production/catalog/web01                           | own-documents | catalog | GET, POST | web01 | never
GET /production/catalog/web01                            | own-documents | catalog | GET, POST | web01 | never
GET /production/node/web01                               | own-documents | other | GET, HEAD | web01 | safe
PUT /production/facts/web01                              | own-documents | other | PUT | web01 | never
PUT /production/report/web01                             | own-documents | report | PUT | web01 | never
GET /production/file_metadata/modules/motd/motd          | files | file | GET, HEAD, POST | - | safe
GET /production/file_metadatas/plugins                   | files | file | GET, HEAD, POST | - | safe
GET /production/file_content/modules/motd/motd           | files | file | GET, HEAD | - | safe
GET /production/file_content/modules/ssl/certificates/ca | files | file | GET, HEAD | - | safe
GET /production/file_content/certificate/ca              | files | file | GET, HEAD | - | safe
GET /production/file_metadata/modules/certificate        | files | file | GET, HEAD, POST | - | safe
HEAD /production/file_bucket_file/md5/0123               | filebucket | file | GET, HEAD, PUT | - | never
PUT /production/file_bucket_file/md5/0123//etc/motd      | filebucket | file | GET, HEAD, PUT | - | never
GET /v2.0/environments                                   | files | other | GET, HEAD | - | safe
GET /puppet/catalog/web01                                | own-documents | catalog | GET, POST | web01 | never
GET /v1/node/web01                                       | own-documents | other | GET, HEAD | web01 | safe
GET /certificate/certificate/ca                          | enrolment | other | GET, HEAD | - | safe
GET /catalog/file_content/certificate/ca                 | files | file | GET, HEAD | - | safe
";

/// Paths that are closed to agents, by class. These paths have no certname.
const CLOSED: &[(Class, &[&str])] = &[
    (
        Class::CaAdministration,
        &[
            "DELETE /production/certificate_request/web01",
            "GET /production/certificate_status/web01",
            "PUT /production/certificate_status/web01",
            "DELETE /production/certificate_status/web01",
            "GET /production/certificate_statuses/all",
            "GET /production/certificates/all",
            "GET /production/certificate_requests/all",
            "GET /production/certificate_revocation_lists/all",
            "PUT /production/certificate_requests/web01",
            "PUT /production/certificate_revocation_list/ca",
            "DELETE /production/certificate_revocation_list/ca",
            "GET /production/certificate_revocation_list/other",
            "GET /production/certificate_search/all",
            "GET /production/certificate/",
            "GET /production/certificate/web01/",
            "GET /production/certificate/web01/x",
            "GET /production/key/web01",
            "GET /production/keys/all",
            "GET /pro-duction/certificate/ca",
            "GET /packages/certificate/ca",
            "GET /pcp2/certificate/ca",
            "POST /RPC2",
            "GET /RPC2/certificate/ca",
            "GET /RPC2/",
        ],
    ),
    (
        Class::Services,
        &[
            "PUT /production/run/web01",
            "GET /production/resource/user/root",
            "GET /production/resources/user",
            "GET /production/resource_type/apache",
            "GET /production/resource_types/all",
            "GET /production/inventory/x",
            "GET /production/inventory_search/x",
            "GET /production/facts_search/search",
            "GET /production/status/no_key",
            "GET /production/catalogs/web01",
            "GET /production/catalog/",
            "GET /production/catalog/web01/x",
            "GET /production/nodes/all",
            "GET /production/reports/web01",
            "GET /production/file_contents/modules/x",
            "GET /production/file_metadata_search/modules/x",
            "GET /production/file_bucket_file/md5",
            "GET /production/environments/x",
            "GET /production/environment/x",
            "GET /production/static_file_content/modules/a",
            "GET /production/tasks/x",
            "GET /production/plans/x",
            "POST /production/compile/x",
            "POST /production/sign/all",
            "PUT /production/clean/x",
            "POST /production/certificate_renewal/x",
            "GET /production/expirations/x",
            "GET /production/instrumentation_data/x",
            "GET /production/data_binding/x",
            "GET /production/anything/x",
            "GET /pro-duction/catalog/web01",
            "GET /packages/catalog/web01",
            "GET /v2.0/environments/",
            "GET /v2.0/catalog/web01",
            "GET /puppet/v4/anything",
            "GET /puppet/v5/catalog/web01",
        ],
    ),
    (
        Class::Never,
        &[
            "GET /status/catalog/web01",
            "GET /metrics/certificate/ca",
            "GET /puppet-admin-api/certificate/ca",
            "GET /file-sync/catalog/web01",
        ],
    ),
    (
        Class::Unknown,
        &[
            "GET /production/catalog",
            "GET /production/",
            "GET /packages/current/install.bash",
            "GET /pcp2/ws/x",
            "GET /app-1/items/x",
            "GET /app/items-1/x",
            "POST /rpc2",
        ],
    ),
];

#[test]
fn a_legacy_path_has_the_class_the_methods_and_the_work_of_its_row() {
    for line in ROWS.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [request, class, work, methods, certname, retry] = cells[..] else {
            panic!("{line}")
        };
        let found = endpoint(request, Layouts::ModernAndLegacy);
        assert_eq!(found.class.as_str(), class, "{request}");
        assert_eq!(found.task.work.as_str(), work, "{request}");
        assert_eq!(found.methods.allow(), Some(methods), "{request}");
        assert_eq!(found.certname.unwrap_or("-"), certname, "{request}");
        assert_eq!(found.layout, Layout::Legacy, "{request}");
        let is_safe = found.retry == RetryClass::Safe;
        assert_eq!(is_safe, retry == "safe", "{request}");
        let without = endpoint(request, Layouts::Modern);
        let closed = [Class::CaAdministration, Class::Services];
        assert!(closed.contains(&without.class), "{request}: {without:?}");
        assert_eq!(without.layout, Layout::Legacy, "{request}");
    }
}

#[test]
fn a_legacy_path_without_a_row_stays_closed() {
    for (class, requests) in CLOSED {
        for request in *requests {
            let found = endpoint(request, Layouts::ModernAndLegacy);
            assert_eq!(found.class, *class, "{request}");
        }
    }
}

#[test]
fn names_and_checksums_are_read_from_their_place() {
    let found = |request| endpoint(request, Layouts::ModernAndLegacy);
    let bucket = found("GET /production/file_bucket_file/md5/0123//etc/motd");
    assert_eq!(bucket.bucket_key, Some("0123"));
    let request = found("PUT /production/certificate_request/web01");
    assert_eq!(request.certificate_request, Some("web01"));
    assert!(request.ca_write);
    let request = found("POST /production/certificate_request/web01/x/y/z");
    assert_eq!(request.certificate_request, Some("web01/x/y/z"));
    let request = found("PUT /production/certificate_requests/web01");
    assert_eq!(request.certificate_request, None, "no CA takes one there");
    for (request, document) in [
        ("GET /production/certificate/ca", Some(Document::Ca)),
        (
            "HEAD /a_1/certificate_revocation_list/ca",
            Some(Document::Crl),
        ),
        ("GET /production/certificate/web01", None),
        ("PUT /production/certificate/ca", None),
    ] {
        assert_eq!(found(request).document, document, "{request}");
    }
    let work = found("GET /production/file_content/modules/a").task.work;
    assert_eq!(work, Work::File);
}

#[test]
fn the_modern_equivalent_has_the_rest_of_the_path_and_the_environment_as_a_parameter() {
    for (target, expected) in [
        (
            "/production/catalog/web01",
            "/puppet/v3/catalog/web01?environment=production",
        ),
        (
            "/dev/file_content/modules/a%20b//c?links=manage&environment=dev",
            "/puppet/v3/file_content/modules/a%20b//c?environment=dev&links=manage",
        ),
        (
            "/dev/certificate/ca?",
            "/puppet-ca/v1/certificate/ca?environment=dev",
        ),
        ("/v2.0/environments", "/puppet/v3/environments"),
        ("/v2.0/environments?x=y", "/puppet/v3/environments?x=y"),
    ] {
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (target, None),
        };
        let path = CanonicalPath::check(path).expect(path);
        let found = equivalent(&path, query).expect("a legacy path");
        let found = match found.query {
            Some(query) => format!("{}?{query}", found.path),
            None => found.path,
        };
        assert_eq!(found, expected, "{target}");
    }
}

#[test]
fn the_query_may_name_the_environment_of_the_path_and_no_other() {
    for (query, agrees) in [
        (None, true),
        (Some(""), true),
        (Some("links=manage"), true),
        (Some("environment=production"), true),
        (Some("x=1&environment=production&y"), true),
        (Some("environment=production&environment=production"), true),
        (Some("x=environment&Environment=dev"), true),
        (Some("environment=dev"), false),
        (Some("environment=Production"), false),
        (Some("environment="), false),
        (Some("environment"), false),
        (Some("environment=production&environment=dev"), false),
        (Some("%65nvironment=dev"), false),
        (Some("environment%3ddev"), true),
        (Some("environment=producti%6fn"), false),
        (Some("x=1;environment=dev"), false),
        (Some("environment=production;environment=dev"), false),
        (Some("environment[]=dev"), false),
        (Some("environment%5B%5D=production"), false),
        (Some("+environment=dev"), false),
    ] {
        let path = CanonicalPath::check("/production/catalog/web01").expect("a path");
        assert_eq!(environment_agrees(&path, query), agrees, "{query:?}");
    }
    let path = CanonicalPath::check("/v2.0/environments").expect("a path");
    assert!(environment_agrees(&path, Some("environment=dev")));
}

#[test]
fn no_escape_passes_where_a_legacy_path_names_its_endpoint() {
    for path in [
        "/production/cat%61log/web01",
        "/pr%6fduction/catalog/web01",
        "/production/catalog/web%30%31",
        "/production;x/catalog/web01",
        "/production/catalog/web01;x",
        "//production/catalog/web01",
        "/production//catalog/web01",
        "/production/catalog//web01",
        "/production/../catalog/web01",
    ] {
        assert!(CanonicalPath::check(path).is_err(), "{path}");
    }
}
