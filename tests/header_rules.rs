//! Request headers that the configuration removes, and identity headers that it keeps for one application.

use testkit::{Client, Recorded, StandIn};

use crate::support::{
    paths::CA_CERTIFICATE,
    routes::{Site, site, with_pool},
};

/// Every identity header that another front end could have sent to an application.
const OF_OTHER_FRONT_ENDS: &[&str] = &[
    "Remote-User",
    "REMOTE-USER-GROUPS",
    "X-Remote-User",
    "X-Forwarded-Email",
    "X-Auth-Request-User",
    "X-Tls-Client-Cert",
    "X-Amzn-Mtls-Clientcert",
    "X-ARR-ClientCert",
    "x.remote.user",
    "HTTP-Remote-User",
];

const APPLICATION: &str = "name = \"application\"\npool = \"north\"\npath = { prefix = \"/app\" }\nclient = \"any\"\nunguarded = true";

#[test]
fn identity_headers_of_other_front_ends_never_reach_an_unguarded_application() {
    let site = site(&[APPLICATION]);
    for client in [site.agent(), site.anonymous()] {
        for name in OF_OTHER_FRONT_ENDS {
            let request = received(
                &site,
                &client,
                &[(name, "forged"), ("X-Auth-Token", "mine")],
            );
            let raw = request.raw_text();
            assert!(!raw.contains("forged"), "{name}: {raw}");
            assert_eq!(request.only("X-Auth-Token"), "mine");
        }
    }
}

#[test]
fn a_route_removes_the_headers_it_names_in_every_spelling_and_other_routes_do_not() {
    let named = format!(
        "{APPLICATION}\nremove_headers = [\"X-Site-Admin\", \"X-Portal-*\", \"X-Request-Id\"]"
    );
    let site = site(&[&named]);
    let sent = [
        ("x-site-admin", "yes"),
        ("X.Site.Admin", "yes"),
        ("HTTP-X-Site-Admin", "yes"),
        ("X-Portal-User", "yes"),
        ("X-Portals", "arrives"),
        ("X-Site-Admins", "arrives"),
    ];
    let request = received(&site, &site.agent(), &sent);
    assert!(
        !request.raw_text().contains("yes"),
        "{}",
        request.raw_text()
    );
    for name in ["X-Portals", "X-Site-Admins"] {
        assert_eq!(request.only(name), "arrives");
    }
    // The proxy's own field is still there.
    assert!(!request.only("X-Request-Id").is_empty());
    site.forget();
    assert_eq!(
        site.agent()
            .request("GET", CA_CERTIFICATE, &sent, b"")
            .status,
        200
    );
    assert_eq!(site.only_request().only("X-Portal-User"), "yes");
}

#[test]
fn a_header_that_a_route_removes_still_selects_the_route() {
    let named =
        format!("{APPLICATION}\nheader = {{ X-Site = \"north\" }}\nremove_headers = [\"X-Site\"]");
    let site = site(&[&named]);
    let request = received(&site, &site.agent(), &[("X-Site", "north")]);
    assert!(
        request.headers.all("X-Site").is_empty(),
        "{}",
        request.raw_text()
    );
}

#[test]
fn a_route_keeps_the_headers_it_names_in_their_own_spelling_only() {
    let named = format!(
        "{APPLICATION}\nkeep_headers = [\"X-Authentication\", \"Api_Key\", \"X-User-*\"]\nremove_headers = [\"X-User-Role\"]"
    );
    let other =
        "name = \"other\"\npool = \"north\"\npath = { prefix = \"/other\" }\nunguarded = true";
    let site = site(&[&named, other]);
    let sent = [
        ("X-Authentication", "token"),
        ("X_Authentication", "forged"),
        ("x.authentication", "forged"),
        ("api_key", "key"),
        ("X-User-Id", "one"),
        ("X-User-Id", "two"),
        ("X-User_Name", "forged"),
        ("X-User-Role", "forged"),
        ("X-Client-DN", "forged"),
    ];
    let request = received(&site, &site.agent(), &sent);
    let raw = request.raw_text();
    assert!(!raw.contains("forged"), "{raw}");
    assert_eq!(request.only("X-Authentication"), "token");
    assert_eq!(request.only("Api_Key"), "key");
    assert_eq!(request.headers.all("X-User-Id"), ["one", "two"]);
    assert_eq!(request.only("X-Client-DN"), "CN=web01");
    // A route that keeps no headers forwards none of them.
    site.north.forget();
    assert_eq!(
        site.agent().request("GET", "/other", &sent, b"").text(),
        "north"
    );
    let raw = only(&site.north).raw_text();
    for value in ["token", "key", "one", "two", "forged"] {
        assert!(!raw.contains(value), "{value}: {raw}");
    }
    let counted = "proscenium_identity_headers_scrubbed_total";
    assert_eq!(site.proxy.metrics().sum(counted, &[]), 4.0 + 8.0);
}

#[test]
fn a_pool_removes_and_keeps_headers_for_all_its_routes() {
    let routes = ["/a", "/b"].map(|prefix| {
        format!("name = \"r{}\"\npool = \"north\"\npath = {{ prefix = \"{prefix}\" }}\nunguarded = true", &prefix[1..])
    });
    let settings = "keep_headers = [\"X-Authentication\"]\nremove_headers = [\"X-Site-*\"]";
    let site = with_pool(&[&routes[0], &routes[1]], "", settings);
    for path in ["/a", "/b"] {
        site.north.forget();
        let sent = [("X-Authentication", "token"), ("X-Site-Admin", "forged")];
        assert_eq!(
            site.agent().request("GET", path, &sent, b"").text(),
            "north"
        );
        let request = only(&site.north);
        assert_eq!(request.only("X-Authentication"), "token");
        assert!(
            !request.raw_text().contains("forged"),
            "{}",
            request.raw_text()
        );
    }
}

#[test]
fn explain_names_the_headers_that_are_kept_and_removed() {
    let named = format!(
        "{APPLICATION}\nkeep_headers = [\"X-Authentication\"]\nremove_headers = [\"X-Site-*\"]"
    );
    let site = site(&[&named]);
    let sent = [
        "--header=X-Authentication: token",
        "--header=X-Site-Admin: yes",
        "--header=Remote-User: admin",
    ];
    let outcome = site
        .proxy
        .command(&["explain"], &[&["/app"], &sent[..]].concat());
    for line in [
        "headers  2 removed before routing",
        "headers  x-authentication is kept by keep_headers",
        "headers  x-site-admin is removed by remove_headers",
    ] {
        assert!(outcome.stdout.contains(line), "{line}: {}", outcome.stdout);
    }
}

/// The request that the application receives when `client` sends these fields.
#[track_caller]
fn received(site: &Site, client: &Client, fields: &[(&str, &str)]) -> Recorded {
    site.north.forget();
    let response = client.request("GET", "/app", fields, b"");
    assert_eq!(response.text(), "north", "{response:?}");
    only(&site.north)
}

#[track_caller]
fn only(server: &StandIn) -> Recorded {
    let mut requests = server.requests();
    assert_eq!(requests.len(), 1, "{requests:?}");
    requests.remove(0)
}
