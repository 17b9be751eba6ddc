//! Passthrough never reaches the host of a member that believes identity headers.

use serde_json::Value;
use testkit::{Ca, NameServer};

use crate::support::{
    self, Estate,
    layer4::{Broker, assert_echo, connect, listener_address, read_to_end},
    passthrough::{passing, record, start},
};

/// Asserts that a start and `check` refuse these tables.
#[track_caller]
fn assert_refused_at_start(tables: &str, words: &str) {
    let outcome = Estate::builder().with(tables).try_start();
    assert_eq!(outcome.code, Some(78), "{}", outcome.stderr);
    assert!(outcome.stderr.contains(words), "{}", outcome.stderr);
}

#[test]
fn passthrough_to_a_host_that_gets_identity_headers_is_refused() {
    let tables = |member: &str, lines: &str| {
        format!(
            "[listeners.pcp]\naddress = \"127.0.0.1:0\"\npassthrough = \"brokers\"\n\
             [pools.brokers]\nmembers = [{member:?}]\n{lines}\n"
        )
    };
    // In `try_start`, the CA and the compilers are at 127.0.0.1:1.
    let words = "gets identity headers";
    for member in [
        "127.0.0.1:8142",
        "127.0.0.2:8142",
        "localhost:8142",
        "[::1]:8142",
    ] {
        assert_refused_at_start(&tables(member, ""), words);
    }
    // The same port is the same service, whatever the pool sets.
    assert_refused_at_start(&tables("127.0.0.1:1", "trusted_headers_off = true"), words);
    assert_refused_at_start(&tables("localhost:1", "trusted_headers_off = true"), words);

    // A reload refuses it too, and the old configuration stays active.
    let broker = Broker::echo();
    let (estate, pcp) = start(passing(&[&broker], ""));
    estate.edit_config("trusted_headers_off = true", "");
    let answer = estate.proxy.reload();
    assert!(answer.to_string().contains(words), "{answer}");
    assert_echo(&mut connect(pcp), b"hello");
}

#[test]
fn a_pool_gets_either_requests_or_connections() {
    let listener = "[listeners.pcp]\naddress = \"127.0.0.1:0\"\n";
    let brokers = "[pools.brokers]\nmembers = [\"192.0.2.1:8142\"]\n";
    for (tables, words) in [
        (
            format!("{listener}passthrough = \"compilers\"\n"),
            "so no route may use it",
        ),
        (
            format!(
                "{listener}passthrough = \"brokers\"\n{brokers}\
                 [[routes]]\nname = \"r\"\npath = {{ prefix = \"/pcp\" }}\npool = \"brokers\"\n"
            ),
            "so no route may use it",
        ),
        (
            format!("{listener}passthrough = \"broker\"\n{brokers}"),
            "did you mean \"brokers\"?",
        ),
        (
            format!(
                "{listener}passthrough = \"brokers\"\n{brokers}algorithm = \"certname-hash\"\n"
            ),
            "does not know the certname",
        ),
        (
            format!(
                "{listener}sni_passthrough = [{{ server_names = [], pool = \"brokers\" }}]\n{brokers}"
            ),
            "matches no connection",
        ),
        (
            format!(
                "{listener}sni_passthrough = [{{ server_names = [\"a\", \"A\"], pool = \"brokers\" }}]\n{brokers}"
            ),
            "already passed through",
        ),
        (
            format!("{listener}proxy_protocol = {{ from = [] }}\n"),
            "would refuse every connection",
        ),
        (format!("{listener}proxy_protocol = {{}}\n"), "from"),
    ] {
        assert_refused_at_start(&tables, words);
    }
}

#[test]
fn a_member_that_dns_moves_to_a_host_with_identity_headers_is_not_used_and_is_an_alarm() {
    // All of 127.0.0.0/8 is one host, which also has the CA and the compilers.
    let zone = |address: &str| format!("broker A {address}\n");
    let Some(server) = NameServer::start(&zone("192.0.2.1")) else {
        return;
    };
    let tables = format!(
        "[dns]\nservers = [\"{}\"]\nttl_min = \"100ms\"\nttl_max = \"1s\"\n\
         [listeners.pcp]\naddress = \"127.0.0.1:0\"\npassthrough = \"brokers\"\n\
         [pools.brokers]\nmembers = [\"broker.example.com:8142\"]\ncheck = {{ type = \"none\" }}\n",
        server.address()
    );
    let estate = Estate::builder().compilers(1).with(&tables).start();
    let alarms = |status: &Value| status["alarms"].to_string();
    assert!(!alarms(&estate.proxy.status()).contains("passthrough-member"));
    server.replace(&zone("127.0.0.1"));
    let raised = |status: &Value| alarms(status).contains("passthrough-member");
    estate.wait_for_status("the alarm", raised);
    let active = [("alarm", "passthrough-member")];
    assert_eq!(
        estate.proxy.metrics().sum("proscenium_alarms", &active),
        1.0
    );
    let pcp = listener_address(&estate.proxy, "pcp");
    assert_eq!(read_to_end(&mut connect(pcp)), b"");
    let record = record(&estate.proxy);
    assert_eq!(record["reason"], "guarded-address", "{record}");
    // The alarm does not prevent a new CRL or an unrelated reload.
    estate.edit_config("ttl_max = \"1s\"", "ttl_max = \"2s\"");
    estate.proxy.reload_applied();
    // A reload that changes the pools is refused.
    estate.edit_config("check = { type = \"none\" }", "");
    let answer = estate.proxy.reload();
    assert!(
        answer.to_string().contains("gets identity headers"),
        "{answer}"
    );
    server.replace(&zone("192.0.2.1"));
    let cleared = |status: &Value| !alarms(status).contains("passthrough-member");
    estate.wait_for_status("the alarm is cleared", cleared);
    estate.proxy.reload_applied();
}

#[test]
fn a_name_of_a_host_with_identity_headers_is_refused_at_the_start() {
    let Some(server) = NameServer::start("broker A 127.0.0.1\n") else {
        return;
    };
    let tables = format!(
        "[dns]\nservers = [\"{}\"]\n\
         [listeners.pcp]\naddress = \"127.0.0.1:0\"\npassthrough = \"brokers\"\n\
         [pools.brokers]\nmembers = [\"broker.example.com:8142\"]\n",
        server.address()
    );
    assert_refused_at_start(&tables, "gets identity headers");
    let ca = Ca::new();
    for (argument, code) in [("--strict", 78), ("--files-only", 0)] {
        let check = support::proxy(&ca).without_members().with(&tables);
        let check = check.argument(argument).check();
        let printed = format!("{}{}", check.stdout, check.stderr);
        assert_eq!(check.code, Some(code), "{argument}: {printed}");
        let is_refused = printed.contains("gets identity headers");
        assert_eq!(is_refused, code == 78, "{argument}: {printed}");
    }
}
