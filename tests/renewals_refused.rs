//! Renewals that agents request and do not get: announced while their certificates are still valid.

use serde_json::Value;
use testkit::{Ca, Recorded, Renewing, Reply};

use crate::support::{Estate, EstateBuilder, assert_no_identity, assert_refused, paths::CATALOG};

const RENEWAL: &str = "/puppet-ca/v1/certificate_renewal";
const REFUSED: &str = "renewals-refused";

fn messages(status: &Value, kind: &str) -> String {
    let alarms = status["alarms"].as_array().expect("a list").iter();
    let of_kind = alarms.filter(|alarm| {
        alarm["key"]
            .as_str()
            .is_some_and(|key| key.starts_with(kind))
    });
    of_kind
        .map(|alarm| alarm["message"].as_str().unwrap_or_default().to_owned() + "\n")
        .collect()
}

fn over_tls() -> EstateBuilder {
    Estate::builder().tls_members()
}

#[test]
fn a_renewal_that_is_not_configured_raises_an_alarm_until_it_is() {
    let estate = over_tls().start();
    let proxy = &estate.proxy;
    // Only requests of verified agents raise the alarm.
    let renew = |client: testkit::Client| client.request("POST", RENEWAL, &[], b"");
    assert_refused(&renew(estate.anonymous()), 404, &["not configured"]);
    assert_eq!(messages(&proxy.status(), REFUSED), "");
    for name in ["web01", "web02"] {
        let client = estate.agent(name);
        assert_refused(&renew(client), 404, &["not configured"]);
    }
    let message = messages(&proxy.status(), REFUSED);
    for words in ["web01", "`renewal = true`", "infra_inventory.txt"] {
        assert!(message.contains(words), "{message}");
    }
    assert_eq!(message.lines().count(), 1, "{message}");
    assert_eq!(
        proxy
            .metrics()
            .sum("proscenium_alarms", &[("alarm", REFUSED)]),
        1.0
    );
    estate
        .ca_server
        .renew(Renewing::Inventory(vec!["puppet".to_owned()]));
    let config = proxy.config_text();
    proxy.write_config(&format!("{config}\n[ca]\nrenewal = true\n"));
    proxy.reload_applied();
    proxy.wait_for_status("no alarm", |status| messages(status, REFUSED).is_empty());
}

#[test]
fn the_first_400_of_the_ca_to_a_renewal_names_the_inventory_and_the_certname() {
    let estate = over_tls().with("[ca]\nrenewal = true").start();
    estate.ca_server.renew(Renewing::Inventory(Vec::new()));
    let agent = estate.agent("web01");
    let renew = || agent.request("POST", RENEWAL, &[], b"").status;
    // In this mode the stand-in would renew the certificate of its client, where a Puppet Server answers 400.
    estate.ca_server.answer(|request: &Recorded| {
        (request.path() == RENEWAL).then(|| Reply::status(400).header("X-Puppet-Version", "8.7.0"))
    });
    assert_eq!(renew(), 400);
    let message = messages(&estate.proxy.status(), REFUSED);
    assert!(
        message.contains("is puppet in infra_inventory.txt"),
        "{message}"
    );
    estate.ca_server.answer_as_puppet();
    estate
        .ca_server
        .renew(Renewing::Inventory(vec!["puppet".to_owned()]));
    assert_eq!(renew(), 200);
    assert_eq!(messages(&estate.proxy.status(), REFUSED), "");
}

#[test]
fn agents_whose_certificates_end_soon_are_counted_and_announced() {
    let ca = Ca::new();
    let estate = Estate::builder().ca(&ca).start();
    let proxy = &estate.proxy;
    let agent = |name, left| ca.leaf(name).valid_days(-400, left).issue();
    for (name, left) in [("web01", 13), ("web02", 2), ("web03", 15)] {
        let client = estate.client(&agent(name, left));
        assert_eq!(
            client.get(CATALOG.replace("web01", name).as_str()).status,
            200
        );
    }
    assert_eq!(proxy.metrics().sum("proscenium_agents_expiring", &[]), 2.0);
    // A reload compares the dates at once.
    let config = proxy.config_text();
    proxy.write_config(&format!("{config}\n[ca]\nanonymous_burst = 99\n"));
    proxy.reload_applied();
    let status = proxy.wait_for_status("the alarm", |status| {
        !messages(status, "agents-expiring").is_empty()
    });
    let message = messages(&status, "agents-expiring");
    assert!(
        message.contains("of 2 agents") && message.contains("web02"),
        "{message}"
    );
}

#[test]
fn check_warns_of_a_certificate_that_nothing_renews() {
    let ca = Ca::new();
    let own = |left| {
        ca.leaf("puppet")
            .dns("localhost")
            .ip("127.0.0.1")
            .valid_days(-30, left)
            .issue()
    };
    for (renewal, renew, left, warned) in [
        (true, false, 60, true),
        (true, false, 119, true),
        (true, false, 200, false),
        (true, true, 60, false),
        (false, false, 60, false),
    ] {
        let text = format!("[ca]\nrenewal = {renewal}\n[tls]\nrenew = {renew}");
        let own = own(left);
        let estate = over_tls().ca(&ca).credential(&own).with(&text).start();
        let check = estate.proxy.command(&["check"], &[]);
        let found = check.stderr.contains("nothing renews it");
        assert_eq!(found, warned, "{renewal} {renew} {left}: {}", check.stderr);
    }
}

#[test]
fn doctor_proposes_renewal_if_certificates_have_a_short_life() {
    for (life, renewal, proposed) in [(60, false, true), (60, true, false), (1825, false, false)] {
        let ca = Ca::new();
        let own = ca
            .leaf("puppet")
            .dns("localhost")
            .ip("127.0.0.1")
            .valid_days(-1, life)
            .issue();
        let text = format!("[ca]\nrenewal = {renewal}");
        let estate = over_tls().ca(&ca).credential(&own).with(&text).start();
        let doctor = estate.proxy.command(&["doctor"], &[]);
        let found = doctor.stdout.contains("the CA server renews certificates");
        assert_eq!(found, proposed, "{life} {renewal}: {}", doctor.stdout);
    }
}

#[test]
fn a_ca_over_tls_gets_no_identity_headers_unless_the_operator_asks_for_them() {
    for (setting, all) in [
        ("", false),
        ("identity_headers = \"renewal\"", false),
        ("identity_headers = \"always\"", true),
        (
            "identity = { dn_header = [\"X-Client-DN\", \"X-SSL-Subject\"] }",
            true,
        ),
    ] {
        let estate = over_tls().ca_pool(setting).start();
        let probes = estate.ca_server.probes();
        probes.iter().for_each(assert_no_identity);
        assert!(!probes.is_empty());
        for client in [estate.anonymous(), estate.agent("web01")] {
            estate.forget();
            client.get("/puppet-ca/v1/certificate/web01");
            let request = estate.only_request();
            if all {
                assert_eq!(request.headers.all("x-client-verify").len(), 1, "{setting}")
            } else {
                assert_no_identity(&request)
            }
        }
    }
    // Requests to compilers, and to a CA over plain HTTP, are unchanged.
    let estate = over_tls().start();
    assert_eq!(estate.agent("web01").get(CATALOG).status, 200);
    assert_eq!(estate.only_request().only("x-client-verify"), "SUCCESS");
    let plain = Estate::start();
    plain.anonymous().get("/puppet-ca/v1/certificate/web01");
    assert_eq!(plain.only_request().only("x-client-verify"), "NONE");
    let forwarding = over_tls().listener("on_invalid = \"forward\"").start();
    forwarding
        .anonymous()
        .get("/puppet-ca/v1/certificate/web01");
    assert_eq!(forwarding.only_request().only("x-client-verify"), "NONE");
}
