//! `who`: what the proxy knows about an agent or a certificate, the current verdict, and the list of agents.

use rcgen::DnType;
use serde_json::Value;
use testkit::{Ca, Proxy, TestCredential};

use crate::support::{self, Estate, assert_contains, assert_refused, done};

const WEB01: &str = "/puppet/v3/catalog/web01?environment=production";
const OTHERS: &str = "/puppet/v3/node/web02";

#[test]
fn an_agent_is_shown_with_its_certificate_its_crls_and_its_last_requests() {
    let estate = Estate::start();
    let agent = estate.ca.agent("web01");
    let client = estate.client(&agent);
    assert_eq!(client.get(WEB01).status, 200);
    assert_refused(&client.get(OTHERS), 403, &[]);
    estate.wait_for_records(2);
    let who = who_json(&estate.proxy, &["web01"]);
    let issuer = format!("CN={}", estate.ca.name());
    assert_eq!(who["verdict"], "SUCCESS", "{who:#}");
    assert_eq!(who["certificate"]["issuer"], issuer.as_str());
    assert_eq!(who["certificate"]["serial"], hexadecimal(&agent).as_str());
    assert_eq!(who["crls"][0]["revoked"], false);
    assert_eq!(who["seen"]["client"], "127.0.0.1");
    let requests = &who["seen"]["requests"];
    assert_eq!(requests[0]["line"], format!("GET {OTHERS}").as_str());
    assert_eq!(requests[0]["status"], 403);
    assert_eq!(requests[0]["reason"], "not-own");
    assert_eq!(requests[1]["status"], 200);
    assert!(requests[1]["reason"].is_null());

    let text = who_text(&estate.proxy, &["WEB01"]);
    for expected in [
        "certname WEB01",
        "verdict now SUCCESS",
        &issuer,
        "not revoked",
        &format!("403 GET {OTHERS} (not-own)"),
    ] {
        assert!(text.contains(expected), "{expected} is not in {text}");
    }
    let access = |class: &str| {
        let entries = who["access"].as_array().into_iter().flatten();
        let of_class = |entry: &&Value| entry["class"] == class;
        entries
            .into_iter()
            .find(of_class)
            .cloned()
            .unwrap_or_default()
    };
    assert_eq!(access("own-documents")["allowed"], true, "{who:#}");
    assert_eq!(access("ca-administration")["allowed"], false, "{who:#}");
    assert!(text.contains("refused     ca-administration"), "{text}");
}

#[test]
fn the_agents_of_one_issuer_are_listed() {
    let estate = Estate::start();
    assert_eq!(
        estate.client(&estate.ca.agent("web01")).get(WEB01).status,
        200
    );
    let issuer = format!("CN={}", estate.ca.name());
    let listed = who_text(&estate.proxy, &["--issuer", &issuer]);
    assert_contains(&listed, "web01  serial ");
    assert_contains(
        &listed,
        &format!("1 of 1 agents have certificates of {issuer}"),
    );
    let none = who_text(&estate.proxy, &["--issuer", "CN=other"]);
    assert_eq!(none, "0 of 1 agents have certificates of CN=other\n");
}

#[test]
fn an_unknown_name_has_an_exit_code_and_a_blocked_one_is_known() {
    let estate = Estate::start();
    let who = |arguments: &[&str]| estate.proxy.command(&["who"], arguments);
    let unknown = who(&["web09"]);
    assert_eq!(unknown.code, Some(3), "{unknown:?}");
    assert_contains(&unknown.stdout, "unknown     no agent of this name has");
    assert_eq!(who(&["web09", "--json"]).code, Some(3));
    done(&estate.proxy, &["block"], &["web09", "--why", "stolen"]);
    let blocked = who_text(&estate.proxy, &["web09"]);
    assert_contains(&blocked, "the agent has not connected since the start");
}

#[test]
fn an_agent_whose_certificate_was_never_accepted_is_shown_with_its_refusal() {
    let ca = Ca::new();
    let revoked = ca.agent("web01");
    ca.revoke(&revoked);
    let estate = Estate::builder().ca(&ca).start();
    assert_eq!(estate.client(&revoked).get(WEB01).status, 403);
    let who = who_text(&estate.proxy, &["web01"]);
    assert_contains(&who, "no accepted one is known; the refusals are below");
    assert_contains(&who, "on listener agents: revoked");
}

#[test]
fn a_revoked_agent_is_shown_with_the_date_and_a_blocked_one_with_the_reason() {
    let estate = Estate::start();
    let agent = estate.ca.agent("web01");
    assert_eq!(estate.client(&agent).get(WEB01).status, 200);
    done(&estate.proxy, &["block"], &["web01", "--why", "stolen"]);
    let who = who_json(&estate.proxy, &["web01"]);
    assert_eq!(who["verdict"], "FAILED:blocked", "{who:#}");
    assert_eq!(who["blocks"][0]["why"], "stolen");
    // It is also shown if the block names the certificate itself.
    done(&estate.proxy, &["unblock"], &["web01"]);
    assert_eq!(who_json(&estate.proxy, &["web01"])["verdict"], "SUCCESS");
    let print = support::fingerprint(&agent);
    done(
        &estate.proxy,
        &["block"],
        &["--fingerprint", &print, "--why", "leaked"],
    );
    estate.proxy.write("web01.pem", &agent.cert_pem, 0o644);
    let file = estate.proxy.directory().join("web01.pem");
    for whom in ["web01", file.to_str().expect("UTF-8")] {
        let who = who_json(&estate.proxy, &[whom]);
        assert_eq!(who["verdict"], "FAILED:blocked", "{who:#}");
        assert_eq!(who["blocks"][0]["why"], "leaked", "{who:#}");
    }

    estate.ca.revoke(&agent);
    estate.proxy.swap_crl();
    let who = who_json(&estate.proxy, &["web01"]);
    assert_eq!(who["verdict"], "FAILED:revoked", "{who:#}");
    let list = &who["crls"][0];
    assert_eq!(list["revoked"], true, "{who:#}");
    assert!(
        list["revoked_at"]
            .as_str()
            .is_some_and(|at| at.starts_with("20")),
        "{list}"
    );
    assert!(
        list["source"]
            .as_str()
            .is_some_and(|source| source.contains("crl.pem"))
    );

    // Later requests with this certificate are shown with the earlier ones; requests with another certificate of the
    // same name are not.
    let stranger = Ca::other().agent("web01");
    for (client, count) in [(&agent, 2), (&stranger, 2)] {
        assert_eq!(estate.client(client).get(WEB01).status, 403);
        let who = who_json(&estate.proxy, &["web01"]);
        let requests = who["seen"]["requests"].as_array().expect("a list");
        assert_eq!(requests.len(), count, "{who:#}");
        assert_eq!(requests[0]["status"], 403, "{who:#}");
        assert_eq!(requests[0]["reason"], "refused-certificate", "{who:#}");
        assert_eq!(requests[1]["status"], 200, "{who:#}");
    }

    // `who` shows the same by serial, even if the agent has never connected.
    let issuer = format!("CN={}", estate.ca.name());
    let stranger = estate.ca.agent("web07");
    estate.ca.revoke(&stranger);
    estate.proxy.swap_crl();
    let serial = hexadecimal(&stranger);
    let who = who_json(&estate.proxy, &["--serial", &serial, "--issuer", &issuer]);
    assert_eq!(who["crls"][0]["revoked"], true, "{who:#}");
    let who = who_json(
        &estate.proxy,
        &["--serial", &hexadecimal(&agent), "--issuer", &issuer],
    );
    assert_eq!(who["certificate"]["certname"], "web01", "{who:#}");
}

#[test]
fn a_refused_client_is_shown_under_the_name_of_its_certificate() {
    let estate = Estate::start();
    let none = done(&estate.proxy, &["refusals"], &[]);
    assert_eq!(none, "no client has been refused since the start\n");
    let foreign = Ca::other().agent("web03");
    for _ in 0..2 {
        assert_eq!(estate.client(&foreign).get(WEB01).status, 403);
    }
    let who = who_json(&estate.proxy, &["WEB03"]);
    assert_eq!(who["seen"], Value::Null, "{who:#}");
    let refusal = &who["refusals"][0];
    for (field, expected) in [
        ("certname", Value::from("web03")),
        ("verified", false.into()),
        ("reason", "unknown-issuer".into()),
        ("client", "127.0.0.1".into()),
        ("listener", "agents".into()),
        ("count", 2.into()),
    ] {
        assert_eq!(refusal[field], expected, "{field}: {who:#}");
    }
    let text = who_text(&estate.proxy, &["web03"]);
    let expected = "127.0.0.1  web03 (unverified)  on listener agents: unknown-issuer, 2 times";
    assert!(text.contains(expected), "{text}");

    // A name that a trusted certificate proves is not marked.
    let agent = estate.ca.agent("web01");
    assert_refused(&estate.client(&agent).get(OTHERS), 403, &[]);
    let all = done(&estate.proxy, &["refusals"], &["--since", "1h"]);
    let lines: Vec<_> = all.lines().collect();
    assert_eq!(lines.len(), 2, "{all}");
    assert!(
        all.contains("  web01  on listener agents: not-own\n"),
        "{all}"
    );
    assert!(all.contains(expected), "{all}");
    let who = who_json(&estate.proxy, &["web01"]);
    assert_eq!(who["refusals"][0]["verified"], true, "{who:#}");

    // Nor is the name in a certificate that a trusted CA issued, and that is refused now.
    let revoked = estate.ca.agent("web04");
    estate.ca.revoke(&revoked);
    estate.proxy.swap_crl();
    let expired = estate.ca.leaf("web05").valid_days(-10, -5).issue();
    for (agent, name, reason) in [
        (&revoked, "web04", "revoked"),
        (&expired, "web05", "expired"),
    ] {
        assert_eq!(estate.client(agent).get(WEB01).status, 403);
        let all = done(&estate.proxy, &["refusals"], &[]);
        let line = format!("  {name}  on listener agents: {reason}\n");
        assert!(all.contains(&line), "{all}");
    }
    let json = done(&estate.proxy, &["refusals"], &["--json"]);
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(
        json["refusals"].as_array().map(Vec::len),
        Some(4),
        "{json:#}"
    );
    assert_eq!(json["evicted"], 0);
}

#[test]
fn an_agent_that_was_refused_in_the_handshake_is_shown_under_its_name() {
    let estate = Estate::builder().listener("on_invalid = \"abort\"").start();
    let foreign = Ca::other().agent("web03");
    let blocked = estate.ca.agent("web01");
    done(&estate.proxy, &["block"], &["web01", "--why", "stolen"]);
    for agent in [&foreign, &blocked] {
        let answer = estate.client(agent).try_request("GET", WEB01, &[], b"");
        assert!(answer.is_err());
    }
    for (name, reason, cause) in [
        ("web03", "unknown-issuer", "issue"),
        ("web01", "blocked", "is blocked by the operator"),
    ] {
        let record = estate.wait_for_record(|record| record["reason"] == reason);
        assert_eq!(record["certname"], name, "{record}");
        let text = record["cause"].as_str().unwrap_or_default();
        assert!(text.contains(cause), "{record}");
        let line = format!("127.0.0.1  {name} (unverified)  on listener agents: {reason}");
        let listed = || {
            who_text(&estate.proxy, &[name])
                .contains(&line)
                .then_some(())
        };
        testkit::wait_until(support::LIMIT, listed).expect("who shows the refusal");
        let metric = "proscenium_certificate_refusals_total";
        let labels = [("reason", reason)];
        estate.wait_for_metric(metric, &labels, 1.0);
    }
}

#[test]
fn a_refused_name_in_capitals_is_shown_as_the_certificate_spells_it() {
    let estate = Estate::start();
    let agent = estate.ca.agent("A2.Lab");
    assert_refused(&estate.client(&agent).get(WEB01), 403, &[]);
    for name in ["A2.Lab", "a2.lab"] {
        let text = who_text(&estate.proxy, &[name]);
        let expected = "127.0.0.1  A2.Lab (unverified)  on listener agents: subject";
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn the_date_of_a_revocation_that_only_a_fetched_crl_has_is_shown() {
    let ca = Ca::new();
    let (agent, file) = (ca.agent("web01"), ca.crl_pem());
    let estate = Estate::builder()
        .ca(&ca)
        .fetch("interval = \"24h\"\njitter = \"0s\"")
        .file("ssl/crl.pem", &file, 0o644)
        .start();
    ca.revoke(&agent);
    done(&estate.proxy, &["crl", "fetch"], &[]);
    let (serial, issuer) = (hexadecimal(&agent), format!("CN={}", ca.name()));
    let who = who_json(&estate.proxy, &["--serial", &serial, "--issuer", &issuer]);
    let at = who["crls"][0]["revoked_at"].as_str();
    assert!(at.is_some_and(|at| at.starts_with("20")), "{who:#}");
}

#[test]
fn a_certificate_in_a_file_is_verified_as_in_a_handshake() {
    let estate = Estate::start();
    let (good, bad) = (
        estate.ca.agent("web01"),
        estate.ca.leaf("web02").expired().issue(),
    );
    let foreign = Ca::other().agent("web03");
    for (agent, verdict, expected) in [
        (&good, "SUCCESS", None),
        (&bad, "FAILED:expired", Some("has expired")),
        (
            &foreign,
            "FAILED:unknown-issuer",
            Some("was not issued by a CA"),
        ),
    ] {
        let name = format!("{}.pem", agent.certname);
        estate.proxy.write(&name, &agent.cert_pem, 0o644);
        let file = estate.proxy.directory().join(&name);
        let who = who_json(&estate.proxy, &[file.to_str().expect("UTF-8")]);
        assert_eq!(who["verdict"], verdict, "{who:#}");
        let refusal = who["refusal"].as_str();
        assert_eq!(refusal.is_some(), expected.is_some(), "{who:#}");
        assert!(
            expected.is_none_or(|expected| refusal.is_some_and(|text| text.contains(expected))),
            "{who:#}"
        );
    }
}

#[test]
fn agents_are_sorted_by_the_expiry_of_their_certificates_and_counted_by_it() {
    let estate = Estate::start();
    let leaf = |name: &str, days| estate.ca.leaf(name).valid_days(-1, days).issue();
    let web03 = leaf("web03", 20);
    for agent in [&leaf("web01", 400), &leaf("web02", 3), &web03] {
        let target = format!("/puppet/v3/node/{}", agent.certname);
        assert_eq!(estate.client(agent).get(&target).status, 200);
    }
    let output = who_json(&estate.proxy, &[]);
    assert_eq!(output["seen"], 3, "{output:#}");
    let names: Vec<_> = output["agents"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|agent| agent["certname"].as_str().unwrap_or("-").to_owned())
        .collect();
    assert_eq!(names, ["web02", "web03", "web01"]);
    let metrics = estate.proxy.metrics();
    for (ends, count) in [
        ("expired", 0.0),
        ("1d", 0.0),
        ("7d", 1.0),
        ("30d", 1.0),
        ("later", 1.0),
    ] {
        assert_eq!(
            metrics.sum("proscenium_agents", &[("expires", ends)]),
            count,
            "{ends}"
        );
    }
    let text = who_text(&estate.proxy, &[]);
    assert!(
        text.contains("3 agents have connected since the start"),
        "{text}"
    );
    // An agent that is refused by then needs no renewal, so it causes no event.
    let web02 = estate.proxy.command(&["who"], &["web02", "--json"]).stdout;
    let web02: Value = serde_json::from_str(&web02).expect("JSON");
    let serial = web02["certificate"]["serial"].as_str().expect("a serial");
    let issuer = format!("CN={}", estate.ca.name());
    let by = ["--serial", serial, "--issuer", &issuer, "--why", "gone"];
    done(&estate.proxy, &["block"], &by);
    estate.ca.revoke(&web03);
    estate.proxy.swap_crl();
    let metrics = estate.proxy.metrics();
    for (ends, count) in [("7d", 0.0), ("30d", 0.0), ("later", 1.0), ("refused", 2.0)] {
        let output = metrics.sum("proscenium_agents", &[("expires", ends)]);
        assert_eq!(output, count, "{ends}");
    }
    let output = who_json(&estate.proxy, &[]);
    let refused = |place: usize| output["agents"][place]["refused"].clone();
    assert_eq!(
        [refused(0), refused(1), refused(2)],
        ["blocked".into(), "revoked".into(), Value::Null]
    );
    let text = who_text(&estate.proxy, &[]);
    assert!(text.contains("127.0.0.1, blocked\n"), "{text}");
    done(&estate.proxy, &["unblock"], &by[..4]);
    let again = estate.proxy.metrics();
    assert_eq!(again.sum("proscenium_agents", &[("expires", "7d")]), 1.0);
    // A client without a certificate, or with a refused one, does not count as seen.
    let stranger = Ca::other().agent("web04");
    assert_eq!(estate.client(&stranger).get(WEB01).status, 403);
    assert_eq!(who_json(&estate.proxy, &[])["seen"], 3);
}

#[test]
fn the_requests_that_an_agent_may_send_are_shown_with_the_rule_that_decides() {
    let estate = Estate::builder()
        .with(
                "[[access]]\nname = \"no-files\"\naction = \"refuse\"\nextension = { pp_role = \"kiosk\" }\nclass = [\"files\"]",
            )
        .start();
    let role = [1, 3, 6, 1, 4, 1, 34380, 1, 1, 13];
    let kiosk = estate.ca.leaf("web01").extension(&role, "kiosk").issue();
    let other = estate.ca.agent("web02");
    for (agent, allowed) in [(&kiosk, false), (&other, true)] {
        let target = format!("/puppet/v3/node/{}", agent.certname);
        assert_eq!(estate.client(agent).get(&target).status, 200);
        let name = format!("{}.pem", agent.certname);
        estate.proxy.write(&name, &agent.cert_pem, 0o644);
        let file = estate.proxy.directory().join(&name);
        for whom in [&*agent.certname, file.to_str().expect("UTF-8")] {
            let who = who_json(&estate.proxy, &[whom]);
            let files = who["access"]
                .as_array()
                .into_iter()
                .flatten()
                .find(|entry| entry["class"] == "files");
            let files = files.unwrap_or_else(|| panic!("{who:#}"));
            assert_eq!(files["allowed"], allowed, "{who:#}");
            let named = files["decided_by"]
                .as_str()
                .is_some_and(|by| by.contains("no-files"));
            assert_eq!(named, !allowed, "{who:#}");
        }
    }
}

#[test]
fn an_agent_below_a_revoked_or_blocked_ca_is_shown_as_such_by_name_and_by_file() {
    let estate = Estate::start();
    let agent = estate.ca.agent("web01");
    assert_eq!(estate.client(&agent).get(WEB01).status, 200);
    let file = written(&estate.proxy, &agent);
    let above = "CN=Puppet Root CA: test".to_owned();
    let by = ["--serial", "2", "--issuer", &above, "--why", "misused"];
    done(&estate.proxy, &["block"], &by);
    for whom in ["web01", &file] {
        let who = who_json(&estate.proxy, &[whom]);
        assert_eq!(who["verdict"], "FAILED:blocked", "{who:#}");
        assert_eq!(who["blocks"][0]["why"], "misused", "{who:#}");
        assert_eq!(who["access"], Value::Array(Vec::new()), "{who:#}");
    }
    estate.ca.revoke_intermediate();
    estate.proxy.swap_crl();
    for whom in ["web01", &file] {
        let who = who_json(&estate.proxy, &[whom]);
        assert_eq!(who["verdict"], "FAILED:revoked", "{who:#}");
        let mut lists = who["crls"].as_array().into_iter().flatten();
        let listed = lists.find(|list| list["issuer"] == above.as_str());
        assert!(
            listed.is_some_and(|list| list["revoked"] == true),
            "{who:#}"
        );
    }
    assert_eq!(estate.client(&agent).get(WEB01).status, 403);
}

#[test]
fn with_two_cas_of_one_name_the_signer_is_used() {
    let (ca, other) = (Ca::new(), Ca::new());
    let (bundle, lists) = (ca.bundle_pem() + &other.bundle_pem(), ca.crl_pem());
    let (agent, twin) = (ca.agent("web01"), other.agent("web01"));
    assert_eq!(agent.serial, twin.serial, "of one name and one serial");
    other.revoke(&twin);
    let lists = lists + &other.crl_pem();
    let estate = Estate::builder()
        .ca(&ca)
        .file("ssl/certs/ca.pem", &bundle, 0o644)
        .file("ssl/crl.pem", &lists, 0o644)
        .start();
    assert_eq!(estate.client(&agent).get(WEB01).status, 200);
    assert_eq!(who_json(&estate.proxy, &["web01"])["verdict"], "SUCCESS");
    let file = written(&estate.proxy, &agent);
    assert_eq!(who_json(&estate.proxy, &[&file])["verdict"], "SUCCESS");
    let file = written(&estate.proxy, &twin);
    let who = who_json(&estate.proxy, &[&file]);
    assert_eq!(who["verdict"], "FAILED:revoked", "{who:#}");
    assert_eq!(who["seen"], Value::Null, "the other's requests: {who:#}");
}

#[test]
fn an_agent_whose_ca_was_removed_is_not_shown_as_valid() {
    let estate = Estate::start();
    let agent = estate.ca.agent("web01");
    assert_eq!(estate.client(&agent).get(WEB01).status, 200);
    let other = Ca::other();
    estate
        .proxy
        .write("ssl/certs/ca.pem", &other.bundle_pem(), 0o644);
    estate.proxy.write("ssl/crl.pem", &other.crl_pem(), 0o644);
    done(&estate.proxy, &["reload"], &[]);
    let who = who_json(&estate.proxy, &["web01"]);
    assert_eq!(who["verdict"], Value::Null, "{who:#}");
    assert_eq!(who["access"], Value::Array(Vec::new()), "{who:#}");
    let text = who_text(&estate.proxy, &["web01"]);
    assert!(text.contains("unknown until the agent connects"), "{text}");
    assert_eq!(estate.client(&agent).get(WEB01).status, 403);
}

#[test]
fn a_block_is_shown_for_a_file_and_for_a_serial() {
    let estate = Estate::start();
    let agent = estate.ca.agent("web01");
    done(&estate.proxy, &["block"], &["web01", "--why", "stolen"]);
    let who = who_json(&estate.proxy, &[&written(&estate.proxy, &agent)]);
    assert_eq!(who["verdict"], "FAILED:blocked", "{who:#}");
    assert_eq!(who["certificate"]["certname"], "web01", "{who:#}");
    assert_eq!(who["blocks"][0]["why"], "stolen", "{who:#}");

    let (serial, issuer) = ("7F", format!("CN={}", estate.ca.name()));
    let named = ["--serial", serial, "--issuer", &issuer];
    let block = [&named[..], &["--why", "lost"]].concat();
    done(&estate.proxy, &["block"], &block);
    let who = who_json(&estate.proxy, &named);
    assert_eq!(who["verdict"], "FAILED:blocked", "{who:#}");
    assert_eq!(who["blocks"][0]["why"], "lost", "{who:#}");
}

#[test]
fn control_characters_of_a_certificate_are_not_printed() {
    let estate = Estate::start();
    let odd = "web01\u{1b}[2J\u{9b}2J\u{7f}\u{202e}\n";
    let subject = [(DnType::OrganizationName, odd), (DnType::CommonName, odd)];
    for ca in [&estate.ca, &Ca::other()] {
        let agent = ca.leaf("web01").subject(&subject).issue();
        let file = written(&estate.proxy, &agent);
        for arguments in [&[&*file][..], &[&*file, "--json"]] {
            let text = who_text(&estate.proxy, arguments);
            let moves = |c: char| !c.is_ascii() || c.is_control() && c != '\n';
            assert!(!text.contains(moves), "{text:?}");
            assert!(text.contains("\\1B"), "{text}");
        }
        let explained = estate
            .proxy
            .command(&["explain"], &["/puppet/v3/node/x", "--cert", &file]);
        let moves = |c: char| !c.is_ascii() || c.is_control() && c != '\n';
        assert!(!explained.stdout.contains(moves), "{explained:?}");
    }
    for why in ["a\u{1b}[2J", "a\nb", "a\u{9b}b"] {
        let block = estate.proxy.command(&["block"], &["web01", "--why", why]);
        assert_eq!(block.code, Some(1), "{}", block.stdout);
    }
}

#[test]
fn an_invalid_question_is_refused_with_the_valid_forms() {
    let estate = Estate::start();
    estate.proxy.write("empty.pem", "nothing\n", 0o644);
    let empty = estate.proxy.directory().join("empty.pem");
    let empty = empty.to_str().expect("UTF-8");
    for (arguments, code, expected) in [
        (
            &["/nonexistent/a.pem"][..],
            1,
            "cannot read /nonexistent/a.pem",
        ),
        (&[empty], 1, "the file contains no PEM certificate"),
        (&["web 01,"], 1, "is neither a file nor a certname"),
        (&["--serial", "5"], 64, "--issuer"),
        (
            &["--serial", "5", "--issuer", "CN=unknown"],
            1,
            "is not a CA of the bundle",
        ),
        (
            &["web01", "--serial", "5", "--issuer", "CN=x"],
            64,
            "cannot be used with",
        ),
    ] {
        let outcome = estate.proxy.command(&["who"], arguments);
        assert_eq!(
            outcome.code,
            Some(code),
            "{arguments:?}: {}",
            outcome.stderr
        );
        assert_contains(&outcome.stderr, expected);
    }
}

#[track_caller]
fn who_json(proxy: &Proxy, arguments: &[&str]) -> Value {
    let arguments = [arguments, &["--json"]].concat();
    serde_json::from_str(&who_text(proxy, &arguments)).expect("JSON")
}

#[track_caller]
fn who_text(proxy: &Proxy, arguments: &[&str]) -> String {
    done(proxy, &["who"], arguments)
}

/// A serial as it is shown.
fn hexadecimal(credential: &TestCredential) -> String {
    let digits = format!("{:X}", credential.serial);
    match digits.len() % 2 {
        0 => format!("0x{digits}"),
        _ => format!("0x0{digits}"),
    }
}

/// A certificate in a file in the proxy's directory.
fn written(proxy: &Proxy, agent: &TestCredential) -> String {
    let name = format!("{}-{}.pem", agent.certname, support::fingerprint(agent));
    proxy.write(&name, &agent.cert_pem, 0o644);
    proxy.directory().join(&name).display().to_string()
}
