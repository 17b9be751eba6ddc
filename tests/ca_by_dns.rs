//! CA servers that DNS names: which of them receives the writes.

use serde_json::Value;
use testkit::{Ca, NameServer, StandIn, wait_until};

use crate::support::{
    self, LIMIT,
    agent_check::CheckAgent,
    discovery::{
        CHECK, addresses, alarm, by_service, dns, members, shown, targets, wait_for,
        wait_for_addresses,
    },
};

#[test]
fn dns_does_not_move_the_writes_from_a_ca_server_that_answers() {
    let ca = Ca::new();
    let [first, second] = ["ca1", "ca2"].map(|name| StandIn::builder(name).ca(&ca).start());
    let Some(server) = NameServer::start(&targets(&[(0, 1, &first), (1, 1, &second)])) else {
        return;
    };
    let pools = format!(
        "[pools.ca]\nscheme = \"http\"\n{CHECK}{}\n\
         [pools.compilers]\nscheme = \"http\"\nmembers = [\"127.0.0.1:1\"]\n",
        by_service()
    );
    let proxy = support::proxy(&ca).with(&dns(&server)).with(&pools).start();
    proxy.wait_for_members(&["ca"]);
    let roles = |status: &Value| {
        let members = members(status, "ca").into_iter();
        members
            .map(|member| {
                (
                    member["address"].as_str().unwrap_or_default().to_owned(),
                    member["backup"] == true,
                )
            })
            .collect::<Vec<_>>()
    };
    let (one, other) = (shown(&first), shown(&second));
    assert_eq!(
        roles(&proxy.status()),
        [(one.clone(), false), (other.clone(), true)]
    );
    // DNS first adds the other server, and then returns only that one. The first server still answers, so it keeps the
    // writes.
    server.replace(&targets(&[(0, 1, &second), (1, 1, &first)]));
    wait_for_addresses(&proxy, "ca", &[one.clone(), other.clone()]);
    server.replace(&targets(&[(0, 1, &second)]));
    proxy.wait_for_status("both members", |status| {
        roles(status) == [(one.clone(), false), (other.clone(), true)]
    });
    wait_for(
        &proxy,
        "writes to the CA",
        &format!("DNS names {other} first"),
    );
    let write = |n: usize| {
        let name = format!("new{n}");
        let target = format!("/puppet-ca/v1/certificate_request/{name}");
        let body = support::certificate_request(&name);
        let answer = proxy.client(None).request("PUT", &target, &[], &body);
        assert_eq!(answer.status, 200, "{answer:?}");
    };
    write(1);
    assert_eq!((first.requests().len(), second.requests().len()), (1, 0));

    // When the first server stops answering, DNS decides, and the writes do not return to it.
    first.stop();
    wait_for_addresses(&proxy, "ca", &[other]);
    proxy.wait_for_status("no alarm", |status| {
        alarm(status, "writes to the CA").is_none()
    });
    write(2);
    assert_eq!((first.requests().len(), second.requests().len()), (1, 1));
}

#[test]
fn writes_move_soon_after_their_ca_server_is_gone_and_not_by_its_agent_check() {
    let ca = Ca::new();
    let [first, second] = ["ca1", "ca2"].map(|name| StandIn::builder(name).ca(&ca).start());
    let agent = CheckAgent::start();
    let Some(server) = NameServer::start(&targets(&[(0, 1, &first), (1, 1, &second)])) else {
        return;
    };
    let pools = format!(
        "[pools.ca]\nscheme = \"http\"\n{CHECK}{}\n\
         agent_check = {{ port = {}, interval = \"100ms\" }}\n\
         [pools.compilers]\nscheme = \"http\"\nmembers = [\"127.0.0.1:1\"]\n",
        by_service(),
        agent.port
    );
    let dns = dns(&server).replace("ttl_max = \"1s\"", "ttl_max = \"1h\"");
    let proxy = support::proxy(&ca).with(&dns).with(&pools).start();
    proxy.wait_for_members(&["ca"]);
    // From now on a DNS answer is valid for an hour.
    let moved = targets(&[(0, 1, &second), (1, 1, &first)]).replace(" SRV ", " 3600 SRV ");
    agent.say(b"drain\n");
    proxy.wait_for_status("drained by its agent", |status| {
        members(status, "ca")
            .iter()
            .all(|m| m["agent_check"]["state"] == "drain")
    });
    server.replace(&moved);
    let held = [shown(&first), shown(&second)];
    wait_for(
        &proxy,
        "writes to the CA",
        &format!("DNS names {} first", held[1]),
    );
    assert_eq!(addresses(&proxy.status(), "ca"), held);
    first.stop();
    wait_for_addresses(&proxy, "ca", &[shown(&second), shown(&first)]);
}

#[test]
fn a_restart_does_not_move_the_writes_from_a_ca_server_that_answers() {
    let ca = Ca::new();
    let [first, second] = ["ca1", "ca2"].map(|name| StandIn::builder(name).ca(&ca).start());
    let Some(server) = NameServer::start(&targets(&[(0, 1, &first), (1, 1, &second)])) else {
        return;
    };
    let state = tempfile::tempdir().expect("a directory");
    let start = || {
        let pools = format!(
            "[pools.ca]\nscheme = \"http\"\n{CHECK}{}\n\
             [pools.compilers]\nscheme = \"http\"\nmembers = [\"127.0.0.1:1\"]\n\
             [state]\ndirectory = {:?}\n",
            by_service(),
            state.path(),
        );
        support::proxy(&ca).with(&dns(&server)).with(&pools).start()
    };
    let [one, other] = [&first, &second].map(shown);
    let before = start();
    before.wait_for_members(&["ca"]);
    let file = state.path().join("dns.json");
    let is_stored = |writer: &str| {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        text.contains(&format!("\"member\":\"{writer}\""))
            .then_some(())
    };
    wait_until(LIMIT, || is_stored(&one)).expect("the member for writes is stored");
    before.stop();
    server.replace(&targets(&[(0, 1, &second)]));

    let after = start();
    wait_for(
        &after,
        "writes to the CA",
        &format!("DNS names {other} first"),
    );
    after.wait_for_members(&["ca"]);
    assert_eq!(addresses(&after.status(), "ca"), [one, other.clone()]);
    let body = support::certificate_request("new1");
    let target = "/puppet-ca/v1/certificate_request/new1";
    let answer = after.client(None).request("PUT", target, &[], &body);
    assert_eq!(answer.status, 200);
    assert_eq!((first.requests().len(), second.requests().len()), (1, 0));
    after.stop();

    // The server is gone when the proxy starts, so DNS decides.
    first.stop();
    let last = start();
    wait_for_addresses(&last, "ca", std::slice::from_ref(&other));
    wait_until(LIMIT, || is_stored(&other)).expect("the other is stored");
}

#[test]
fn a_ca_server_with_a_new_address_keeps_its_writes_without_an_alarm() {
    let ca = Ca::new();
    let first = StandIn::builder("ca1").ca(&ca).start();
    let port = first.socket_address().port();
    let Some(server) = NameServer::start("ca A 127.0.0.1\n") else {
        return;
    };
    let pools = format!(
        "[pools.ca]\nscheme = \"http\"\nplaintext = \"trusted-network\"\n{CHECK}\
         members = [\"ca.example.com:{port}\"]\n\
         [pools.compilers]\nscheme = \"http\"\nmembers = [\"127.0.0.1:1\"]\n",
    );
    let proxy = support::proxy(&ca).with(&dns(&server)).with(&pools).start();
    proxy.wait_for_members(&["ca"]);
    server.replace("ca A 127.0.0.1\nca A 127.0.0.2\n");
    let both = ["127.0.0.1", "127.0.0.2"].map(|ip| format!("ca.example.com:{port}@{ip}"));
    wait_for_addresses(&proxy, "ca", &both);
    assert_eq!(alarm(&proxy.status(), "writes to the CA"), None);
    server.replace("ca A 127.0.0.1\n");
    wait_for_addresses(&proxy, "ca", &[format!("ca.example.com:{port}")]);
}
