//! Fetched CRLs that drop revocations or are invalid.

use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use testkit::{Ca, CommandOutcome, Proxy, Reply, ReplyGate, StandIn, TestCredential};

use crate::support::{
    account, assert_contains, assert_refused,
    crl_fetch::{
        CRL_PATH, FAILING, ON_REQUEST, answer_crl_requests, compiler_requests, fetch,
        fetch_unchanged, fetching, persisting, start_and_fetch, wait_for_answer, without_ca,
    },
    done,
    paths::CATALOG,
    proxy,
};

const LACKING: &str = "proscenium_crl_missing_revocations";

#[test]
fn t10_an_older_crl_drops_no_revocation_until_the_operator_accepts_it() {
    let state = TempDir::new().expect("a directory");
    let ca = Ca::new();
    let agent = ca.agent("web01");
    let old = ca.crl_pem();
    let old_number = ca.crl_number();
    ca.revoke(&agent);
    let issuer = format!("CN={}", ca.name());
    let started = |file: &str, answer: &str| {
        let estate = start_and_fetch(persisting(&ca, ON_REQUEST, file, state.path()));
        answer_crl_requests(&estate.ca_server, Reply::ok(answer));
        estate
    };
    // The stand-in signed its own CRL for the fetch at the start.
    let estate = started(&ca.crl_pem(), &old);
    ca.renew_crl();
    let newer = ca.crl_pem();
    estate.proxy.write("ssl/crl.pem", &newer, 0o644);
    estate.proxy.reload_applied();
    assert_refused(&estate.client(&agent).get(CATALOG), 403, &["revoked"]);
    let refused = fetch_refused(&estate.proxy);
    let words = format!(
        "a CRL drops revocations: {issuer}: number {old_number} with 0 entries is older than number {}, and lacks \
         1 revoked certificate, which stays revoked",
        ca.crl_number()
    );
    assert!(refused.contains(&words), "{refused}");
    assert_refused(&estate.client(&agent).get(CATALOG), 403, &["revoked"]);
    let trust = estate.proxy.status()["trust"].clone();
    assert_eq!(trust["fetch"]["shrunk"][0]["missing"], 1, "{trust:#}");
    assert!(
        trust["alarms"].to_string().contains("crl accept"),
        "{trust:#}"
    );
    assert_eq!(
        estate.proxy.metrics().sum(LACKING, &[("issuer", &issuer)]),
        1.0
    );
    assert!(estate.proxy.metrics().sum("proscenium_trust_alarms", &[]) >= 1.0);
    let shown = done(&estate.proxy, &["crl", "show"], &[]);
    assert!(shown.contains("ALARM: a CRL drops revocations"), "{shown}");
    // The alarm is logged once, however often the CRL is fetched.
    fetch_refused(&estate.proxy);
    let output = estate.proxy.stderr();
    assert_eq!(
        output.matches("a CRL drops revocations").count(),
        1,
        "{output}"
    );
    // A reload does not accept it.
    estate.proxy.reload();
    assert_refused(&estate.client(&agent).get(CATALOG), 403, &["revoked"]);

    let why = ["--why", "restored from the backup of Monday"];
    let accepted = done(
        &estate.proxy,
        &["crl", "accept"],
        &[&[issuer.as_str()], &why[..]].concat(),
    );
    assert!(
        accepted.starts_with(&format!("accepted: {issuer}: number {old_number}")),
        "{accepted}"
    );
    assert_eq!(estate.client(&agent).get(CATALOG).status, 200);
    let output = estate.proxy.stderr();
    let event = output
        .lines()
        .find(|line| line.contains("an operator accepted a CRL"));
    let event = event.unwrap_or_else(|| panic!("not logged: {output}"));
    assert!(
        event.contains(why[1]) && event.contains(&format!("by={}", account())),
        "{event}"
    );
    let trust = estate.proxy.status()["trust"].clone();
    assert_eq!(
        trust["fetch"]["shrunk"],
        Value::Array(Vec::new()),
        "{trust:#}"
    );
    fetch_unchanged(&estate.proxy);
    // A copy of the refused CRL does not become active either.
    answer_crl_requests(&estate.ca_server, Reply::ok(&newer));
    fetch_unchanged(&estate.proxy);
    assert_eq!(estate.client(&agent).get(CATALOG).status, 200);
    answer_crl_requests(&estate.ca_server, Reply::ok(&old));
    fetch_unchanged(&estate.proxy);
    // The file still has the newer number, now and after a restart.
    estate.proxy.write("ssl/unrelated", "", 0o644);
    estate.proxy.reload();
    assert_eq!(estate.client(&agent).get(CATALOG).status, 200);
    drop(estate);
    let front = without_ca(&ca, &newer, state.path());
    assert_eq!(front.client(&agent).get(CATALOG).status, 200);
    // From now on the CA's CRLs are compared as usual, even within the same second: dropped revocations are refused
    // again.
    let again = ca.other_crl_pem(ca.crl_number(), &[&agent]);
    drop(front);
    let estate = started(&newer, &again);
    fetch_unchanged(&estate.proxy);
    assert_refused(&estate.client(&agent).get(CATALOG), 403, &["revoked"]);
    answer_crl_requests(&estate.ca_server, Reply::ok(&old));
    fetch_refused(&estate.proxy);
}

#[test]
fn t10_an_infrastructure_crl_instead_of_the_full_one_drops_no_revocation_and_is_counted() {
    let ca = Ca::new();
    let (agents, compiler) = (["a", "b", "c"].map(|name| ca.agent(name)), ca.agent("c1"));
    agents
        .iter()
        .chain([&compiler])
        .for_each(|agent| ca.revoke(agent));
    let estate = start_and_fetch(fetching(&ca, ON_REQUEST));
    // By its number alone, this CRL would be accepted.
    let infrastructure = ca.other_crl_pem(ca.crl_number() + 10, &[&compiler]);
    answer_crl_requests(&estate.ca_server, Reply::ok(&infrastructure));
    let refused = fetch_refused(&estate.proxy);
    assert!(
        refused.contains("lacks 3 revoked certificates"),
        "{refused}"
    );
    let client = estate.client(&agents[0]);
    assert_refused(
        &client.get("/puppet/v3/catalog/a?environment=p"),
        403,
        &["revoked"],
    );
    assert_eq!(estate.proxy.metrics().sum(LACKING, &[]), 3.0);
    // The response 304 neither changes nor ends the alarm.
    answer_crl_requests(&estate.ca_server, Reply::status(304));
    assert_eq!(estate.proxy.metrics().sum(LACKING, &[]), 3.0);
    // The full CRL ends the alarm.
    let another = ca.agent("web01");
    ca.revoke(&another);
    answer_crl_requests(&estate.ca_server, Reply::ok(&ca.crl_pem()));
    fetch(&estate.proxy);
    assert_refused(&estate.client(&another).get(CATALOG), 403, &["revoked"]);
    assert_eq!(estate.proxy.metrics().sum(LACKING, &[]), 0.0);
    let alarms = estate.proxy.status()["trust"]["alarms"].to_string();
    assert!(!alarms.contains("drops revocations"), "{alarms}");
    // The operator accepts only this CRL; the next one from the CA is verified as usual.
    answer_crl_requests(
        &estate.ca_server,
        Reply::ok(&ca.other_crl_pem(ca.crl_number() + 20, &[])),
    );
    fetch_refused(&estate.proxy);
    let issuer = format!("CN={}", ca.name());
    done(
        &estate.proxy,
        &["crl", "accept"],
        &[&issuer, "--why", "pruned"],
    );
    assert_eq!(estate.client(&another).get(CATALOG).status, 200);
}

#[test]
fn t09_an_unusable_response_keeps_the_last_valid_crl_and_raises_an_alarm() {
    let ca = Ca::new();
    let (good, bad) = (ca.agent("web01"), ca.agent("web01"));
    ca.revoke(&bad);
    let settings = format!("{ON_REQUEST}\ntimeout = \"2s\"\nbody_max = \"64KiB\"");
    let estate = start_and_fetch(fetching(&ca, &settings));
    let whole = ca.crl_pem();
    let elsewhere = format!("http://{}{CRL_PATH}", estate.compilers[0].address());
    let never = ReplyGate::new();
    let half = &whole[..whole.len() - 60];
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n-\r\n";
    let cases = [
        ("of another key", Reply::ok(&Ca::new().crl_pem()), "no CA"),
        ("of another CA", Reply::ok(&Ca::other().crl_pem()), "no CA"),
        ("half a text", Reply::ok(half), "not PEM"),
        ("cut", Reply::ok(&whole).close_after(500), "broke off"),
        (
            "cut, by its end",
            Reply::status(200).to_close(&whole.as_bytes()[..500]),
            "not PEM",
        ),
        ("reset", Reply::ok(&whole).reset_after(300), "broke off"),
        ("HTML", Reply::ok("<html>welcome</html>"), "contains no CRL"),
        (
            "certificates",
            Reply::ok(&ca.bundle_pem()),
            "contains no CRL",
        ),
        ("empty", Reply::ok(""), "contains no CRL"),
        ("damaged", Reply::ok(&damaged(&whole)), "CRL"),
        (
            "too large",
            Reply::stream(65_537),
            "larger than 65536 bytes",
        ),
        ("endless", Reply::stream(1 << 40), "larger than 65536 bytes"),
        (
            "nothing without end",
            Reply::raw([chunked.as_bytes(), &[b'0'; 4 << 20]].concat()),
            "malformed response body: invalid chunk",
        ),
        (
            "no head",
            Reply::ok(&whole).gate(&never),
            "no complete response within",
        ),
        (
            "slow",
            Reply::ok(&whole).dribble(1, Duration::from_millis(50)),
            "no complete response within",
        ),
        ("404", Reply::status(404), "answered 404"),
        ("500", Reply::status(500), "answered 500"),
        (
            "a redirect",
            Reply::status(302).header("Location", &elsewhere),
            "answered 302",
        ),
        ("304 unasked", Reply::status(304), "answered 304"),
        (
            "no HTTP",
            Reply::raw("SSH-2.0-OpenSSH_9.2\r\n"),
            "broke off",
        ),
        ("nothing", Reply::hang_up(), "broke off"),
    ];
    estate.forget();
    for (what, reply, expected) in cases {
        answer_crl_requests(&estate.ca_server, reply);
        let failed = estate.proxy.command(&["crl", "fetch"], &[]);
        assert_eq!(failed.code, Some(1), "{what}: {failed:?}");
        assert_contains(&failed.stderr, expected);
        let trust = estate.proxy.status()["trust"].clone();
        let why = trust["fetch"]["failing"]["why"]
            .as_str()
            .unwrap_or_default();
        assert!(why.contains(expected), "{what}: {trust:#}");
        assert!(
            trust["alarms"].to_string().contains("could be fetched"),
            "{what}: {trust:#}"
        );
        assert_eq!(estate.proxy.metrics().sum(FAILING, &[]), 1.0, "{what}");
        assert_refused(&estate.client(&bad).get(CATALOG), 403, &["revoked"]);
        assert_eq!(estate.client(&good).get(CATALOG).status, 200, "{what}");
    }
    never.release();
    estate.ca_server.stop();
    let failed = estate.proxy.command(&["crl", "fetch"], &[]);
    assert_contains(&failed.stderr, "cannot connect");
    estate.ca_server.restart();
    // A CRL is fetched only from the configured source; redirects are not followed.
    assert!(
        compiler_requests(&estate)
            .iter()
            .all(|request| request.path() != CRL_PATH)
    );
    ca.revoke(&good);
    answer_crl_requests(&estate.ca_server, Reply::ok(&ca.crl_pem()));
    fetch(&estate.proxy);
    assert_refused(&estate.client(&good).get(CATALOG), 403, &["revoked"]);
    let trust = estate.proxy.status()["trust"].clone();
    assert!(trust["fetch"]["failing"].is_null(), "{trust:#}");
    assert_eq!(estate.proxy.metrics().sum(FAILING, &[]), 0.0);
    estate.wait_for_event("cleared: no CRL could be fetched");
}

#[test]
fn a_crl_with_an_unknown_key_does_not_affect_the_other_crls_of_the_response() {
    let ca = Ca::new();
    let agent = ca.agent("web01");
    let estate = start_and_fetch(fetching(&ca, ON_REQUEST));
    ca.revoke(&agent);
    let both = format!("{}{}", Ca::new().issuing_crl_pem(), ca.crl_pem());
    answer_crl_requests(&estate.ca_server, Reply::ok(&both));
    fetch(&estate.proxy);
    assert_refused(&estate.client(&agent).get(CATALOG), 403, &["revoked"]);
    let alarms = estate.proxy.status()["trust"]["alarms"].to_string();
    assert!(alarms.contains("no CA"), "{alarms}");
}

#[test]
fn t10_where_ca_servers_disagree_the_crl_that_drops_nothing_is_used_and_the_other_is_an_alarm() {
    let ca = Ca::new();
    let (lost, bad) = (ca.agent("web01"), ca.agent("web01"));
    let old = ca.crl_pem();
    ca.revoke(&lost);
    let file = ca.crl_pem();
    let [first, second] = ["first", "second"].map(|name| StandIn::builder(name).ca(&ca).start());
    let compiler = StandIn::start("c1");
    let pools = format!(
        "[pools.ca]\nscheme = \"http\"\nmembers = [{:?}, {:?}]\n[pools.compilers]\nscheme = \"http\"\n\
         members = [{:?}]\n[ca]\nedge_answers = true",
        first.address(),
        second.address(),
        compiler.address(),
    );
    answer_crl_requests(&first, Reply::ok(&old));
    let front = proxy(&ca)
        .fetch(ON_REQUEST)
        .file("ssl/crl.pem", &file, 0o644)
        .with(&pools)
        .start();
    wait_for_answer(&front);
    ca.revoke(&bad);
    let now = ca.crl_pem();
    answer_crl_requests(&second, Reply::ok(&now));
    for _ in 0..2 {
        let output = fetch_refused(&front);
        assert!(
            output.contains("lacks 1 revoked") || output.contains("lacks 2"),
            "{output}"
        );
        for agent in [&lost, &bad] {
            let answer = front.client(Some(agent)).get(CATALOG);
            assert_refused(&answer, 403, &["revoked"]);
        }
        let alarms = front.status()["trust"]["alarms"].to_string();
        assert!(alarms.contains("crl accept"), "{alarms}");
    }
    let copied = front.client(None).get(CRL_PATH);
    assert_eq!(copied.text(), now, "agents get the active CRL");
    let output = front.stderr();
    let times = output.matches("a CRL drops revocations").count();
    assert_eq!(times, 1, "{output}");
    // The server that had lost the CRL returns it again.
    answer_crl_requests(&first, Reply::ok(&now));
    fetch_unchanged(&front);
    let alarms = front.status()["trust"]["alarms"].to_string();
    assert!(!alarms.contains("crl accept"), "{alarms}");
}

#[test]
fn t10_a_crl_that_the_ca_no_longer_returns_is_an_alarm() {
    let ca = Ca::new();
    let estate = start_and_fetch(fetching(&ca, ON_REQUEST));
    let whole = ca.crl_pem();
    let end = "-----END X509 CRL-----\n";
    let root = whole.split_inclusive(end).last().expect("the root's");
    let name = format!("provides no CRL of CN={}", ca.name());
    let alarms = || estate.proxy.status()["trust"]["alarms"].to_string();
    for (answer, is_alarm) in [(root, true), (&whole, false)] {
        answer_crl_requests(&estate.ca_server, Reply::ok(answer));
        fetch_unchanged(&estate.proxy);
        assert_eq!(alarms().contains(&name), is_alarm, "{}", alarms());
    }
}

#[test]
fn the_alarm_about_a_refused_crl_ends_with_its_ca() {
    let ca = Ca::new();
    let old = ca.crl_pem();
    ca.revoke(&ca.agent("web02"));
    let estate = start_and_fetch(fetching(&ca, ON_REQUEST));
    answer_crl_requests(&estate.ca_server, Reply::ok(&old));
    fetch_refused(&estate.proxy);
    // The CA is created again with the same name.
    let next = ca.namesake();
    answer_crl_requests(&estate.ca_server, Reply::ok(&next.crl_pem()));
    for (file, text) in [
        ("ssl/certs/ca.pem", next.bundle_pem()),
        ("ssl/crl.pem", next.crl_pem()),
    ] {
        estate.proxy.write(file, &text, 0o644);
    }
    estate.proxy.reload_applied();
    let agent = next.agent("web01");
    assert_eq!(estate.client(&agent).get(CATALOG).status, 200);
    estate.wait_for_status("no refusal is left", |status| {
        status["trust"]["fetch"]["shrunk"] == Value::Array(Vec::new())
    });
    assert_eq!(estate.proxy.metrics().sum(LACKING, &[]), 0.0);
}

#[test]
fn t10_accepting_a_crl_drops_no_more_revocations_than_the_operator_saw() {
    let ca = Ca::new();
    let (bad, worse) = (ca.agent("web01"), ca.agent("web01"));
    let old = ca.crl_pem();
    ca.revoke(&bad);
    let estate = start_and_fetch(fetching(&ca, ON_REQUEST));
    answer_crl_requests(&estate.ca_server, Reply::ok(&old));
    fetch_refused(&estate.proxy);
    // A file provides another CRL, and the CA does not answer any more.
    estate.ca_server.stop();
    ca.revoke(&worse);
    estate.proxy.write("ssl/crl.pem", &ca.crl_pem(), 0o644);
    estate.proxy.reload_applied();
    assert_refused(&estate.client(&worse).get(CATALOG), 403, &["revoked"]);
    let issuer = format!("CN={}", ca.name());
    let arguments = [issuer.as_str(), "--why", "restored"];
    let outcome = estate.proxy.command(&["crl", "accept"], &arguments);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    for word in ["nothing was accepted", "lacks 2 revoked"] {
        assert!(outcome.stderr.contains(word), "{word}: {}", outcome.stderr);
    }
    for agent in [&bad, &worse] {
        assert_refused(&estate.client(agent).get(CATALOG), 403, &["revoked"]);
    }
    // Now the operator has read the number of the CRL.
    done(&estate.proxy, &["crl", "accept"], &arguments);
    for agent in [&bad, &worse] {
        assert_eq!(estate.client(agent).get(CATALOG).status, 200);
    }
}

#[test]
fn t10_the_command_of_an_alarm_accepts_only_what_the_alarm_was_about() {
    let ca = Ca::new();
    let [pruned, stolen, other] = ["a", "b", "c"].map(|_| ca.agent("web01"));
    let estate = start_and_fetch(fetching(&ca, ON_REQUEST));
    let fetch_of = |number, revoked: &[&TestCredential]| {
        let crl = ca.other_crl_pem(number, revoked);
        answer_crl_requests(&estate.ca_server, Reply::ok(&crl));
        estate.proxy.command(&["crl", "fetch"], &[]);
        done(&estate.proxy, &["crl", "show"], &[])
    };
    let issuer = format!("CN={}", ca.name());
    let accept = |number: &str, missing: &str| {
        let seen = [&issuer, "--number", number, "--missing", missing];
        let arguments = [&seen[..], &["--why", "pruned"]].concat();
        estate.proxy.command(&["crl", "accept"], &arguments)
    };
    fetch_of(100, &[&pruned, &other]);
    let alarm = fetch_of(101, &[&other, &stolen]);
    let command = |number: u32, missing: u32| {
        format!(
            "run proscenium crl accept \"{issuer}\" --number {number} --missing {missing} --why TEXT"
        )
    };
    assert!(alarm.contains(&command(101, 1)), "{alarm}");
    // Another server of the CA has an older CRL. It lacks as many revocations, but different ones.
    for (number, revoked, missing) in [(100, &[&pruned, &other][..], 1), (102, &[&other], 2)] {
        let alarm = fetch_of(number, revoked);
        assert!(alarm.contains(&command(number as u32, missing)), "{alarm}");
        let outcome = accept("101", "1");
        assert_eq!(outcome.code, Some(1), "{outcome:?}");
        for words in ["nothing was accepted", &command(number as u32, missing)] {
            assert!(outcome.stderr.contains(words), "{words}: {outcome:?}");
        }
        for agent in [&pruned, &stolen, &other] {
            assert_refused(&estate.client(agent).get(CATALOG), 403, &["revoked"]);
        }
    }
    let outcome = accept("102", "1");
    assert!(
        outcome.stderr.contains("nothing was accepted"),
        "{outcome:?}"
    );
    let outcome = accept("102", "2");
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert_eq!(estate.client(&stolen).get(CATALOG).status, 200);
    assert_refused(&estate.client(&other).get(CATALOG), 403, &["revoked"]);
}

#[test]
fn accepting_an_unknown_crl_is_refused_with_the_acceptable_ones() {
    let ca = Ca::new();
    let estate = start_and_fetch(fetching(&ca, ON_REQUEST));
    let issuer = format!("CN={}", ca.name());
    for (arguments, code, expected) in [
        (&[issuer.as_str()][..], 64, "--why"),
        (&["--why", "x"], 64, "ISSUER"),
        (&[&issuer, "--number", "7", "--why", "x"], 64, "--missing"),
        (&[&issuer, "--missing", "7", "--why", "x"], 64, "--number"),
        (
            &[&issuer, "--why", "x"],
            1,
            "drops revocations; neither does one of another CA",
        ),
        (&[&issuer, "--why", " "], 1, "the reason must be one line"),
        (
            &[&issuer, "--why", "a\nb"],
            1,
            "the reason must be one line",
        ),
    ] {
        let outcome = estate.proxy.command(&["crl", "accept"], arguments);
        assert_eq!(
            outcome.code,
            Some(code),
            "{arguments:?}: {}",
            outcome.stderr
        );
        assert_contains(&outcome.stderr, expected);
    }
    ca.revoke(&ca.agent("web01"));
    fetch(&estate.proxy);
    answer_crl_requests(&estate.ca_server, Reply::ok(&ca.other_crl_pem(1, &[])));
    fetch_refused(&estate.proxy);
    let outcome = estate
        .proxy
        .command(&["crl", "accept"], &["CN=unknown", "--why", "x"]);
    assert_contains(&outcome.stderr, &format!("those of {issuer}"));
    let json = done(&estate.proxy, &["crl", "show"], &["--json"]);
    let shown: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(shown["fetch"]["shrunk"][0]["issuer"], issuer);
}

#[track_caller]
fn fetch_refused(proxy: &Proxy) -> String {
    let CommandOutcome { code, stderr, .. } = proxy.command(&["crl", "fetch"], &[]);
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains("a CRL drops revocations: "), "{stderr}");
    stderr
}

/// The same PEM with the middle of its first block replaced.
fn damaged(pem: &str) -> String {
    let mut lines: Vec<_> = pem.lines().collect();
    lines[3] = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    lines.join("\n") + "\n"
}
