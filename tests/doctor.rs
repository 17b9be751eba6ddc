//! `doctor` as a whole: a sound estate has no problems, and the output is complete, safe and documented.

use std::path::PathBuf;

use serde_json::Value;
use testkit::{Ca, Reply, StandIn, command_line};

use crate::support::{
    BINARY, Estate, QUICK_CHECK, assert_contains,
    doctor::{Clinic, remedies},
};

#[test]
fn a_secure_estate_has_no_findings() {
    let clinic = Clinic::new();
    let (proof, code) = clinic.examined(&[]);
    let findings: Vec<_> = proof["findings"]
        .as_array()
        .expect("a list")
        .iter()
        .collect();
    let not_running = |finding: &&&Value| finding["check"] == "running";
    let rest: Vec<_> = findings.iter().filter(|f| !not_running(f)).collect();
    assert!(rest.is_empty(), "{rest:#?}");
    assert_eq!(
        (findings.len(), code),
        (1, Some(0)),
        "no proxy runs: {findings:#?}"
    );
    let passed = proof["passed"].as_array().expect("a list");
    for check in [
        "files",
        "certificate-dates",
        "ca-dates",
        "own-certificate",
        "credential-rights",
        "own-name",
        "agent-certificate",
        "crl",
        "crl-fresh",
        "member-reached",
        "member-certificate",
        "credential-accepted",
        "status",
        "clock",
        "service",
        "headers-read",
        "own-node",
        "others-node",
        "unknown-client",
        "ca-headers",
        "ca-rights",
        "outside-anonymous",
        "outside-agent",
        "outside-plain",
        "head-room",
        "configuration",
    ] {
        assert!(
            passed.iter().any(|passed| passed["check"] == check),
            "{check} is not in {passed:#?}"
        );
    }
    clinic.assert_only_asked();
}

#[test]
fn a_member_that_answers_byte_by_byte_is_given_up_at_the_timeout() {
    let clinic = Clinic::new();
    clinic.compiler.answer(|_| {
        let slow = Reply::ok("running").dribble(1, std::time::Duration::from_secs(3));
        Some(slow)
    });
    clinic.assert_found(
        "member-reached",
        "failure",
        &["in pool compilers", "no answer within 10s"],
    );
}

#[test]
fn control_characters_from_a_member_are_not_printed() {
    let odd = |ca: &Ca, front: &Ca| {
        let odd = ca.leaf("c9").without_san().dns("c9\u{1b}[2J\u{7f}").issue();
        StandIn::builder("c1").tls(front, &odd).start()
    };
    let outcome = Clinic::with_compiler(odd).run(&[]);
    assert_eq!(outcome.code, Some(2), "{}", outcome.stdout);
    assert!(outcome.stdout.contains("c9"), "{}", outcome.stdout);
    let moves = |c: char| !c.is_ascii() || c.is_control() && c != '\n';
    assert!(!outcome.stdout.contains(moves), "{:?}", outcome.stdout);
    let clinic = Clinic::new();
    let odd = "running\u{1b}[2J\u{202e}gninnur";
    clinic
        .compiler
        .answer(move |request| (request.path() == "/status/v1/simple").then(|| Reply::ok(odd)));
    let outcome = clinic.run(&[]);
    assert_contains(&outcome.stdout, "`running?[2J?");
    assert!(!outcome.stdout.contains(moves), "{:?}", outcome.stdout);
}

#[test]
fn no_part_of_a_key_is_printed_or_sent() {
    let clinic = Clinic::new();
    let lines = |key: &str| -> Vec<String> {
        let body = key.lines().filter(|line| !line.starts_with("-----"));
        body.map(str::to_owned).collect()
    };
    let mut secret = lines(&clinic.agent.key_pem);
    let own = std::fs::read_to_string(clinic.path("ssl/private_keys/puppet.pem"));
    secret.extend(lines(&own.expect("a key of the test's own")));
    assert!(secret.len() >= 4);
    let (cert, key) = (clinic.path("agent.pem"), clinic.path("agent.key"));
    let (cert, key) = (cert.to_str().expect("UTF-8"), key.to_str().expect("UTF-8"));
    for words in [
        ["--agent-cert", cert, "--agent-key", key],
        ["--agent-cert", key, "--agent-key", cert],
        ["--agent-cert", key, "--agent-key", key],
    ] {
        for json in [&["--json"][..], &[]] {
            let outcome = clinic.run(&[&words[..], json].concat());
            for line in &secret {
                assert!(!outcome.stdout.contains(line), "{words:?}");
                assert!(!outcome.stderr.contains(line), "{words:?}");
            }
        }
    }
    let sent = [&clinic.ca_server, &clinic.compiler].map(StandIn::raw_connections);
    let sent: Vec<u8> = sent.into_iter().flatten().flatten().collect();
    let sent = String::from_utf8_lossy(&sent);
    assert!(sent.contains("/status/v1/simple"));
    assert!(secret.iter().all(|line| !sent.contains(line)));
}

#[test]
fn alarms_of_the_running_proxy_are_findings_too() {
    let estate = Estate::builder().compiler_pool(QUICK_CHECK).start();
    let down = estate.compilers[0].address();
    estate.compilers[0].kill();
    estate.wait_for_health("compilers", &down, "down");
    let outcome = estate.proxy.command(&["doctor"], &["--json"]);
    let proof: Value = serde_json::from_str(&outcome.stdout).expect("JSON");
    let findings = proof["findings"].as_array().expect("a list");
    let output = findings.iter().any(|finding| {
        let found = finding["found"].as_str().unwrap_or_default();
        finding["check"] == "running" && found.contains(&down) && found.contains("is down")
    });
    assert!(output, "{proof:#}");
    assert_eq!(outcome.code, Some(2));
}

#[test]
fn a_pool_without_an_available_member_is_found_and_maintenance_is_not_a_fault() {
    let estate = Estate::builder().compiler_pool(QUICK_CHECK).start();
    let running = || {
        let outcome = estate.proxy.command(&["doctor"], &["--json"]);
        let proof: Value = serde_json::from_str(&outcome.stdout).expect("JSON");
        let findings = proof["findings"].as_array().into_iter().flatten();
        let running = findings.filter(|finding| finding["check"] == "running");
        running
            .filter(|finding| finding["severity"] != "note")
            .map(ToString::to_string)
            .collect::<String>()
    };
    let [one, two] = [0, 1].map(|n: usize| estate.compilers[n].address());
    let administer = |verb: &str, member: &str| {
        crate::support::set_state(&estate.proxy, verb, "compilers", member);
    };
    estate.compilers[0].kill();
    estate.wait_for_health("compilers", &one, "down");
    administer("maintenance", &one);
    assert_eq!(running(), "", "it was taken out");
    administer("drain", &two);
    let output = running();
    for words in ["no member of pool compilers", &two, "drain", "failure"] {
        assert!(output.contains(words), "{words}: {output}");
    }
    administer("ready", &two);
    assert_eq!(running(), "", "one is enough");
}

#[test]
fn a_file_that_the_running_proxy_has_not_loaded_is_found() {
    let estate = Estate::start();
    let shown = |state: Option<PathBuf>| {
        let mut doctor = std::process::Command::new(BINARY);
        doctor.args(["doctor", "--json", "--config"]);
        doctor.arg(estate.proxy.config_path());
        doctor.env_remove("STATE_DIRECTORY");
        doctor.envs(state.map(|state| ("STATE_DIRECTORY", state)));
        let output = doctor.output().expect("it runs");
        let proof: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let findings = proof["findings"].as_array().into_iter().flatten();
        let running = findings.filter(|finding| finding["check"] == "running");
        running.map(ToString::to_string).collect::<String>()
    };
    let state = estate.proxy.state_directory();
    assert_eq!(shown(Some(state.clone())), "", "it was started so");
    let elsewhere = shown(None);
    assert!(
        elsewhere.contains("uses the state directory"),
        "{elsewhere}"
    );
    assert!(elsewhere.contains("STATE_DIRECTORY="), "{elsewhere}");
    let more = "[csr]\nrsa_bits_min = 4096\n";
    let text = estate.proxy.config_text();
    estate.write_config(&format!("{text}\n{more}"));
    let edited = shown(Some(state.clone()));
    assert!(edited.contains("uses another configuration"), "{edited}");
    assert!(edited.contains("\"note\""), "{edited}");
    estate.proxy.reload_applied();
    assert_eq!(shown(Some(state.clone())), "", "it was reloaded");
    // The cores of this process differ from those of the service, so there is nothing to compare.
    let text = estate.proxy.config_text();
    estate.write_config(&format!("workers = 61\n{text}"));
    assert_eq!(shown(Some(state)), "", "it has as many workers as cores");
}

#[test]
fn another_process_on_the_admin_socket_is_found_with_a_remedy() {
    let clinic = Clinic::new();
    let socket = clinic.path("admin.sock");
    let listener = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
    let other = std::thread::spawn(move || {
        for _ in 0..2 {
            let (mut caller, _) = listener.accept().expect("a caller");
            let _ = std::io::Write::write_all(&mut caller, b"SSH-2.0-other\r\n");
        }
    });
    let proof = clinic.assert_found("running", "warning", &["is that proscenium"]);
    let remedies = remedies(&proof, "running");
    assert!(remedies.contains("ss -xlp"), "{remedies}");
    assert!(!remedies.contains("as root"), "{remedies}");
    drop(clinic.run(&[]));
    other.join().expect("it was asked twice");
}

#[test]
fn the_guide_describes_each_check() {
    let guide = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/operating/doctor.md"
    );
    let guide = std::fs::read_to_string(guide).expect("the guide is there");
    for check in ::doctor::Check::ALL {
        assert!(
            guide.contains(&format!("`{check}`")),
            "{check} is not in the guide"
        );
    }
}

#[test]
fn the_help_of_doctor_explains_its_exit_codes() {
    let help = command_line(&PathBuf::from(BINARY), &["doctor", "--help"]);
    let words: Vec<_> = help.stdout.split_whitespace().collect();
    let help = words.join(" ");
    for expected in [
        "1 Warnings: a condition",
        "2 Failures: agents",
        "--agent-cert",
        "--plain-port",
        "8139",
        "--json",
    ] {
        assert!(help.contains(expected), "{expected} is not in {help}");
    }
}
