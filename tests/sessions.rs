//! TLS sessions: how long they can be resumed, by which client and on which listener. Resumption never bypasses a
//! verdict.

use testkit::{Ca, Client, HeldPort, Protocol, TestConnection, wait_until};

use crate::support::{
    self, Estate, LIMIT, assert_refused,
    paths::{CA_CERTIFICATE, CATALOG},
};

/// A record of TLS 1.2 that is an alert (RFC 5246, 6.2.1).
const ALERT: u8 = 21;
/// Each way in which a session is resumed.
const WAYS: [fn(Client) -> Client; 3] = [Client::tls12, Client::tls13, Client::without_tickets];

#[test]
fn a_session_ends_with_its_lifetime_however_often_it_is_resumed() {
    let estate = living("3s");
    let agent = estate.ca.agent("web01");
    for way in WAYS {
        let client = way(estate.client(&agent));
        let mut resumed = 0;
        wait_until(LIMIT, || {
            let mut connection = client.connect().expect("connects");
            assert_eq!(connection.get(CATALOG).status, 200);
            if connection.resumed() {
                resumed += 1;
            } else if resumed > 1 {
                return Some(());
            } else {
                // The first handshake is a full one. On a stalled machine a later one may be, too.
                resumed = 0;
            }
            None
        })
        .expect("a full handshake is wanted again in the end");
    }
}

#[test]
fn ticket_keys_are_rotated_and_the_previous_key_stays_valid() {
    let estate = living("2s");
    let agent = estate.ca.agent("web01");
    for way in [Client::tls12, Client::tls13] {
        wait_until(LIMIT, || lives_over_a_rotation(&way(estate.client(&agent))))
            .expect("a ticket of an old key brings one of a new key");
    }
}

/// Opens several connections of one client, each with the ticket of the one before. Returns whether a ticket was
/// resumed after the key had changed.
fn lives_over_a_rotation(client: &Client) -> Option<()> {
    let mut before = None;
    for _ in 0..20 {
        let mut connection = client.connect().expect("connects");
        assert_eq!(connection.get(CATALOG).status, 200);
        let key = key_name(&connection).filter(|_| connection.resumed());
        if key.is_some() && before.is_some() && key != before {
            return Some(());
        }
        before = key;
    }
    None
}

fn key_name(connection: &TestConnection) -> Option<Vec<u8>> {
    Some(connection.offered_ticket()?.get(..16)?.to_vec())
}

#[test]
fn a_ticket_is_used_once_in_tls_1_3_and_while_its_key_is_valid_in_tls_1_2() {
    let estate = Estate::start();
    let agent = estate.ca.agent("web01");
    for (way, is_kept) in [
        (Client::tls12 as fn(Client) -> Client, true),
        (Client::tls13, false),
    ] {
        let client = way(estate.client(&agent));
        assert_eq!(client.get(CATALOG).status, 200);
        let resumed = || {
            let mut connection = client.connect().expect("connects");
            assert!(connection.resumed());
            assert_eq!(connection.get(CATALOG).status, 200);
            connection.offered_ticket().expect("a ticket")
        };
        let tickets = [resumed(), resumed(), resumed()];
        assert_eq!(tickets[0] == tickets[1], is_kept);
        assert_eq!(tickets[1] == tickets[2], is_kept);
    }
}

#[test]
fn early_data_is_never_offered() {
    let estate = Estate::start();
    let client = estate.agent("web01").tls13().eager();
    assert_eq!(client.get(CATALOG).status, 200);
    let mut resumed = client.connect().expect("connects");
    assert!(resumed.resumed() && resumed.offered_ticket().is_some());
    assert!(!resumed.may_be_early());
    assert_eq!(resumed.get(CATALOG).status, 200);
}

#[test]
fn a_client_that_ends_its_session_gets_close_notify_unless_it_has_disconnected() {
    let estate = Estate::start();
    let agent = estate.ca.agent("web01");
    // In TLS 1.3, a client that sends no request receives a ticket before the close, so that case is left out.
    for (way, asks) in [
        (Client::tls12 as fn(Client) -> Client, true),
        (Client::tls12, false),
        (Client::tls13, true),
    ] {
        let client = way(estate.client(&agent)).protocol(Protocol::Http1);
        let ended = |leaves| {
            let mut connection = client.connect().expect("connects");
            if asks {
                assert_eq!(connection.get(CATALOG).status, 200);
            }
            connection.last_words(leaves).expect("an end in order")
        };
        assert_ne!(
            ended(false),
            b"",
            "no end of the session to who waits for it"
        );
        assert_eq!(
            ended(true),
            b"",
            "an alert to a closed connection would cause a reset"
        );
    }
}

#[test]
fn a_client_that_half_closes_without_close_notify_gets_the_proxys_close_notify() {
    let estate = Estate::start();
    let client = estate.agent("web01").tls12().protocol(Protocol::Http1);
    for asks in [true, false] {
        let mut connection = client.connect().expect("connects");
        if asks {
            assert_eq!(connection.get(CATALOG).status, 200);
        }
        let words = connection.words_to_who_ends_without();
        assert_eq!(
            words.expect("an end in order").first(),
            Some(&ALERT),
            "asks: {asks}"
        );
    }
}

#[test]
fn a_client_that_sends_an_invalid_record_is_disconnected() {
    const NO_RECORD_OF_THIS_SESSION: &[u8] = b"\x17\x03\x03\x00\x18from some other session!";
    let estate = Estate::start();
    let agent = estate.ca.agent("web01");
    for way in [Client::tls12, Client::tls13] {
        let client = way(estate.client(&agent)).protocol(Protocol::Http1);
        for asks in [true, false] {
            let mut connection = client.connect().expect("connects");
            if asks {
                assert_eq!(connection.get(CATALOG).status, 200);
            }
            let broken = connection.send_below_tls(NO_RECORD_OF_THIS_SESSION);
            broken.expect("is taken");
            assert!(connection.is_closed_within(LIMIT), "asks: {asks}");
            estate.wait_for_metric("proscenium_connections_open", &[], 0.0);
        }
    }
}

#[test]
fn a_reload_that_does_not_concern_them_keeps_sessions() {
    let estate = Estate::start();
    let agent = estate.ca.agent("web01");
    for way in WAYS {
        let client = way(estate.client(&agent));
        assert_eq!(client.get(CATALOG).status, 200);
        // In turn: an unchanged file, another setting, another CRL, another certificate of the proxy.
        let steps: [&dyn Fn(); 4] = [
            &|| drop(estate.proxy.reload()),
            &|| {
                let text = estate.proxy.config_text();
                let grace = text.lines().find(|line| line.starts_with("drain_grace"));
                match grace {
                    Some(line) => estate.edit_config(line, "drain_grace = \"3s\""),
                    None => estate.write_config(&format!("drain_grace = \"2s\"\n{text}")),
                }
                estate.proxy.reload();
            },
            &|| {
                estate.ca.renew_crl();
                estate.proxy.swap_crl();
            },
            &|| {
                let renewed = estate.ca.server("proxy");
                estate
                    .ca
                    .write_ssldir_with(&estate.proxy.ssldir(), &renewed);
                estate.proxy.reload();
            },
        ];
        for (step, change) in steps.iter().enumerate() {
            change();
            let mut connection = client.connect().expect("connects");
            assert!(connection.resumed(), "step {step}");
            assert_eq!(connection.get(CATALOG).status, 200);
        }
    }
}

/// THREATS T8: the verdict at the time the session was made does not matter.
#[test]
fn t08_a_resumed_session_is_verified_against_the_active_trust_store() {
    let estate = Estate::start();
    for way in WAYS {
        let revoked = estate.ca.agent("web01");
        let expiring = estate.ca.leaf("web01").valid_seconds(-60, 3).issue();
        let (stays, other) = (estate.ca.agent("web01"), Ca::other());
        let [of_revoked, of_expiring, of_stays] =
            [&revoked, &expiring, &stays].map(|agent| way(estate.client(agent)));
        for client in [&of_revoked, &of_expiring, &of_stays] {
            assert_eq!(client.get(CATALOG).status, 200);
        }
        estate.ca.revoke(&revoked);
        estate.proxy.swap_crl();
        assert_resumed_and_refused(&of_revoked, "revoked");
        wait_until(LIMIT, || {
            (of_expiring.get(CATALOG).status == 403).then_some(())
        })
        .expect("it expires");
        assert_resumed_and_refused(&of_expiring, "expired");
        let mut resumed = of_stays.connect().expect("connects");
        assert!(resumed.resumed());
        assert_eq!(resumed.get(CATALOG).status, 200);
        // A different CA.
        let bundle = estate.proxy.ssldir().join("certs/ca.pem");
        let lists = estate.proxy.ssldir().join("crl.pem");
        let write = |ca: &Ca| {
            std::fs::write(&bundle, ca.bundle_pem()).expect("written");
            std::fs::write(&lists, ca.crl_pem()).expect("written");
            estate.proxy.reload_applied();
        };
        write(&other);
        assert_resumed_and_refused(&of_stays, "unknown-issuer");
        write(&estate.ca);
        assert_eq!(of_stays.get(CATALOG).status, 200);
    }
}

#[track_caller]
fn assert_resumed_and_refused(client: &Client, word: &str) {
    let mut connection = client.connect().expect("connects");
    assert!(connection.resumed(), "{word}");
    assert_refused(&connection.get(CATALOG), 403, &[word]);
}

/// nginx: a session made under one name was resumed under another name with another policy. Here a listener has one
/// policy for all its names, and a session is still valid for its own name only.
#[test]
fn cve_2025_23419_no_session_is_resumed_under_another_name() {
    let ca = Ca::new();
    let other = ca.leaf("other").dns("other").issue();
    let estate = Estate::builder()
        .ca(&ca)
        .proxy({
            let other = other.clone();
            let own = ca.server("proxy");
            move |proxy| {
                proxy
                    .file("own.pem", &own.chain_pem(), 0o644)
                    .file("own.key", &own.key_pem, 0o640)
                    .file("other.pem", &other.chain_pem(), 0o644)
                    .file("other.key", &other.key_pem, 0o640)
                    .with(
                        "[tls]\ncertificates = [{ chain = \"{dir}/own.pem\", key = \"{dir}/own.key\" }, \
                         { chain = \"{dir}/other.pem\", key = \"{dir}/other.key\" }]",
                    )
            }
        })
        .start();
    let agent = ca.agent("web01");
    for way in WAYS {
        let client = way(estate.client(&agent).regardless_of_names());
        assert_eq!(client.get(CATALOG).status, 200);
        assert!(client.connect().expect("connects").resumed());
        let elsewhere = client.clone().server_name("other");
        client.get(CATALOG);
        let mut full = elsewhere.connect().expect("connects");
        assert!(!full.resumed(), "not under another name");
        assert_eq!(full.peer_certificates()[0], other.cert_der);
        assert_eq!(full.get(CATALOG).status, 200);
    }
}

/// The same across reloads: each policy of a listener has its own sessions.
#[test]
fn cve_2025_23419_and_cve_2025_23048_no_session_outlives_its_policy() {
    let estate = Estate::start();
    let agent = estate.ca.agent("web01");
    let policies = [
        "client_cert = \"required\"",
        "on_invalid = \"abort\"",
        "client_cert = \"required\"\non_invalid = \"abort\"",
    ];
    for way in WAYS {
        for policy in policies {
            let client = way(estate.client(&agent));
            assert_eq!(client.get(CATALOG).status, 200);
            assert!(client.connect().expect("connects").resumed());
            client.get(CATALOG);
            let (lax, strict) = (
                "[listeners.agents]",
                format!("[listeners.agents]\n{policy}"),
            );
            estate.edit_config(lax, &strict);
            estate.proxy.reload_applied();
            let mut full = client.connect().expect("connects");
            assert!(!full.resumed(), "{policy}: of the one before");
            assert_eq!(full.get(CATALOG).status, 200);
            assert!(client.connect().expect("connects").resumed(), "its own");
            client.get(CATALOG);
            estate.edit_config(&strict, lax);
            estate.proxy.reload_applied();
            assert!(
                !client.connect().expect("connects").resumed(),
                "{policy}: nor back"
            );
        }
    }
}

/// When a listener's policy changes, connections whose clients would now be handled differently are closed; the others
/// stay open.
#[test]
fn cve_2025_23048_no_connection_outlives_its_policy() {
    for (before, after) in [
        ("http2 = true", "client_cert = \"required\""),
        ("on_invalid = \"forward\"", "on_invalid = \"explain\""),
        ("on_invalid = \"explain\"", "on_invalid = \"abort\""),
    ] {
        let estate = Estate::builder()
            .listener(&format!("idle_timeout = \"10m\"\n{before}"))
            .start();
        let client = if after.contains("client_cert") {
            estate.anonymous()
        } else {
            estate.client(&Ca::other().agent("web01"))
        };
        let mut idle = client.connect().expect("connects");
        let mut asks = client.connect().expect("connects");
        let agent = estate.agent("web01");
        let mut stays = agent.connect().expect("connects");
        for connection in [&mut idle, &mut asks] {
            assert!(!connection.get(CA_CERTIFICATE).says_close(), "{after}");
        }
        assert_eq!(stays.get(CATALOG).status, 200);
        estate.edit_config(before, after);
        estate.proxy.reload_applied();
        assert!(asks.get(CA_CERTIFICATE).says_close(), "{after}");
        for connection in [&mut idle, &mut asks] {
            assert!(connection.is_closed_within(LIMIT), "{after}");
        }
        let answer = stays.get(CATALOG);
        assert_eq!(
            (answer.status, answer.says_close()),
            (200, false),
            "{after}"
        );
    }
}

/// The session of a refused client stores the refusal. `explain` and `forward` require the same of a handshake, so a
/// session stays valid from one to the other, and the active policy handles each request.
#[test]
fn a_refused_clients_session_is_handled_by_the_active_policy() {
    let estate = Estate::start();
    let revoked = estate.ca.agent("web01");
    estate.ca.revoke(&revoked);
    estate.proxy.swap_crl();
    for way in WAYS {
        let client = way(estate.client(&revoked));
        assert_refused(&client.get(CA_CERTIFICATE), 403, &["revoked"]);
        let (lax, other) = (
            "[listeners.agents]",
            "[listeners.agents]\non_invalid = \"forward\"",
        );
        estate.edit_config(lax, other);
        estate.proxy.reload_applied();
        estate.forget();
        let mut connection = client.connect().expect("connects");
        assert!(connection.resumed());
        assert_eq!(connection.get(CA_CERTIFICATE).status, 200);
        let output = estate.only_request();
        assert!(
            output.only("x-client-verify").starts_with("FAILED"),
            "{output:?}"
        );
        assert_refused(&connection.get(CATALOG), 403, &["revoked"]);
        estate.edit_config(other, lax);
        estate.proxy.reload_applied();
        assert_refused(&client.get(CA_CERTIFICATE), 403, &["revoked"]);
    }
}

/// Two listeners with equal settings do not share sessions.
#[test]
fn cve_2025_23048_no_session_crosses_to_another_listener() {
    let ca = Ca::new();
    let (twin, strict) = (HeldPort::take(), HeldPort::take());
    let proxy = support::proxy(&ca)
        .without_members()
        .with(&format!("[listeners.twin]\naddress = \"127.0.0.1:{twin}\""))
        .with(&format!(
            "[listeners.strict]\naddress = \"127.0.0.1:{strict}\"\nclient_cert = \"required\"\non_invalid = \"abort\""
        ))
        .start();
    let agent = ca.agent("web01");
    let places = [proxy.address(), twin.address(), strict.address()];
    for way in WAYS {
        for from in places {
            for to in places.into_iter().filter(|to| *to != from) {
                let client = way(proxy.client(Some(&agent)));
                let here = client.at(from);
                here.get("/nowhere");
                let again = here.connect().expect("connects");
                assert!(again.resumed(), "{from}");
                here.get("/nowhere");
                let there = here.at(to).connect().expect("connects");
                assert!(!there.resumed(), "{from} to {to}");
            }
        }
    }
}

#[test]
fn the_oldest_sessions_without_tickets_are_evicted() {
    let estate = Estate::start();
    let first = estate.anonymous().without_tickets();
    let last = estate.anonymous().without_tickets();
    assert_eq!(first.get(CA_CERTIFICATE).status, 200);
    assert!(first.connect().expect("connects").resumed());
    for _ in 0..1024 {
        let other = estate.anonymous().without_tickets();
        other.connect().expect("connects");
    }
    assert_eq!(last.get(CA_CERTIFICATE).status, 200);
    assert!(last.connect().expect("connects").resumed());
    assert!(!first.connect().expect("connects").resumed(), "displaced");
}

/// An estate with this session lifetime.
fn living(lifetime: &str) -> Estate {
    let line = format!("[tls]\nsession_lifetime = \"{lifetime}\"");
    Estate::builder().with(&line).start()
}
