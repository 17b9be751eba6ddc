//! The CA servers from which the proxy requests a CRL.

use testkit::{Ca, Reply, StandIn, wait_until};

use crate::support::{
    LIMIT, assert_contains, assert_refused,
    crl_fetch::{ON_REQUEST, crl_requests, fetch, wait_for_answer},
    done,
    paths::CATALOG,
    proxy,
};

#[test]
fn ca_servers_are_queried_in_order_and_a_backup_last() {
    let ca = Ca::new();
    let agent = ca.agent("web01");
    let file = ca.crl_pem();
    ca.revoke(&agent);
    let [backup, down, second] =
        ["backup", "down", "second"].map(|name| StandIn::builder(name).ca(&ca).start());
    let compiler = StandIn::start("c1");
    down.stop();
    let pools = format!(
        "[pools.ca]\nscheme = \"http\"\nmembers = [{{ address = {:?}, backup = true }}, {:?}, {:?}]\n\
         [pools.compilers]\nscheme = \"http\"\nmembers = [{:?}]",
        backup.address(),
        down.address(),
        second.address(),
        compiler.address(),
    );
    let front = proxy(&ca)
        .fetch(ON_REQUEST)
        .file("ssl/crl.pem", &file, 0o644)
        .with(&pools)
        .start();
    let fetch_status = wait_for_answer(&front);
    assert_eq!(fetch_status["member"], second.address());
    assert_refused(&front.client(Some(&agent)).get(CATALOG), 403, &["revoked"]);
    assert!(crl_requests(&backup).is_empty());
    second.stop();
    let outcome = front.command(&["crl", "fetch"], &[]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert_eq!(crl_requests(&backup).len(), 1);
    backup.stop();
    let outcome = front.command(&["crl", "fetch"], &[]);
    for member in [&backup, &down, &second] {
        assert_contains(&outcome.stderr, &member.address());
    }
    // A member in maintenance is not queried.
    second.restart();
    let address = second.address();
    done(&front, &["maintenance"], &["ca", &address]);
    let outcome = front.command(&["crl", "fetch"], &[]);
    assert_eq!(outcome.code, Some(1));
    assert!(!outcome.stderr.contains(&address), "{}", outcome.stderr);
}

#[test]
fn t08_a_member_that_a_fetched_crl_revokes_gets_no_more_requests() {
    let ca = Ca::new();
    let (file, web01) = (ca.crl_pem(), ca.agent("web01"));
    let (bad, good) = (ca.server("c1"), ca.server("c2"));
    let ca_server = StandIn::builder("ca").ca(&ca).start();
    let [c1, c2] = [&bad, &good].map(|own| StandIn::builder(&own.certname).tls(&ca, own).start());
    let pools = format!(
        "[pools.ca]\nscheme = \"http\"\nmembers = [{:?}]\n\
         [pools.compilers]\nmembers = [{:?}, {:?}]\nkeepalive = \"10m\"\nalgorithm = \"round-robin\"\n\
         check = {{ interval = \"100ms\" }}\n",
        ca_server.address(),
        c1.address(),
        c2.address()
    );
    let front = proxy(&ca)
        .fetch(ON_REQUEST)
        .file("ssl/crl.pem", &file, 0o644)
        .with(&pools)
        .with("[state]\ndirectory = \"{dir}/state\"")
        .start();
    wait_for_answer(&front);
    front.wait_for_members(&["ca", "compilers"]);
    let client = front.client(Some(&web01));
    for _ in 0..4 {
        assert_eq!(client.get(CATALOG).status, 200);
    }
    assert!(!c1.requests().is_empty() && c1.connections_open() > 0);
    ca.revoke(&bad);
    fetch(&front);
    // The proxy also closes idle connections, and drops TLS sessions that could be resumed without verification.
    front.wait_for_health("compilers", &c1.address(), "down");
    let closed = wait_until(LIMIT, || (c1.connections_open() == 0).then_some(()));
    assert!(closed.is_some(), "{} are open", c1.connections_open());
    c1.forget();
    for _ in 0..4 {
        assert_eq!(client.get(CATALOG).status, 200);
    }
    assert!(c1.requests().is_empty(), "{:#?}", c1.requests());
    let events = front.stderr();
    let said = r#"the member's certificate \"CN=c1\""#;
    assert!(
        events.contains(said) && events.contains("is revoked"),
        "{events}"
    );
    let doctor = front.command(&["doctor"], &["--json"]);
    let output = doctor
        .stdout
        .contains("is revoked (revoked). It is on the CRL of");
    assert!(output, "{}", doctor.stdout);
}

#[test]
fn after_an_unusable_response_the_next_ca_server_is_queried() {
    let ca = Ca::new();
    let agent = ca.agent("web01");
    let file = ca.crl_pem();
    ca.revoke(&agent);
    let [first, second] = ["first", "second"].map(|name| StandIn::builder(name).ca(&ca).start());
    let compiler = StandIn::start("c1");
    let pools = format!(
        "[pools.ca]\nscheme = \"http\"\nmembers = [{:?}, {:?}]\n[pools.compilers]\nscheme = \"http\"\n\
         members = [{:?}]\n[ca]\nedge_answers = true",
        first.address(),
        second.address(),
        compiler.address(),
    );
    for useless in ["<html>", &Ca::other().crl_pem(), &file[..300]] {
        // A response with certificates is not a CRL either.
        let answer = useless.to_owned();
        first.answer(move |_| Some(Reply::ok(&answer)));
        let front = proxy(&ca)
            .fetch(ON_REQUEST)
            .file("ssl/crl.pem", &file, 0o644)
            .with(&pools)
            .start();
        let fetch_status = wait_for_answer(&front);
        assert_eq!(fetch_status["member"], second.address(), "{useless}");
        assert!(fetch_status["failing"].is_null(), "{fetch_status}");
        assert_refused(&front.client(Some(&agent)).get(CATALOG), 403, &["revoked"]);
        // The unusable response of the first member raises an alarm once the whole fetch has ended.
        front.wait_for_status("an alarm names the first member", |status| {
            let alarms = status["trust"]["alarms"].to_string();
            alarms.contains(&first.address())
        });
        let copied = wait_until(LIMIT, || {
            let answer = front.client(None).get("/puppet-ca/v1/certificate/ca");
            answer.headers.get("age").is_some().then_some(answer)
        });
        let copied = copied.expect("the second's are answered with");
        assert_eq!(copied.text(), ca.bundle_pem());
    }
}
