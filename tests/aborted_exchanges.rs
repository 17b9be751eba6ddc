//! Clients and members that close the connection during an exchange: what the record and the other side see.

use testkit::{Reply, TestConnection, wait_until};

use crate::support::{
    LIMIT, connection,
    exchanges::{one_compiler, streaming},
    paths::{CATALOG, FILE, REPORT},
};

#[test]
fn a_client_that_disconnects_before_the_response_is_a_499_and_no_failure_of_the_member() {
    let estate = one_compiler().start();
    for end in [
        TestConnection::reset as fn(TestConnection),
        |mut connection: TestConnection| connection.half_close(),
    ] {
        estate.forget();
        estate.compilers[0].hold();
        let before = estate.proxy.records().len();
        let mut connection = connection(&estate);
        connection
            .send("POST", CATALOG, &[], b"facts")
            .expect("sends");
        estate.compilers[0].wait_for_request(1, LIMIT);
        end(connection);
        let record = estate.proxy.wait_for_records(before + 1).remove(before);
        assert_eq!(
            (&record["status"], &record["reason"]),
            (&499.into(), &"client-gone".into()),
            "{record}"
        );
        assert_eq!(
            (&record["ended_by"], &record["attempts"]),
            (&"client".into(), &1.into()),
            "{record}"
        );
        estate.compilers[0].release();
        assert_eq!(
            estate
                .proxy
                .metrics()
                .sum("proscenium_limits_hit_total", &[]),
            0.0
        );
        estate
            .proxy
            .wait_for_health("compilers", &estate.compilers[0].address(), "up");
    }
}

#[test]
fn a_client_that_disconnects_within_its_body_is_a_499_and_the_member_gets_no_complete_body() {
    let estate = streaming().start();
    for chunked in [false, true] {
        estate.forget();
        let before = estate.proxy.records().len();
        let mut connection = connection(&estate);
        let (head, part) = match chunked {
            false => (connection.head("PUT", REPORT, &[], Some(10)), "0123"),
            true => (
                connection.head("PUT", REPORT, &[("Transfer-Encoding", "chunked")], None),
                "4\r\n0123\r\n",
            ),
        };
        connection
            .send_raw(&[head, part.as_bytes().to_vec()].concat())
            .expect("sends");
        estate.compilers[0].wait_for_head(1, LIMIT);
        connection.reset();
        let record = estate.proxy.wait_for_records(before + 1).remove(before);
        assert_eq!(
            (&record["status"], &record["reason"]),
            (&499.into(), &"client-gone".into()),
            "{record}"
        );
        assert_eq!(record["ended_by"], "client", "{record}");
        let closed = wait_until(LIMIT, || {
            (estate.compilers[0].connections_open() == 0).then_some(())
        });
        assert!(closed.is_some(), "its connection is not used again");
        assert!(estate.far_end().iter().all(|request| !request.complete));
    }
}

#[test]
fn a_client_that_disconnects_within_the_response_is_logged_and_the_member_released() {
    let estate = one_compiler().start();
    estate.compilers[0].answer(|_| Some(Reply::stream(256 << 20)));
    let mut connection = connection(&estate);
    connection.send("GET", FILE, &[], b"").expect("sends");
    assert_eq!(connection.read_head().expect("a head").status, 200);
    connection.reset();
    let record = estate
        .proxy
        .wait_for_record(|record| record["method"] == "GET");
    assert_eq!(
        (&record["reason"], &record["ended_by"]),
        (&"client-gone".into(), &"client".into()),
        "{record}"
    );
    assert_eq!(record["status"], 200, "what was said");
    let closed = wait_until(LIMIT, || {
        (estate.compilers[0].connections_open() == 0).then_some(())
    });
    assert!(closed.is_some(), "the member is not left sending");
}

#[test]
fn a_response_that_the_member_cuts_off_is_never_passed_on_as_complete() {
    let estate = one_compiler().start();
    for reply in [
        Reply::ok("0123456789").close_after(4),
        Reply::ok("0123456789").reset_after(4),
        Reply::status(200)
            .chunked(&[b"0123", b"456789"])
            .close_after(4),
    ] {
        let before = estate.proxy.records().len();
        estate.compilers[0].answer(move |_| Some(reply.clone()));
        let mut connection = connection(&estate);
        assert!(connection.try_request("GET", FILE, &[], b"").is_err());
        let record = estate.proxy.wait_for_records(before + 1).remove(before);
        assert_eq!(
            (&record["reason"], &record["ended_by"]),
            (&"member-closed".into(), &"member".into()),
            "{record}"
        );
        assert_eq!(record["attempts"], 1, "bytes of it had come");
    }
}
