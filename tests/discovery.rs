//! Members that DNS names: SRV records and addresses, by a real DNS server.

use serde_json::Value;
use testkit::{Ca, NameServer, StandIn, srv_records, wait_until};

use crate::support::{
    self, LIMIT, assert_contains,
    discovery::{
        CHECK, SERVICE, addresses, by_service, dns, members, name_status, proxy, send, shown,
        targets, wait_for_addresses, wait_for_alarm, wait_for_no_alarm,
    },
    paths::CATALOG,
};

#[test]
fn srv_weights_share_requests_within_a_site_and_the_next_priority_takes_over_while_it_is_down() {
    let ca = Ca::new();
    let [big, small, site_b] = ["big", "small", "site-b"].map(StandIn::start);
    let Some(server) =
        NameServer::start(&targets(&[(0, 75, &big), (0, 25, &small), (1, 5, &site_b)]))
    else {
        return;
    };
    let lines = format!("{}\nalgorithm = \"round-robin\"", by_service());
    let proxy = proxy(&ca, &server, &lines);
    wait_for_addresses(&proxy, "compilers", &[&big, &small, &site_b].map(shown));
    proxy.wait_for_members(&["compilers"]);

    send(&proxy, &ca, 40);
    let counts = [&big, &small, &site_b].map(|member| member.requests().len());
    assert_eq!(counts, [30, 10, 0], "75 to 25, and none to site B");
    let status = proxy.status();
    let first = &members(&status, "compilers")[0];
    assert_eq!(first["weight"], 75, "{status:#}");
    assert_eq!(first["priority"], 0, "{status:#}");

    for member in [&big, &small] {
        member.stop();
        proxy.wait_for_health("compilers", &shown(member), "down");
    }
    send(&proxy, &ca, 3);
    assert_eq!(site_b.requests().len(), 3, "site B while site A is down");

    small.restart();
    proxy.wait_for_health("compilers", &shown(&small), "up");
    send(&proxy, &ca, 4);
    assert_eq!(site_b.requests().len(), 3, "and site A again");
    assert_eq!(small.requests().len(), 14);
}

#[test]
fn a_changed_dns_record_moves_no_request_in_flight_and_makes_no_new_generation() {
    let ca = Ca::new();
    let [old, new] = ["old", "new"].map(StandIn::start);
    let Some(server) = NameServer::start(&targets(&[(0, 1, &old)])) else {
        return;
    };
    let proxy = proxy(&ca, &server, &by_service());
    proxy.wait_for_members(&["compilers"]);
    old.hold();
    let client = proxy.client(Some(&ca.agent("web01")));
    let mut running = client.connect().expect("connects");
    running.send("GET", CATALOG, &[], b"").expect("sends");
    old.wait_for_request(1, LIMIT);

    server.replace(&targets(&[(0, 1, &new)]));
    wait_for_addresses(&proxy, "compilers", &[shown(&new)]);
    proxy.wait_for_members(&["compilers"]);
    send(&proxy, &ca, 2);
    assert_eq!(new.requests().len(), 2);
    old.release();
    assert_eq!(running.read_response().expect("an answer").status, 200);
    assert_eq!(
        old.requests().len(),
        1,
        "answered by the member that had it"
    );
    assert_eq!(proxy.generation(), 1);
    proxy.wait_for_event("DNS changed the members of a pool");
    let up = |member: &StandIn| {
        let address = shown(member);
        let labels = [("pool", "compilers"), ("member", address.as_str())];
        proxy.metrics().has("proscenium_member_up", &labels)
    };
    assert_eq!(
        (up(&old), up(&new)),
        (false, true),
        "metrics of members as they are now"
    );
}

#[test]
fn a_name_with_several_addresses_is_a_member_for_each() {
    let ca = Ca::new();
    let compiler = StandIn::start("c1");
    let port = compiler.socket_address().port();
    // No server listens on the second address.
    let Some(server) = NameServer::start("c A 127.0.0.1\nc A 127.0.0.2\n") else {
        return;
    };
    let each = |host: &str| ["127.0.0.1", "127.0.0.2"].map(|ip| format!("{host}:{port}@{ip}"));
    let lines = format!(
        "plaintext = \"trusted-network\"\nmembers = [\"c.example.com:{port}\"]\n\
         [pools.first]\nscheme = \"http\"\nplaintext = \"trusted-network\"\n{CHECK}\
         members = [{{ address = \"c.example.com:{port}\", addresses = \"first\" }}]\n\
         [pools.all]\nscheme = \"http\"\nplaintext = \"trusted-network\"\n{CHECK}\
         members = [{{ address = \"c.example.com:{port}\", addresses = \"all\" }}]"
    );
    let proxy = proxy(&ca, &server, &lines);
    let [up, down] = each("c.example.com");
    proxy.wait_for_health("compilers", &up, "up");
    proxy.wait_for_health("compilers", &down, "down");
    send(&proxy, &ca, 3);
    let status = proxy.status();
    assert_eq!(addresses(&status, "compilers"), [up, down]);
    assert_eq!(addresses(&status, "all").len(), 2);
    assert_eq!(
        addresses(&status, "first"),
        [format!("c.example.com:{port}")]
    );
    proxy.wait_for_members(&["first"]);

    // A different order is not a change; a missing address is.
    server.replace("c A 127.0.0.1\n");
    wait_for_addresses(&proxy, "compilers", &[format!("c.example.com:{port}")]);
}

#[test]
fn an_srv_target_over_tls_needs_an_allowed_name_and_a_certificate_for_it() {
    let ca = Ca::new();
    let tls = |name: &str, certname: &str| {
        let credential = ca.server(certname);
        StandIn::builder(name).tls(&ca, &credential).start()
    };
    let compiler = tls("c1", "c1.example.com");
    // A host that has a valid certificate for its own name, and is not a compiler.
    let agent = tls("web01", "web01.example.com");
    // A host that has the name of a compiler and presents the certificate of another host.
    let impostor = tls("c2", "web02.example.com");
    let Some(server) = NameServer::start(&targets(&[(0, 1, &compiler), (1, 1, &impostor)])) else {
        return;
    };
    let pools = format!(
        "[pools.ca]\nscheme = \"http\"\nmembers = [\"127.0.0.1:1\"]\n\
         [pools.compilers]\n{CHECK}{}\nserver_names = [\"c1.example.com\", \"c2.example.com\"]\n",
        by_service()
    );
    let proxy = support::proxy(&ca).with(&dns(&server)).with(&pools).start();
    proxy.wait_for_health("compilers", &shown(&compiler), "up");
    proxy.wait_for_health("compilers", &shown(&impostor), "down");
    send(&proxy, &ca, 2);

    server.replace(&targets(&[(0, 1, &agent)]));
    wait_for_alarm(
        &proxy,
        "names \"web01.example.com\", which `server_names` of the pool does not allow",
    );
    send(&proxy, &ca, 2);
    assert_eq!(compiler.requests().len(), 4);
    assert_eq!(
        agent.connections_accepted() + impostor.requests().len() as u64,
        0
    );

    server.replace(&targets(&[(0, 1, &compiler)]));
    wait_for_no_alarm(&proxy);
}

#[test]
fn failed_and_invalid_dns_answers_change_nothing() {
    let ca = Ca::new();
    let compiler = StandIn::start("c1");
    let good = targets(&[(0, 1, &compiler)]);
    let Some(server) = NameServer::start(&good) else {
        return;
    };
    let proxy = proxy(&ca, &server, &by_service());
    proxy.wait_for_members(&["compilers"]);
    let many: Vec<_> = (1..=257).map(|port| (0, 1, port, "c1")).collect();
    let (empty, many) = (String::new(), srv_records(SERVICE, &many));
    let elsewhere = srv_records(SERVICE, &[(0, 1, 8140, "far")]) + "far A 192.0.2.1\n";
    for (records, words) in [
        (empty, "DNS has no such name (NXDOMAIN)"),
        (many, "at most 256 are accepted"),
        (elsewhere, "192.0.2.1, which is not a loopback address"),
        (
            format!("{SERVICE} SRV 0 0 0 .\n"),
            "the answer contains no record",
        ),
        (
            srv_records(SERVICE, &[(0, 1, 0, "c1")]) + "c1 A 127.0.0.1\n",
            "names \"c1.example.com:0\", which is not a valid host name and port",
        ),
        // An unspecified address would lead to this machine.
        (
            // The name of the target is new, because a server that swaps zones may still answer for an old name with
            // the old address.
            srv_records(SERVICE, &[(0, 1, 8140, "unspecified")]) + "unspecified A 0.0.0.0\n",
            "0.0.0.0, which is not the address of a host",
        ),
        // No certificate can have such a name.
        (
            srv_records(SERVICE, &[(0, 1, 8140, "c1-")]) + "c1- A 127.0.0.1\n",
            "names \"c1-.example.com:8140\", which is not a valid host name and port",
        ),
    ] {
        server.replace(&records);
        wait_for_alarm(&proxy, words);
        assert_eq!(addresses(&proxy.status(), "compilers"), [shown(&compiler)]);
        send(&proxy, &ca, 1);
    }
    server.replace(&good);
    wait_for_no_alarm(&proxy);
    // The addresses of a target are missing or invalid: the previous ones stay.
    server.replace(&targets(&[(0, 1, &compiler)]).replace(" A ", " TXT "));
    wait_for_alarm(
        &proxy,
        "c1.example.com: DNS has no such record for this name",
    );
    send(&proxy, &ca, 1);
    server.replace(&good);
    wait_for_no_alarm(&proxy);
    server.stop();
    wait_for_alarm(&proxy, "the last valid answer stays in use");
    send(&proxy, &ca, 1);
    server.restart();
    wait_for_no_alarm(&proxy);
}

#[test]
fn members_join_when_dns_comes_up_after_the_proxy() {
    let ca = Ca::new();
    let compiler = StandIn::start("c1");
    let Some(server) = NameServer::start(&targets(&[(0, 1, &compiler)])) else {
        return;
    };
    server.stop();
    let proxy = proxy(&ca, &server, &by_service());
    wait_for_alarm(&proxy, "it has no members of this name");
    let client = proxy.client(Some(&ca.agent("web01")));
    assert_eq!(client.get(CATALOG).status, 503);
    server.restart();
    wait_for_addresses(&proxy, "compilers", &[shown(&compiler)]);
    proxy.wait_for_members(&["compilers"]);
    send(&proxy, &ca, 1);
}

#[test]
fn a_dns_answer_that_does_not_fit_a_datagram_is_fetched_over_tcp() {
    let ca = Ca::new();
    let compiler = StandIn::start("c1");
    let port = compiler.socket_address().port();
    let others = (1..=100u16)
        .filter(|other| *other != port)
        .map(|other| (1, 1, other, "c1"));
    let all: Vec<_> = others.chain([(0, 1, port, "c1")]).collect();
    let Some(server) = NameServer::start(&(srv_records(SERVICE, &all) + "c1 A 127.0.0.1\n")) else {
        return;
    };
    let proxy = proxy(&ca, &server, &by_service());
    proxy.wait_for_health("compilers", &shown(&compiler), "up");
    assert_eq!(addresses(&proxy.status(), "compilers").len(), all.len());
    send(&proxy, &ca, 1);
}

#[test]
fn check_and_explain_work_without_dns_and_show_the_members_that_it_names() {
    let ca = Ca::new();
    let compiler = StandIn::start("c1");
    let Some(server) = NameServer::start(&targets(&[(3, 75, &compiler)])) else {
        return;
    };
    let pools = format!(
        "[pools.ca]\nscheme = \"http\"\n{0}\n[pools.compilers]\nscheme = \"http\"\n{CHECK}{0}\n",
        by_service()
    );
    let built = || support::proxy(&ca).with(&dns(&server)).with(&pools);
    let checked = built().check();
    assert_eq!(checked.code, Some(0), "{}", checked.stderr);
    let named = format!("{} (priority 3, weight 75)", shown(&compiler));
    assert!(checked.stdout.contains(&named), "{}", checked.stdout);
    let proxy = built().start();
    proxy.wait_for_members(&["compilers"]);
    let explained = support::done(&proxy, &["explain"], &[CATALOG, "--certname", "web01"]);
    assert!(
        explained.contains(&format!("{} (priority 3): ", shown(&compiler))),
        "{explained}"
    );

    server.stop();
    let checked = built().check();
    assert_eq!(checked.code, Some(0), "a warning: {}", checked.stderr);
    assert_contains(&checked.stderr, "it has no members of this name");
    let stored = proxy.state_directory().join("dns.json");
    wait_until(LIMIT, || stored.exists().then_some(())).expect("the answer is stored");
    let explained = support::done(&proxy, &["explain"], &[CATALOG, "--certname", "web01"]);
    assert!(explained.contains(&shown(&compiler)), "{explained}");
    std::fs::remove_file(&stored).expect("a file");
    for target in [CATALOG, "/puppet-ca/v1/certificate_request/web01"] {
        let method = if target == CATALOG { "GET" } else { "PUT" };
        let outcome = proxy.command(
            &["explain"],
            &[target, "--method", method, "--certname", "web01"],
        );
        assert_contains(&outcome.stdout, "none: the pool has no member now");
    }
}

#[test]
fn the_proxy_starts_whatever_dns_answers() {
    let ca = Ca::new();
    let bad = srv_records(SERVICE, &[(0, 1, 8140, "c1-")]) + "c1- A 127.0.0.1\n";
    let services: Vec<_> = (0..5).map(|n| format!("_s{n}._tcp")).collect();
    let many: String = services
        .iter()
        .enumerate()
        .map(|(n, service)| {
            let ports = (1..=256).map(|port| (0, 1, 1000 * (n as u16 + 1) + port, "c1"));
            srv_records(service, &ports.collect::<Vec<_>>())
        })
        .collect();
    let Some(server) = NameServer::start(&(bad + &many + "c1 A 127.0.0.1\n")) else {
        return;
    };
    let names: Vec<_> = services
        .iter()
        .map(|service| format!("\"srv:{service}.example.com\""))
        .collect();
    let lines = format!(
        "{}\n[pools.many]\nscheme = \"http\"\ncheck = {{ type = \"none\" }}\nmembers = [{}]",
        by_service(),
        names.join(", ")
    );
    let proxy = proxy(&ca, &server, &lines);
    wait_for_alarm(&proxy, "it has no members of this name");
    let status = proxy.wait_for_status("members", |status| addresses(status, "many").len() == 1024);
    assert_eq!(addresses(&status, "compilers").len(), 0);
    proxy.wait_for_event("DNS names more members than a pool may have");
}

#[test]
fn the_status_shows_when_and_how_each_name_was_resolved() {
    let ca = Ca::new();
    let compiler = StandIn::start("c1");
    let good = targets(&[(0, 1, &compiler)])
        .replace(" SRV ", " 1 SRV ")
        .replace(" A ", " 2 A ");
    let Some(server) = NameServer::start(&good) else {
        return;
    };
    let proxy = proxy(&ca, &server, &by_service());
    proxy.wait_for_members(&["compilers"]);
    let status = proxy.status();
    let name = name_status(&status);
    assert_eq!(name["pools"], serde_json::json!(["compilers"]));
    assert_eq!(
        name["servers"],
        serde_json::json!([server.address().to_string()])
    );
    assert_eq!(name["ttl_seconds"], 1, "{name:#}");
    let is_time = |value: &Value| value.as_str().is_some_and(|text| text.ends_with('Z'));
    assert!(
        is_time(&name["answered_at"]) && is_time(&name["next_lookup"]),
        "{name:#}"
    );
    assert!(name["failure"].is_null());
    assert_eq!(name["is_stored"], false);
    assert_eq!(
        status["dns"].as_array().map(Vec::len),
        Some(1),
        "no address is looked up"
    );

    server.stop();
    let status = proxy.wait_for_status("a failure", |status| {
        !name_status(status)["failure"].is_null()
    });
    let failed = name_status(&status);
    assert!(
        is_time(&failed["answered_at"]),
        "that of the last answer: {failed:#}"
    );
    let table = support::done(&proxy, &["status"], &[]);
    let line = format!("srv:{SERVICE}.example.com, pool compilers: last answer ");
    assert!(
        table.contains("names in DNS") && table.contains(&line),
        "{table}"
    );
    let why = failed["failure"].as_str().expect("words");
    assert!(table.contains(&format!("last lookup: {why}")), "{table}");
}

#[test]
fn queued_requests_go_to_a_member_that_dns_adds() {
    let ca = Ca::new();
    let [old, new] = ["old", "new"].map(StandIn::start);
    let Some(server) = NameServer::start(&targets(&[(0, 1, &old)])) else {
        return;
    };
    let lines = format!("members = [{{ address = \"srv:{SERVICE}.example.com\", max = 1 }}]");
    let proxy = proxy(&ca, &server, &lines);
    proxy.wait_for_members(&["compilers"]);
    old.hold();
    let sent: Vec<_> = ["web01", "web02"]
        .iter()
        .map(|name| {
            let client = proxy.client(Some(&ca.agent(name)));
            let mut connection = client.connect().expect("connects");
            let target = CATALOG.replace("web01", name);
            connection.send("GET", &target, &[], b"").expect("sends");
            connection
        })
        .collect();
    old.wait_for_request(1, LIMIT);
    proxy.wait_for_status("one waits", |status| {
        let pools = status["pools"].as_array().expect("pools");
        pools.iter().any(|pool| pool["waiting"] == 1)
    });
    server.replace(&targets(&[(0, 1, &new)]));
    new.wait_for_request(1, LIMIT);
    old.release();
    for mut connection in sent {
        assert_eq!(connection.read_response().expect("an answer").status, 200);
    }
    assert_eq!((old.requests().len(), new.requests().len()), (1, 1));
}

#[test]
fn members_removed_by_dns_leave_no_state_behind() {
    let ca = Ca::new();
    let compiler = StandIn::start("c");
    let port = compiler.socket_address().port();
    let named = |turn: usize| {
        let name = format!("t{turn}");
        srv_records(SERVICE, &[(0, 1, port, &name)]) + &format!("{name} A 127.0.0.1\n")
    };
    let address = |turn: usize| format!("t{turn}.example.com:{port}");
    let Some(server) = NameServer::start(&named(0)) else {
        return;
    };
    let proxy = proxy(&ca, &server, &by_service());
    proxy.wait_for_members(&["compilers"]);
    compiler.hold();
    let client = proxy.client(Some(&ca.agent("web01")));
    let mut running = client.connect().expect("connects");
    running.send("GET", CATALOG, &[], b"").expect("sends");
    compiler.wait_for_request(1, LIMIT);
    let turns = 20;
    for turn in 1..=turns {
        server.replace(&named(turn));
        wait_for_addresses(&proxy, "compilers", &[address(turn)]);
    }
    compiler.release();
    assert_eq!(running.read_response().expect("an answer").status, 200);
    proxy.wait_for_members(&["compilers"]);
    send(&proxy, &ca, 1);
    server.replace(&named(turns + 1));
    wait_for_addresses(&proxy, "compilers", &[address(turns + 1)]);
    let removed: Vec<_> = (0..=turns).map(address).collect();
    let metrics = proxy.admin("GET", "/metrics").text();
    assert!(metrics.contains(&address(turns + 1)), "{metrics}");
    let status = proxy.status().to_string();
    for address in &removed {
        assert!(!metrics.contains(address.as_str()), "{address}: {metrics}");
        assert!(!status.contains(address.as_str()), "{address}: {status}");
    }
}

#[test]
fn doctor_examines_the_members_that_dns_names() {
    let ca = Ca::new();
    let compiler = StandIn::builder("c1")
        .tls(&ca, &ca.server("c1.example.com"))
        .start();
    let Some(server) = NameServer::start(&targets(&[(0, 1, &compiler)])) else {
        return;
    };
    let pools = format!(
        "[pools.ca]\nscheme = \"http\"\nmembers = [\"127.0.0.1:1\"]\n\
         [pools.compilers]\n{CHECK}{}\nserver_names = [\"c1.example.com\"]\n",
        by_service()
    );
    let proxy = support::proxy(&ca).with(&dns(&server)).with(&pools).start();
    proxy.wait_for_members(&["compilers"]);
    let stored = proxy.state_directory().join("dns.json");
    wait_until(LIMIT, || stored.exists().then_some(())).expect("the answer is stored");
    let doctor = || proxy.command(&["doctor"], &[]).stdout;
    let found = doctor();
    assert!(found.contains(&shown(&compiler)), "{found}");
    server.stop();
    let found = doctor();
    assert!(
        found.contains(&shown(&compiler)),
        "by the stored answer: {found}"
    );
    assert!(
        found.contains("the answer stored before the restart is in use"),
        "{found}"
    );
}

#[test]
fn check_warns_of_hosts_without_an_address_where_a_server_answers() {
    let Some(server) = NameServer::start("c1 A 127.0.0.1\n") else {
        return;
    };
    let closed = testkit::HeldPort::take();
    let ca = Ca::new();
    let answering = server.address();
    for (servers, host, warned) in [
        (answering, "c1", None),
        (answering, "none", Some("none.example.com")),
        (closed.address(), "none", None),
    ] {
        let tables = format!(
            "[dns]\nservers = [\"{servers}\"]\ntimeout = \"200ms\"\n\
             [pools.ca]\nscheme = \"http\"\nmembers = [\"127.0.0.1:1\"]\n\
             [pools.compilers]\nmembers = [\"{host}.example.com:8140\"]\n"
        );
        let check = support::proxy(&ca).with(&tables).check();
        let printed = format!("{}{}", check.stdout, check.stderr);
        assert_eq!(check.code, Some(0), "{host}: {printed}");
        let words = "pools.compilers.members: pool compilers has no usable address of";
        match warned {
            Some(name) => assert!(printed.contains(&format!("{words} {name}")), "{printed}"),
            None => assert!(!printed.contains(words), "{host}: {printed}"),
        }
    }
}
