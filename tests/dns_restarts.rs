//! How a reload and a restart treat members that the proxy finds in DNS.

use serde_json::Value;
use testkit::{Ca, NameServer, StandIn, wait_until};

use crate::support::{
    self, LIMIT, assert_contains,
    discovery::{
        CHECK, SERVICE, addresses, by_service, dns, members, name_status, send, shown, targets,
        wait_for_addresses, wait_for_alarm, wait_for_no_alarm,
    },
};

/// `[dns]` settings with which a name is resolved once, and again only after a reload.
fn dns_once(server: &NameServer) -> String {
    dns(server).replace("ttl_min = \"100ms\"\nttl_max = \"1s\"", "ttl_min = \"1h\"")
}

#[test]
fn a_name_that_the_configuration_no_longer_allows_is_removed_from_the_pool() {
    let ca = Ca::new();
    let tls = |name: &str| {
        let credential = ca.server(&format!("{name}.example.com"));
        StandIn::builder(name).tls(&ca, &credential).start()
    };
    let [kept, dropped] = ["c1", "web01"].map(tls);
    let Some(server) = NameServer::start(&targets(&[(0, 1, &kept), (0, 1, &dropped)])) else {
        return;
    };
    let names = "server_names = [\"c1.example.com\", \"web01.example.com\"]";
    let pools = format!(
        "[pools.ca]\nscheme = \"http\"\nmembers = [\"127.0.0.1:1\"]\n\
         [pools.compilers]\n{CHECK}{}\n{names}\n",
        by_service()
    );
    let proxy = support::proxy(&ca).with(&dns(&server)).with(&pools).start();
    proxy.wait_for_members(&["compilers"]);
    assert_eq!(addresses(&proxy.status(), "compilers").len(), 2);

    // The DNS answer is the same as before.
    proxy.edit_config(names, "server_names = [\"c1.example.com\"]");
    proxy.reload_applied();
    assert_eq!(addresses(&proxy.status(), "compilers"), [""; 0]);
    wait_for_alarm(&proxy, "which `server_names` of the pool does not allow");
    server.replace(&targets(&[(0, 1, &kept)]));
    wait_for_addresses(&proxy, "compilers", &[shown(&kept)]);
}

#[test]
fn a_reload_queries_only_new_names_and_all_names_if_the_dns_servers_changed() {
    let ca = Ca::new();
    let [compiler, other] = ["c1", "c2"].map(StandIn::start);
    let Some(server) = NameServer::start(&targets(&[(0, 1, &compiler)])) else {
        return;
    };
    let pools = format!(
        "[pools.ca]\nscheme = \"http\"\nmembers = [\"127.0.0.1:1\"]\n\
         [pools.compilers]\nscheme = \"http\"\n{CHECK}{0}\n",
        by_service()
    );
    let proxy = support::proxy(&ca)
        .with(&dns_once(&server))
        .with(&pools)
        .start();
    proxy.wait_for_members(&["compilers"]);
    // The name is already resolved for the first pool, but not for this one.
    let text = proxy.config_text();
    let second = format!(
        "[pools.second]\nscheme = \"http\"\n{CHECK}{}\n",
        by_service()
    );
    proxy.write_config(&(text + "\n" + &second));
    proxy.reload_applied();
    assert_eq!(addresses(&proxy.status(), "second"), [shown(&compiler)]);

    let Some(better) = NameServer::start(&targets(&[(0, 1, &other)])) else {
        return;
    };
    let before = server.address().to_string();
    proxy.edit_config(&before, &better.address().to_string());
    proxy.reload_applied();
    wait_for_addresses(&proxy, "compilers", &[shown(&other)]);
    wait_for_addresses(&proxy, "second", &[shown(&other)]);

    // A name that no pool uses any longer is not stored.
    let stored = proxy.state_directory().join("dns.json");
    let is_stored = || std::fs::read_to_string(&stored).is_ok_and(|text| text.contains("second"));
    wait_until(LIMIT, || is_stored().then_some(())).expect("the answer is stored");
    proxy.edit_config(&second, "");
    proxy.reload_applied();
    wait_until(LIMIT, || (!is_stored()).then_some(())).expect("it is stored no longer");
}

#[test]
fn the_last_valid_answer_survives_a_restart_without_dns() {
    let ca = Ca::new();
    let compiler = StandIn::start("c1");
    let good = targets(&[(3, 75, &compiler)]);
    let Some(server) = NameServer::start(&good) else {
        return;
    };
    let state = tempfile::tempdir().expect("a directory");
    let start = |lines: &str| {
        let pools = format!(
            "[pools.ca]\nscheme = \"http\"\nmembers = [\"127.0.0.1:1\"]\n\
             [pools.compilers]\nscheme = \"http\"\n{CHECK}{}\n{lines}\n\
             [state]\ndirectory = {:?}\n",
            by_service(),
            state.path(),
        );
        support::proxy(&ca).with(&dns(&server)).with(&pools)
    };
    let file = state.path().join("dns.json");
    let first = start("").start();
    first.wait_for_members(&["compilers"]);
    wait_until(LIMIT, || file.exists().then_some(())).expect("the answer is stored");
    first.stop();
    server.stop();

    let second = start("").start();
    wait_for_alarm(&second, "the answer stored before the restart is in use");
    second.wait_for_members(&["compilers"]);
    send(&second, &ca, 1);
    let status = second.status();
    assert_eq!(name_status(&status)["is_stored"], true);
    let member = &members(&status, "compilers")[0];
    assert_eq!(member["priority"], 3);
    assert_eq!(member["weight"], 75);
    let shown_by_status = support::done(&second, &["status"], &[]);
    assert!(shown_by_status.contains("its members were stored before the last start"));
    // `check` uses what the next start would use.
    let checked = start("").check();
    assert_contains(&checked.stdout, &shown(&compiler));
    server.restart();
    wait_for_no_alarm(&second);
    assert_eq!(name_status(&second.status())["is_stored"], false);
    second.stop();

    // A stored answer is used only if the rules of the pool accept it and the file can be read.
    server.stop();
    let third = start("server_names = [\"*.elsewhere.example\"]").start();
    wait_for_alarm(&third, "it has no members of this name");
    assert_eq!(addresses(&third.status(), "compilers"), [""; 0]);
    third.stop();
    for damaged in ["{", "{\"version\":2,\"answers\":[],\"writer\":null}"] {
        std::fs::write(&file, damaged).expect("a file");
        let fourth = start("").start();
        fourth.wait_for_event("cannot read the stored answers of DNS, starting without them");
        wait_for_alarm(&fourth, "it has no members of this name");
        fourth.stop();
    }
}

#[test]
fn a_drained_member_stays_drained_across_dns_changes() {
    let ca = Ca::new();
    let [compiler, other] = ["c1", "c2"].map(StandIn::start);
    let port = compiler.socket_address().port();
    let name = format!("c.example.com:{port}");
    let both = [&compiler, &other].map(|member| targets(&[(0, 1, member)]));
    let hosts = |lines: &str| both.concat() + lines;
    let (one, two) = (
        hosts("c A 127.0.0.1\n"),
        hosts("c A 127.0.0.1\nc A 127.0.0.2\n"),
    );
    let Some(server) = NameServer::start(&one) else {
        return;
    };
    let state = tempfile::tempdir().expect("a directory");
    let start = || {
        let pools = format!(
            "[pools.ca]\nscheme = \"http\"\nmembers = [\"127.0.0.1:1\"]\n\
             [pools.compilers]\nscheme = \"http\"\nplaintext = \"trusted-network\"\n{CHECK}\
             members = [\"{name}\", \"srv:{SERVICE}.example.com\"]\n\
             [state]\ndirectory = {:?}\n",
            state.path(),
        );
        support::proxy(&ca).with(&dns(&server)).with(&pools).start()
    };
    let states = |status: &Value| -> Vec<(String, String)> {
        let members = members(status, "compilers").into_iter();
        let named = members.filter(|m| m["address"].as_str().is_some_and(|a| a.starts_with("c.")));
        named
            .map(|m| {
                let text = |key: &str| m[key].as_str().unwrap_or_default().to_owned();
                (text("address"), text("administrative_state"))
            })
            .collect()
    };
    let of = |address: &str, state: &str| (address.to_owned(), state.to_owned());
    let [first, second] = ["127.0.0.1", "127.0.0.2"].map(|ip| format!("{name}@{ip}"));
    let proxy = start();
    proxy.wait_for_members(&["compilers"]);
    support::done(&proxy, &["drain"], &["compilers", &name, "--why", "disk"]);

    server.replace(&two);
    let drained = [of(&first, "drain"), of(&second, "drain")];
    proxy.wait_for_status("both are drained", |status| states(status) == drained);
    support::done(&proxy, &["ready"], &["compilers", &first]);
    proxy.stop();

    // The state survives a restart. The state of the name applies to its remaining address.
    let proxy = start();
    let after = [of(&first, "ready"), of(&second, "drain")];
    proxy.wait_for_status("one is drained", |status| states(status) == after);
    server.replace(&one);
    proxy.wait_for_status("the name is ready", |status| {
        states(status) == [of(&name, "ready")]
    });
    support::done(&proxy, &["drain"], &["compilers", &name]);
    proxy.stop();
    server.replace(&two);
    let proxy = start();
    proxy.wait_for_status("both are drained", |status| states(status) == drained);
    // A member that DNS removes and adds again has the state that the operator set.
    let target = shown(&other);
    let is_known = |status: &Value| addresses(status, "compilers").contains(&target);
    support::done(&proxy, &["drain"], &["compilers", &target]);
    server.replace(&(targets(&[(0, 1, &compiler)]) + "c A 127.0.0.1\nc A 127.0.0.2\n"));
    proxy.wait_for_status("it is removed", |status| !is_known(status));
    server.replace(&two);
    let status = proxy.wait_for_status("it is back", is_known);
    let mut back = members(&status, "compilers").into_iter();
    let back = back
        .find(|member| member["address"] == *target)
        .expect("it is there");
    assert_eq!(back["administrative_state"], "drain");

    // A member that a reload configures in another form also has that state.
    let first_only = format!("{{ address = \"{name}\", addresses = \"first\" }}");
    proxy.edit_config(&format!("\"{name}\""), &first_only);
    support::done(&proxy, &["reload"], &[]);
    proxy.wait_for_status("the name is drained", |status| {
        states(status) == [of(&name, "drain")]
    });
}

#[test]
fn a_reload_during_a_dns_query_applies_the_new_servers() {
    let ca = Ca::new();
    let compiler = StandIn::start("c1");
    let Some(server) = NameServer::start(&targets(&[(0, 1, &compiler)])) else {
        return;
    };
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
    let silent = silent.local_addr().expect("bound").to_string();
    let good = server.address().to_string();
    let pools = format!(
        "[pools.ca]\nscheme = \"http\"\nmembers = [\"127.0.0.1:1\"]\n\
         [pools.compilers]\nscheme = \"http\"\n{CHECK}{}\n",
        by_service()
    );
    let dns = dns(&server)
        .replace(&good, &silent)
        .replace("\"1s\"\n", "\"20s\"\n");
    let proxy = support::proxy(&ca).with(&dns).with(&pools).start();
    // A query is running now, and takes a long time.
    assert_eq!(addresses(&proxy.status(), "compilers"), [""; 0]);
    proxy.edit_config(&silent, &good);
    proxy.reload_applied();
    wait_for_addresses(&proxy, "compilers", &[shown(&compiler)]);
}
