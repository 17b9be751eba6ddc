//! A CA that drops entries from its CRL, mostly because the certificates have expired. Revocations that it adds take
//! effect at once, and those that it drops stay active until an operator accepts the CRL.

use serde_json::Value;
use tempfile::TempDir;
use testkit::{Ca, Proxy, Reply, wait_until};

use crate::support::{
    Estate, LIMIT, assert_refused,
    crl_fetch::{
        CRL_PATH, ON_REQUEST, answer_crl_requests, crl_requests, persisting, start_and_fetch,
        state_table, without_ca,
    },
    done,
    paths::CATALOG,
};

const MISSING: &str = "proscenium_crl_missing_revocations";

#[test]
fn t09_a_fetched_crl_that_drops_an_entry_revokes_at_once_and_after_a_restart_or_a_hand_over() {
    let state = TempDir::new().expect("a directory");
    let ca = Ca::new();
    let agents: Vec<_> = (0..5).map(|_| ca.agent("web01")).collect();
    let first = ca.other_crl_pem(100, &[&agents[0]]);
    let builder = persisting(&ca, ON_REQUEST, &first, state.path());
    let estate = start_and_fetch(builder.with("[ca]\nedge_answers = true"));
    answer_crl_requests(&estate.ca_server, Reply::ok(&first));
    done(&estate.proxy, &["crl", "fetch"], &[]);
    // Each night the CA drops one entry and adds another.
    for night in 1..=3 {
        let crl = ca.other_crl_pem(100 + night as u64, &[&agents[night]]);
        answer_crl_requests(&estate.ca_server, Reply::ok(&crl));
        for is_again in [false, true] {
            let outcome = estate.proxy.command(&["crl", "fetch"], &[]);
            assert_eq!(outcome.code, Some(1), "{outcome:?}");
            let expected = match night {
                1 => "lacks 1 revoked certificate, which stays revoked".to_owned(),
                _ => format!("lacks {night} revoked certificates, which stay revoked"),
            };
            assert!(outcome.stderr.contains(&expected), "{outcome:?}");
            let is_active = outcome.stderr.contains("is active");
            assert_eq!(is_active, !is_again, "{outcome:?}");
            assert_eq!(estate.client(&agents[4]).get(CATALOG).status, 200);
            for agent in &agents[..=night] {
                assert_refused(&estate.client(agent).get(CATALOG), 403, &["revoked"]);
            }
        }
        let missing = estate.proxy.metrics().sum(MISSING, &[]);
        assert_eq!(missing, night as f64);
        assert_eq!(alarms_about_drops(&estate.proxy), 1);
        // Agents get the CA's own response, because the CRLs that the proxy uses have more entries.
        let before = of_clients(&estate);
        assert_eq!(estate.anonymous().get(CRL_PATH).text(), crl);
        assert_eq!(of_clients(&estate), before + 1);
    }
    let events = estate.proxy.stderr();
    let raised = "WARN telemetry::alarms: a CRL drops revocations";
    let raised = events.lines().filter(|line| line.contains(raised));
    let nights = raised.filter(|line| line.contains("test: number 10"));
    assert_eq!(nights.count(), 1, "{events}");

    let former = estate.proxy.take_over().unwrap_or_else(|o| panic!("{o:?}"));
    for agent in &agents[..4] {
        assert_refused(&estate.client(agent).get(CATALOG), 403, &["revoked"]);
    }
    drop(former);
    drop(estate);
    let front = without_ca(&ca, &first, state.path());
    for agent in &agents[..4] {
        assert_refused(&front.client(agent).get(CATALOG), 403, &["revoked"]);
    }
    assert_eq!(front.client(&agents[4]).get(CATALOG).status, 200);
    assert_eq!(alarms_about_drops(&front), 1);

    // The operator accepts the CRL that the CA provided last. The agent's copy from the first night is not considered
    // any more.
    let issuer = format!("CN={}", ca.name());
    let accepted = done(&front, &["crl", "accept"], &[&issuer, "--why", "pruned"]);
    assert!(accepted.contains("number 103 with 1 entries"), "{accepted}");
    drop(front);
    let front = without_ca(&ca, &first, state.path());
    assert_refused(&front.client(&agents[3]).get(CATALOG), 403, &["revoked"]);
    for agent in [&agents[0], &agents[1], &agents[2], &agents[4]] {
        assert_eq!(front.client(agent).get(CATALOG).status, 200);
    }
    assert_eq!(alarms_about_drops(&front), 0);
}

#[test]
fn t09_a_file_that_drops_an_entry_revokes_at_once_and_drops_nothing_until_that_is_accepted() {
    let state = TempDir::new().expect("a directory");
    let ca = Ca::new();
    let [dropped, late, good] = ["a", "b", "c"].map(|_| ca.agent("web01"));
    let root = ca.crl_pem();
    let first = ca.other_crl_pem(100, &[&dropped]) + &root;
    let second = ca.other_crl_pem(101, &[&late]) + &root;
    let started = |file: &str| {
        let builder = Estate::builder().ca(&ca);
        let builder = builder.file("ssl/crl.pem", file, 0o644);
        builder.with(&state_table(state.path())).start()
    };
    let estate = started(&first);
    estate.proxy.write("ssl/crl.pem", &second, 0o644);
    estate.proxy.reload_applied();
    let assert_both = |proxy: &Proxy| {
        for agent in [&dropped, &late] {
            assert_refused(&proxy.client(Some(agent)).get(CATALOG), 403, &["revoked"]);
        }
        assert_eq!(proxy.client(Some(&good)).get(CATALOG).status, 200);
        assert_eq!(alarms_about_drops(proxy), 1);
    };
    assert_both(&estate.proxy);
    let shown = done(&estate.proxy, &["crl", "show"], &[]);
    assert!(shown.contains("ALARM: a CRL drops revocations"), "{shown}");
    let checked = estate.proxy.command(&["check"], &["--files-only"]);
    assert!(
        checked.stderr.contains("lacks 1 revoked certificate"),
        "{checked:?}"
    );
    drop(estate);
    // The file changes while the proxy does not run. The entries of the file before it stay.
    let estate = started(&second);
    assert_both(&estate.proxy);
    let third = ca.other_crl_pem(102, &[&late]) + &root;
    drop(estate);
    let estate = started(&third);
    assert_both(&estate.proxy);

    let issuer = format!("CN={}", ca.name());
    done(
        &estate.proxy,
        &["crl", "accept"],
        &[&issuer, "--why", "pruned"],
    );
    assert_eq!(estate.client(&dropped).get(CATALOG).status, 200);
    assert_refused(&estate.client(&late).get(CATALOG), 403, &["revoked"]);
    assert_eq!(alarms_about_drops(&estate.proxy), 0);
    // Restoring the first file from a backup changes nothing, now or after a restart.
    let both = first + &third;
    estate.proxy.write("ssl/crl.pem", &both, 0o644);
    estate.proxy.reload_applied();
    assert_eq!(estate.client(&dropped).get(CATALOG).status, 200);
    drop(estate);
    let estate = started(&both);
    assert_eq!(estate.client(&dropped).get(CATALOG).status, 200);
    assert_refused(&estate.client(&late).get(CATALOG), 403, &["revoked"]);
}

#[test]
fn t10_a_fetched_crl_that_lacks_what_a_local_file_revokes_is_an_alarm_and_a_failure_of_doctor() {
    let ca = Ca::new();
    let [agent, compiler] = ["a", "b"].map(|_| ca.agent("web01"));
    let root = ca.crl_pem();
    let full = ca.other_crl_pem(40, &[&agent, &compiler]) + &root;
    let infrastructure = ca.other_crl_pem(7, &[&compiler]) + &root;
    let fetch = format!("enabled = true\n{ON_REQUEST}");
    let estate = start_and_fetch(
        Estate::builder()
            .ca(&ca)
            .fetch(&fetch)
            .file("ca_crl.pem", &full, 0o644)
            .with("[trust]\ncrl = \"{dir}/ca_crl.pem\""),
    );
    answer_crl_requests(&estate.ca_server, Reply::ok(&infrastructure));
    let outcome = estate.proxy.command(&["crl", "fetch"], &[]);
    assert!(outcome.stderr.contains("lacks 1 revoked"), "{outcome:?}");
    assert_eq!(alarms_about_drops(&estate.proxy), 1);
    for revoked in [&agent, &compiler] {
        assert_refused(&estate.client(revoked).get(CATALOG), 403, &["revoked"]);
    }
    let examined = estate.proxy.command(&["doctor"], &["--json"]);
    let report: Value = serde_json::from_str(&examined.stdout).expect("JSON");
    let findings = report["findings"].as_array().expect("findings");
    let is_failure = |finding: &&Value| {
        let text = finding.to_string();
        text.contains("crl-fresh") && text.contains("failure")
    };
    assert!(findings.iter().any(|one| is_failure(&one)), "{report:#}");

    // An operator who accepts this CRL by mistake ends only the revocations that no file lists.
    let issuer = format!("CN={}", ca.name());
    let alarms = estate.proxy.status()["trust"]["alarms"].to_string();
    let nothing = "no certificate becomes valid again, and 1 that a CRL file lists stays revoked";
    assert!(alarms.contains(nothing), "{alarms}");
    let arguments = [&issuer, "--why", "it looks right"];
    let accepted = done(&estate.proxy, &["crl", "accept"], &arguments);
    assert!(accepted.contains(nothing), "{accepted}");
    estate.proxy.reload();
    assert_eq!(alarms_about_drops(&estate.proxy), 1);
    for revoked in [&agent, &compiler] {
        assert_refused(&estate.client(revoked).get(CATALOG), 403, &["revoked"]);
    }
    // The CA revokes another compiler, and then drops that revocation.
    let another = ca.agent("web01");
    let infrastructure = ca.other_crl_pem(8, &[&compiler, &another]) + &root;
    answer_crl_requests(&estate.ca_server, Reply::ok(&infrastructure));
    estate.proxy.command(&["crl", "fetch"], &[]);
    assert_refused(&estate.client(&another).get(CATALOG), 403, &["revoked"]);
    let infrastructure = ca.other_crl_pem(9, &[&compiler]) + &root;
    answer_crl_requests(&estate.ca_server, Reply::ok(&infrastructure));
    estate.proxy.command(&["crl", "fetch"], &[]);
    assert_refused(&estate.client(&another).get(CATALOG), 403, &["revoked"]);
    let accepted = done(&estate.proxy, &["crl", "accept"], &arguments);
    let one = "1 certificate becomes valid again if it has not expired, and 1 that a CRL file lists stays revoked";
    assert!(accepted.contains(one), "{accepted}");
    assert_eq!(estate.client(&another).get(CATALOG).status, 200);
    assert_refused(&estate.client(&agent).get(CATALOG), 403, &["revoked"]);
}

#[test]
fn what_was_revoked_outlasts_a_time_without_a_crl_of_its_ca() {
    let state = TempDir::new().expect("a directory");
    let ca = Ca::new();
    let [dropped, good] = ["a", "b"].map(|_| ca.agent("web01"));
    let first = ca.other_crl_pem(100, &[&dropped]);
    let second = ca.other_crl_pem(101, &[]);
    let both = ca.crl_pem();
    let (_, root) = both.split_once("END X509 CRL-----\n").expect("two CRLs");
    let files = "[trust]\ncrl = [\"{dir}/a.pem\", \"{dir}/root.pem\"]";
    let started = |file: &str| {
        let with = format!("{}\n{files}", state_table(state.path()));
        Estate::builder()
            .ca(&ca)
            .file("a.pem", file, 0o644)
            .file("root.pem", root, 0o644)
            .with(&with)
            .start()
    };
    let estate = started(&first);
    let assert_dropped = |proxy: &Proxy| {
        assert_refused(
            &proxy.client(Some(&dropped)).get(CATALOG),
            403,
            &["revoked"],
        );
        assert_eq!(proxy.client(Some(&good)).get(CATALOG).status, 200);
        assert_eq!(alarms_about_drops(proxy), 1);
    };
    estate.proxy.write("a.pem", &second, 0o644);
    estate.proxy.reload_applied();
    assert_dropped(&estate.proxy);
    drop(estate);
    // The job that copies CRLs left only the CRL of the root in the file.
    let estate = started(root);
    for agent in [&dropped, &good] {
        assert_eq!(estate.client(agent).get(CATALOG).status, 403);
    }
    estate.proxy.write("a.pem", &second, 0o644);
    estate.proxy.reload_applied();
    assert_dropped(&estate.proxy);
    // An operator configures other files, and reverts that.
    let unchecked = format!("[trust]\nunchecked = [\"CN={}\"]", ca.name());
    estate.edit_config("/a.pem", "/root.pem");
    estate.edit_config("[trust]", &unchecked);
    estate.proxy.reload_applied();
    assert_refused(&estate.client(&dropped).get(CATALOG), 403, &["revoked"]);
    assert_eq!(estate.client(&good).get(CATALOG).status, 200);
    estate.edit_config(&unchecked, "[trust]");
    estate.edit_config("root.pem\", ", "a.pem\", ");
    estate.proxy.reload_applied();
    assert_dropped(&estate.proxy);
    drop(estate);
    assert_dropped(&started(&second).proxy);
}

#[test]
fn damaged_stored_revocations_are_an_alarm_until_an_operator_acts() {
    let state = TempDir::new().expect("a directory");
    let ca = Ca::single("alone");
    let [dropped, late] = ["a", "b"].map(|_| ca.agent("web01"));
    let first = ca.other_crl_pem(101, &[&dropped, &late]);
    let second = ca.other_crl_pem(102, &[&late]);
    let started = |file: &str| {
        let estate = start_and_fetch(persisting(&ca, ON_REQUEST, file, state.path()));
        answer_crl_requests(&estate.ca_server, Reply::ok(&second));
        estate
    };
    let estate = started(&first);
    let crl_fetch = |estate: &Estate| estate.proxy.command(&["crl", "fetch"], &[]);
    crl_fetch(&estate);
    let stored = wait_until(LIMIT, || {
        let stored = std::fs::read_dir(state.path()).expect("a directory");
        let mut stored = stored.map(|entry| entry.expect("an entry").path());
        stored.find(|path| path.extension().is_some_and(|end| end == "serials"))
    });
    let stored = &stored.expect("one for the CA");
    drop(estate);
    let whole = std::fs::read_to_string(stored).expect("is read");
    let text = whole.replace("sha256 ", "sha256 0");
    std::fs::write(stored, &text).expect("is written");
    let alarms = |estate: &Estate| {
        let alarms = estate.proxy.status()["trust"]["alarms"].to_string();
        alarms.matches("the saved revocations of").count()
    };
    let damaged = &stored.with_extension("serials.damaged");
    // Each start with a successful fetch writes the file.
    for file in [&first, &second] {
        let estate = started(file);
        assert_eq!(alarms(&estate), 1);
        let checked = estate.proxy.command(&["check"], &[]);
        let words = "the saved revocations of";
        assert!(checked.stderr.contains(words), "{checked:?}");
        crl_fetch(&estate);
        estate.proxy.reload();
        assert_refused(&estate.client(&late).get(CATALOG), 403, &["revoked"]);
        assert_eq!(alarms(&estate), 1);
        let kept = std::fs::read_to_string(damaged).expect("is kept");
        assert_eq!(kept, text);
    }
    // The operator restores the saved revocations from a backup.
    std::fs::write(stored, &whole).expect("is written");
    let estate = started(&second);
    assert_refused(&estate.client(&dropped).get(CATALOG), 403, &["revoked"]);
    assert_eq!(alarms(&estate), 1);
    std::fs::remove_file(damaged).expect("is removed");
    estate.proxy.reload();
    assert_eq!(alarms(&estate), 0);
}

#[test]
fn t09_two_crls_of_one_ca_in_files_count_together_and_are_both_named() {
    let ca = Ca::new();
    let [agent, compiler, good] = ["a", "b", "c"].map(|_| ca.agent("web01"));
    let full = ca.other_crl_pem(40, &[&agent]);
    let infrastructure = ca.other_crl_pem(7, &[&compiler]);
    let root = ca.crl_pem();
    let estate = Estate::builder()
        .ca(&ca)
        .file("ca_crl.pem", &(full + &root), 0o644)
        .file("infra_crl.pem", &infrastructure, 0o644)
        .with("[trust]\ncrl = [\"{dir}/ca_crl.pem\", \"{dir}/infra_crl.pem\"]")
        .start();
    for revoked in [&agent, &compiler] {
        assert_refused(&estate.client(revoked).get(CATALOG), 403, &["revoked"]);
    }
    assert_eq!(estate.client(&good).get(CATALOG).status, 200);
    let checked = estate.proxy.command(&["check"], &["--files-only"]);
    let shown = done(&estate.proxy, &["crl", "show"], &[]);
    for words in ["ca_crl.pem", "infra_crl.pem"] {
        assert!(checked.stdout.contains(words), "{words}: {checked:?}");
        assert!(shown.contains(words), "{words}: {shown}");
    }
    assert_eq!(alarms_about_drops(&estate.proxy), 0);
    // The metrics are those of the newest CRL.
    let number = estate.proxy.metrics().sum("proscenium_crl_number", &[]);
    assert_eq!(number, 40.0, "and 0 of the root");
}

#[test]
fn more_crls_of_one_ca_than_are_accepted_revoke_with_a_warning_and_cannot_be_accepted() {
    let ca = Ca::new();
    let [dropped, oldest] = ["a", "b"].map(|_| ca.agent("web01"));
    let root = ca.crl_pem();
    let crls: Vec<_> = (0..18)
        .map(|number| match number {
            0 => ca.other_crl_pem(100, &[&dropped]),
            1 => ca.other_crl_pem(101, &[&oldest]),
            // The file with the lowest number is not the first by name.
            _ => ca.other_crl_pem(100 + number, &[]),
        })
        .collect();
    let (_, root) = root.split_once("END X509 CRL-----\n").expect("two CRLs");
    let files = crls.iter().enumerate();
    let files = files.map(|(index, crl)| (format!("crls/{:02}", 17 - index), crl));
    let estate = files
        .fold(Estate::builder(), |estate, (name, crl)| {
            estate.file(&name, crl, 0o644)
        })
        .ca(&ca)
        .file("crls/root", root, 0o644)
        .with("[trust]\ncrl = \"{dir}/crls\"")
        .start();
    let checked = estate.proxy.command(&["check"], &["--files-only"]);
    let words = format!("there are 18 CRLs of CN={}", ca.name());
    assert!(checked.stderr.contains(&words), "{checked:?}");
    assert!(!checked.stderr.contains("drops revocations"), "{checked:?}");
    let remove = |name: &str| {
        std::fs::remove_file(estate.proxy.directory().join(name)).expect("is there");
        estate.proxy.reload_applied();
        for agent in [&dropped, &oldest] {
            assert_refused(&estate.client(agent).get(CATALOG), 403, &["revoked"]);
        }
    };
    remove("crls/17");
    assert_eq!(alarms_about_drops(&estate.proxy), 1);
    let issuer = format!("CN={}", ca.name());
    let arguments = [&issuer, "--why", "old"];
    let outcome = estate.proxy.command(&["crl", "accept"], &arguments);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(outcome.stderr.contains("too many CRLs"), "{outcome:?}");
    remove("crls/15");
    done(&estate.proxy, &["crl", "accept"], &arguments);
    assert_eq!(estate.client(&dropped).get(CATALOG).status, 200);
    assert_refused(&estate.client(&oldest).get(CATALOG), 403, &["revoked"]);
}

#[test]
fn t10_an_empty_first_crl_of_a_ca_with_many_certificates_is_an_alarm_that_an_operator_ends() {
    let state = TempDir::new().expect("a directory");
    let ca = Ca::new();
    let agents: Vec<_> = (0..24).map(|_| ca.agent("web01")).collect();
    // The stand-in signs its CRL again for each request, so this one, signed before, is an old copy.
    let answer_empty = |estate: &Estate| {
        answer_crl_requests(&estate.ca_server, Reply::ok(&ca.crl_pem()));
    };
    let started = || {
        let builder = persisting(&ca, ON_REQUEST, &ca.crl_pem(), state.path());
        let estate = start_and_fetch(builder);
        answer_empty(&estate);
        estate
    };
    let estate = started();
    assert_eq!(estate.client(&agents[23]).get(CATALOG).status, 200);
    let words = "has number 0 and no entries, although the CA has issued certificates up to";
    let alarms = |estate: &Estate| {
        done(&estate.proxy, &["crl", "fetch"], &[]);
        let alarms = estate.proxy.status()["trust"]["alarms"].to_string();
        alarms.matches(words).count()
    };
    let warnings = |estate: &Estate| {
        let checked = estate.proxy.command(&["check"], &["--files-only"]);
        checked.stderr.matches(words).count()
    };
    assert_eq!((alarms(&estate), warnings(&estate)), (1, 1));
    let examined = estate.proxy.command(&["doctor"], &[]);
    let found = "has number 0 and no entries, although";
    assert!(examined.stdout.contains(found), "{examined:?}");
    let issuer = format!("CN={}", ca.name());
    let arguments = [&issuer, "--why", "no certificate was ever revoked"];
    let accepted = done(&estate.proxy, &["crl", "accept"], &arguments);
    let expected = "number 0 with 0 entries is active; no certificate becomes valid again";
    assert!(accepted.contains(expected), "{accepted}");
    estate.wait_for_event(arguments[2]);
    assert_eq!((alarms(&estate), warnings(&estate)), (0, 0));
    drop(estate);
    let estate = started();
    assert_eq!(estate.client(&agents[23]).get(CATALOG).status, 200);
    assert_eq!((alarms(&estate), warnings(&estate)), (0, 0));
    // From now on a missing entry means a dropped revocation.
    let one = ca.other_crl_pem(1, &[&agents[0]]);
    answer_crl_requests(&estate.ca_server, Reply::ok(&one));
    done(&estate.proxy, &["crl", "fetch"], &[]);
    answer_empty(&estate);
    estate.proxy.command(&["crl", "fetch"], &[]);
    assert_refused(&estate.client(&agents[0]).get(CATALOG), 403, &["revoked"]);
    assert_eq!(alarms_about_drops(&estate.proxy), 1);
}

/// Requests for the CRL that clients sent, as the CA server received them.
fn of_clients(estate: &Estate) -> usize {
    let requests = crl_requests(&estate.ca_server);
    let of_clients =
        |request: &&testkit::Recorded| request.headers.get("x-forwarded-for").is_some();
    requests.iter().filter(of_clients).count()
}

fn alarms_about_drops(proxy: &Proxy) -> usize {
    let alarms = proxy.status()["trust"]["alarms"].clone();
    let Value::Array(alarms) = alarms else {
        return 0;
    };
    let about = |alarm: &&Value| alarm.to_string().contains("a CRL drops revocations");
    alarms.iter().filter(about).count()
}

#[test]
fn cas_of_one_name_have_an_alarm_each() {
    let ca = Ca::new();
    let cas = [ca.namesake(), ca];
    let dropped = [0, 1].map(|n: usize| cas[n].agent("web01"));
    let lists = |number: u64, is_dropped: bool| {
        let of = |n: usize| {
            let named = [&dropped[n]];
            let crl = cas[n].other_crl_pem(number, if is_dropped { &[] } else { &named });
            crl + &cas[n].crl_pem()
        };
        of(0) + &of(1)
    };
    let (bundle, first) = (
        cas[0].bundle_pem() + &cas[1].bundle_pem(),
        lists(100, false),
    );
    let builder = Estate::builder().ca(&cas[1]);
    let builder = builder
        .file("both.pem", &bundle, 0o644)
        .file("crl.pem", &first, 0o644)
        .with("[trust]\nca = \"{dir}/both.pem\"\ncrl = \"{dir}/crl.pem\"");
    let estate = builder.start();
    estate.proxy.write("crl.pem", &lists(101, true), 0o644);
    estate.proxy.reload_applied();
    assert_eq!(alarms_about_drops(&estate.proxy), 2);
    let issuer = format!("CN={}", cas[0].name());
    done(
        &estate.proxy,
        &["crl", "accept"],
        &[&issuer, "--why", "pruned"],
    );
    assert_eq!(alarms_about_drops(&estate.proxy), 0);
}
