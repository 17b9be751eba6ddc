//! Revocation lists that are fetched from the CA: in force as soon as they are there, unless they take something back.

#![allow(clippy::disallowed_methods, reason = "tests look at files")]

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;
use testkit::{Ca, Gate, Outcome, Proxy, Recorded, Reply, StandIn, wait_until};

use crate::support::{
    Estate, EstateBuilder, LIMIT, assert_refused, done,
    lists::{WHEN_ASKED, state_in, without_ca},
    proxy,
};

const CATALOG: &str = "/puppet/v3/catalog/web01?environment=production";
const LIST: &str = "/puppet-ca/v1/certificate_revocation_list/ca";
const EACH_SECOND: &str = "interval = \"1s\"\njitter = \"0s\"";
const FAILING: &str = "proscenium_crl_fetch_failing";
const LACKING: &str = "proscenium_crl_refused_missing_revocations";
const FETCHES: &str = "proscenium_crl_fetches_total";

#[test]
fn jitter_makes_the_next_fetch_come_sooner_and_never_at_once() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let times = Arc::clone(&asked);
    let estate = Estate::builder()
        .proxy(|proxy| proxy.fetch("interval = \"2s\"\njitter = \"24h\""))
        .start();
    estate.ca_server.answer(move |request| {
        if request.path() == LIST {
            times.lock().expect("no panic").push(Instant::now());
        }
        None
    });
    let in_between = || {
        let times = asked.lock().expect("no panic").clone();
        let gaps = times.windows(2).map(|pair| pair[1] - pair[0]);
        let sooner = Duration::from_millis(900)..Duration::from_millis(1900);
        gaps.filter(|gap| sooner.contains(gap)).max().map(drop)
    };
    assert!(wait_until(LIMIT, in_between).is_some(), "{asked:?}");
}

#[test]
fn t08_a_fetched_list_ends_what_a_revoked_agent_has_and_lets_nobody_in_again() {
    let estate = Estate::builder()
        .proxy(|proxy| proxy.fetch(WHEN_ASKED).listener("idle_timeout = \"10m\""))
        .start();
    wait_for_answer(&estate.proxy);
    let (good, bad) = (estate.ca.agent("web01"), estate.ca.agent("web01"));
    let client = estate.client(&bad);
    let mut innocent = estate.client(&good).connect().expect("connects");
    let mut idle = client.connect().expect("connects");
    assert_eq!(idle.get(CATALOG).status, 200);
    assert_eq!(innocent.get(CATALOG).status, 200);
    // Busy at that moment, so that its next request is the one that hears of it.
    estate.compilers.iter().for_each(StandIn::hold);
    estate.forget();
    let mut live = client.connect().expect("connects");
    live.send("GET", CATALOG, &[], b"").expect("is taken");
    let asked = wait_until(LIMIT, || {
        (!compilers_asked(&estate).is_empty()).then_some(())
    });
    assert!(asked.is_some());

    estate.ca.revoke(&bad);
    let told = fetch(&estate.proxy);
    let number = estate.ca.crl_number();
    let expected = format!(
        "CN={}: number {number} with 1 entries is active",
        estate.ca.name()
    );
    assert!(told.contains(&expected), "{told}");
    assert!(idle.is_closed_within(LIMIT), "closed without an answer");
    estate.compilers.iter().for_each(StandIn::release);
    assert_eq!(live.read_response().expect("is answered").status, 200);
    let last = live.get(CATALOG);
    assert_refused(&last, 403, &["revoked", &format!("number {number}")]);
    assert!(last.says_close());
    let mut resumed = client.connect().expect("connects");
    assert!(resumed.resumed());
    assert_refused(&resumed.get(CATALOG), 403, &["revoked"]);
    assert_refused(&estate.client(&bad).get(CATALOG), 403, &["revoked"]);
    assert_eq!(innocent.get(CATALOG).status, 200);

    // Whoever asks the CA is nobody to it.
    let request = estate.ca_server.last();
    assert_eq!(
        (request.method.as_str(), request.target.as_str()),
        ("GET", LIST)
    );
    assert_eq!(request.only("x-client-verify"), "NONE");
    assert!(
        request.headers.get("x-client-dn").is_none(),
        "{}",
        request.raw_text()
    );
    let source = ("source", "\"fetched from");
    let status = estate.proxy.status();
    let crls = status["trust"]["crls"].to_string();
    assert!(crls.contains(&source.1.replace('"', "\\\"")), "{crls}");
    let metrics = estate.proxy.metrics();
    assert!(metrics.sum("proscenium_crl_last_fetch_timestamp_seconds", &[]) > 0.0);
    assert!(metrics.sum(FETCHES, &[("result", "applied")]) >= 1.0);
    assert_eq!(metrics.sum(FAILING, &[]), 0.0);
}

#[test]
fn without_lists_by_name_the_ca_is_asked_at_the_start_and_each_interval() {
    let estate = Estate::builder()
        .proxy(|proxy| proxy.fetch(EACH_SECOND))
        .start();
    let agent = estate.ca.agent("web01");
    assert_eq!(estate.client(&agent).get(CATALOG).status, 200);
    estate.ca.revoke(&agent);
    let refused = wait_until(LIMIT, || {
        (estate.client(&agent).get(CATALOG).status == 403).then_some(())
    });
    assert!(refused.is_some());
    // The agent's own copy is what was begun with, and nobody has to hear of its age.
    let copy = estate.proxy.ssldir().join("crl.pem").display().to_string();
    let crls = estate.proxy.status()["trust"]["crls"].to_string();
    assert!(!crls.contains(&copy), "{crls}");
    assert!(!estate.proxy.stderr().contains("goes stale"));
}

#[test]
fn lists_by_name_are_all_there_is_unless_both_are_wanted() {
    for (fetch, asks) in [
        ("", false),
        ("enabled = true\n", true),
        ("enabled = false\n", false),
    ] {
        let ca = Ca::new();
        let revoked = ca.agent("web01");
        let file = ca.crl_pem();
        ca.revoke(&revoked);
        let settings = match fetch {
            "" => String::new(),
            _ => format!("{fetch}{WHEN_ASKED}"),
        };
        let estate = Estate::builder()
            .ca(&ca)
            .proxy(move |proxy| {
                proxy
                    .fetch(&settings)
                    .file("crl.pem", &file, 0o644)
                    .with("[trust]\ncrl = \"{dir}/crl.pem\"")
            })
            .start();
        let status = estate.proxy.status();
        assert_eq!(status["trust"]["fetch"].is_null(), !asks, "{fetch}");
        if asks {
            wait_for_answer(&estate.proxy);
        } else {
            let outcome = estate.proxy.command(&["crl", "fetch"], &[]);
            assert_eq!(outcome.code, Some(1));
            assert!(
                outcome.stderr.contains("[trust.fetch] is off"),
                "{}",
                outcome.stderr
            );
            assert!(lists_asked(&estate.ca_server).is_empty());
        }
        let expected = if asks { 403 } else { 200 };
        assert_eq!(
            estate.client(&revoked).get(CATALOG).status,
            expected,
            "{fetch}"
        );
        // Of both sources the newer list counts, whichever has it.
        let another = ca.agent("web01");
        ca.revoke(&another);
        estate.proxy.write("crl.pem", &ca.crl_pem(), 0o644);
        estate.proxy.reload_applied();
        for agent in [&revoked, &another] {
            assert_refused(&estate.client(agent).get(CATALOG), 403, &["revoked"]);
        }
    }
}

#[test]
fn where_there_is_no_ca_to_ask_that_is_told() {
    let outcome = proxy(&Ca::new())
        .top("builtin_routes = false")
        .fetch("enabled = true")
        .with("[pools.all]\nscheme = \"http\"\nmembers = [\"127.0.0.1:1\"]")
        .with("[[routes]]\nname = \"all\"\npath = { prefix = \"/\" }\npool = \"all\"")
        .check();
    assert_eq!(outcome.code, Some(78), "{}", outcome.stderr);
    assert!(
        outcome
            .stderr
            .contains("there is no pool `ca` to fetch from"),
        "{}",
        outcome.stderr
    );
}

#[test]
fn a_list_is_asked_for_by_its_date_only_while_that_can_hide_no_change() {
    const MODIFIED: &str = "Sat, 21 Nov 2026 10:00:00 GMT";
    const LATER: &str = "Sat, 21 Nov 2026 10:00:07 GMT";
    const AT_ONCE: &str = "Sat, 21 Nov 2026 10:00:03 GMT";
    for (date, settings, is_conditional) in [
        (LATER, "", true),
        (AT_ONCE, "", false),
        (LATER, "full_interval = \"1s\"", false),
    ] {
        let ca = Ca::new();
        let list = ca.crl_pem();
        let estate = Estate::builder()
            .ca(&ca)
            .proxy(move |proxy| proxy.fetch(&format!("{EACH_SECOND}\n{settings}")))
            .unready()
            .start();
        estate.ca_server.answer(move |request| {
            (request.path() == LIST).then(|| {
                let reply = match request.headers.get("if-modified-since") {
                    Some(_) => Reply::status(304),
                    None => Reply::ok(&list).header("Last-Modified", MODIFIED),
                };
                reply.header("Date", date)
            })
        });
        // The first may have come before the stand-in knew its lines.
        fetch_unchanged(&estate.proxy);
        estate.forget();
        let asked = wait_until(LIMIT, || {
            let asked = lists_asked(&estate.ca_server);
            (asked.len() >= 4).then_some(asked)
        });
        let sent: Vec<_> = asked
            .expect("is asked time and again")
            .iter()
            // Its interval began before it was asked by hand.
            .skip(1)
            .map(|request| request.headers.get("if-modified-since").map(str::to_owned))
            .collect();
        let expected = is_conditional.then(|| MODIFIED.to_owned());
        assert!(
            sent.iter().all(|sent| *sent == expected),
            "{date} {settings}: {sent:?}"
        );
        // Nothing has changed, and nothing is wrong.
        let trust = estate.proxy.status()["trust"].clone();
        assert!(trust["fetch"]["failing"].is_null(), "{trust:#}");
        // Who asks by hand gets it whole.
        estate.forget();
        fetch_unchanged(&estate.proxy);
        let whole = lists_asked(&estate.ca_server);
        assert!(
            whole
                .iter()
                .any(|request| request.headers.get("if-modified-since").is_none()),
            "{whole:?}"
        );
    }
}

#[test]
fn t10_an_older_list_is_refused_with_an_alarm_until_an_operator_accepts_it_for_good() {
    let state = TempDir::new().expect("a directory");
    let (ca, table) = (Ca::new(), state_in(state.path()));
    let agent = ca.agent("web01");
    let old = ca.crl_pem();
    let old_number = ca.crl_number();
    ca.revoke(&agent);
    let issuer = format!("CN={}", ca.name());
    let started = |file: &str, answer: &str| {
        let (file, table) = (file.to_owned(), table.clone());
        let estate = Estate::builder()
            .ca(&ca)
            .proxy(move |proxy| {
                proxy
                    .fetch(WHEN_ASKED)
                    .file("ssl/crl.pem", &file, 0o644)
                    .with(&table)
            })
            .start();
        wait_for_answer(&estate.proxy);
        answers(&estate.ca_server, Reply::ok(answer));
        estate
    };
    // The stand-in has signed a list of its own for the fetch of the start.
    let estate = started(&ca.crl_pem(), &old);
    ca.renew_crl();
    let newer = ca.crl_pem();
    estate.proxy.write("ssl/crl.pem", &newer, 0o644);
    estate.proxy.reload_applied();
    assert_refused(&estate.client(&agent).get(CATALOG), 403, &["revoked"]);
    let refused = fetch_refused(&estate.proxy);
    let words = format!(
        "refused: {issuer}: number {old_number} with 0 entries is older than the active one, number {}, and lacks \
         1 revoked certificate of it",
        ca.crl_number()
    );
    assert!(refused.contains(&words), "{refused}");
    assert_refused(&estate.client(&agent).get(CATALOG), 403, &["revoked"]);
    let trust = estate.proxy.status()["trust"].clone();
    assert_eq!(trust["fetch"]["refused"][0]["missing"], 1, "{trust:#}");
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
    assert!(shown.contains("ALARM: refused a fetched CRL"), "{shown}");
    // It is told once, however often it is fetched.
    fetch_refused(&estate.proxy);
    let told = estate.proxy.stderr();
    assert_eq!(told.matches("refused a fetched CRL").count(), 1, "{told}");
    // A reload is no word on it.
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
    let told = estate.proxy.stderr();
    let event = told
        .lines()
        .find(|line| line.contains("an operator accepted a CRL"));
    let event = event.unwrap_or_else(|| panic!("not told: {told}"));
    assert!(event.contains(why[1]) && event.contains("uid "), "{event}");
    let trust = estate.proxy.status()["trust"].clone();
    assert_eq!(
        trust["fetch"]["refused"],
        Value::Array(Vec::new()),
        "{trust:#}"
    );
    fetch_unchanged(&estate.proxy);
    // Nor does what was set aside come in again where a copy of it answers.
    answers(&estate.ca_server, Reply::ok(&newer));
    fetch_unchanged(&estate.proxy);
    assert_eq!(estate.client(&agent).get(CATALOG).status, 200);
    answers(&estate.ca_server, Reply::ok(&old));
    fetch_unchanged(&estate.proxy);
    // The file still has the newer number, now and at the next start.
    estate.proxy.write("ssl/unrelated", "", 0o644);
    estate.proxy.reload();
    assert_eq!(estate.client(&agent).get(CATALOG).status, 200);
    drop(estate);
    let front = without_ca(&ca, &newer, state.path());
    assert_eq!(front.client(&agent).get(CATALOG).status, 200);
    // What the CA says from here on counts as ever, be it of the same second: nothing is taken back again.
    let again = ca.other_crl_pem(ca.crl_number(), &[&agent]);
    drop(front);
    let estate = started(&newer, &again);
    fetch_unchanged(&estate.proxy);
    assert_refused(&estate.client(&agent).get(CATALOG), 403, &["revoked"]);
    answers(&estate.ca_server, Reply::ok(&old));
    fetch_refused(&estate.proxy);
}

#[test]
fn t10_an_infrastructure_list_in_the_place_of_the_full_one_is_refused_with_the_count() {
    let ca = Ca::new();
    let (agents, compiler) = (["a", "b", "c"].map(|name| ca.agent(name)), ca.agent("c1"));
    agents
        .iter()
        .chain([&compiler])
        .for_each(|agent| ca.revoke(agent));
    let estate = fetching(&ca, WHEN_ASKED).start();
    wait_for_answer(&estate.proxy);
    // Its number says nothing against it.
    let infrastructure = ca.other_crl_pem(ca.crl_number() + 10, &[&compiler]);
    answers(&estate.ca_server, Reply::ok(&infrastructure));
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
    // A date that stays the same is no news, and no end of the alarm.
    answers(&estate.ca_server, Reply::status(304));
    assert_eq!(estate.proxy.metrics().sum(LACKING, &[]), 3.0);
    // The full list ends it.
    let another = ca.agent("web01");
    ca.revoke(&another);
    answers(&estate.ca_server, Reply::ok(&ca.crl_pem()));
    fetch(&estate.proxy);
    assert_refused(&estate.client(&another).get(CATALOG), 403, &["revoked"]);
    assert_eq!(estate.proxy.metrics().sum(LACKING, &[]), 0.0);
    let alarms = estate.proxy.status()["trust"]["alarms"].to_string();
    assert!(!alarms.contains("refused"), "{alarms}");
    // And what is accepted is that list alone, until the CA has the next one.
    answers(
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
fn t09_whatever_else_comes_keeps_the_last_good_list_with_an_alarm_until_it_is_right() {
    let ca = Ca::new();
    let (good, bad) = (ca.agent("web01"), ca.agent("web01"));
    ca.revoke(&bad);
    let settings = format!("{WHEN_ASKED}\ntimeout = \"2s\"\nbody_max = \"64KiB\"");
    let estate = fetching(&ca, &settings).start();
    wait_for_answer(&estate.proxy);
    let whole = ca.crl_pem();
    let elsewhere = format!("http://{}{LIST}", estate.compilers[0].address());
    let never = Gate::new();
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
            "no whole answer within",
        ),
        (
            "slow",
            Reply::ok(&whole).dribble(1, Duration::from_millis(50)),
            "no whole answer within",
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
        answers(&estate.ca_server, reply);
        let failed = estate.proxy.command(&["crl", "fetch"], &[]);
        assert_eq!(failed.code, Some(1), "{what}: {failed:?}");
        assert!(
            failed.stderr.contains(expected),
            "{what}: {}",
            failed.stderr
        );
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
    assert!(
        failed.stderr.contains("cannot connect"),
        "{}",
        failed.stderr
    );
    estate.ca_server.restart();
    // A list comes from where the configuration says, and from nowhere else.
    assert!(
        compilers_asked(&estate)
            .iter()
            .all(|request| request.path() != LIST)
    );
    ca.revoke(&good);
    answers(&estate.ca_server, Reply::ok(&ca.crl_pem()));
    fetch(&estate.proxy);
    assert_refused(&estate.client(&good).get(CATALOG), 403, &["revoked"]);
    let trust = estate.proxy.status()["trust"].clone();
    assert!(trust["fetch"]["failing"].is_null(), "{trust:#}");
    assert_eq!(estate.proxy.metrics().sum(FAILING, &[]), 0.0);
    assert!(
        estate
            .proxy
            .stderr()
            .contains("cleared: no CRL could be fetched")
    );
}

#[test]
fn a_list_of_an_unknown_key_spoils_no_other_of_the_same_answer() {
    let ca = Ca::new();
    let agent = ca.agent("web01");
    let estate = fetching(&ca, WHEN_ASKED).start();
    wait_for_answer(&estate.proxy);
    ca.revoke(&agent);
    let both = format!("{}{}", Ca::new().issuing_crl_pem(), ca.crl_pem());
    answers(&estate.ca_server, Reply::ok(&both));
    fetch(&estate.proxy);
    assert_refused(&estate.client(&agent).get(CATALOG), 403, &["revoked"]);
    let alarms = estate.proxy.status()["trust"]["alarms"].to_string();
    assert!(alarms.contains("no CA"), "{alarms}");
}

#[test]
fn t09_a_start_without_the_ca_judges_by_the_list_that_was_kept_and_never_by_an_older_one() {
    let state = TempDir::new().expect("a directory");
    let ca = Ca::new();
    let (bad, late) = (ca.agent("web01"), ca.agent("web01"));
    let first = ca.crl_pem();
    let (file, table) = (first.clone(), state_in(state.path()));
    let estate = Estate::builder()
        .ca(&ca)
        .proxy(move |proxy| {
            proxy
                .fetch(WHEN_ASKED)
                .file("ssl/crl.pem", &file, 0o644)
                .with(&table)
        })
        .start();
    wait_for_answer(&estate.proxy);
    ca.revoke(&bad);
    fetch(&estate.proxy);
    drop(estate);
    for file in kept_lists(&state) {
        let mode = fs::metadata(&file).expect("is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", file.display());
    }

    let front = without_ca(&ca, &first, state.path());
    assert_refused(&front.client(&bad).get(CATALOG), 403, &["revoked"]);
    assert_eq!(front.client(&late).get(CATALOG).status, 200);
    front.wait_for_metric(FAILING, &[], 1.0);
    let crls = front.status()["trust"]["crls"].to_string();
    assert!(crls.contains("/crl-"), "{crls}");
    // Before a start, by the same list.
    let explained = front.command(&["explain"], &["--cert", &written(&front, &bad), CATALOG]);
    assert!(explained.stdout.contains("revoked"), "{explained:?}");
    front.reload();
    assert_refused(&front.client(&bad).get(CATALOG), 403, &["revoked"]);
    drop(front);

    // A file that is ahead of what was kept counts, and whatever it says.
    ca.revoke(&late);
    let front = without_ca(&ca, &ca.crl_pem(), state.path());
    for agent in [&bad, &late] {
        assert_refused(&front.client(agent).get(CATALOG), 403, &["revoked"]);
    }
}

#[test]
fn t09_what_was_kept_and_is_not_ours_or_not_whole_is_not_used_with_an_alarm() {
    let ca = Ca::new();
    let (bad, other) = (ca.agent("web01"), ca.agent("web01"));
    ca.revoke(&bad);
    let file = ca.crl_pem();
    let state = TempDir::new().expect("a directory");
    let table = state_in(state.path());
    ca.revoke(&other);
    let estate = fetching(&ca, WHEN_ASKED)
        .proxy(move |proxy| proxy.with(&table))
        .start();
    let kept = wait_until(LIMIT, || {
        let kept = kept_lists(&state);
        (kept.len() == 2).then_some(kept)
    });
    let kept = kept.expect("one for each CA");
    drop(estate);
    let whole: Vec<_> = kept
        .iter()
        .map(|file| fs::read(file).expect("is read"))
        .collect();
    let bent: Vec<_> = whole
        .iter()
        .map(|bytes| with_a_bit_flipped(bytes))
        .collect();
    let swapped: Vec<_> = whole.iter().rev().cloned().collect();
    let halves: Vec<_> = whole
        .iter()
        .map(|bytes| bytes[..bytes.len() / 2].to_vec())
        .collect();
    let garbage = vec![b"garbage".to_vec(); 2];
    for (what, contents, mode) in [
        ("one bit", bent, 0o600),
        ("each other's", swapped, 0o600),
        ("halves", halves, 0o600),
        ("garbage", garbage, 0o600),
        ("nothing", vec![Vec::new(); 2], 0o600),
        ("anybody's", whole, 0o666),
    ] {
        for (file, bytes) in kept.iter().zip(contents) {
            fs::write(file, bytes).expect("is written");
            fs::set_permissions(file, fs::Permissions::from_mode(mode)).expect("is ours");
        }
        let front = without_ca(&ca, &file, state.path());
        // By the file, as if nothing had been kept.
        assert_refused(&front.client(&bad).get(CATALOG), 403, &["revoked"]);
        assert_eq!(front.client(&other).get(CATALOG).status, 200, "{what}");
        let alarms = front.status()["trust"]["alarms"].to_string();
        assert!(alarms.contains("the saved CRL of"), "{what}: {alarms}");
        assert!(front.stderr().contains("the saved CRL of"), "{what}");
    }
    // The next fetch mends it.
    let table = state_in(state.path());
    let estate = fetching(&ca, WHEN_ASKED)
        .proxy(move |proxy| proxy.with(&table))
        .start();
    estate.proxy.wait_for_status("no alarm is left", |status| {
        status["trust"]["alarms"] == Value::Array(Vec::new())
    });
    drop(estate);
    let front = without_ca(&ca, &file, state.path());
    assert_refused(&front.client(&other).get(CATALOG), 403, &["revoked"]);
}

#[test]
fn a_fetched_list_that_cannot_be_kept_is_in_force_and_says_so() {
    let ca = Ca::new();
    let agent = ca.agent("web01");
    let estate = fetching(&ca, WHEN_ASKED)
        .proxy(|proxy| {
            proxy
                .file("occupied", "a file", 0o600)
                .with("[state]\ndirectory = \"{dir}/occupied\"")
        })
        .start();
    wait_for_answer(&estate.proxy);
    ca.revoke(&agent);
    let told = fetch(&estate.proxy);
    assert!(
        told.contains("it could not be saved for the next start"),
        "{told}"
    );
    assert_refused(&estate.client(&agent).get(CATALOG), 403, &["revoked"]);
    let state = estate.proxy.status()["state"].clone();
    assert!(state["unusable"].is_string(), "{state}");
}

/// Longer than what may come ahead of an answer's head, as lists of 20,000 entries are.
#[test]
fn a_list_of_some_megabytes_is_fetched_and_kept() {
    let ca = Ca::new();
    let (bad, good) = (ca.agent("web01"), ca.agent("web01"));
    let (state, small) = (TempDir::new().expect("a directory"), ca.crl_pem());
    let table = state_in(state.path());
    let estate = fetching(&ca, WHEN_ASKED)
        .proxy(move |proxy| proxy.with(&table))
        .start();
    wait_for_answer(&estate.proxy);
    ca.revoke_strangers(60_000);
    ca.revoke(&bad);
    assert!(ca.crl_pem().len() > 2 << 20);
    fetch(&estate.proxy);
    assert_refused(&estate.client(&bad).get(CATALOG), 403, &["revoked"]);
    assert_eq!(estate.client(&good).get(CATALOG).status, 200);
    drop(estate);
    let front = without_ca(&ca, &small, state.path());
    assert_refused(&front.client(&bad).get(CATALOG), 403, &["revoked"]);
}

#[test]
fn a_reload_while_a_list_is_on_its_way_loses_neither() {
    let ca = Ca::new();
    let agent = ca.agent("web01");
    let estate = fetching(&ca, WHEN_ASKED).start();
    wait_for_answer(&estate.proxy);
    let older = ca.crl_pem();
    ca.revoke(&agent);
    let gate = Gate::new();
    answers(&estate.ca_server, Reply::ok(&ca.crl_pem()).gate(&gate));
    estate.forget();
    thread::scope(|scope| {
        let fetched = scope.spawn(|| fetch(&estate.proxy));
        let asked = wait_until(LIMIT, || {
            (!lists_asked(&estate.ca_server).is_empty()).then_some(())
        });
        assert!(asked.is_some());
        let text = estate.proxy.config_text();
        estate
            .proxy
            .write_config(&format!("drain_grace = \"7s\"\n{text}"));
        estate.proxy.write("ssl/crl.pem", &older, 0o644);
        estate.proxy.reload_applied();
        assert_eq!(estate.client(&agent).get(CATALOG).status, 200);
        gate.release();
        let told = fetched.join().expect("is fetched");
        assert!(told.contains("is active"), "{told}");
    });
    assert_refused(&estate.client(&agent).get(CATALOG), 403, &["revoked"]);
    // And what was fetched stays over the next reload, whatever the file says.
    let text = estate.proxy.config_text();
    estate.proxy.write_config(&text.replace("\"7s\"", "\"8s\""));
    estate.proxy.reload_applied();
    assert_refused(&estate.client(&agent).get(CATALOG), 403, &["revoked"]);
}

#[test]
fn t08_a_ca_that_leaves_the_bundle_and_comes_back_has_the_list_that_was_fetched() {
    let ca = Ca::new();
    let (bad, good) = (ca.agent("web01"), ca.agent("web01"));
    // A bundle without any CRL is refused.
    let other = Ca::other();
    let file = ca.crl_pem() + &other.crl_pem();
    let estate = fetching(&ca, WHEN_ASKED)
        .proxy(move |proxy| proxy.file("ssl/crl.pem", &file, 0o644))
        .start();
    wait_for_answer(&estate.proxy);
    ca.revoke(&bad);
    fetch(&estate.proxy);
    assert_refused(&estate.client(&bad).get(CATALOG), 403, &["revoked"]);
    // Nobody can be asked meanwhile: the file is older.
    estate.ca_server.stop();
    for (bundle, reason, status) in [
        (other.bundle_pem(), "CA", 403),
        (ca.bundle_pem(), "revoked", 200),
    ] {
        estate.proxy.write("ssl/certs/ca.pem", &bundle, 0o644);
        estate.proxy.reload_applied();
        assert_refused(&estate.client(&bad).get(CATALOG), 403, &[reason]);
        assert_eq!(estate.client(&good).get(CATALOG).status, status);
    }
}

#[test]
fn members_are_asked_in_order_and_a_backup_last() {
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
        .fetch(WHEN_ASKED)
        .file("ssl/crl.pem", &file, 0o644)
        .with(&pools)
        .start();
    let fetch_status = wait_for_answer(&front);
    assert_eq!(fetch_status["member"], second.address());
    assert_refused(&front.client(Some(&agent)).get(CATALOG), 403, &["revoked"]);
    assert!(lists_asked(&backup).is_empty());
    second.stop();
    let outcome = front.command(&["crl", "fetch"], &[]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert_eq!(lists_asked(&backup).len(), 1);
    backup.stop();
    let outcome = front.command(&["crl", "fetch"], &[]);
    for member in [&backup, &down, &second] {
        assert!(
            outcome.stderr.contains(&member.address()),
            "{}",
            outcome.stderr
        );
    }
    // One in maintenance is left alone.
    second.restart();
    let address = second.address();
    done(&front, &["maintenance"], &["ca", &address]);
    let outcome = front.command(&["crl", "fetch"], &[]);
    assert_eq!(outcome.code, Some(1));
    assert!(!outcome.stderr.contains(&address), "{}", outcome.stderr);
}

#[test]
fn t08_a_member_whom_a_fetched_list_revokes_is_spoken_to_no_more() {
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
        .fetch(WHEN_ASKED)
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
    // A connection that was kept goes as well as new ones, by sessions that TLS would resume without a verifier.
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
    let told = doctor
        .stdout
        .contains("is revoked (revoked). It is on the CRL of");
    assert!(told, "{}", doctor.stdout);
}

#[test]
fn where_a_member_answers_what_is_of_no_use_the_next_is_asked() {
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
        // Its certificates are none either.
        let answer = useless.to_owned();
        first.answer(move |_| Some(Reply::ok(&answer)));
        let front = proxy(&ca)
            .fetch(WHEN_ASKED)
            .file("ssl/crl.pem", &file, 0o644)
            .with(&pools)
            .start();
        let fetch_status = wait_for_answer(&front);
        assert_eq!(fetch_status["member"], second.address(), "{useless}");
        assert!(fetch_status["failing"].is_null(), "{fetch_status}");
        assert_refused(&front.client(Some(&agent)).get(CATALOG), 403, &["revoked"]);
        // The unusable answer of the first member raises an alarm once the fetch as a whole has ended.
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

#[test]
fn t10_where_members_disagree_the_list_that_takes_nothing_back_counts_and_the_other_is_told() {
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
    answers(&first, Reply::ok(&old));
    let front = proxy(&ca)
        .fetch(WHEN_ASKED)
        .file("ssl/crl.pem", &file, 0o644)
        .with(&pools)
        .start();
    wait_for_answer(&front);
    ca.revoke(&bad);
    let now = ca.crl_pem();
    answers(&second, Reply::ok(&now));
    for _ in 0..2 {
        let told = fetch_refused(&front);
        assert!(
            told.contains("lacks 1 revoked") || told.contains("lacks 2"),
            "{told}"
        );
        for agent in [&lost, &bad] {
            let answer = front.client(Some(agent)).get(CATALOG);
            assert_refused(&answer, 403, &["revoked"]);
        }
        let alarms = front.status()["trust"]["alarms"].to_string();
        assert!(alarms.contains("crl accept"), "{alarms}");
    }
    let copied = front.client(None).get(LIST);
    assert_eq!(copied.text(), now, "agents get what is in force");
    let told = front.stderr();
    let times = told.matches("refused a fetched CRL").count();
    assert!(
        times <= 2,
        "once, and once more with the new number: {told}"
    );
    // The one that had lost it has it again.
    answers(&first, Reply::ok(&now));
    fetch_unchanged(&front);
    let alarms = front.status()["trust"]["alarms"].to_string();
    assert!(!alarms.contains("crl accept"), "{alarms}");
}

#[test]
fn t10_a_list_that_the_ca_answers_no_more_is_told() {
    let ca = Ca::new();
    let estate = fetching(&ca, WHEN_ASKED).start();
    wait_for_answer(&estate.proxy);
    let whole = ca.crl_pem();
    let end = "-----END X509 CRL-----\n";
    let root = whole.split_inclusive(end).last().expect("the root's");
    let name = format!("provides no CRL of CN={}", ca.name());
    let alarms = || estate.proxy.status()["trust"]["alarms"].to_string();
    for (answer, is_told) in [(root, true), (&whole, false)] {
        answers(&estate.ca_server, Reply::ok(answer));
        fetch_unchanged(&estate.proxy);
        assert_eq!(alarms().contains(&name), is_told, "{}", alarms());
    }
}

#[test]
fn a_refusal_ends_with_the_ca_whose_list_it_was() {
    let ca = Ca::new();
    let old = ca.crl_pem();
    ca.renew_crl();
    let estate = fetching(&ca, WHEN_ASKED).start();
    wait_for_answer(&estate.proxy);
    answers(&estate.ca_server, Reply::ok(&old));
    fetch_refused(&estate.proxy);
    // It is made anew, by the same name.
    let next = ca.namesake();
    answers(&estate.ca_server, Reply::ok(&next.crl_pem()));
    for (file, text) in [
        ("ssl/certs/ca.pem", next.bundle_pem()),
        ("ssl/crl.pem", next.crl_pem()),
    ] {
        estate.proxy.write(file, &text, 0o644);
    }
    estate.proxy.reload_applied();
    let agent = next.agent("web01");
    assert_eq!(estate.client(&agent).get(CATALOG).status, 200);
    estate
        .proxy
        .wait_for_status("no refusal is left", |status| {
            status["trust"]["fetch"]["refused"] == Value::Array(Vec::new())
        });
    assert_eq!(estate.proxy.metrics().sum(LACKING, &[]), 0.0);
}

#[test]
fn t10_nothing_is_accepted_that_takes_back_more_than_was_told() {
    let ca = Ca::new();
    let (bad, worse) = (ca.agent("web01"), ca.agent("web01"));
    let old = ca.crl_pem();
    ca.revoke(&bad);
    let estate = fetching(&ca, WHEN_ASKED).start();
    wait_for_answer(&estate.proxy);
    answers(&estate.ca_server, Reply::ok(&old));
    fetch_refused(&estate.proxy);
    // A file brings another list, and the CA does not answer any more.
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
    // That has been told now.
    done(&estate.proxy, &["crl", "accept"], &arguments);
    for agent in [&bad, &worse] {
        assert_eq!(estate.client(agent).get(CATALOG).status, 200);
    }
}

#[test]
fn however_many_wait_for_a_ca_that_says_nothing_the_operator_is_answered() {
    let ca = Ca::new();
    let estate = fetching(&ca, WHEN_ASKED).start();
    wait_for_answer(&estate.proxy);
    let gate = Gate::new();
    answers(&estate.ca_server, Reply::ok(&ca.crl_pem()).gate(&gate));
    thread::scope(|scope| {
        let asked = || scope.spawn(|| estate.proxy.command(&["crl", "fetch"], &[]));
        let waiting: Vec<_> = (0..15).map(|_| asked()).collect();
        let told = wait_until(LIMIT, || {
            let over = waiting.iter().filter(|asked| asked.is_finished()).count();
            (over == 13).then_some(())
        });
        assert!(told.is_some(), "all but two are told to come again");
        assert_eq!(estate.proxy.command(&["status"], &[]).code, Some(0));
        gate.release();
        let outcomes = waiting.into_iter().map(|asked| asked.join().expect("ends"));
        let (done, refused): (Vec<_>, Vec<_>) =
            outcomes.partition(|outcome| outcome.code == Some(0));
        assert_eq!((done.len(), refused.len()), (2, 13), "{refused:?}");
        for outcome in refused {
            assert!(
                outcome.stderr.contains("a fetch is in progress"),
                "{outcome:?}"
            );
        }
    });
}

#[test]
fn a_list_is_fetched_over_mutual_tls_where_the_pool_speaks_that() {
    let ca = Ca::new();
    let agent = ca.agent("web01");
    let estate = fetching(&ca, WHEN_ASKED).tls_members().start();
    wait_for_answer(&estate.proxy);
    ca.revoke(&agent);
    fetch(&estate.proxy);
    assert_refused(&estate.client(&agent).get(CATALOG), 403, &["revoked"]);
    let asked = lists_asked(&estate.ca_server);
    let shown = asked
        .iter()
        .all(|request| !request.peer_certificates.is_empty());
    assert!(shown, "as ourselves");
}

#[test]
fn what_cannot_be_accepted_is_refused_with_what_could() {
    let ca = Ca::new();
    let estate = fetching(&ca, WHEN_ASKED).start();
    wait_for_answer(&estate.proxy);
    let issuer = format!("CN={}", ca.name());
    for (arguments, code, expected) in [
        (&[issuer.as_str()][..], 64, "--why"),
        (&["--why", "x"], 64, "ISSUER"),
        (
            &[&issuer, "--why", "x"],
            1,
            "is refused; the proxy refuses no CRL",
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
        assert!(
            outcome.stderr.contains(expected),
            "{arguments:?}: {}",
            outcome.stderr
        );
    }
    ca.revoke(&ca.agent("web01"));
    fetch(&estate.proxy);
    answers(&estate.ca_server, Reply::ok(&ca.other_crl_pem(1, &[])));
    fetch_refused(&estate.proxy);
    let outcome = estate
        .proxy
        .command(&["crl", "accept"], &["CN=nobody", "--why", "x"]);
    assert!(
        outcome.stderr.contains(&format!("those of {issuer}")),
        "{}",
        outcome.stderr
    );
    let json = done(&estate.proxy, &["crl", "show"], &["--json"]);
    let shown: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(shown["fetch"]["refused"][0]["issuer"], issuer);
}

/// An estate whose list is fetched.
fn fetching(ca: &Ca, lines: &str) -> EstateBuilder {
    let lines = lines.to_owned();
    Estate::builder()
        .ca(ca)
        .proxy(move |proxy| proxy.fetch(&lines))
}

fn kept_lists(state: &TempDir) -> Vec<PathBuf> {
    let entries = fs::read_dir(state.path()).expect("a directory");
    let mut files: Vec<_> = entries
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "der"))
        .collect();
    files.sort();
    files
}

fn written(proxy: &Proxy, credential: &testkit::Credential) -> String {
    proxy.write("agent.pem", &credential.cert_pem, 0o644);
    proxy.directory().join("agent.pem").display().to_string()
}

/// Has a CA server give this answer to who wants its list.
fn answers(ca_server: &StandIn, reply: Reply) {
    ca_server.answer(move |request| (request.path() == LIST).then(|| reply.clone()));
}

fn lists_asked(server: &StandIn) -> Vec<Recorded> {
    let mut requests = server.requests();
    requests.retain(|request| request.path() == LIST);
    requests
}

fn compilers_asked(estate: &Estate) -> Vec<Recorded> {
    estate
        .compilers
        .iter()
        .flat_map(StandIn::requests)
        .collect()
}

/// Waits for the fetch of the start.
#[track_caller]
fn wait_for_answer(proxy: &Proxy) -> Value {
    let status = proxy.wait_for_status("a list was fetched", |status| {
        status["trust"]["fetch"]["last_answer"].is_string()
    });
    status["trust"]["fetch"].clone()
}

/// Fetches, and says what was told of a list that is in force now.
#[track_caller]
fn fetch(proxy: &Proxy) -> String {
    let told = done(proxy, &["crl", "fetch"], &[]);
    assert!(told.contains("is active"), "{told}");
    told
}

/// Fetches what is in force already. The stand-in signs its list anew for each who asks, which is no news.
#[track_caller]
fn fetch_unchanged(proxy: &Proxy) {
    done(proxy, &["crl", "fetch"], &[]);
}

#[track_caller]
fn fetch_refused(proxy: &Proxy) -> String {
    let Outcome { code, stderr, .. } = proxy.command(&["crl", "fetch"], &[]);
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains("refused: "), "{stderr}");
    stderr
}

/// The same PEM with the middle of its first block replaced.
fn damaged(pem: &str) -> String {
    let mut lines: Vec<_> = pem.lines().collect();
    lines[3] = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    lines.join("\n") + "\n"
}

fn with_a_bit_flipped(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let last = bytes.len() - 3;
    bytes[last] ^= 1;
    bytes
}
