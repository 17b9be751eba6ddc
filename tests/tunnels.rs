//! Tunnels after an upgrade: bytes in both directions, ends, limits, revocation and memory.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use testkit::{Reply, ReplyGate, TestConnection, Tunnel, wait_until};

use crate::support::{
    Estate, LIMIT, QUICK_CHECK, assert_contains, assert_identity, assert_refused,
    paths::{CATALOG, FILE},
    tunnels::{
        CHAT, WEBSOCKET, assert_closed, builder, chatting, connect, end, in_flight, opened,
        opened_by, start,
    },
    wait_for,
};

#[test]
fn bytes_pass_in_both_directions_after_a_101_and_one_record_counts_them() {
    let estate = chatting();
    let agent = estate.ca.agent("web01");
    let mut tunnel = connect(&estate, &agent);
    tunnel
        .send(
            "GET",
            CHAT,
            &[
                ("Connection", "keep-alive, upgrade, X-Client-Verify, X-Mine"),
                ("Upgrade", "WebSocket"),
                ("X-Client-DN", "CN=web02"),
                ("X-Mine", "1"),
                ("Sec-WebSocket-Key", "MDEyMzQ1Njc4OWFiY2RlZg=="),
            ],
            b"",
        )
        .expect("sends");
    let answer = tunnel.read_head().expect("an answer");
    assert_eq!(answer.status, 101);
    assert_eq!(answer.headers.only("connection"), "upgrade");
    assert_eq!(answer.headers.only("upgrade"), "websocket");
    for name in ["content-length", "transfer-encoding"] {
        assert!(answer.headers.get(name).is_none(), "{answer:?}");
    }
    let asked = estate.only_request();
    assert_identity(&asked, "SUCCESS", Some("CN=web01"));
    assert_eq!(asked.only("connection"), "upgrade");
    assert_eq!(asked.only("upgrade"), "WebSocket");
    assert_eq!(
        answer.headers.only("x-request-id"),
        asked.only("x-request-id")
    );
    assert_eq!(asked.only("sec-websocket-key"), "MDEyMzQ1Njc4OWFiY2RlZg==");
    assert!(asked.headers.get("x-mine").is_none(), "it was nominated");

    for piece in [&b"hello"[..], b"\0\xff\r\n\r\n", b"again"] {
        tunnel.send_raw(piece).expect("sends");
        assert_eq!(tunnel.read_bytes(piece.len()).expect("an echo"), piece);
    }
    let open = [("pool", "compilers")];
    assert_eq!(
        estate.proxy.metrics().sum("proscenium_tunnels_open", &open),
        1.0
    );
    let answered = [("route", "chat"), ("code", "101")];
    let count = |labels: &[(&str, &str)]| {
        estate
            .proxy
            .metrics()
            .sum("proscenium_requests_total", labels)
    };
    assert_eq!(count(&answered), 1.0, "answered is answered");
    assert_eq!(in_flight(&estate), 1, "the member's lease is the tunnel's");
    assert!(estate.proxy.records().is_empty(), "it goes on");

    tunnel.half_close();
    assert_eq!(tunnel.read_bytes(1).expect("an end in order"), b"");
    let record = estate.wait_for_records(1).remove(0);
    assert_eq!(record["status"], 101, "{record}");
    assert_eq!(record["ended_by"], "client", "{record}");
    assert!(record["reason"].is_null(), "{record}");
    assert_eq!(record["bytes_in"], 16);
    assert_eq!(record["bytes_out"], 16);
    assert_eq!(record["route"], "chat");
    assert_eq!(record["certname"], "web01");
    assert_closed(&estate);
    assert_eq!(count(&answered), 1.0, "counted once");
}

#[test]
fn bytes_sent_before_the_101_are_forwarded_after_it() {
    let estate = chatting();
    let agent = estate.ca.agent("web01");
    let member = &estate.compilers[0];
    member.hold();
    let mut tunnel = connect(&estate, &agent);
    let mut bytes = tunnel.head("GET", CHAT, &WEBSOCKET, None);
    bytes.extend_from_slice(b"early");
    tunnel.send_raw(&bytes).expect("sends");
    member.wait_for_request(1, LIMIT);
    // The client sends more bytes after those that the proxy read with the head.
    tunnel.send_raw(b" and soon").expect("sends");
    let so_far = member.raw_connections().pop().expect("a connection");
    assert!(so_far.ends_with(b"\r\n\r\n"), "no byte behind the head");
    member.release();
    assert_eq!(tunnel.read_head().expect("an answer").status, 101);
    assert_eq!(tunnel.read_bytes(14).expect("an echo"), b"early and soon");
    end(&estate, tunnel);
}

#[test]
fn bytes_that_a_member_sends_with_its_101_are_forwarded() {
    let estate = chatting();
    estate.compilers[0].answer(|_| Some(Reply::switching("websocket").body(b"welcome")));
    let agent = estate.ca.agent("web01");
    let mut tunnel = opened(&estate, &agent);
    assert_eq!(tunnel.read_bytes(7).expect("bytes"), b"welcome");
    end(&estate, tunnel);
}

#[test]
fn a_clean_close_is_passed_on_as_a_clean_close_over_tls() {
    let estate = start(builder("").tls_members());
    let agent = estate.ca.agent("web01");
    let mut tunnel = opened(&estate, &agent);
    tunnel.send_raw(b"hello").expect("sends");
    assert_eq!(tunnel.read_bytes(5).expect("an echo"), b"hello");
    tunnel.half_close();
    assert_eq!(tunnel.read_bytes(1).expect("an end in order"), b"");
    assert_closed(&estate);
}

#[test]
fn the_close_of_one_direction_is_passed_on_and_the_other_stays_open() {
    let estate = chatting();
    let agent = estate.ca.agent("web01");
    // The client closes first, and still gets the remaining bytes from the member.
    estate.compilers[0].tunnel(|tunnel| {
        let mut all = Vec::new();
        while let Some(piece) = tunnel.read() {
            all.extend(piece);
        }
        tunnel.send(b"heard ");
        tunnel.send(&all);
        tunnel.finish();
    });
    estate.compilers[0].answer(|_| Some(Reply::switching("websocket")));
    let mut tunnel = opened(&estate, &agent);
    tunnel.send_raw(b"everything").expect("sends");
    tunnel.half_close();
    assert_eq!(tunnel.read_bytes(16).expect("bytes"), b"heard everything");
    assert_eq!(tunnel.read_bytes(1).expect("an end in order"), b"");
    let record = estate.wait_for_records(1).remove(0);
    assert_eq!(record["ended_by"], "client", "{record}");

    // The member closes first, and still gets the remaining bytes from the client.
    let heard = ReplyGate::new();
    let output = heard.clone();
    estate.compilers[0].tunnel(move |tunnel| {
        tunnel.send(b"bye");
        tunnel.finish();
        if tunnel.read_bytes(4) == b"late" {
            output.release();
        }
        let _ = tunnel.read();
    });
    let mut tunnel = opened(&estate, &agent);
    assert_eq!(tunnel.read_bytes(4).expect("an end in order"), b"bye");
    tunnel.send_raw(b"late").expect("sends");
    let came = wait_until(LIMIT, || heard.is_open().then_some(()));
    assert!(came.is_some(), "what came after the member's end was lost");
    tunnel.half_close();
    let record = estate.wait_for_records(2).remove(1);
    assert_eq!(
        (
            &record["ended_by"],
            &record["bytes_in"],
            &record["bytes_out"]
        ),
        (&"member".into(), &4.into(), &3.into()),
        "{record}"
    );
    assert_closed(&estate);
}

#[test]
fn a_side_that_resets_its_connection_ends_the_tunnel() {
    let estate = chatting();
    let agent = estate.ca.agent("web01");
    estate.compilers[0].tunnel(|tunnel| {
        let _ = tunnel.read();
        tunnel.reset();
    });
    let mut tunnel = opened(&estate, &agent);
    tunnel.send_raw(b"x").expect("sends");
    assert!(tunnel.is_closed_within(LIMIT));
    let record = estate.wait_for_records(1).remove(0);
    assert_eq!(record["status"], 101, "{record}");
    assert_eq!(record["reason"], "member-closed", "{record}");
    assert_eq!(record["ended_by"], "member", "{record}");
    estate.compilers[0].tunnel(|tunnel: &mut Tunnel<'_>| tunnel.echo());
    opened(&estate, &agent).reset();
    let record = estate.wait_for_records(2).remove(1);
    assert_eq!(record["status"], 101, "{record}");
    assert_eq!(record["reason"], "client-gone", "{record}");
    assert_eq!(record["ended_by"], "client", "{record}");
    assert_closed(&estate);
    wait_for("the member hears of it", || {
        estate.compilers[0].connections_open() == 0
    });
}

#[test]
fn a_client_that_disconnects_before_the_101_leaves_nothing_open() {
    let estate = chatting();
    let agent = estate.ca.agent("web01");
    estate.compilers[0].hold();
    let mut tunnel = connect(&estate, &agent);
    tunnel.send("GET", CHAT, &WEBSOCKET, b"").expect("sends");
    estate.compilers[0].wait_for_request(1, LIMIT);
    tunnel.reset();
    let record = estate.wait_for_records(1).remove(0);
    assert_eq!(record["status"], 499, "{record}");
    assert_eq!(record["reason"], "client-gone", "{record}");
    estate.compilers[0].release();
    assert_closed(&estate);
}

#[test]
fn an_idle_tunnel_is_closed_after_tunnel_idle_timeout() {
    let estate = start(
        builder("")
            .compiler_pool("tunnel_idle_timeout = \"1s\"\nidle_timeout = \"200ms\"")
            .with("[upstream]\ntunnel_idle_timeout = \"10m\""),
    );
    let agent = estate.ca.agent("web01");
    // The tunnel stays open for longer than the limit, because the member sends a byte now and then.
    estate.compilers[0].tunnel(|tunnel| {
        for _ in 0..8 {
            tunnel.send(b".");
            // The test depends on real time.
            thread::sleep(Duration::from_millis(250));
        }
        let _ = tunnel.read();
    });
    let began = Instant::now();
    let mut tunnel = opened(&estate, &agent);
    assert_eq!(tunnel.read_bytes(8).expect("it stays open"), b"........");
    let end = tunnel.read_bytes(1).expect("closed with a farewell");
    assert!(
        end.is_empty() && began.elapsed() >= Duration::from_millis(2700),
        "{:?}",
        began.elapsed()
    );
    let record = estate.wait_for_records(1).remove(0);
    assert_eq!(record["reason"], "tunnel-idle-timeout", "{record}");
    assert_eq!(record["ended_by"], "proxy", "{record}");
    assert_eq!(record["bytes_out"], 8, "{record}");
    let limit = [("limit", "tunnel_idle_timeout")];
    assert_eq!(
        estate
            .proxy
            .metrics()
            .sum("proscenium_limits_hit_total", &limit),
        1.0
    );
    assert_closed(&estate);
}

#[test]
fn the_tunnel_of_a_revoked_client_is_closed_within_a_second_and_others_stay_open() {
    let estate = chatting();
    let (bad, good) = (estate.ca.agent("web01"), estate.ca.agent("web02"));
    let mut cut = opened(&estate, &bad);
    let mut kept = opened(&estate, &good);
    estate.ca.revoke(&bad);
    estate.proxy.swap_crl();
    assert_cut(&estate, &mut cut);
    kept.send_raw(b"still here").expect("sends");
    assert_eq!(kept.read_bytes(10).expect("an echo"), b"still here");
    let revoked = estate
        .proxy
        .metrics()
        .sum("proscenium_connections_revoked_total", &[]);
    assert_eq!(revoked, 1.0);
    end(&estate, kept);
}

#[test]
fn t08_tunnels_of_a_revoked_client_forward_nothing_and_close_at_revoked_close_rate() {
    let slowly = builder("").with("[trust]\nrevoked_close_rate = 4");
    let estate = start(slowly);
    let agent = estate.ca.agent("web01");
    let mut tunnels: Vec<_> = (0..9).map(|_| opened(&estate, &agent)).collect();
    for tunnel in &mut tunnels {
        tunnel.send_raw(b"hello").expect("sends");
        assert_eq!(tunnel.read_bytes(5).expect("an echo"), b"hello");
    }
    estate.ca.revoke(&agent);
    let began = Instant::now();
    estate.proxy.swap_crl();
    let revoked = "proscenium_connections_revoked_total";
    estate.wait_for_metric(revoked, &[], 1.0);
    // Tunnels that are not closed yet forward nothing in either direction.
    for tunnel in &mut tunnels {
        let _ = tunnel.send_raw(b"once more");
    }
    for tunnel in &mut tunnels {
        assert!(tunnel.is_closed_within(LIMIT), "closed without an echo");
    }
    // The proxy closes the first tunnel at once, and each further one 250 ms after the one before.
    let took = began.elapsed();
    assert!(took >= Duration::from_secs(2), "{took:?}");
    for record in estate.wait_for_records(9) {
        assert_eq!(record["reason"], "refused-certificate", "{record}");
        assert_eq!(record["bytes_in"], 5, "{record}");
    }
    assert_closed(&estate);
}

#[test]
fn a_busy_tunnel_of_a_revoked_client_is_closed_too() {
    let estate = chatting();
    let agent = estate.ca.agent("web01");
    estate.compilers[0].tunnel(|tunnel| while tunnel.send(&[b'x'; 16 << 10]) {});
    let mut tunnel = opened(&estate, &agent);
    tunnel.read_bytes(1 << 20).expect("bytes");
    estate.ca.revoke(&agent);
    estate.proxy.swap_crl();
    while tunnel
        .read_bytes(1 << 16)
        .is_ok_and(|bytes| bytes.len() == 1 << 16)
    {}
    let record = estate.wait_for_records(1).remove(0);
    assert_eq!(record["reason"], "refused-certificate", "{record}");
}

#[test]
fn a_change_of_the_bundle_closes_tunnels_of_clients_that_are_no_longer_trusted() {
    let estate = chatting();
    let agent = estate.ca.agent("web01");
    let mut tunnel = opened(&estate, &agent);
    // With another CA, cached chains are not used, and agents of the old CA are refused.
    let other = testkit::Ca::other();
    estate
        .proxy
        .write("ssl/certs/ca.pem", &other.bundle_pem(), 0o644);
    estate.proxy.write("ssl/crl.pem", &other.crl_pem(), 0o644);
    estate.proxy.reload_applied();
    assert_cut(&estate, &mut tunnel);
}

#[test]
fn an_expiring_certificate_closes_its_tunnel() {
    let estate = chatting();
    let soon = estate.ca.leaf("web01").valid_seconds(-60, 6).issue();
    let mut tunnel = opened(&estate, &soon);
    tunnel.send_raw(b"hello").expect("sends");
    assert_eq!(tunnel.read_bytes(5).expect("an echo"), b"hello");
    assert_cut(&estate, &mut tunnel);
}

#[test]
fn a_stop_waits_for_tunnels_and_keeps_serving_them() {
    let estate = start(builder("").top("drain_grace = \"10m\""));
    let agent = estate.ca.agent("web01");
    let mut tunnel = opened(&estate, &agent);
    estate.proxy.terminate();
    estate.wait_for_status("draining", |status| status["phase"] == "draining");
    tunnel.send_raw(b"still here").expect("sends");
    assert_eq!(tunnel.read_bytes(10).expect("an echo"), b"still here");
    tunnel.half_close();
    assert_eq!(tunnel.read_bytes(1).expect("an end in order"), b"");
    let outcome = estate.proxy.wait_for_end(LIMIT);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert_contains(&outcome.stderr, "finished=1 cut=0");
}

#[test]
fn tunnels_are_closed_and_recorded_at_the_end_of_the_grace() {
    let estate = start(builder("").top("drain_grace = \"1s\""));
    let agent = estate.ca.agent("web01");
    let mut tunnel = opened(&estate, &agent);
    tunnel.send_raw(b"hello").expect("sends");
    assert_eq!(tunnel.read_bytes(5).expect("an echo"), b"hello");
    estate.proxy.terminate();
    assert!(tunnel.is_closed_within(LIMIT));
    let outcome = estate.proxy.wait_for_end(LIMIT);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert_contains(&outcome.stderr, "finished=0 cut=1");
    let records = estate.proxy.records();
    assert_eq!(records.len(), 1);
    assert_eq!(
        (
            &records[0]["reason"],
            &records[0]["ended_by"],
            &records[0]["bytes_in"]
        ),
        (&"drain-grace".into(), &"proxy".into(), &5.into()),
        "{}",
        records[0]
    );
}

#[test]
fn a_tunnel_takes_a_slot_of_its_member() {
    for (limits, member) in [("", "max = 1"), ("connections_max = 1", "weight = 1")] {
        let estate = start(
            builder("")
                .compiler_pool(limits)
                .compiler_pool("queue_wait_max = \"100ms\"")
                .compiler(1, member),
        );
        let agent = estate.ca.agent("web01");
        let tunnel = opened(&estate, &agent);
        let busy = &["are busy"];
        assert_refused(&estate.client(&agent).get(CATALOG), 503, busy);
        // The queue is off, so a request that would have to wait is refused.
        let further = |certname| {
            let client = estate.agent(certname);
            client.request("GET", CHAT, &WEBSOCKET, b"")
        };
        assert_refused(&further("web02"), 503, busy);
        assert_refused(&further("web01"), 503, &["client_share"]);
        estate.wait_for_record(|record| record["reason"] == "queue-full");
        end(&estate, tunnel);
        assert_eq!(
            estate.client(&agent).get(CATALOG).status,
            200,
            "{limits} {member}"
        );
    }
}

#[test]
fn a_tunnel_outlives_its_route() {
    let estate = chatting();
    let agent = estate.ca.agent("web01");
    let mut tunnel = opened(&estate, &agent);
    estate.edit_config("upgrade = [\"websocket\"]\n", "");
    estate.proxy.reload_applied();
    tunnel.send_raw(b"hello").expect("sends");
    assert_eq!(tunnel.read_bytes(5).expect("an echo"), b"hello");
    end(&estate, tunnel);
    let answer = estate.client(&agent).request("GET", CHAT, &WEBSOCKET, b"");
    assert_eq!(
        answer.status, 404,
        "the member was not asked for an upgrade"
    );
}

#[test]
fn a_tunnel_to_a_slow_reader_uses_little_memory() {
    const BYTES: usize = 32 << 20;
    const GROWTH_KIB_MAX: u64 = 4096;
    let estate = chatting();
    let agent = estate.ca.agent("web01");
    end(&estate, opened(&estate, &agent));
    let client = Arc::new(estate.client(&agent).receive_buffer(64 << 10));
    let before = estate.proxy.memory_peak_kib();
    // Towards the client: it reads nothing while the member can send.
    let stuck = ReplyGate::new();
    let held = stuck.clone();
    estate.compilers[0].tunnel(move |tunnel| {
        let piece = vec![b'x'; 64 << 10];
        for sent in 0..BYTES / piece.len() {
            if sent == 16 {
                held.release();
            }
            tunnel.send(&piece);
        }
        tunnel.finish();
    });
    let mut tunnel = opened_by(&client);
    let sending = wait_until(LIMIT, || stuck.is_open().then_some(()));
    assert!(sending.is_some());
    let mut got = 0;
    while got < BYTES {
        let piece = tunnel.read_bytes(64 << 10).expect("bytes");
        assert!(!piece.is_empty(), "{got} bytes came");
        got += piece.len();
    }
    end(&estate, tunnel);
    // Towards the member: it reads in small pieces.
    estate.compilers[0].tunnel(|tunnel| {
        let mut got = 0;
        while got < BYTES {
            got += tunnel.read_bytes(64 << 10).len();
        }
        tunnel.send(b"all");
        tunnel.finish();
    });
    let mut tunnel = opened_by(&client);
    let piece = vec![b'y'; 64 << 10];
    for _ in 0..BYTES / piece.len() {
        tunnel.send_raw(&piece).expect("sends");
    }
    assert_eq!(tunnel.read_bytes(3).expect("bytes"), b"all");
    let growth = estate.proxy.memory_growth_kib(before);
    assert!(growth < GROWTH_KIB_MAX, "{growth} KiB");
    end(&estate, tunnel);
}

/// Asserts that the tunnel of a client that is no longer accepted is closed long before any other limit would close it,
/// and that the record has the reason.
#[track_caller]
fn assert_cut(estate: &Estate, tunnel: &mut TestConnection) {
    assert!(tunnel.is_closed_within(LIMIT));
    let record = estate.wait_for_records(1).remove(0);
    assert_eq!(record["status"], 101, "{record}");
    assert_eq!(record["reason"], "refused-certificate", "{record}");
    assert_eq!(record["ended_by"], "proxy", "{record}");
    assert!(
        record["cause"]
            .as_str()
            .is_some_and(|cause| cause.contains("CN=web01")),
        "{record}"
    );
}

#[test]
fn tunnels_of_a_member_that_goes_down_stay_open_or_are_closed_one_by_one() {
    for (lines, is_cut) in [
        ("", false),
        ("on_down = \"cut\"\ntunnel_close_rate = 5", true),
    ] {
        let builder = builder("").compiler_pool(QUICK_CHECK).compiler_pool(lines);
        let estate = start(builder);
        let member = &estate.compilers[0];
        let agent = estate.ca.agent("web01");
        let mut tunnels: Vec<_> = (0..3).map(|_| opened(&estate, &agent)).collect();
        member.answer(|request| request.is_probe().then(|| Reply::status(503)));
        estate.wait_for_health("compilers", &member.address(), "down");
        if !is_cut {
            for tunnel in &mut tunnels {
                tunnel.send_raw(b"hello").expect("sends");
                assert_eq!(tunnel.read_bytes(5).expect("an echo"), b"hello");
            }
            continue;
        }
        for tunnel in &mut tunnels {
            assert_eq!(tunnel.read_bytes(1).expect("an end in order"), b"");
        }
        for record in estate.wait_for_records(3) {
            assert_eq!(record["ended_by"], "proxy", "{record}");
            assert_eq!(record["reason"], "member-down", "{record}");
        }
        assert_closed(&estate);
    }
}

#[test]
fn a_member_without_probes_keeps_its_tunnels_after_a_refused_connection() {
    let lines = "check = { type = \"none\" }\non_down = \"cut\"\ntunnel_close_rate = 1000";
    let estate = start(builder("").compiler_pool(lines));
    let member = &estate.compilers[0];
    let agent = estate.ca.agent("web01");
    let mut tunnel = opened(&estate, &agent);
    member.stop();
    let mut request = estate.client(&agent).connect().expect("connects");
    request.send("GET", FILE, &[], b"").expect("sends");
    estate.wait_for_health("compilers", &member.address(), "down");
    member.restart();
    // The member is tried again after one second. By then the proxy would have closed the tunnels in turn.
    assert_eq!(request.read_response().expect("an answer").status, 200);
    tunnel.send_raw(b"hello").expect("sends");
    assert_eq!(tunnel.read_bytes(5).expect("an echo"), b"hello");
}
