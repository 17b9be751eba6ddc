//! Members that DNS names: SRV records and addresses, by a real DNS server.

use serde_json::Value;
use testkit::{Ca, NameServer, Proxy, StandIn, srv_records, wait_until};

use crate::{
    guards::Agent,
    support::{self, LIMIT},
};

const CATALOG: &str = "/puppet/v3/catalog/web01?environment=production";
const SERVICE: &str = "_x-puppet._tcp";
const CHECK: &str = "check = { interval = \"20ms\", rise = 1, fall = 1 }\n";

/// `[dns]` with short bounds, so that a change is seen at once.
fn dns(server: &NameServer) -> String {
    let address = server.address();
    format!(
        "[dns]\nservers = [\"{address}\"]\nttl_min = \"100ms\"\nttl_max = \"1s\"\ntimeout = \"1s\"\n"
    )
}

/// A proxy whose compilers DNS names over plain HTTP, with these lines in their pool.
fn proxy(ca: &Ca, server: &NameServer, lines: &str) -> Proxy {
    let pools = format!(
        "[pools.ca]\nscheme = \"http\"\nmembers = [\"127.0.0.1:1\"]\n\
         [pools.compilers]\nscheme = \"http\"\n{CHECK}{lines}\n"
    );
    support::proxy(ca).with(&dns(server)).with(&pools).start()
}

fn by_service() -> String {
    format!("members = [\"srv:{SERVICE}.example.com\"]")
}

/// Stand-ins as targets: priority, weight, name.
fn targets(of: &[(u16, u16, &StandIn)]) -> String {
    let targets: Vec<_> = of
        .iter()
        .map(|(priority, weight, member)| {
            let port = member.socket_address().port();
            (*priority, *weight, port, member.name())
        })
        .collect();
    let hosts: String = of
        .iter()
        .map(|(_, _, member)| format!("{} A 127.0.0.1\n", member.name()))
        .collect();
    srv_records(SERVICE, &targets) + &hosts
}

/// A member as the proxy shows it.
fn shown(member: &StandIn) -> String {
    let port = member.socket_address().port();
    format!("{}.example.com:{port}", member.name())
}

fn members(status: &Value, pool: &str) -> Vec<Value> {
    let pools = status["pools"].as_array().expect("pools");
    let pool = pools.iter().find(|known| known["name"] == pool);
    pool.expect("the pool")["members"]
        .as_array()
        .expect("members")
        .clone()
}

fn addresses(status: &Value, pool: &str) -> Vec<String> {
    let members = members(status, pool).into_iter();
    members
        .map(|member| member["address"].as_str().unwrap_or_default().to_owned())
        .collect()
}

/// Waits until the pool has exactly these members, in this order.
#[track_caller]
fn wait_for_addresses(proxy: &Proxy, pool: &str, wanted: &[String]) {
    let what = format!("members {wanted:?}");
    proxy.wait_for_status(&what, |status| addresses(status, pool) == wanted);
}

#[track_caller]
fn send(proxy: &Proxy, ca: &Ca, times: usize) {
    let client = proxy.client(Some(&ca.agent("web01")));
    for _ in 0..times {
        assert_eq!(client.get(CATALOG).status, 200);
    }
}

#[test]
fn a_site_shares_by_weight_and_another_takes_over_while_it_is_down() {
    let ca = Ca::new();
    let [big, small, site_b] = ["big", "small", "site-b"].map(StandIn::start);
    let server = NameServer::start(&targets(&[(0, 75, &big), (0, 25, &small), (1, 5, &site_b)]));
    let lines = format!("{}\nalgorithm = \"round-robin\"", by_service());
    let proxy = proxy(&ca, &server, &lines);
    wait_for_addresses(&proxy, "compilers", &[&big, &small, &site_b].map(shown));
    proxy.wait_for_members(&["compilers"]);

    send(&proxy, &ca, 40);
    let counts = [&big, &small, &site_b].map(|member| member.requests().len());
    assert_eq!(counts, [30, 10, 0], "75 to 25, and none to site B");
    let status = proxy.status();
    let first = &members(&status, "compilers")[0];
    assert_eq!(
        (&first["weight"], &first["priority"]),
        (&75.into(), &0.into()),
        "{status:#}"
    );

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
fn a_changed_record_moves_no_request_in_flight_and_makes_no_new_generation() {
    let ca = Ca::new();
    let [old, new] = ["old", "new"].map(StandIn::start);
    let server = NameServer::start(&targets(&[(0, 1, &old)]));
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

/// The active alarm about a name of this pool, if there is one.
fn alarm(status: &Value, about: &str) -> Option<String> {
    let alarms = status["alarms"].as_array()?;
    let key = format!("dns-answer:{about}");
    let found = alarms.iter().find(|alarm| alarm["key"] == *key)?;
    Some(found["message"].as_str()?.to_owned())
}

fn about_compilers() -> String {
    format!("compilers: srv:{SERVICE}.example.com")
}

#[track_caller]
fn wait_for_alarm(proxy: &Proxy, words: &str) {
    wait_for(proxy, &about_compilers(), words);
}

#[track_caller]
fn wait_for_no_alarm(proxy: &Proxy) {
    proxy.wait_for_status("no alarm", |status| {
        alarm(status, &about_compilers()).is_none()
    });
}

#[track_caller]
fn wait_for(proxy: &Proxy, about: &str, words: &str) {
    proxy.wait_for_status(&format!("an alarm with {words:?}"), |status| {
        alarm(status, about).is_some_and(|message| message.contains(words))
    });
}

#[test]
fn a_name_with_several_addresses_is_a_member_for_each() {
    let ca = Ca::new();
    let compiler = StandIn::start("c1");
    let port = compiler.socket_address().port();
    // Nothing listens at the second address.
    let server = NameServer::start("c A 127.0.0.1\nc A 127.0.0.2\n");
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

    // Another order is no change; one address less is.
    server.replace("c A 127.0.0.1\n");
    wait_for_addresses(&proxy, "compilers", &[format!("c.example.com:{port}")]);
}

#[test]
fn over_tls_a_target_must_have_an_allowed_name_and_the_certificate_of_it() {
    let ca = Ca::new();
    let tls = |name: &str, certname: &str| {
        let credential = ca.server(certname);
        StandIn::builder(name).tls(&ca, &credential).start()
    };
    let compiler = tls("c1", "c1.example.com");
    // A host with a valid certificate of its own, which is no compiler.
    let agent = tls("web01", "web01.example.com");
    // A host that is named as a compiler, and shows the certificate of another.
    let impostor = tls("c2", "web02.example.com");
    let server = NameServer::start(&targets(&[(0, 1, &compiler), (1, 1, &impostor)]));
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
fn a_dns_server_that_fails_or_lies_changes_nothing() {
    let ca = Ca::new();
    let compiler = StandIn::start("c1");
    let good = targets(&[(0, 1, &compiler)]);
    let server = NameServer::start(&good);
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
            srv_records(SERVICE, &[(0, 1, 8140, "c1")]) + "c1 A 0.0.0.0\n",
            "0.0.0.0, which is not the address of a host",
        ),
        // No certificate can carry such a name.
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
    // The addresses of a target are missing, or lead elsewhere: those that it had stay.
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
    let server = NameServer::start(&targets(&[(0, 1, &compiler)]));
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
fn an_answer_that_does_not_fit_a_datagram_is_fetched_by_tcp() {
    let ca = Ca::new();
    let compiler = StandIn::start("c1");
    let port = compiler.socket_address().port();
    let others = (1..=100u16)
        .filter(|other| *other != port)
        .map(|other| (1, 1, other, "c1"));
    let all: Vec<_> = others.chain([(0, 1, port, "c1")]).collect();
    let server = NameServer::start(&(srv_records(SERVICE, &all) + "c1 A 127.0.0.1\n"));
    let proxy = proxy(&ca, &server, &by_service());
    proxy.wait_for_health("compilers", &shown(&compiler), "up");
    assert_eq!(addresses(&proxy.status(), "compilers").len(), all.len());
    send(&proxy, &ca, 1);
}

#[test]
fn dns_does_not_move_the_writes_of_a_ca_that_answers() {
    let ca = Ca::new();
    let [first, second] = ["ca1", "ca2"].map(|name| StandIn::builder(name).ca(&ca).start());
    let server = NameServer::start(&targets(&[(0, 1, &first), (1, 1, &second)]));
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
    // DNS names the other one first, then it alone: the first answers, so it keeps the writes.
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

    // Once it answers no longer, DNS decides, and does so for good.
    first.stop();
    wait_for_addresses(&proxy, "ca", &[other]);
    proxy.wait_for_status("no alarm", |status| {
        alarm(status, "writes to the CA").is_none()
    });
    write(2);
    assert_eq!((first.requests().len(), second.requests().len()), (1, 1));
}

#[test]
fn check_and_explain_work_without_dns_and_show_what_it_names() {
    let ca = Ca::new();
    let compiler = StandIn::start("c1");
    let server = NameServer::start(&targets(&[(3, 75, &compiler)]));
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
        explained.contains(&format!("{} (priority 3)", shown(&compiler))),
        "{explained}"
    );

    server.stop();
    let checked = built().check();
    assert_eq!(checked.code, Some(0), "a warning: {}", checked.stderr);
    assert!(
        checked.stderr.contains("it has no members of this name"),
        "{}",
        checked.stderr
    );
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
        assert!(
            outcome.stdout.contains("none: the pool has no member now"),
            "{}",
            outcome.stdout
        );
    }
}

/// `[dns]` that asks a name once, and again on a reload alone.
fn dns_once(server: &NameServer) -> String {
    dns(server).replace("ttl_min = \"100ms\"\nttl_max = \"1s\"", "ttl_min = \"1h\"")
}

#[test]
fn a_name_that_the_configuration_allows_no_longer_is_no_member() {
    let ca = Ca::new();
    let tls = |name: &str| {
        let credential = ca.server(&format!("{name}.example.com"));
        StandIn::builder(name).tls(&ca, &credential).start()
    };
    let [kept, dropped] = ["c1", "web01"].map(tls);
    let server = NameServer::start(&targets(&[(0, 1, &kept), (0, 1, &dropped)]));
    let names = "server_names = [\"c1.example.com\", \"web01.example.com\"]";
    let pools = format!(
        "[pools.ca]\nscheme = \"http\"\nmembers = [\"127.0.0.1:1\"]\n\
         [pools.compilers]\n{CHECK}{}\n{names}\n",
        by_service()
    );
    let proxy = support::proxy(&ca).with(&dns(&server)).with(&pools).start();
    proxy.wait_for_members(&["compilers"]);
    assert_eq!(addresses(&proxy.status(), "compilers").len(), 2);

    // DNS says the same as before.
    proxy.edit_config(names, "server_names = [\"c1.example.com\"]");
    proxy.reload_applied();
    assert_eq!(addresses(&proxy.status(), "compilers"), [""; 0]);
    wait_for_alarm(&proxy, "which `server_names` of the pool does not allow");
    server.replace(&targets(&[(0, 1, &kept)]));
    wait_for_addresses(&proxy, "compilers", &[shown(&kept)]);
}

#[test]
fn a_reload_asks_what_a_pool_does_not_know_and_asks_other_servers_all() {
    let ca = Ca::new();
    let [compiler, other] = ["c1", "c2"].map(StandIn::start);
    let server = NameServer::start(&targets(&[(0, 1, &compiler)]));
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
    // The name is known, and not to this pool.
    let text = proxy.config_text();
    let second = format!(
        "[pools.second]\nscheme = \"http\"\n{CHECK}{}\n",
        by_service()
    );
    proxy.write_config(&(text + "\n" + &second));
    proxy.reload_applied();
    assert_eq!(addresses(&proxy.status(), "second"), [shown(&compiler)]);

    let better = NameServer::start(&targets(&[(0, 1, &other)]));
    let before = server.address().to_string();
    proxy.edit_config(&before, &better.address().to_string());
    proxy.reload_applied();
    wait_for_addresses(&proxy, "compilers", &[shown(&other)]);
    wait_for_addresses(&proxy, "second", &[shown(&other)]);

    // What no pool asks any longer is not stored.
    let stored = proxy.state_directory().join("dns.json");
    let is_stored = || std::fs::read_to_string(&stored).is_ok_and(|text| text.contains("second"));
    wait_until(LIMIT, || is_stored().then_some(())).expect("the answer is stored");
    proxy.edit_config(&second, "");
    proxy.reload_applied();
    wait_until(LIMIT, || (!is_stored()).then_some(())).expect("it is stored no longer");
}

#[test]
fn a_proxy_starts_whatever_dns_says() {
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
    let server = NameServer::start(&(bad + &many + "c1 A 127.0.0.1\n"));
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
fn writes_move_soon_after_their_ca_is_gone_and_not_by_its_agent_check() {
    let ca = Ca::new();
    let [first, second] = ["ca1", "ca2"].map(|name| StandIn::builder(name).ca(&ca).start());
    let agent = Agent::start();
    let server = NameServer::start(&targets(&[(0, 1, &first), (1, 1, &second)]));
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
    // From now on an answer is valid for an hour.
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

/// The name of the service, as the status shows it.
fn name_status(status: &Value) -> Value {
    let names = status["dns"].as_array().expect("names");
    let name = format!("srv:{SERVICE}.example.com");
    let found = names.iter().find(|known| known["name"] == *name);
    found.expect("the name").clone()
}

#[test]
fn the_status_shows_when_and_how_each_name_was_looked_up() {
    let ca = Ca::new();
    let compiler = StandIn::start("c1");
    let good = targets(&[(0, 1, &compiler)])
        .replace(" SRV ", " 1 SRV ")
        .replace(" A ", " 2 A ");
    let server = NameServer::start(&good);
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
    assert_eq!(
        (&name["failure"], &name["is_stored"]),
        (&Value::Null, &false.into())
    );
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
fn the_last_valid_answer_survives_a_restart_without_dns() {
    let ca = Ca::new();
    let compiler = StandIn::start("c1");
    let good = targets(&[(3, 75, &compiler)]);
    let server = NameServer::start(&good);
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
    assert_eq!(
        (&member["priority"], &member["weight"]),
        (&3.into(), &75.into())
    );
    let shown_by_status = support::done(&second, &["status"], &[]);
    assert!(shown_by_status.contains("its members were stored before the last start"));
    // What a start would use now.
    let checked = start("").check();
    assert!(
        checked.stdout.contains(&shown(&compiler)),
        "{}",
        checked.stdout
    );
    server.restart();
    wait_for_no_alarm(&second);
    assert_eq!(name_status(&second.status())["is_stored"], false);
    second.stop();

    // It is used by the rules of the pool alone, and only if it can be read.
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
fn a_restart_moves_no_writes_of_a_ca_that_answers() {
    let ca = Ca::new();
    let [first, second] = ["ca1", "ca2"].map(|name| StandIn::builder(name).ca(&ca).start());
    let server = NameServer::start(&targets(&[(0, 1, &first), (1, 1, &second)]));
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

    // It is gone when the proxy starts: DNS decides.
    first.stop();
    let last = start();
    wait_for_addresses(&last, "ca", std::slice::from_ref(&other));
    wait_until(LIMIT, || is_stored(&other)).expect("the other is stored");
}

#[test]
fn a_drained_member_stays_drained_whatever_dns_makes_of_its_name() {
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
    let server = NameServer::start(&one);
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

    // Over a restart, too; and the name alone means the address that stays.
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
    // A member that DNS removes and brings back is as the operator left it.
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

    // So is one that a reload names otherwise.
    let first_only = format!("{{ address = \"{name}\", addresses = \"first\" }}");
    proxy.edit_config(&format!("\"{name}\""), &first_only);
    support::done(&proxy, &["reload"], &[]);
    proxy.wait_for_status("the name is drained", |status| {
        states(status) == [of(&name, "drain")]
    });
}

#[test]
fn a_ca_with_another_address_keeps_its_writes_and_raises_no_alarm() {
    let ca = Ca::new();
    let first = StandIn::builder("ca1").ca(&ca).start();
    let port = first.socket_address().port();
    let server = NameServer::start("ca A 127.0.0.1\n");
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

#[test]
fn what_waits_in_the_queue_goes_to_a_member_that_dns_adds() {
    let ca = Ca::new();
    let [old, new] = ["old", "new"].map(StandIn::start);
    let server = NameServer::start(&targets(&[(0, 1, &old)]));
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
fn members_that_dns_has_removed_leave_nothing_behind() {
    let ca = Ca::new();
    let compiler = StandIn::start("c");
    let port = compiler.socket_address().port();
    let named = |turn: usize| {
        let name = format!("t{turn}");
        srv_records(SERVICE, &[(0, 1, port, &name)]) + &format!("{name} A 127.0.0.1\n")
    };
    let address = |turn: usize| format!("t{turn}.example.com:{port}");
    let server = NameServer::start(&named(0));
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
fn a_reload_while_dns_is_asked_puts_the_new_servers_in_force() {
    let ca = Ca::new();
    let compiler = StandIn::start("c1");
    let server = NameServer::start(&targets(&[(0, 1, &compiler)]));
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
    // A question is running now, and does so for long.
    assert_eq!(addresses(&proxy.status(), "compilers"), [""; 0]);
    proxy.edit_config(&silent, &good);
    proxy.reload_applied();
    wait_for_addresses(&proxy, "compilers", &[shown(&compiler)]);
}

#[test]
fn doctor_examines_the_members_that_dns_names() {
    let ca = Ca::new();
    let compiler = StandIn::builder("c1")
        .tls(&ca, &ca.server("c1.example.com"))
        .start();
    let server = NameServer::start(&targets(&[(0, 1, &compiler)]));
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
