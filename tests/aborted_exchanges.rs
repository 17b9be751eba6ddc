//! Clients and members that close the connection during an exchange: what the record and the other side see.

use testkit::{Reply, TestConnection};

use crate::support::{
    LIMIT, connection,
    exchanges::{one_compiler, streaming},
    paths::{CATALOG, FILE, REPORT},
    wait_for,
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
        let record = estate.wait_for_records(before + 1).remove(before);
        assert_eq!(record["status"], 499, "{record}");
        assert_eq!(record["reason"], "client-gone", "{record}");
        assert_eq!(record["ended_by"], "client", "{record}");
        assert_eq!(record["attempts"], 1, "{record}");
        estate.compilers[0].release();
        assert_eq!(
            estate
                .proxy
                .metrics()
                .sum("proscenium_limits_hit_total", &[]),
            0.0
        );
        estate.wait_for_health("compilers", &estate.compilers[0].address(), "up");
    }
}

#[test]
fn a_client_that_disconnects_within_its_body_is_a_499_and_the_member_gets_no_complete_body() {
    let estate = streaming().start();
    for chunked in [false, true] {
        estate.forget();
        let before = estate.proxy.records().len();
        let mut connection = connection(&estate);
        let (head, part) = if chunked {
            (
                connection.head("PUT", REPORT, &[("Transfer-Encoding", "chunked")], None),
                "4\r\n0123\r\n",
            )
        } else {
            (connection.head("PUT", REPORT, &[], Some(10)), "0123")
        };
        connection
            .send_raw(&[head, part.as_bytes().to_vec()].concat())
            .expect("sends");
        estate.compilers[0].wait_for_head(1, LIMIT);
        connection.reset();
        let record = estate.wait_for_records(before + 1).remove(before);
        assert_eq!(record["status"], 499, "{record}");
        assert_eq!(record["reason"], "client-gone", "{record}");
        assert_eq!(record["ended_by"], "client", "{record}");
        wait_for("its connection is not used again", || {
            estate.compilers[0].connections_open() == 0
        });
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
    let record = estate.wait_for_record(|record| record["method"] == "GET");
    assert_eq!(record["reason"], "client-gone", "{record}");
    assert_eq!(record["ended_by"], "client", "{record}");
    assert_eq!(record["status"], 200, "what was said");
    wait_for("the member is not left sending", || {
        estate.compilers[0].connections_open() == 0
    });
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
        let record = estate.wait_for_records(before + 1).remove(before);
        assert_eq!(record["reason"], "member-closed", "{record}");
        assert_eq!(record["ended_by"], "member", "{record}");
        assert_eq!(record["attempts"], 1, "bytes of it had come");
    }
}
