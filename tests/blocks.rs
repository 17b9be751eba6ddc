//! The deny list: a certificate that the operator blocks is refused at once, on every path that a revocation affects,
//! until it is unblocked.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;
use testkit::{Ca, Reply, ReplyGate, StandIn, TestCredential, wait_until};

use crate::support::{
    self, Estate, LIMIT, account, assert_contains, assert_refused, done, http1_alone, wait_for,
};

const WEB01: &str = "/puppet/v3/catalog/web01?environment=production";
const WEB02: &str = "/puppet/v3/catalog/web02?environment=production";

#[test]
fn a_name_that_no_certificate_can_have_is_refused_with_the_way_to_block_several() {
    let estate = Estate::builder().start();
    for name in [
        "web*",
        "web01/..",
        "web 01",
        "w\u{e9}b01",
        "web01,web02",
        ".web01",
        "web01.",
        "*",
        "we?b",
    ] {
        let outcome = estate.proxy.command(&["block"], &[name, "--why", "stolen"]);
        assert_ne!(outcome.code, Some(0), "{name}");
        assert_contains(&outcome.stderr, "--file");
    }
    assert_eq!(done(&estate.proxy, &["blocks"], &[]).trim(), "no blocks");
}

#[test]
fn a_file_of_names_is_blocked_with_one_change_or_not_at_all() {
    let estate = Estate::builder().start();
    let file = estate.proxy.directory().join("stolen.txt");
    let path = file.to_str().expect("a path");
    let block = || {
        estate
            .proxy
            .command(&["block"], &["--file", path, "--why", "rack 7"])
    };
    for (text, blocked) in [
        ("web01\nweb*\n", None),
        ("# nothing\n\n", None),
        ("# rack 7\nWEB01\n\n web02 # the second\r\nweb01\n", Some(2)),
    ] {
        fs::write(&file, text).expect("a file");
        let outcome = block();
        assert_eq!(
            outcome.code == Some(0),
            blocked.is_some(),
            "{text:?}: {}",
            outcome.stderr
        );
        let blocks = estate.proxy.status()["blocks"].as_u64();
        assert_eq!(blocks, Some(blocked.unwrap_or_default()), "{text:?}");
    }
    for name in ["web01", "web02"] {
        let path = format!("/puppet/v3/catalog/{name}?environment=production");
        assert_eq!(estate.agent(name).get(&path).status, 403);
    }
    let web03 = estate.agent("web03");
    let path = "/puppet/v3/catalog/web03?environment=production";
    assert_eq!(web03.get(path).status, 200);
    fs::remove_file(&file).expect("is there");
    assert_ne!(block().code, Some(0));
}

#[test]
fn a_blocked_agent_is_refused_on_new_resumed_and_live_connections_until_it_is_unblocked() {
    let estate = Estate::builder().listener("idle_timeout = \"10m\"").start();
    let (bad, good) = (estate.ca.agent("web01"), estate.ca.agent("web02"));
    let (client, other) = (estate.client(&bad), estate.client(&good));
    let mut idle = client.connect().expect("connects");
    let mut innocent = other.connect().expect("connects");
    assert_eq!(idle.get(WEB01).status, 200);
    assert_eq!(innocent.get(WEB02).status, 200);
    // A request is in flight during the block, so its connection's next request is the first to be refused.
    estate.compilers.iter().for_each(StandIn::hold);
    estate.forget();
    let mut live = client.connect().expect("connects");
    live.send("GET", WEB01, &[], b"").expect("is taken");
    let asked = wait_until(LIMIT, || (!estate.far_end().is_empty()).then_some(()));
    assert!(asked.is_some());

    let blocked = done(&estate.proxy, &["block"], &["web01", "--why", "stolen"]);
    assert!(
        blocked.starts_with("blocked: certname web01, since 20") && blocked.contains("stolen"),
        "{blocked}"
    );
    let effect = " from 127.0.0.1; closing its 2 open connections\n";
    assert!(blocked.ends_with(effect), "{blocked}");
    assert!(idle.is_closed_within(LIMIT), "closed without an answer");
    estate.compilers.iter().for_each(StandIn::release);
    assert_eq!(live.read_response().expect("is answered").status, 200);
    let last = live.get(WEB01);
    let sentence = "is blocked by the operator of this proxy";
    assert_refused(&last, 403, &["CN=web01", sentence]);
    assert!(last.says_close() && !last.text().contains("stolen"));
    let mut resumed = client.connect().expect("connects");
    assert!(resumed.resumed());
    assert_refused(&resumed.get(WEB01), 403, &[sentence]);
    assert_refused(&estate.client(&bad).get(WEB01), 403, &[sentence]);
    assert_eq!(innocent.get(WEB02).status, 200);
    estate.wait_for_record(|record| record["verdict"] == "FAILED:blocked");
    estate.wait_for_metric("proscenium_blocks", &[], 1.0);

    let listed = done(&estate.proxy, &["blocks"], &[]);
    assert!(listed.starts_with("certname web01, since 20"), "{listed}");
    assert!(
        listed.contains(&format!("by {}, ", account()))
            && listed.ends_with("until you remove it: stolen\n")
    );
    let lifted = done(&estate.proxy, &["unblock"], &["WEB01"]);
    assert!(lifted.starts_with("unblocked: certname web01"), "{lifted}");
    assert_eq!(estate.client(&bad).get(WEB01).status, 200);
    assert_eq!(client.get(WEB01).status, 200);
    assert_eq!(done(&estate.proxy, &["blocks"], &[]), "no blocks\n");
    // The events of both changes show the operator and the reason.
    let output = estate.proxy.stderr();
    for event in [": unblocked", ": blocked"] {
        let line = output.lines().find(|line| line.contains(event));
        let line = line.unwrap_or_else(|| panic!("{event} is not in {output}"));
        assert!(
            line.contains(&format!("by={}", account())) && line.contains("stolen"),
            "{line}"
        );
    }

    let unknown = done(&estate.proxy, &["block"], &["web09", "--why", "a typo"]);
    let effect = "no agent web09 has connected since the start of the proxy: check the spelling";
    assert!(unknown.contains(effect), "{unknown}");

    let refused = Ca::other().agent("web08");
    assert_eq!(estate.client(&refused).get(WEB01).status, 403);
    let blocked = done(&estate.proxy, &["block"], &["WEB08", "--why", "stolen"]);
    let effect =
        "no connection of WEB08 was accepted since the start of the proxy; last refused 20";
    assert!(blocked.contains(effect), "{blocked}");
    assert!(
        blocked.ends_with(" from 127.0.0.1: unknown-issuer\n"),
        "{blocked}"
    );
}

#[test]
fn unblocking_keeps_the_connections_open_that_were_not_closed_yet() {
    let estate = Estate::builder()
        .listener("idle_timeout = \"10m\"")
        .with("[trust]\nrevoked_close_rate = 1")
        .start();
    let revoked = estate.ca.agent("web02");
    let mut goes = estate.client(&revoked).connect().expect("connects");
    assert_eq!(goes.get(WEB02).status, 200);
    let client = estate.agent("web01");
    let idle = (0..8).map(|_| client.connect().expect("connects"));
    let mut idle: Vec<_> = idle.collect();
    for connection in &mut idle {
        assert_eq!(connection.get(WEB01).status, 200);
    }
    done(&estate.proxy, &["block"], &["web01", "--why", "a mistake"]);
    let closed = "proscenium_connections_revoked_total";
    estate.wait_for_metric(closed, &[], 1.0);
    done(&estate.proxy, &["unblock"], &["web01"]);
    // The proxy would close this connection after all those of the lifted block.
    estate.ca.revoke(&revoked);
    estate.proxy.swap_crl();
    assert!(goes.is_closed_within(LIMIT), "closed without an answer");
    let open = idle
        .iter_mut()
        .filter_map(|connection| connection.try_request("GET", WEB01, &[], b"").ok())
        .filter(|answer| answer.status == 200);
    assert!(open.count() >= 4);
}

#[test]
fn blocking_a_ca_verifies_no_chain_of_an_idle_client_before_its_turn_to_be_closed() {
    let estate = Estate::builder()
        .listener("idle_timeout = \"10m\"")
        .with("[trust]\nrevoked_close_rate = 1")
        .start();
    let client = estate.agent("web01");
    let idle: Vec<_> = (0..20)
        .map(|_| client.connect().expect("connects"))
        .collect();
    let missed = |estate: &Estate| {
        let metrics = estate.proxy.metrics();
        metrics.sum(
            "proscenium_chain_cache_lookups_total",
            &[("result", "miss")],
        )
    };
    let before = missed(&estate);
    done(&estate.proxy, &["block"], &["web01", "--why", "stolen"]);
    let closed = "proscenium_connections_revoked_total";
    estate.wait_for_metric(closed, &[], 1.0);
    let paths = missed(&estate) - before;
    assert!((1.0..10.0).contains(&paths), "{paths} of 20 at once");
    drop(idle);
}

#[test]
fn a_block_by_serial_or_fingerprint_does_not_block_the_renewed_certificate() {
    let estate = Estate::start();
    let issuer = format!("CN={}", estate.ca.name());
    for by_fingerprint in [false, true] {
        let (bad, successor) = (estate.ca.agent("web01"), estate.ca.agent("web01"));
        let (serial, print) = (format!("{:#x}", bad.serial), support::fingerprint(&bad));
        let whom: &[&str] = if by_fingerprint {
            &["--fingerprint", &print]
        } else {
            &["--serial", &serial, "--issuer", &issuer]
        };
        let why = [whom, &["--why", "key was leaked", "--until", "1h"]].concat();
        let output = done(&estate.proxy, &["block"], &why);
        assert!(output.contains("until 20"), "{output}");
        assert_refused(&estate.client(&bad).get(WEB01), 403, &["is blocked"]);
        assert_eq!(estate.client(&successor).get(WEB01).status, 200);
        done(&estate.proxy, &["unblock"], whom);
        assert_eq!(estate.client(&bad).get(WEB01).status, 200);
    }
}

#[test]
fn blocking_a_ca_by_its_serial_blocks_every_certificate_that_it_issued() {
    let estate = Estate::start();
    let ca = estate.ca.issuing_pem();
    let serial = serial_of(&ca);
    let root = format!("CN={}", estate.ca.name().replace("CA:", "Root CA:"));
    let why = ["--serial", &serial, "--issuer", &root, "--why", "lost"];
    done(&estate.proxy, &["block"], &why);
    let agent = estate.ca.agent("web01");
    assert_refused(&estate.client(&agent).get(WEB01), 403, &["is blocked"]);
    done(&estate.proxy, &["unblock"], &why[..4]);
    assert_eq!(estate.client(&agent).get(WEB01).status, 200);
}

#[test]
fn a_block_ends_at_its_time() {
    let estate = Estate::start();
    let agent = estate.ca.agent("web01");
    let why = ["web01", "--why", "for a moment", "--until", "2s"];
    done(&estate.proxy, &["block"], &why);
    assert_refused(&estate.client(&agent).get(WEB01), 403, &["is blocked"]);
    wait_for("served again", || {
        estate.client(&agent).get(WEB01).status == 200
    });
    let ended = wait_until(LIMIT, || {
        let output = estate.proxy.stderr();
        output.contains("a block has expired").then_some(())
    });
    assert!(ended.is_some(), "{}", estate.proxy.stderr());
    assert_eq!(done(&estate.proxy, &["blocks"], &[]), "no blocks\n");
}

#[test]
fn neither_a_reload_nor_a_new_crl_nor_a_restart_lifts_a_block() {
    let state = TempDir::new().expect("a directory");
    let table = format!("[state]\ndirectory = {:?}", state.path());
    let started = |ca: &Ca| {
        let builder = Estate::builder().ca(ca);
        builder.with(&table).start()
    };
    let ca = Ca::new();
    let (bad, revoked) = (ca.agent("web01"), ca.agent("web02"));
    let estate = started(&ca);
    done(&estate.proxy, &["block"], &["web01", "--why", "stolen"]);
    let text = estate.proxy.config_text();
    estate.write_config(&format!("drain_grace = \"5s\"\n{text}"));
    estate.proxy.reload_applied();
    assert_refused(&estate.client(&bad).get(WEB01), 403, &["is blocked"]);
    ca.revoke(&revoked);
    estate.proxy.swap_crl();
    assert_refused(&estate.client(&revoked).get(WEB02), 403, &["revoked"]);
    assert_refused(&estate.client(&bad).get(WEB01), 403, &["is blocked"]);
    drop(estate);

    let estate = started(&ca);
    assert_refused(&estate.client(&bad).get(WEB01), 403, &["is blocked"]);
    let listed = done(&estate.proxy, &["blocks"], &["--json"]);
    let listed: serde_json::Value = serde_json::from_str(&listed).expect("JSON");
    assert_eq!(listed[0]["blocked"]["certname"], "web01");
    assert_eq!(listed[0]["why"], "stolen");
    let list = state.path().join("blocks.json");
    use std::os::unix::fs::PermissionsExt;
    let mode = fs::metadata(&list).expect("is kept").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_block_applies_while_a_reload_waits_for_a_member() {
    let estate = Estate::start();
    let agent = estate.ca.agent("web01");
    let (silent, never) = (StandIn::start("silent"), ReplyGate::new());
    let gate = never.clone();
    silent.answer(move |_| Some(Reply::ok("").gate(&gate)));
    let text = estate.proxy.config_text();
    estate.write_config(&format!(
        "{text}\n[pools.late]\nscheme = \"http\"\nmembers = [{:?}]\ncheck = {{ interval = \"2m\", timeout = \"1m\" }}",
        silent.address()
    ));
    thread::scope(|scope| {
        let reload = scope.spawn(|| estate.proxy.reload_applied());
        let is_asked = || (silent.connections_accepted() > 0).then_some(());
        assert!(wait_until(LIMIT, is_asked).is_some());
        let asked = Instant::now();
        done(&estate.proxy, &["block"], &["web01", "--why", "stolen"]);
        assert!(asked.elapsed() < LIMIT, "{:?}", asked.elapsed());
        assert_refused(&estate.client(&agent).get(WEB01), 403, &["is blocked"]);
        reload.join().expect("is applied");
    });
    never.release();
}

#[test]
fn a_block_that_has_expired_at_the_start_stays_until_the_clock_is_certain() {
    let state = TempDir::new().expect("a directory");
    let table = format!("[state]\ndirectory = {:?}", state.path());
    // A month's block, as a start finds it when the clock is ahead.
    let list = state.path().join("blocks.json");
    let kept = serde_json::json!({ "version": 1, "blocks": [{
        "blocked": { "certname": "web01" },
        "why": "stolen",
        "by": "uid 0",
        "since": "2020-01-01T00:00:00Z",
        "until": "2020-02-01T00:00:00Z",
    }] });
    fs::write(&list, kept.to_string()).expect("is written");
    let estate = Estate::builder().with(&table).start();
    assert_eq!(done(&estate.proxy, &["blocks"], &[]), "no blocks\n");
    let agent = estate.ca.agent("web01");
    assert_eq!(estate.client(&agent).get(WEB01).status, 200);
    done(&estate.proxy, &["block"], &["web02", "--why", "lost"]);
    let kept = fs::read_to_string(&list).expect("is kept");
    for name in ["web01", "web02"] {
        assert!(kept.contains(name), "{kept}");
    }
    let lifted = done(&estate.proxy, &["unblock"], &["web01"]);
    assert!(lifted.starts_with("unblocked: certname web01"), "{lifted}");
    // The file still contains the lifted blocks, so that a copy of a block elsewhere cannot return.
    let kept = fs::read_to_string(&list).expect("is kept");
    let kept: serde_json::Value = serde_json::from_str(&kept).expect("JSON");
    let lifted = |name: &str| {
        let mut blocks = kept["blocks"].as_array().into_iter().flatten();
        let block = blocks.find(|block| block["blocked"]["certname"] == name);
        block.expect("is kept")["lifted"]["by"].is_string()
    };
    assert!(lifted("web01") && !lifted("web02"), "{kept}");
}

#[test]
fn an_unreadable_deny_list_prevents_a_start() {
    let state = TempDir::new().expect("a directory");
    let ca = Ca::new();
    let table = format!("[state]\ndirectory = {:?}", state.path());
    let list = state.path().join("blocks.json");
    let outcome = || {
        let refused = support::proxy(&ca)
            .with(&table)
            .without_members()
            .stderr_to_journal()
            .try_start();
        let outcome = refused.err().expect("does not start");
        assert_eq!(outcome.code, Some(78), "{}", outcome.stderr);
        let is_error = |line: &str| line.starts_with("<3>");
        assert!(outcome.stderr.lines().all(is_error), "{}", outcome.stderr);
        outcome.stderr
    };
    for garbage in [
        "",
        "{\"version\": 1, \"blocks\": [{",
        "{\"version\": 2, \"blocks\": [{\"id\": \"p1-1\"}]}",
        "{\"version\": 3, \"blocks\": []}",
    ] {
        fs::write(&list, garbage).expect("is written");
        let stderr = outcome();
        for expected in ["blocks.json", "remove it to start without blocks"] {
            assert!(stderr.contains(expected), "{stderr}");
        }
    }

    // The file may be valid, so the message does not advise removing it.
    fs::remove_file(&list).expect("is there");
    fs::create_dir(&list).expect("is created");
    let stderr = outcome();
    assert!(stderr.contains("blocks.json cannot be read"), "{stderr}");
    assert!(!stderr.contains("remove it"), "{stderr}");
}

#[test]
fn a_block_that_cannot_be_stored_is_active_with_a_warning() {
    let place = TempDir::new().expect("a directory");
    let file = place.path().join("file");
    fs::write(&file, "no directory").expect("is written");
    let table = format!("[state]\ndirectory = {file:?}");
    let estate = Estate::builder().with(&table).start();
    let agent = estate.ca.agent("web01");
    let outcome = estate
        .proxy
        .command(&["block"], &["web01", "--why", "stolen"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let warning = "a restart would undo it, because it could not be saved";
    assert!(outcome.stderr.contains(warning), "{}", outcome.stderr);
    assert_refused(&estate.client(&agent).get(WEB01), 403, &["is blocked"]);
}

#[test]
fn blocked_certificates_end_the_handshake_where_refused_certificates_do() {
    let estate = Estate::builder().listener("on_invalid = \"abort\"").start();
    let agent = estate.ca.agent("web01");
    assert_eq!(estate.client(&agent).get(WEB01).status, 200);
    done(&estate.proxy, &["block"], &["web01", "--why", "stolen"]);
    let client = estate.client(&agent).tls12();
    assert!(client.try_request("GET", WEB01, &[], b"").is_err());
    estate.wait_for_record(|record| record["reason"] == "blocked");
}

#[test]
fn blocking_a_client_closes_its_tunnel() {
    http1_alone!("a websocket begins with an upgrade");
    let estate = Estate::builder()
        .with(
                "[[routes]]\nname = \"chat\"\npath = { prefix = \"/chat\" }\npool = \"compilers\"\nupgrade = [\"websocket\"]",
            )
        .start();
    for compiler in &estate.compilers {
        compiler.answer(|asked| {
            let asked = asked.headers.get("upgrade").is_some();
            asked.then(|| Reply::switching("websocket"))
        });
    }
    let upgrade = [("Connection", "Upgrade"), ("Upgrade", "websocket")];
    let open = |agent: &TestCredential| {
        let mut tunnel = estate.client(agent).connect().expect("connects");
        tunnel.send("GET", "/chat", &upgrade, b"").expect("sends");
        assert_eq!(tunnel.read_head().expect("an answer").status, 101);
        tunnel
    };
    let (bad, good) = (estate.ca.agent("web01"), estate.ca.agent("web02"));
    let (mut cut, mut stays) = (open(&bad), open(&good));
    done(&estate.proxy, &["block"], &["web01", "--why", "stolen"]);
    assert!(cut.is_closed_within(LIMIT));
    stays.send_raw(b"still here").expect("sends");
    assert_eq!(stays.read_bytes(10).expect("an echo"), b"still here");
    stays.half_close();
    assert!(stays.is_closed_within(Duration::from_secs(20)));
}

#[test]
fn a_member_whose_certificate_is_blocked_gets_no_requests_until_it_is_unblocked() {
    let ca = Ca::new();
    let own = [ca.server("c1"), ca.server("c2")];
    let [c1, c2] = own
        .each_ref()
        .map(|own| StandIn::builder(&own.certname).tls(&ca, own).start());
    let ca_server = StandIn::builder("ca").ca(&ca).start();
    let pools = format!(
        "[pools.ca]\nscheme = \"http\"\nmembers = [{:?}]\n\
         [pools.compilers]\nmembers = [{:?}, {:?}]\n\
         check = {{ interval = \"50ms\", rise = 1, fall = 1 }}\n",
        ca_server.address(),
        c1.address(),
        c2.address()
    );
    let front = support::proxy(&ca).with(&pools).start();
    front.wait_for_members(&["ca", "compilers"]);
    let client = front.client(Some(&ca.agent("web01")));
    let issuer = format!("CN={}", ca.name());
    let (serial, print) = (serial_of(&own[0].cert_pem), support::fingerprint(&own[0]));
    for whom in [
        &["c1"][..],
        &["--fingerprint", &print],
        &["--serial", &serial, "--issuer", &issuer],
    ] {
        done(&front, &["block"], &[whom, &["--why", "stolen"]].concat());
        front.wait_for_health("compilers", &c1.address(), "down");
        c1.forget();
        for _ in 0..4 {
            assert_eq!(client.get(WEB01).status, 200);
        }
        assert!(c1.requests().is_empty(), "{whom:?}: {:#?}", c1.requests());
        done(&front, &["unblock"], whom);
        front.wait_for_health("compilers", &c1.address(), "up");
    }
    let events = front.stderr();
    assert!(
        events.contains(r#"the member's certificate \"CN=c1\""#),
        "{events}"
    );
}

#[test]
fn an_invalid_block_is_refused_with_the_valid_forms() {
    let estate = Estate::start();
    let issuer = format!("CN={}", estate.ca.name());
    for (arguments, code, expected) in [
        (&["web01"][..], 64, "--why"),
        (&["--why", "x"], 64, "CERTNAME"),
        (&["--serial", "5", "--why", "x"], 64, "--issuer"),
        (
            &["web01", "--fingerprint", "ab", "--why", "x"],
            64,
            "cannot be used with",
        ),
        (&["web01", "--why", "x", "--until", "soon"], 64, "(12h, 7d)"),
        (
            &["web01", "--why", "x", "--until", "2001-01-01"],
            1,
            "is in the past",
        ),
        (
            &["web01", "--why", "a\nb"],
            1,
            "the reason must be one line",
        ),
        (&["web/01", "--why", "x"], 1, "is not a certname"),
        (
            &["--fingerprint", "abcd", "--why", "x"],
            1,
            "is not a SHA-256 fingerprint",
        ),
        (
            &["--serial", "5", "--issuer", "CN=unknown", "--why", "x"],
            1,
            &issuer,
        ),
        (
            &["--serial", "five", "--issuer", &issuer, "--why", "x"],
            1,
            "is not a serial number",
        ),
    ] {
        let outcome = estate.proxy.command(&["block"], arguments);
        assert_eq!(
            outcome.code,
            Some(code),
            "{arguments:?}: {}",
            outcome.stderr
        );
        assert_contains(&outcome.stderr, expected);
    }
    let outcome = estate.proxy.command(&["unblock"], &["web01"]);
    assert_eq!(outcome.code, Some(1));
    let expected = "certname web01 is not blocked; proscenium blocks lists the blocks";
    assert!(outcome.stderr.contains(expected), "{}", outcome.stderr);
    assert_eq!(done(&estate.proxy, &["blocks"], &[]), "no blocks\n");
}

fn serial_of(pem: &str) -> String {
    let (_, pem) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).expect("PEM");
    pem.parse_x509()
        .expect("a certificate")
        .raw_serial_as_string()
}
