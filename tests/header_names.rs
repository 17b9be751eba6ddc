//! Configured names of identity headers: forged copies of them never reach a member.

use testkit::{Recorded, Reply, Seed, TestCredential};

use crate::support::{
    Estate, EstateBuilder, allowed_fields,
    header_forms::{FILES, MARK, identity_estate, spellings},
    paths::CA_CERTIFICATE,
};

#[test]
fn names_of_one_pool_are_removed_from_requests_to_every_pool() {
    let estate = renamed().start();
    let agent = estate.ca.agent("web01");
    let names = [
        "Site-Agent",
        "Site-Verdict",
        "Site-Cert",
        "X-SSL-Subject",
        "X-Client-DN",
    ];
    for name in names {
        for spelling in spellings(name) {
            for forgery in [
                vec![(spelling.as_str(), MARK)],
                vec![(spelling.as_str(), MARK), (spelling.as_str(), "CN=forged")],
                vec![("Connection", spelling.as_str()), (spelling.as_str(), MARK)],
            ] {
                assert_nothing_forged(&estate, Some(&agent), FILES, &forgery);
                assert_nothing_forged(&estate, Some(&agent), CA_CERTIFICATE, &forgery);
                assert_nothing_forged(&estate, None, CA_CERTIFICATE, &forgery);
            }
        }
    }
}

#[test]
fn a_thousand_generated_forgeries_of_configured_names_change_nothing() {
    let mut seed = Seed::from_env_or_random();
    let estate = renamed().start();
    let mut connection = estate.agent("web01").connect().expect("connects");
    for _ in 0..1000 {
        let mut lines = Vec::new();
        for _ in 0..=seed.below(3) {
            let name = *seed.pick(&[
                "Site-Agent",
                "Site-Verdict",
                "Site-Cert",
                "X-SSL-Subject",
                "HTTP-Site-Agent",
            ]);
            let twisted: String = name.chars().map(|c| twist(&mut seed, c)).collect();
            if seed.once_in(3) {
                lines.push((
                    "Connection".to_owned(),
                    format!("{twisted}, x-client-verify"),
                ));
            }
            lines.push((twisted, format!("SUCCESS {MARK}")));
        }
        let lines: Vec<_> = lines
            .iter()
            .map(|(n, v)| (n.as_str(), v.as_str()))
            .collect();
        let lines = allowed_fields(&lines);
        let target = *seed.pick(&[FILES, CA_CERTIFICATE]);
        estate.forget();
        assert_eq!(
            connection.request("GET", target, &lines, b"").status,
            200,
            "{lines:?}"
        );
        assert_ours_alone(&estate.only_request(), target, true, &lines);
    }
}

#[test]
fn identity_headers_under_any_name_are_removed_from_responses() {
    let estate = renamed().start();
    let agent = estate.ca.agent("web01");
    for compiler in &estate.compilers {
        compiler.answer(|_| {
            let names = ["Site-Agent", "Site-Verdict", "Site-Cert", "X-SSL-Subject"];
            let reply = names
                .iter()
                .fold(Reply::ok("x"), |reply, name| reply.header(name, MARK));
            Some(reply.header("Site-Other", "kept"))
        });
    }
    let response = estate.client(&agent).get(FILES);
    assert_eq!(response.headers.only("site-other"), "kept");
    let output = response.headers.0.iter().find(|(_, value)| value == MARK);
    assert_eq!(output, None);
}

#[test]
fn a_name_with_another_meaning_is_refused_at_start() {
    for name in [
        "Host",
        "Content-Length",
        "Connection",
        "X-Forwarded-For",
        "X-Real-IP",
        "X_Client_DN",
        "X-Client-Verify",
    ] {
        let outcome = identity_estate(&format!("dn_header = {name:?}"), "puppet").try_start();
        assert_eq!(outcome.code, Some(78), "{name}: {}", outcome.stderr);
        assert!(
            outcome
                .stderr
                .contains("pools.compilers.identity.dn_header"),
            "{name}: {}",
            outcome.stderr
        );
    }
}

#[test]
fn explain_names_the_headers_of_the_pool() {
    let estate = renamed().start();
    let output = |target: &str| {
        estate
            .proxy
            .command(&["explain", target], &["--certname", "web01"])
            .stdout
    };
    let compilers = output(FILES);
    assert!(compilers.contains("Site-Verdict: SUCCESS"), "{compilers}");
    assert!(
        compilers.contains("Site-Agent, X-SSL-Subject"),
        "{compilers}"
    );
    assert!(compilers.contains("with Site-Cert"), "{compilers}");
    let ca = output(CA_CERTIFICATE);
    assert!(ca.contains("X-Client-Verify: SUCCESS"), "{ca}");
}

/// Compilers with their own name for every header.
fn renamed() -> EstateBuilder {
    let names = "dn_header = [\"Site-Agent\", \"X-SSL-Subject\"]\nverify_header = \"Site-Verdict\"\ncert_header = \"Site-Cert\"";
    identity_estate(names, "puppet")
}

fn twist(seed: &mut Seed, c: char) -> char {
    match c {
        '-' => *seed.pick(&['-', '-', '_', '.', '~']),
        c if seed.once_in(2) => c.to_ascii_uppercase(),
        c => c.to_ascii_lowercase(),
    }
}

#[track_caller]
fn assert_nothing_forged(
    estate: &Estate,
    agent: Option<&TestCredential>,
    target: &str,
    forgery: &[(&str, &str)],
) {
    estate.forget();
    let client = estate.proxy.client(agent);
    let response = client.request("GET", target, &allowed_fields(forgery), b"");
    assert_eq!(response.status, 200, "{forgery:?}: {response:?}");
    assert_ours_alone(&estate.only_request(), target, agent.is_some(), forgery);
}

/// Asserts that a member got only the proxy's headers, each name once, in the form of its pool.
#[track_caller]
fn assert_ours_alone(request: &Recorded, target: &str, verified: bool, forgery: &[(&str, &str)]) {
    let raw = request.raw_text();
    assert!(
        !raw.to_ascii_lowercase().contains(MARK),
        "{forgery:?} reached the member:\n{raw}"
    );
    let one: Vec<&str> = verified.then_some("CN=web01").into_iter().collect();
    let verdict = if verified { "SUCCESS" } else { "NONE" };
    let (ours, others) = match target {
        FILES => (
            ("site-verdict", vec!["site-agent", "x-ssl-subject"]),
            ["x-client-verify", "x-client-dn"],
        ),
        _ => (
            ("x-client-verify", vec!["x-client-dn"]),
            ["site-verdict", "site-agent"],
        ),
    };
    assert_eq!(request.only(ours.0), verdict, "{forgery:?}:\n{raw}");
    for name in ours.1 {
        assert_eq!(request.headers.all(name), one, "{forgery:?}:\n{raw}");
    }
    for name in others {
        assert!(
            request.headers.all(name).is_empty(),
            "{name} is another pool's:\n{raw}"
        );
    }
}
