//! Tests of TLS records: any division of the bytes, damaged records, limits, and ends of a connection.

use std::{future::poll_fn, io::Write as _, pin::pin, sync::Arc};

use rustls::crypto::cipher::{MessageEncrypter, OutboundPlainMessage};
use rustls::{
    ConnectionTrafficSecrets, ContentType, ProtocolVersion, ServerConfig, SupportedProtocolVersion,
    version,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio_rustls::{TlsConnector, client};

use super::*;
use crate::{test_tls::configs, tls_stream::TlsStream};

const VERSIONS: [&SupportedProtocolVersion; 2] = [&version::TLS12, &version::TLS13];

fn on_one_thread<F: Future>(test: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.expect("a runtime").block_on(test)
}

/// A client and the proxy's end of its connection, over a transport that carries `at_once` bytes at a time.
async fn connected(
    version: &'static SupportedProtocolVersion,
    at_once: usize,
) -> (client::TlsStream<DuplexStream>, TlsStream<DuplexStream>) {
    let (config, mut of_client) = configs(&[version], &[version]);
    of_client.enable_secret_extraction = true;
    let (near, mut far) = duplex(at_once);
    let connector = TlsConnector::from(Arc::new(of_client));
    let connecting = connector.connect("puppet".try_into().expect("a name"), near);
    let tls = UnbufferedServerConnection::new(Arc::new(config)).expect("a configuration");
    let accepting = async {
        let mut records = Records::new(tls);
        while records.common().is_handshaking() {
            let received = poll_fn(|cx| records.poll_receive(cx, &mut far)).await;
            assert!(received.expect("a client") > 0);
            records.advance().expect("a handshake");
            // The tickets of TLS 1.3 are sent later, because the test's client does not read them while it connects.
            if records.common().is_handshaking() || version.version != version::TLS13.version {
                let sent = poll_fn(|cx| records.poll_send(cx, &mut far)).await;
                sent.expect("a client");
            }
        }
        TlsStream::new(far, records)
    };
    let (client, stream) = tokio::join!(connecting, accepting);
    (client.expect("a handshake"), stream)
}

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i % 251) as u8).collect()
}

#[test]
fn data_arrives_whole_however_the_transport_divides_it() {
    for version in VERSIONS {
        // With fewer bytes at once, both sides would wait until the other one reads the 6 bytes of a message.
        for (at_once, length) in [(7, 300), (7, 40_000), (5_000, 300_000), (1 << 20, 700_000)] {
            on_one_thread(async {
                let (mut client, mut stream) = connected(version, at_once).await;
                let sent = bytes(length);
                let asks = async {
                    client.write_all(&sent).await.expect("is taken");
                    client.flush().await.expect("is sent");
                    let mut back = vec![0; length];
                    client.read_exact(&mut back).await.expect("all of it");
                    back
                };
                let answers = async {
                    let mut received = vec![0; length];
                    stream.read_exact(&mut received).await.expect("all of it");
                    stream.write_all(&received).await.expect("is taken");
                    stream.flush().await.expect("is sent");
                    received
                };
                let (back, received) = tokio::join!(asks, answers);
                assert!(
                    received == sent && back == sent,
                    "{version:?}, {at_once} at once"
                );
            });
        }
    }
}

#[test]
fn slices_are_sent_in_their_order() {
    let (head, body) = (bytes(200), bytes(90_000));
    for pieces in [
        vec![&head[..], &head[..50]],
        vec![&head, &body],
        vec![&[], &body, &[], &head],
    ] {
        on_one_thread(async {
            let (mut client, mut stream) = connected(&version::TLS13, 1 << 20).await;
            let expected = pieces.concat();
            let mut sent = 0;
            while sent < expected.len() {
                let mut slices: Vec<_> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
                let mut left = &mut slices[..];
                IoSlice::advance_slices(&mut left, sent);
                sent += stream.write_vectored(left).await.expect("is taken");
            }
            stream.flush().await.expect("is sent");
            let mut received = vec![0; expected.len()];
            client.read_exact(&mut received).await.expect("all of it");
            assert!(received == expected);
        });
    }
}

#[test]
fn what_a_client_does_not_take_is_limited() {
    on_one_thread(async {
        let (_client, mut stream) = connected(&version::TLS13, 1_000).await;
        let data = bytes(1 << 20);
        let mut accepted = 0;
        loop {
            let mut write = pin!(stream.write(&data));
            match poll_fn(|cx| Poll::Ready(write.as_mut().poll(cx))).await {
                Poll::Ready(written) => accepted += written.expect("a client"),
                Poll::Pending => break,
            }
        }
        assert_eq!(accepted, WRITE_BYTES_MAX);
        assert!(stream.records().unsent.len() <= WRITE_BUFFER_BYTES);
    });
}

#[test]
fn a_silent_connection_stores_nothing() {
    for version in VERSIONS {
        on_one_thread(async {
            let (mut client, mut stream) = connected(version, 100).await;
            let exchanged = async {
                let mut request = vec![0; 3_000];
                stream.read_exact(&mut request).await.expect("all of it");
                stream.write_all(&request).await.expect("is taken");
                stream.flush().await.expect("is sent");
            };
            let asked = async {
                client.write_all(&bytes(3_000)).await.expect("is taken");
                client.flush().await.expect("is sent");
                client.read_exact(&mut [0; 3_000]).await.expect("all of it");
            };
            tokio::join!(exchanged, asked);
            let idle = poll_fn(|cx| Poll::Ready(stream.poll_readable(cx).is_pending())).await;
            assert!(idle);
            let records = stream.records();
            let stored = [&records.partial, &records.plain, &records.unsent];
            assert_eq!(stored.map(Vec::capacity), [0; 3], "{version:?}");
        });
    }
}

#[test]
fn the_end_of_a_client_is_distinguished_from_a_broken_connection() {
    for version in VERSIONS {
        on_one_thread(async {
            let (mut client, mut stream) = connected(version, 1 << 20).await;
            client.write_all(b"last words").await.expect("is taken");
            client.shutdown().await.expect("is sent");
            let mut received = Vec::new();
            stream.read_to_end(&mut received).await.expect("an end");
            assert_eq!(received, b"last words");
            // The other direction is still open.
            stream.write_all(b"answer").await.expect("is taken");
            stream.shutdown().await.expect("is sent");
            let mut back = Vec::new();
            client.read_to_end(&mut back).await.expect("a close_notify");
            assert_eq!(back, b"answer");

            let (client, mut stream) = connected(version, 1 << 20).await;
            drop(client);
            let error = stream.read(&mut [0; 9]).await.expect_err("no close_notify");
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        });
    }
}

#[test]
fn bytes_that_are_not_tls_end_the_connection_with_an_alert() {
    on_one_thread(async {
        let (client, mut stream) = connected(&version::TLS13, 1 << 20).await;
        let (mut socket, _) = client.into_inner();
        socket
            .write_all(b"GET / HTTP/1.1\r\n\r\n")
            .await
            .expect("is taken");
        let error = stream.read(&mut [0; 9]).await.expect_err("not TLS");
        assert!(error.get_ref().expect("a cause").is::<rustls::Error>());
        drop(stream);
        let mut alert = Vec::new();
        socket.read_to_end(&mut alert).await.expect("an end");
        // The alert is encrypted, so the record shows only the type of application data.
        assert_eq!(alert.first(), Some(&23), "{alert:?}");
    });
}

#[test]
fn keys_may_be_updated_between_the_records() {
    on_one_thread(async {
        let (mut client, mut stream) = connected(&version::TLS13, 64).await;
        for round in 0..3_usize {
            client.get_mut().1.refresh_traffic_keys().expect("TLS 1.3");
            let sent = bytes(1_000 + round);
            let asks = async {
                client.write_all(&sent).await.expect("is taken");
                client.flush().await.expect("is sent");
                let mut back = vec![0; sent.len()];
                client.read_exact(&mut back).await.expect("all of it");
                back
            };
            let answers = async {
                let mut received = vec![0; sent.len()];
                stream.read_exact(&mut received).await.expect("all of it");
                stream.write_all(&received).await.expect("is taken");
                stream.flush().await.expect("is sent");
            };
            let (back, ()) = tokio::join!(asks, answers);
            assert!(back == sent);
        }
    });
}

#[test]
fn a_message_may_be_divided_between_records_and_the_proxy_may_write_meanwhile() {
    on_one_thread(async {
        let (client, mut stream) = connected(&version::TLS13, 1 << 20).await;
        let (mut socket, mut encrypter, number) = crafted(client);
        // A key update that does not request one in return (RFC 8446, 4.6.3), divided at every position.
        for (number, piece) in (number..).zip([[24].as_slice(), &[0, 0], &[1, 0]]) {
            let message = OutboundPlainMessage {
                typ: ContentType::Handshake,
                version: ProtocolVersion::TLSv1_2,
                payload: piece.into(),
            };
            let record = encrypter.encrypt(message, number).expect("room").encode();
            socket.write_all(&record).await.expect("room");
            let nothing = poll_fn(|cx| Poll::Ready(stream.poll_readable(cx).is_pending()));
            assert!(nothing.await);
            stream.write_all(b"an answer").await.expect("is taken");
            stream.flush().await.expect("is sent");
        }
        assert!(stream.records().partial.is_empty());
        stream.shutdown().await.expect("is sent");
    });
}

/// Random bytes in random pieces, with random calls of the proxy meanwhile and afterwards.
#[test]
fn no_bytes_of_a_client_cause_a_panic() {
    for seed in 0..300_u64 {
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut below = move |max: usize| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random >> 16) as usize % max.max(1)
        };
        eprintln!("seed {seed}");
        on_one_thread(async {
            let version = VERSIONS[below(2)];
            let (client, mut stream) = connected(version, 1 << 20).await;
            let (mut socket, mut tls) = client.into_inner();
            let mut sent = Vec::new();
            for _ in 0..1 + below(3) {
                tls.writer()
                    .write_all(&bytes(below(40_000)))
                    .expect("memory");
                if below(3) == 0 {
                    let _ = tls.refresh_traffic_keys();
                }
                if below(6) == 0 {
                    tls.send_close_notify();
                }
                while tls.wants_write() {
                    tls.write_tls(&mut sent).expect("memory");
                }
            }
            for _ in 0..below(4) {
                let at = below(sent.len());
                match below(5) {
                    0 => sent[at] ^= 1 << below(8),
                    1 => sent.truncate(at),
                    2 => drop(sent.splice(at..at, [22, 3, 3, 0, below(9) as u8, 24, 0, 0, 1])),
                    3 => drop(sent.splice(at..at, [21, 3, 3, 0, 2, 2, below(90) as u8])),
                    _ => sent.extend_from_within(at..),
                }
                if sent.is_empty() {
                    sent.push(below(256) as u8);
                }
            }
            let mut rest = &sent[..];
            while !rest.is_empty() {
                let (now, later) = rest.split_at(1 + below(rest.len()));
                socket.write_all(now).await.expect("room");
                rest = later;
                poll_fn(|cx| {
                    for _ in 0..4 {
                        let mut room = [0; 9_000];
                        let mut room = ReadBuf::new(&mut room);
                        let stream = Pin::new(&mut stream);
                        let _ = match below(4) {
                            0 => stream.poll_write(cx, b"an answer").map_ok(|_| ()),
                            1 => stream.poll_flush(cx),
                            _ => stream.poll_read(cx, &mut room),
                        };
                    }
                    Poll::Ready(())
                })
                .await;
            }
            for _ in 0..3 {
                let shut = poll_fn(|cx| {
                    let _ = stream.poll_readable(cx);
                    let _ = Pin::new(&mut stream).poll_write(cx, b"more");
                    Poll::Ready(Pin::new(&mut stream).poll_shutdown(cx).is_ready())
                });
                shut.await;
            }
        });
    }
}

/// The transport of a TLS 1.3 client, an encrypter for records that the test writes, and the number of the first record.
fn crafted(
    client: client::TlsStream<DuplexStream>,
) -> (DuplexStream, Box<dyn MessageEncrypter>, u64) {
    let (socket, tls) = client.into_inner();
    let Some(rustls::SupportedCipherSuite::Tls13(suite)) = tls.negotiated_cipher_suite() else {
        panic!("another version");
    };
    let (number, secrets) = tls.dangerous_extract_secrets().expect("secrets").tx;
    let ConnectionTrafficSecrets::Aes256Gcm { key, iv } = secrets else {
        panic!("another suite");
    };
    (socket, suite.aead_alg.encrypter(key, iv), number)
}

/// A client's record with a piece of a handshake message and padding.
fn record_of(
    encrypter: &mut dyn MessageEncrypter,
    number: u64,
    content: &[u8],
    padding: usize,
) -> Vec<u8> {
    // The record layer appends a type of 0. To the receiver that is padding after the true type.
    let mut payload = [content, &[22]].concat();
    payload.resize(payload.len() + padding, 0);
    let message = OutboundPlainMessage {
        typ: ContentType::from(0),
        version: ProtocolVersion::TLSv1_2,
        payload: payload[..].into(),
    };
    encrypter.encrypt(message, number).expect("room").encode()
}

#[test]
fn a_message_in_records_of_padding_is_refused_at_a_limit() {
    on_one_thread(async {
        let (client, mut stream) = connected(&version::TLS13, 1 << 20).await;
        let (mut socket, mut encrypter, first) = crafted(client);
        let mut sent = 0;
        let refused = loop {
            let content: &[u8] = if sent == 0 {
                &[24, 0, 0xff, 0xff]
            } else {
                &[7]
            };
            let record = record_of(&mut *encrypter, first + sent, content, 16_000);
            socket.write_all(&record).await.expect("room");
            sent += 1;
            let polled = poll_fn(|cx| Poll::Ready(stream.poll_readable(cx)));
            match polled.await {
                Poll::Pending => assert!(sent < 10, "{}", stream.records().partial.len()),
                Poll::Ready(ended) => break ended,
            }
            assert!(stream.records().partial.len() <= PARTIAL_BYTES_MAX);
        };
        let error = refused.expect_err("a limit");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
    });
}

#[test]
fn a_key_update_before_the_end_does_not_replace_the_close_notify() {
    on_one_thread(async {
        let (mut client, mut stream) = connected(&version::TLS13, 1 << 20).await;
        client.write_all(b"request").await.expect("is taken");
        client.flush().await.expect("is sent");
        stream.read_exact(&mut [0; 7]).await.expect("all of it");
        client.get_mut().1.refresh_traffic_keys().expect("TLS 1.3");
        client.flush().await.expect("is sent");
        let idle = poll_fn(|cx| Poll::Ready(stream.poll_readable(cx).is_pending())).await;
        assert!(idle);
        stream.shutdown().await.expect("is sent");
        assert_eq!(client.read(&mut [0; 9]).await.expect("a close_notify"), 0);
    });
}

#[test]
fn bytes_behind_a_close_notify_are_not_stored() {
    on_one_thread(async {
        let (mut client, mut stream) = connected(&version::TLS13, 1 << 20).await;
        client.get_mut().1.send_close_notify();
        client.flush().await.expect("is sent");
        let (mut socket, _) = client.into_inner();
        socket.write_all(&[1; 90_000]).await.expect("room");
        assert_eq!(stream.read(&mut vec![0; 99_000]).await.expect("an end"), 0);
        stream.write_all(b"answer").await.expect("is taken");
        assert_eq!(stream.records().partial.len(), 0);
    });
}

/// The first message of a TLS 1.2 client after its ClientHello, in pieces: a job is due when its last byte has arrived.
#[test]
fn a_job_is_due_with_a_whole_record_or_with_bytes_that_begin_none() {
    let server = || {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(rustls::server::ResolvesServerCertUsingSni::new()));
        Records::new(UnbufferedServerConnection::new(Arc::new(config)).expect("one"))
    };
    let record = [[22, 3, 3, 0, 40].as_slice(), &[1; 40]].concat();
    for (bytes, is_due) in [
        (&record[..4], false),
        (&record[..44], false),
        (&record[..], true),
        (&[23, 3, 3, 0x48, 0][..], false),
        (&[23, 3, 3, 0x48, 1], true),
        (b"GET / HTTP/1.1", true),
    ] {
        let mut records = server();
        records.receive(bytes);
        assert_eq!(records.has_whole_record(), is_due, "{bytes:?}");
    }
    // The message is longer than two records, so it is incomplete after them and a third record is awaited.
    let piece = [[22, 3, 3, 0, 5].as_slice(), &[1, 0, 2, 0, 3]].concat();
    let mut records = server();
    for _ in 0..2 {
        records.receive(&piece);
        assert!(records.has_whole_record());
        records.advance().expect("an incomplete message");
        assert!(!records.has_whole_record());
        records.receive(&piece[..7]);
        assert!(!records.has_whole_record());
        records.receive(&piece[7..]);
        assert!(records.has_whole_record());
        records.advance().expect("an incomplete message");
    }
}
