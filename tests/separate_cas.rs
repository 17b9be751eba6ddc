//! Two estates in one bundle: a certificate of one CA has the name of an agent of the other.

use testkit::{Ca, Proxy, TestCredential};

use crate::support::{Estate, done, paths::CATALOG};

const ALARM: &str = "certname-of-two-cas";

/// An estate that also trusts a second CA, whose subjects differ.
fn estate(second: &Ca) -> Estate {
    let (bundle, crl) = (second.bundle_pem(), second.crl_pem());
    Estate::builder()
        .file("second-ca.pem", &bundle, 0o644).file("second-crl.pem", &crl, 0o644).with("[trust]\nca = [\"{dir}/ssl/certs/ca.pem\", \"{dir}/second-ca.pem\"]\ncrl = [\"{dir}/ssl/crl.pem\", \"{dir}/second-crl.pem\"]")
        .start()
}

fn roots() -> String {
    let root = |ca: &Ca| format!("CN={}", ca.name().replace("CA:", "Root CA:"));
    format!("{}; {}", root(&Ca::new()), root(&Ca::other()))
}

fn get(estate: &Estate, agent: &TestCredential) -> u16 {
    estate.client(agent).get(CATALOG).status
}

fn alarm(proxy: &Proxy) -> Option<String> {
    let status = proxy.status();
    let mut alarms = status["alarms"].as_array().into_iter().flatten();
    let alarm = alarms.find(|alarm| alarm["key"] == ALARM)?;
    alarm["message"].as_str().map(str::to_owned)
}

#[test]
fn check_warns_of_two_cas_until_a_rule_or_route_names_an_issuer() {
    let estate = estate(&Ca::other());
    let warning = "the bundle has CAs that do not sign each other: ";
    let checked = || {
        let checked = estate.proxy.command(&["check"], &[]);
        assert_eq!(checked.code, Some(0), "{}", checked.stderr);
        checked.stdout + &checked.stderr
    };
    let printed = checked();
    assert!(
        printed.contains(&format!("{warning}{}", roots())),
        "{printed}"
    );
    assert_eq!(estate.proxy.status()["alarms"], serde_json::json!([]));
    let text = estate.proxy.config_text();
    let issuer = format!("issuer = [\"CN={}\"]", Ca::new().name());
    for named in [
        format!("[[access]]\nname = \"second\"\naction = \"refuse\"\n{issuer}"),
        format!("[[routes]]\nname = \"second\"\npool = \"compilers\"\n{issuer}"),
    ] {
        estate.write_config(&format!("{text}\n{named}\n"));
        let printed = checked();
        assert!(!printed.contains(warning), "{printed}");
    }
}

#[test]
fn a_certname_that_changes_back_to_the_other_ca_is_an_alarm_and_a_rotation_is_not() {
    let second = Ca::other();
    let estate = estate(&second);
    let (first, other) = (estate.ca.agent("web01"), second.agent("web01"));
    let rotated = [
        estate.ca.agent("web02"),
        second.agent("web02"),
        second.agent("web02"),
    ];
    for agent in rotated.iter().chain([&first, &first, &other]) {
        let path = CATALOG.replace("web01", &agent.certname);
        assert_eq!(estate.client(agent).get(&path).status, 200);
    }
    assert_eq!(alarm(&estate.proxy), None, "each certname changed once");
    assert_eq!(get(&estate, &first), 200);
    let message = alarm(&estate.proxy).expect("an alarm");
    let issuers = format!("of CN={} and of CN={}", second.name(), estate.ca.name());
    for words in ["the certname web01", &issuers, "`issuer` of [[access]]"] {
        assert!(message.contains(words), "{words}: {message}");
    }
    estate.wait_for_event("the certname web01 is used in turn");
    estate.proxy.reload();
    assert_eq!(alarm(&estate.proxy), None);
    // The next change from one certificate to the other raises the alarm again.
    assert_eq!(get(&estate, &first), 200);
    assert_eq!(alarm(&estate.proxy), None);
    assert_eq!(get(&estate, &other), 200);
    assert!(alarm(&estate.proxy).is_some());
}

#[test]
fn who_block_and_explain_show_the_issuer_of_a_name_that_two_cas_can_issue() {
    let second = Ca::other();
    let two = estate(&second);
    let agent = second.agent("web01");
    assert_eq!(get(&two, &agent), 200);
    let issuer = format!("CN={}", second.name());
    let who = done(&two.proxy, &["who"], &["web01"]);
    let explain = |arguments: &[&str]| done(&two.proxy, &["explain"], arguments);
    let by_name = explain(&[CATALOG, "--certname", "web01"]);
    let by_issuer = explain(&[CATALOG, "--certname", "web01", "--issuer", &issuer]);
    two.proxy.write("agent.pem", &agent.chain_pem(), 0o644);
    let file = two.proxy.directory().join("agent.pem");
    let by_file = explain(&[CATALOG, "--cert", file.to_str().expect("UTF-8")]);
    let block = done(&two.proxy, &["block"], &["web01", "--why", "test"]);
    for (output, issuer) in [
        (&who, &*issuer),
        (&block, &issuer),
        (&by_name, "issuer   unknown (--issuer is not set)"),
        (&by_issuer, &format!("issuer   {issuer}; ")),
        (&by_file, &format!("issuer   {issuer}; ")),
    ] {
        assert!(output.contains(issuer), "{issuer}: {output}");
        assert!(output.contains(&roots()), "{output}");
    }
    // With one CA no name is ambiguous.
    let one = Estate::start();
    assert_eq!(get(&one, &one.ca.agent("web01")), 200);
    for output in [
        done(&one.proxy, &["who"], &["web01"]),
        done(&one.proxy, &["explain"], &[CATALOG, "--certname", "web01"]),
        done(&one.proxy, &["block"], &["web01", "--why", "test"]),
    ] {
        assert!(
            !output.contains("do not sign each other") && !output.contains("each CA"),
            "{output}"
        );
    }
}
