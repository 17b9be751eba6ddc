//! The metrics listener: metrics, readiness and liveness over plain HTTP, beside the admin socket.

use std::{
    net::{SocketAddr, TcpListener, TcpStream},
    time::Duration,
};

use testkit::{Client, HeldPort, Proxy, wait_until};

use crate::support::{Estate, LIMIT, assert_contains};

fn estate() -> Estate {
    Estate::builder()
        .with("[metrics]\naddress = \"127.0.0.1:0\"")
        .start()
}

fn address(proxy: &Proxy) -> SocketAddr {
    let status = proxy.status();
    let address = status["metrics_address"]
        .as_str()
        .expect("metrics are served");
    address.parse().expect("an address")
}

#[test]
fn metrics_readiness_and_liveness_are_served_and_nothing_else() {
    let estate = estate();
    let client = Client::plain(address(&estate.proxy));
    let get = |path| client.request("GET", path, &[("Connection", "close")], b"");
    let metrics = get("/metrics");
    assert_eq!(metrics.status, 200);
    assert!(
        metrics
            .text()
            .contains("\nproscenium_pool_members_available"),
        "{}",
        metrics.text()
    );
    assert_eq!(
        (get("/ready").status, get("/ready").text()),
        (200, "ready\n".to_owned())
    );
    assert_eq!(
        (get("/live").status, get("/live").text()),
        (200, "live\n".to_owned())
    );
    for path in ["/", "/v1/status", "/v1/blocks", "/metrics/"] {
        assert_eq!(get(path).status, 404, "{path}");
    }
    let post = client.request("POST", "/metrics", &[("Connection", "close")], b"");
    assert_eq!(post.status, 405);
}

#[test]
fn silent_connections_do_not_delay_a_health_check() {
    let estate = estate();
    let address = address(&estate.proxy);
    // Far more connections than the listener accepts.
    let _silent: Vec<_> = (0..300)
        .map(|_| TcpStream::connect(address).expect("connects"))
        .collect();
    let client = Client::plain(address);
    for path in ["/ready", "/live", "/metrics"] {
        let reply = client.request("GET", path, &[("Connection", "close")], b"");
        assert_eq!(reply.status, 200, "{path}");
    }
}

#[test]
fn a_proxy_without_a_compiler_is_not_ready_and_lives() {
    let estate = estate();
    let client = Client::plain(address(&estate.proxy));
    let get = |path| client.request("GET", path, &[("Connection", "close")], b"");
    for compiler in &estate.compilers {
        let words = ["drain", "compilers", &compiler.address(), "--force"];
        assert_eq!(estate.proxy.command(&words, &[]).code, Some(0));
    }
    let ready = get("/ready");
    assert_eq!(
        (ready.status, ready.text()),
        (503, "no compiler is available\n".to_owned())
    );
    assert_eq!(get("/live").status, 200);
}

#[test]
fn a_reload_moves_and_closes_the_metrics_listener() {
    let estate = estate();
    let proxy = &estate.proxy;
    let first = address(proxy);
    let free = HeldPort::take();
    let wanted = free.address();
    drop(free);
    proxy.edit_config("127.0.0.1:0\"", &format!("{wanted}\""));
    proxy.reload_applied();
    assert_eq!(address(proxy), wanted);
    assert_eq!(Client::plain(wanted).get("/live").status, 200);
    let is_closed = || {
        Client::plain(first)
            .try_request("GET", "/live", &[], b"")
            .is_err()
    };
    assert!(wait_until(LIMIT, || is_closed().then_some(())).is_some());
    proxy.edit_config("[metrics]", "[dns]\n#");
    proxy.edit_config(&format!("address = \"{wanted}\""), "");
    proxy.reload_applied();
    assert!(proxy.status()["metrics_address"].is_null());
}

#[test]
fn an_address_that_is_in_use_stops_a_start_with_its_name() {
    let held = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = held.local_addr().expect("an address");
    let failed = crate::support::proxy(&testkit::Ca::new())
        .without_members()
        .with(&format!("[metrics]\naddress = \"{taken}\""))
        .try_start()
        .err()
        .expect("the port is in use");
    assert_eq!(failed.code, Some(75), "{}", failed.stderr);
    assert_contains(&failed.stderr, "metrics.address");
}

#[test]
fn check_accepts_the_address_that_the_running_proxy_has_open() {
    let estate = estate();
    let proxy = &estate.proxy;
    let open = address(proxy);
    proxy.edit_config("127.0.0.1:0\"", &format!("{open}\""));
    let checked = proxy.command(&["check"], &[]);
    assert_eq!(checked.code, Some(0), "{checked:?}");
}

#[test]
fn silent_clients_of_the_metrics_listener_do_not_stop_the_proxy() {
    let estate = estate();
    let address = address(&estate.proxy);
    let silent: Vec<_> = (0..20)
        .map(|_| TcpStream::connect(address).expect("connects"))
        .collect();
    assert_eq!(estate.proxy.status()["phase"], "serving");
    estate.proxy.terminate();
    let stopped = estate.proxy.wait_for_end(Duration::from_secs(20));
    assert_eq!(stopped.code, Some(0), "{stopped:?}");
    drop(silent);
}
