//! Connections to members: reuse, limits, the wait in the queue, and members that cannot be reached or resolved.

use std::{
    net::{SocketAddr, TcpListener, UdpSocket},
    thread,
};

use testkit::{Ca, StandIn};

use crate::support::{
    self, Estate, LIMIT, NO_WAIT, assert_unavailable, connection,
    paths::{CATALOG, FILE},
    pools::{UNPROBED, answer_once, answered, odd, one_worker, pending, shares},
    wait_for,
};

/// A name that no resolver knows (RFC 2606).
const NOWHERE: &str = "no-such-member.invalid:8140";

#[test]
fn connections_to_members_are_reused() {
    let estate = one_worker(Estate::builder()).compilers(1).start();
    let probes = estate.compilers[0].connections_accepted();
    let mut connection = connection(&estate);
    for _ in 0..10 {
        assert_eq!(
            connection.request("POST", CATALOG, &[], b"facts").status,
            200
        );
    }
    let numbers: std::collections::BTreeSet<_> = estate
        .far_end()
        .iter()
        .map(|request| request.connection)
        .collect();
    assert_eq!(numbers.len(), 1, "{probes} before");
}

#[test]
fn an_idle_connection_is_closed_before_the_member_closes_it() {
    for by_pool in [false, true] {
        let mut estate = one_worker(Estate::builder())
            .compilers(1)
            .compiler_pool("check = { interval = \"1h\" }");
        estate = if by_pool {
            estate
                .compiler_pool("keepalive = \"0s\"")
                .with("[upstream]\nkeepalive = \"29s\"")
        } else {
            estate.with("[upstream]\nkeepalive = \"0s\"")
        };
        let estate = estate.start();
        let mut connection = connection(&estate);
        for _ in 0..3 {
            assert_eq!(connection.get(FILE).status, 200);
        }
        let numbers: std::collections::BTreeSet<_> = estate
            .far_end()
            .iter()
            .map(|request| request.connection)
            .collect();
        assert_eq!(numbers.len(), 3, "none was used again");
        wait_for("and none stands idle", || {
            estate.compilers[0].connections_open() == 0
        });
    }
}

#[test]
fn no_request_starves_at_a_member_with_one_connection() {
    let estate = Estate::builder()
        .one_agent_for_many()
        .compilers(1)
        .compiler_pool("connections_max = 1")
        .top("workers = 4")
        .start();
    crowd(&estate, 12, 60);
    assert_eq!(shares(&estate), [720]);
}

/// Asserts that many clients are served over the few connections of a member, and that these never exceed the limit.
fn crowd(estate: &Estate, clients: usize, requests: usize) {
    let agent = estate.ca.agent("web01");
    let crowd: Vec<_> = (0..clients)
        .map(|_| {
            let client = estate.client(&agent);
            thread::spawn(move || {
                let mut connection = client.connect().expect("connects");
                (0..requests)
                    .map(|_| connection.request("POST", CATALOG, &[], b"facts").status)
                    .collect::<Vec<_>>()
            })
        })
        .collect();
    for client in crowd {
        let statuses = client.join().expect("no panic");
        assert!(statuses.iter().all(|status| *status == 200), "{statuses:?}");
    }
}

#[test]
fn no_more_connections_than_connections_max_over_all_workers() {
    for (upstream, pool) in [
        ("connections_max = 2", ""),
        ("connections_max = 100", "connections_max = 2"),
    ] {
        let estate = Estate::builder()
            .one_agent_for_many()
            .compilers(1)
            .compiler_pool(pool)
            .compiler_pool("connect_timeout = \"1h\"")
            .compiler_pool("check = { interval = \"1h\" }")
            .top("workers = 4")
            .with(&format!("[upstream]\nclient_share = \"100%\"\n{upstream}"))
            .start();
        let probe = estate.compilers[0].connections_accepted();
        estate.compilers[0].hold();
        let mut waiting: Vec<_> = (0..12).map(|_| connection(&estate)).collect();
        for connection in &mut waiting {
            connection.send("GET", FILE, &[], b"").expect("sends");
        }
        estate.wait_for_status("ten wait", |status| {
            status["pools"].to_string().contains("\"waiting\":10")
        });
        estate.compilers[0].wait_for_request(2, LIMIT);
        assert_eq!(estate.compilers[0].connections_accepted() - probe, 2);
        answered(&estate, waiting);
        assert_eq!(shares(&estate), [12]);
        // Many busy clients share these few connections: no request waits while another worker has an idle connection.
        crowd(&estate, 12, 25);
        assert_eq!(shares(&estate), [312]);
    }
}

#[test]
fn a_worker_at_the_limit_has_an_idle_connection_of_another_worker_closed() {
    let estate = Estate::builder()
        .compilers(1)
        .compiler_pool("check = { interval = \"1h\" }")
        .compiler_pool("connections_max = 1")
        .top("workers = 4")
        .start();
    // Each client connection belongs to one worker, which sooner or later is not the worker with the idle connection.
    for _ in 0..24 {
        assert_eq!(connection(&estate).get(FILE).status, 200);
    }
    assert_eq!(shares(&estate), [24]);
}

#[test]
fn a_request_that_has_waited_for_queue_wait_max_gets_503() {
    let estate = Estate::builder()
        .compilers(1)
        .compiler_pool("connections_max = 1")
        .compiler_pool("queue_wait_max = \"200ms\"")
        .start();
    estate.compilers[0].hold();
    let first = pending(&estate, 1);
    assert_eq!(connection(&estate).get(FILE).status, 503);
    let record = estate.wait_for_record(|record| record["status"] == 503);
    assert_eq!(record["reason"], "queue-timeout");
    answered(&estate, first);
}

#[test]
fn a_member_whose_name_does_not_resolve_is_down_and_the_others_serve() {
    for check in ["check = { interval = \"20ms\" }", UNPROBED] {
        let good = StandIn::start("good");
        let estate = odd(&format!(
            "scheme = \"http\"\nplaintext = \"trusted-network\"\nmembers = [\"{NOWHERE}\", \"{}\"]\n{check}",
            good.address()
        ))
        .start();
        estate.wait_for_health("odd", &good.address(), "up");
        for _ in 0..4 {
            assert_eq!(connection(&estate).get(FILE).status, 200);
        }
        assert_eq!(good.requests().len(), 4);
        estate.wait_for_health("odd", NOWHERE, "down");
    }
}

#[test]
fn a_pool_in_which_no_name_resolves_has_no_available_member() {
    let estate = odd(&format!("members = [\"{NOWHERE}\"]\n{UNPROBED}\n{NO_WAIT}")).start();
    assert_unavailable(&connection(&estate).get(FILE));
    let record = estate.wait_for_record(|record| record["route"] == "odd");
    assert_eq!(record["reason"], "name-unresolved", "{record}");
    assert!(
        record["cause"]
            .as_str()
            .is_some_and(|cause| cause.contains("does not resolve")),
        "{record}"
    );
}

/// An address of this machine that is not loopback, if it has one.
fn own_address() -> Option<SocketAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // Nothing is sent: connecting a datagram socket only selects a route (RFC 5737 addresses lead nowhere).
    socket.connect("192.0.2.1:9").ok()?;
    socket
        .local_addr()
        .ok()
        .filter(|address| !address.ip().is_loopback())
}

#[test]
fn plain_http_to_another_machine_is_refused_unless_allowed_by_the_configuration() {
    let lines = |plaintext: &str| {
        format!("[pools.ca]\nscheme = \"http\"\nmembers = [\"192.0.2.1:8140\"]\n{plaintext}")
    };
    let check = |plaintext: &str| {
        support::proxy(&Ca::new())
            .with(&lines(plaintext))
            .with("[pools.compilers]\nmembers = [\"c1:8140\"]")
            .check()
    };
    let refused = check("");
    assert_eq!(refused.code, Some(78), "{refused:?}");
    assert!((refused.stdout + &refused.stderr).contains("would leave this machine"));
    assert_eq!(check("plaintext = \"trusted-network\"").code, Some(0));
}

#[test]
fn plain_http_to_another_machine_is_sent_only_to_trusted_networks() {
    let Some(address) = own_address() else {
        eprintln!("this machine has no address but loopback: nothing to show");
        return;
    };
    let Ok(listener) = TcpListener::bind((address.ip(), 0)) else {
        eprintln!("{address} cannot be bound: nothing to show");
        return;
    };
    let member = listener.local_addr().expect("bound");
    thread::spawn(move || {
        for mut socket in listener.incoming().flatten() {
            answer_once(&mut socket);
        }
    });
    let estate = odd(&format!(
        "scheme = \"http\"\nplaintext = \"trusted-network\"\nmembers = [\"{member}\"]\n{UNPROBED}"
    ))
    .start();
    assert_eq!(connection(&estate).get(FILE).text(), "hi");
}

#[test]
fn a_member_on_a_unix_socket_serves() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("c1.sock");
    let member = StandIn::builder("unix").unix(&path).start();
    let estate = odd(&format!(
        "scheme = \"http\"\nmembers = [\"{}\"]",
        member.address()
    ))
    .start();
    estate.wait_for_members(&["odd"]);
    assert_eq!(connection(&estate).get(FILE).status, 200);
    assert_eq!(member.requests().len(), 1);
}
