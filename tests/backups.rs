//! Backup members, and the one CA server that receives the writes of the CA.

use testkit::{Ca, Reply, Response, StandIn, wait_until};

use crate::support::{
    self, Estate, LIMIT, NO_WAIT, QUICK_CHECK, assert_refused, assert_unavailable,
    certificate_request, connection,
    paths::{CATALOG, FILE},
    pools::{CSR, UNPROBED, answered, pending, shares, tls},
};

const SIGN: &str = "/puppet-ca/v1/certificate_request/web03";

#[test]
fn writes_to_the_ca_go_to_the_first_ca_server_only() {
    let second = StandIn::builder("ca2").ca(&Ca::new()).start();
    let address = second.address();
    // Two CA servers; the first is that of the estate.
    let estate = Estate::builder().ca_pool(NO_WAIT).start();
    let first = estate.ca_server.address();
    estate.edit_config(
        &format!("members = [\"{first}\"]"),
        &format!("members = [\"{first}\", \"{address}\"]"),
    );
    estate.proxy.reload_applied();
    estate.wait_for_members(&["ca"]);
    for n in 0..6 {
        let target = format!("/puppet-ca/v1/certificate_request/new{n}");
        assert_eq!(
            estate
                .anonymous()
                .request(
                    "PUT",
                    &target,
                    &[],
                    &certificate_request(&format!("new{n}"))
                )
                .status,
            200
        );
    }
    assert!(second.requests().is_empty());
    for _ in 0..6 {
        estate.anonymous().get("/puppet-ca/v1/certificate/ca");
    }
    assert!(
        !second.requests().is_empty(),
        "what changes nothing may be asked of both"
    );
    estate.ca_server.kill();
    second.forget();
    for (target, name) in [(CSR, "web02"), (SIGN, "web03")] {
        let body = certificate_request(name);
        assert_unavailable(&estate.anonymous().request("PUT", target, &[], &body));
    }
    assert!(
        second.requests().is_empty(),
        "not even while the first is down"
    );
}

#[test]
fn a_backup_gets_requests_only_while_no_other_member_is_available() {
    let estate = Estate::builder()
        .one_agent_for_many()
        .compilers(3)
        .compiler(3, "backup = true")
        .compiler_pool(QUICK_CHECK)
        .start();
    let health = |n: usize, health| {
        let address = estate.compilers[n - 1].address();
        estate.wait_for_health("compilers", &address, health);
    };
    let shares_of = |requests: usize| {
        estate.forget();
        for _ in 0..requests {
            let response = connection(&estate).request("POST", CATALOG, &[], b"facts");
            assert_eq!(response.status, 200, "{response:?}");
        }
        shares(&estate)
    };
    health(3, "up");
    assert_eq!(shares_of(8), [4, 4, 0]);
    estate.compilers[0].kill();
    health(1, "down");
    assert_eq!(shares_of(4), [0, 4, 0]);
    estate.compilers[1].kill();
    health(2, "down");
    assert_eq!(shares_of(4), [0, 0, 4]);
    assert_eq!(
        estate.anonymous().get("/status/v1/simple").text(),
        "running"
    );
    estate.compilers[0].restart();
    health(1, "up");
    assert_eq!(shares_of(4), [4, 0, 0]);
    let output = estate.proxy.status()["pools"].to_string();
    assert_eq!(output.matches("\"backup\":true").count(), 1, "{output}");
}

#[test]
fn a_backup_gets_the_requests_that_exceed_the_slots_of_the_other_members() {
    let estate = Estate::builder()
        .one_agent_for_many()
        .compiler(1, "max = 2")
        .compiler(2, "backup = true")
        .with("[upstream]\nclient_share = \"100%\"")
        .start();
    estate.compilers.iter().for_each(StandIn::hold);
    let connections = pending(&estate, 4);
    assert_eq!(shares(&estate), [2, 2]);
    answered(&estate, connections);
    assert_eq!(connection(&estate).get(FILE).status, 200);
    assert_eq!(shares(&estate), [3, 2], "and no more once there is one");
}

#[test]
fn a_member_that_breaks_a_connection_stays_up_and_its_backup_gets_nothing() {
    let estate = Estate::builder().compiler(2, "backup = true").start();
    estate.compilers[0].answer(|request| (!request.is_probe()).then(Reply::reset));
    let mut connection = connection(&estate);
    for _ in 0..3 {
        assert_refused(&connection.get(FILE), 502, &["closed the connection"]);
    }
    assert_eq!(shares(&estate)[1], 0);
}

/// An estate whose second CA server is a backup. There are no probes, so only requests show the health of the two
/// servers.
fn backed_up() -> (Estate, StandIn) {
    let second = StandIn::builder("ca2").ca(&Ca::new()).start();
    let estate = Estate::builder().ca_pool(UNPROBED).start();
    let (first, backup) = (estate.ca_server.address(), second.address());
    estate.edit_config(
        &format!("members = [\"{first}\"]"),
        &format!("members = [{{ address = \"{backup}\", backup = true }}, \"{first}\"]"),
    );
    estate.proxy.reload_applied();
    (estate, second)
}

fn write_to_ca(estate: &Estate, n: usize) -> Response {
    let target = format!("/puppet-ca/v1/certificate_request/new{n}");
    let body = certificate_request(&format!("new{n}"));
    estate.anonymous().request("PUT", &target, &[], &body)
}

#[test]
fn a_backup_ca_server_gets_reads_and_writes_only_while_the_first_is_down() {
    let (estate, second) = backed_up();
    let read = || {
        estate
            .anonymous()
            .get("/puppet-ca/v1/certificate/ca")
            .status
    };
    for n in 0..4 {
        assert_eq!((write_to_ca(&estate, n).status, read()), (200, 200));
    }
    assert!(second.requests().is_empty());

    // The connect fails, so no byte was sent and the request goes to the backup.
    estate.ca_server.kill();
    assert_eq!(write_to_ca(&estate, 5).status, 200);
    let seen = second.requests();
    assert_eq!(seen.len(), 1);
    assert!(seen[0].text().starts_with("-----BEGIN CERTIFICATE REQUEST"));
    let record = estate.wait_for_record(|record| record["member"] == *second.address());
    assert_eq!(record["attempts"], 2, "{record}");
    assert_eq!((write_to_ca(&estate, 6).status, read()), (200, 200));

    // After a restart, requests try the first server, and then it gets all of them again.
    estate.ca_server.restart();
    let back = wait_until(LIMIT, || {
        estate.ca_server.forget();
        read();
        (!estate.ca_server.requests().is_empty()).then_some(())
    });
    assert!(back.is_some());
    second.forget();
    for n in 7..10 {
        assert_eq!((write_to_ca(&estate, n).status, read()), (200, 200));
    }
    assert!(second.requests().is_empty());
}

#[test]
fn a_write_that_may_have_arrived_is_not_sent_to_the_backup_ca_server() {
    let (estate, second) = backed_up();
    for fault in [Reply::reset, Reply::hang_up] {
        estate.ca_server.forget();
        estate.ca_server.answer(move |_| Some(fault()));
        let response = write_to_ca(&estate, 1);
        assert_refused(&response, 502, &["may have acted on this request"]);
        assert_eq!(estate.ca_server.requests().len(), 1);
        assert!(second.requests().is_empty());
    }

    // The server reads the complete request, and then stops.
    estate.ca_server.answer_as_puppet();
    estate.ca_server.forget();
    estate.ca_server.hold();
    let mut waiting = estate.anonymous().connect().expect("connects");
    waiting
        .send("PUT", CSR, &[], &certificate_request("web02"))
        .expect("sends");
    let arrived = |seen: &[testkit::Recorded]| seen.iter().any(|request| request.complete);
    estate.ca_server.wait_for(LIMIT, arrived);
    estate.ca_server.kill();
    let response = waiting.read_response().expect("an answer");
    assert_refused(&response, 502, &["may have acted on this request"]);
    assert!(second.requests().is_empty());
    // The agent retries with a new request, and the connect to the server fails.
    assert_eq!(write_to_ca(&estate, 2).status, 200);
    assert_eq!(second.requests().len(), 1);
}

#[test]
fn a_ca_server_that_answers_but_cannot_be_verified_does_not_lose_its_writes_to_the_backup() {
    let (ca, other) = (Ca::new(), Ca::other());
    let first = StandIn::builder("ca1")
        .tls(&ca, &other.server("ca1"))
        .start();
    let second = tls(&ca, &ca.server("ca2"));
    let pool = format!(
        "[pools.odd]\nmembers = [\"{}\", {{ address = \"{}\", backup = true }}]\n{UNPROBED}\n\
         [[routes]]\nname = \"ca\"\npath = {{ prefix = \"/puppet-ca\" }}\npool = \"odd\"",
        first.address(),
        second.address()
    );
    let estate = Estate::builder().ca(&ca).with(&pool).start();
    // The server may work for other clients. That the proxy cannot verify its certificate does not mean that it is
    // down.
    assert_refused(&write_to_ca(&estate, 1), 502, &["nothing was sent"]);
    assert!(first.requests().is_empty() && second.requests().is_empty());
}

#[test]
fn a_ca_server_in_maintenance_leaves_the_writes_to_its_backup() {
    let (estate, second) = backed_up();
    let first = estate.ca_server.address();
    for (n, verb) in [(0, "drain"), (2, "maintenance")] {
        let administer = |verb| {
            support::set_state(&estate.proxy, verb, "ca", &first);
        };
        administer(verb);
        second.forget();
        assert_eq!(write_to_ca(&estate, n).status, 200);
        assert_eq!(second.requests().len(), 1, "{verb}");
        administer("ready");
        estate.wait_for_health("ca", &first, "up");
        assert_eq!(write_to_ca(&estate, n + 1).status, 200);
        assert_eq!(second.requests().len(), 1);
    }
    let output = estate
        .proxy
        .command(&["explain"], &[CSR, "--method", "PUT"])
        .stdout;
    let place = |words: &str| {
        output
            .find(words)
            .unwrap_or_else(|| panic!("{words}: {output}"))
    };
    let backup = format!("member   {} (backup)", second.address());
    assert!(place(&format!("member   {first}: ")) < place(&backup));
}
