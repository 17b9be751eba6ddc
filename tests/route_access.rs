//! The clients that may use a route, the guarded classes, and the order of refusals.

use crate::support::{
    assert_identity, assert_refused,
    paths::{CA_CERTIFICATE, CATALOG},
    routes::{configured, site},
};

#[test]
fn a_client_that_matches_a_route_without_access_gets_403_and_not_the_next_route() {
    let site = site(&[
        "name = \"n\"\npool = \"north\"\npath = { prefix = \"/x\" }\nallow = [\"admin*\", \"ops.example\"]",
        "name = \"open\"\npool = \"compilers\"\npath = { prefix = \"/x\" }",
    ]);
    for (name, allowed) in [
        ("admin01", true),
        ("ops.example", true),
        ("web01", false),
        ("ops.example.com", false),
    ] {
        let response = site.client(&site.ca.agent(name)).get("/x");
        if !allowed {
            assert_refused(&response, 403, &[name, "n"]);
        }
        site.assert_north(&response, allowed, name);
    }
    assert_refused(&site.anonymous().get("/x"), 403, &["certificate"]);
    let record = site
        .proxy
        .wait_for_record(|record| record["certname"] == "web01");
    assert_eq!(record["reason"], "not-allowed", "{record}");
    assert_eq!(record["route"], "n", "{record}");
    assert!(site.far_end().is_empty());
}

#[test]
fn a_route_is_for_verified_clients_unless_it_allows_any() {
    let site = site(&[
        "name = \"v\"\npool = \"north\"\npath = { prefix = \"/v\" }\nclient = \"verified\"",
        "name = \"a\"\npool = \"north\"\npath = { prefix = \"/a\" }\nclient = \"any\"",
        "name = \"d\"\npool = \"north\"\npath = { prefix = \"/d\" }",
    ]);
    for (path, passes) in [("/v", false), ("/a", true), ("/d", false)] {
        let response = site.anonymous().get(path);
        if passes {
            assert_identity(&site.north.last(), "NONE", None);
        } else {
            assert_refused(&response, 403, &["certificate"]);
        }
        site.assert_north(&response, passes, path);
        assert_eq!(site.agent().get(path).text(), "north");
        assert_identity(&site.north.last(), "SUCCESS", Some("CN=web01"));
        site.north.forget();
    }
}

#[test]
fn a_catch_all_for_any_client_opens_no_guarded_class() {
    let site = site(&["name = \"all\"\npool = \"north\"\nclient = \"any\""]);
    for (method, path, status) in [
        ("GET", "/", 200),
        ("GET", "/elsewhere", 200),
        ("POST", "/puppet/v3/catalog/web01", 403),
        ("GET", "/puppet/v3/file_content/modules/a/b", 403),
        ("GET", "/puppet/v3/file_bucket_file/md5/abc/x", 403),
        ("POST", "/puppet/v4/catalog", 403),
        ("PUT", "/puppet-ca/v1/certificate_status/web01", 403),
        ("POST", "/puppet-ca/v1/certificate_renewal", 404),
        ("GET", "/puppet-admin-api/v1/jruby-pool", 403),
        ("GET", "/metrics/v2", 403),
        ("GET", "/production/certificate_status/web01", 403),
        // The plural that Puppet 3 derives from an indirection's name.
        ("GET", "/production/certificate_search/all", 403),
        ("GET", "/production/certificate_request_search/all", 403),
        ("GET", "/production/certificate_statuss/all", 403),
        ("GET", "/production/certificatees/all", 403),
        ("GET", "/production/node_search/web01", 403),
        ("GET", "/production/nodees/web01", 403),
    ] {
        let response = site.anonymous().request(method, path, &[], b"");
        assert_eq!(response.status, status, "{method} {path}: {response:?}");
        site.assert_north(&response, status == 200, path);
    }
}

#[test]
fn a_guarded_class_is_open_to_the_clients_that_a_route_names_for_it() {
    let site = site(&[
        "name = \"ca\"\npool = \"north\"\npath = { prefix = \"/puppet-ca\" }\nclasses = [\"ca-administration\"]\nallow = [\"admin\"]",
        "name = \"services\"\npool = \"north\"\npath = { prefix = \"/puppet/v4\" }\nclasses = [\"services\"]\nallow = [\"admin\"]",
        "name = \"own\"\npool = \"north\"\npath = { prefix = \"/puppet/v3/node\" }\nclasses = [\"own-documents\"]\nallow = [\"admin\"]",
    ]);
    let admin = site.client(&site.ca.agent("admin"));
    for (method, path) in [
        ("GET", "/puppet-ca/v1/certificate_status/web01"),
        ("DELETE", "/puppet-ca/v1/certificate_request/web01"),
        ("POST", "/puppet/v4/catalog"),
        ("GET", "/puppet/v3/node/web01"),
    ] {
        site.assert_north(&admin.request(method, path, &[], b""), true, path);
        let own = path.ends_with("node/web01");
        let response = site.agent().request(method, path, &[], b"");
        site.assert_north(&response, own, path);
        assert_eq!(response.status, if own { 200 } else { 403 }, "{path}");
        assert_eq!(
            site.anonymous().request(method, path, &[], b"").status,
            403,
            "{path}"
        );
    }
    assert_eq!(
        admin.request("POST", "/puppet/v3/compile", &[], b"").status,
        403,
        "on that route alone"
    );
}

#[test]
fn files_are_open_to_every_client_where_a_route_sets_both() {
    let file = "/puppet/v3/file_content/public/installer";
    let site = site(&[
        "name = \"public\"\npool = \"north\"\npath = { prefix = \"/puppet/v3/file_content/public\" }\nclient = \"any\"\nclasses = [\"files\"]",
    ]);
    site.assert_north(&site.anonymous().get(file), true, "opened");
    assert_eq!(
        site.anonymous()
            .get("/puppet/v3/file_content/modules/a")
            .status,
        403
    );
}

#[test]
fn an_unguarded_route_ignores_classes() {
    let site = site(&[
        "name = \"u\"\npool = \"north\"\nclient = \"any\"\nunguarded = true\nhost = [\"other\"]",
    ]);
    let other = [("Host", "other")];
    for (method, path) in [
        ("POST", "/puppet/v3/catalog/web01"),
        ("DELETE", "/puppet-ca/v1/certificate/ca"),
        ("GET", "/metrics/v2"),
        ("PATCH", "/puppet/v3/report/web01"),
    ] {
        site.assert_north(
            &site.anonymous().request(method, path, &other, b""),
            true,
            path,
        );
    }
    assert_eq!(
        site.anonymous().get("/metrics/v2").status,
        403,
        "elsewhere they hold"
    );
    assert_eq!(
        site.anonymous()
            .request("GET", "/a/../b", &other, b"")
            .status,
        400,
        "the path rule holds everywhere"
    );
    let check = site.proxy.command(&["check"], &[]);
    assert!(
        (check.stdout + &check.stderr)
            .contains("ignores what Puppet's endpoints require of a client")
    );
}

#[test]
fn enrolment_can_be_restricted() {
    let site = site(&[
        "name = \"ca\"\npool = \"ca\"\npath = { prefix = \"/puppet-ca\" }\nallow = [\"web*\"]",
    ]);
    assert_eq!(site.agent().get(CA_CERTIFICATE).status, 200);
    assert_eq!(site.anonymous().get(CA_CERTIFICATE).status, 403);
}

#[test]
fn a_wrong_method_is_405_with_the_allowed_ones() {
    let site = site(&[]);
    for (method, path, allow) in [
        ("DELETE", CATALOG, "GET, POST"),
        ("GET", "/puppet/v3/report/web01", "PUT"),
        ("PUT", "/puppet/v3/environments", "GET, HEAD"),
        (
            "POST",
            "/puppet-ca/v1/certificate_request/web01",
            "GET, HEAD, PUT",
        ),
        ("PUT", CA_CERTIFICATE, "GET, HEAD"),
        ("POST", "/status/v1/simple", "GET, HEAD"),
        ("PURGE", "/puppet/v3/file_content/modules/a/b", "GET, HEAD"),
    ] {
        let response = site.agent().request(method, path, &[], b"");
        assert_refused(&response, 405, &[method]);
        assert_eq!(response.headers.only("allow"), allow, "{method} {path}");
    }
    assert!(site.far_end().is_empty());
}

#[test]
fn refusals_have_a_fixed_order() {
    let site = site(&[
        "name = \"few\"\npool = \"north\"\npath = { prefix = \"/puppet/v3/environments\" }\nallow = [\"admin\"]",
    ]);
    let refused = site.client(&site.ca.leaf("web01").expired().issue());
    let (agent, admin) = (site.agent(), site.client(&site.ca.agent("admin")));
    for (client, method, path, status, reason) in [
        // The rule for paths is applied first.
        (
            &refused,
            "DELETE",
            "/puppet/v3/environments/../x",
            400,
            "bad-path",
        ),
        // A missing route is reported before a refused identity.
        (&refused, "DELETE", "/nowhere", 404, "no-route"),
        // A refused identity is reported before access and method.
        (
            &refused,
            "DELETE",
            "/puppet/v3/environments",
            403,
            "refused-certificate",
        ),
        // Access is verified before the method.
        (
            &agent,
            "DELETE",
            "/puppet/v3/environments",
            403,
            "not-allowed",
        ),
        // The method is verified last.
        (&admin, "DELETE", "/puppet/v3/environments", 405, "method"),
    ] {
        let before = site.proxy.records().len();
        let response = client.request(method, path, &[], b"");
        assert_eq!(response.status, status, "{path}: {response:?}");
        let record = site.proxy.wait_for_records(before + 1).remove(before);
        assert_eq!(record["reason"], reason, "{record}");
    }
    assert_eq!(admin.get("/puppet/v3/environments").text(), "north");
    assert!(site.far_end().is_empty());
}

#[test]
fn a_record_names_route_class_pool_and_member() {
    let site = site(&["name = \"n\"\npool = \"north\"\npath = { prefix = \"/x\" }"]);
    let agent = site.agent();
    for (path, route, class, pool, member) in [
        ("/x", "n", "unknown", "north", site.north.address()),
        (
            CATALOG,
            "builtin:own-documents",
            "own-documents",
            "compilers",
            site.compilers[0].address(),
        ),
        (
            CA_CERTIFICATE,
            "builtin:enrolment",
            "enrolment",
            "ca",
            site.ca_server.address(),
        ),
    ] {
        let before = site.proxy.records().len();
        assert_eq!(agent.get(path).status, 200, "{path}");
        let record = site.proxy.wait_for_records(before + 1).remove(before);
        for (key, expected) in [
            ("route", route),
            ("class", class),
            ("pool", pool),
            ("member", &member),
        ] {
            assert_eq!(record[key], expected, "{path}: {record}");
        }
    }
}

#[test]
fn t14_the_path_rule_applies_to_every_route() {
    let site = configured(
        &["name = \"all\"\npool = \"north\"\nclient = \"any\"\nunguarded = true"],
        "workers = 2",
    );
    let client = site.anonymous();
    for path in [
        "/a/./b",
        "/a/b/..",
        "/a/%2e%2e/b",
        "/a/b/c/%2F/d",
        "/a/b/c/%5c",
        "/a/b/c/%00",
        "/a/b/c/%zz",
        "/a/b/c/%",
        "/a/b/c\\d",
        "/a/b/c/%ff",
        "/%61/b",
        "//a/b",
        "/a//b",
        "/a;x/b",
        "/puppet/v3/catalog/web%301",
        "/puppet/v3/catalog/web01;x",
    ] {
        let response = client.get(path);
        assert_eq!(response.status, 400, "{path}: {response:?}");
        site.assert_north(&response, false, path);
    }
    for path in ["/a/b/c/d//e", "/a/b/c/d%20e", "/a/b/c/d;e"] {
        let response = client.get(path);
        assert_eq!(site.north.last().target, path);
        site.assert_north(&response, true, path);
    }
}
