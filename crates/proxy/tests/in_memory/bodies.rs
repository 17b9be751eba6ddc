//! Requests and responses on their way through the proxy: the client's identity, and bodies with each framing.

use crate::support::{FILE, InMemoryEstate, REPORT, field, run, settle};

#[test]
fn an_agent_is_named_to_its_member_by_the_proxy_and_not_by_itself() {
    run(async {
        let mut estate = InMemoryEstate::new(|_| {});
        let mut client = estate.connect();
        client
            .send(
                "GET /puppet/v3/node/web01 HTTP/1.1\r\nHost: puppet\r\nX-Client-DN: CN=admin\r\n\r\n",
            )
            .await;
        let mut member = estate.compilers[0].accept().await;
        let request = member.request().await;
        assert!(request.contains("x-client-verify: success"), "{request}");
        assert!(request.contains("x-client-dn: cn=web01"), "{request}");
        assert!(!request.contains("admin"), "{request}");
        member.answer(200, "{}").await;
        assert_eq!(client.response().await.body, "{}");
        assert_eq!(estate.record().await["certname"], "web01");
    });
}

#[test]
fn a_chunked_body_that_is_read_whole_is_sent_on_with_its_length() {
    run(async {
        let mut estate = InMemoryEstate::new(|_| {});
        let mut client = estate.connect();
        client
            .send(&format!(
                "PUT {REPORT} HTTP/1.1\r\nHost: puppet\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nrep\r\n3\r\nort\r\n0\r\n\r\n"
            ))
            .await;
        let mut member = estate.compilers[0].accept().await;
        let request = member.request().await;
        assert_eq!(field(&request, "content-length"), Some("6"), "{request}");
        assert_eq!(field(&request, "transfer-encoding"), None);
        assert_eq!(member.text(6).await, "report");
    });
}

#[test]
fn a_member_gets_a_request_only_when_its_slow_body_is_complete() {
    run(async {
        let mut estate = InMemoryEstate::new(|_| {});
        let mut client = estate.connect();
        client.put(REPORT, 6).await;
        client.send("rep").await;
        crate::support::pass(20).await;
        assert_eq!(estate.compilers[0].dials(), 0);
        client.send("ort").await;
        let mut member = estate.compilers[0].accept().await;
        member.request().await;
        assert_eq!(member.text(6).await, "report");
    });
}

#[test]
fn a_body_with_broken_framing_gets_400_and_reaches_no_member() {
    run(async {
        let estate = InMemoryEstate::new(|_| {});
        let mut client = estate.connect();
        client
            .send(&format!(
                "PUT {REPORT} HTTP/1.1\r\nHost: puppet\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nrep\r\nzz\r\n"
            ))
            .await;
        assert_eq!(client.response().await.status, 400);
        assert_eq!(estate.compilers[0].dials(), 0);
        assert_eq!(estate.record().await["reason"], "body-broken");
    });
}

#[test]
fn a_client_that_waits_for_100_continue_gets_it() {
    run(async {
        let mut estate = InMemoryEstate::new(|_| {});
        let mut client = estate.connect();
        client
            .send(&format!(
                "PUT {REPORT} HTTP/1.1\r\nHost: puppet\r\nExpect: 100-continue\r\nContent-Length: 6\r\n\r\n"
            ))
            .await;
        let interim = client.head().await.expect("an interim answer");
        assert!(interim.starts_with("http/1.1 100 "), "{interim}");
        client.send("report").await;
        let mut member = estate.compilers[0].accept().await;
        member.request().await;
        member.answer(200, "stored").await;
        assert_eq!(client.response().await.body, "stored");
    });
}

#[test]
fn a_refused_client_gets_no_100_continue() {
    run(async {
        let estate = InMemoryEstate::new(|_| {});
        let mut client = estate.connect();
        client
            .send("PUT /puppet/v3/report/web02 HTTP/1.1\r\nHost: puppet\r\nExpect: 100-continue\r\nContent-Length: 6\r\n\r\n")
            .await;
        assert_eq!(client.response().await.status, 403, "and not 100 before");
        assert_eq!(estate.compilers[0].dials(), 0);
    });
}

#[test]
fn an_early_answer_reaches_a_client_that_is_still_sending() {
    run(async {
        let mut estate = InMemoryEstate::new(|setup| setup.exchange.body_buffer_bytes_max = 4);
        let mut client = estate.connect();
        client.put(REPORT, 1000).await;
        client.send(&"x".repeat(100)).await;
        let mut member = estate.compilers[0].accept().await;
        member.request().await;
        member.answer(413, "too much").await;
        let answer = client.response().await;
        assert_eq!((answer.status, &*answer.body), (413, "too much"));
    });
}

#[test]
fn the_answer_to_head_keeps_its_length_and_the_connection_goes_on() {
    run(async {
        let mut estate = InMemoryEstate::new(|_| {});
        let mut client = estate.connect();
        client
            .send(&format!("HEAD {FILE} HTTP/1.1\r\nHost: puppet\r\n\r\n"))
            .await;
        let mut member = estate.compilers[0].accept().await;
        member.request().await;
        member
            .send("HTTP/1.1 200 OK\r\nX-Puppet-Version: 8\r\nContent-Length: 7\r\n\r\n")
            .await;
        let head = client.head().await.expect("an answer");
        assert_eq!(field(&head, "content-length"), Some("7"), "{head}");
        client.get(FILE).await;
        member.request().await;
        member.answer(200, "next").await;
        assert_eq!(client.response().await.body, "next");
        assert_eq!(estate.compilers[0].dials(), 1);
    });
}

#[test]
fn a_chunked_answer_passes_in_chunks_as_it_comes() {
    run(async {
        let mut estate = InMemoryEstate::new(|_| {});
        let (mut client, mut member) = estate.ask_first().await;
        member
            .send("HTTP/1.1 200 OK\r\nX-Puppet-Version: 8\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n")
            .await;
        let head = client.head().await.expect("an answer");
        assert_eq!(field(&head, "transfer-encoding"), Some("chunked"), "{head}");
        assert_eq!(client.text(10).await, "5\r\nfirst\r\n");
        member.send("0\r\n\r\n").await;
        assert_eq!(client.text(5).await, "0\r\n\r\n");
    });
}

#[test]
fn a_response_that_its_member_cuts_short_does_not_look_complete_to_the_client() {
    run(async {
        let mut estate = InMemoryEstate::new(|_| {});
        let (mut client, mut member) = estate.ask_first().await;
        member
            .send("HTTP/1.1 200 OK\r\nX-Puppet-Version: 8\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n")
            .await;
        client.head().await;
        client.text(10).await;
        drop(member);
        assert_eq!(client.rest().await, "", "no last chunk");
        estate.assert_at_rest().await;
        let record = estate.record().await;
        assert_eq!(record["reason"], "member-closed");
        assert_eq!(record["ended_by"], "member");
    });
}

#[test]
fn requests_that_come_at_once_on_a_connection_are_answered_in_their_order() {
    run(async {
        let mut estate = InMemoryEstate::new(|_| {});
        let mut client = estate.connect();
        client.get(FILE).await;
        client.get("/puppet/v3/node/web01").await;
        let mut member = estate.compilers[0].accept().await;
        assert!(member.request().await.contains("file_metadata"));
        settle().await;
        member.answer(200, "file").await;
        assert!(member.request().await.contains("node/web01"));
        member.answer(200, "node").await;
        assert_eq!(client.response().await.body, "file");
        assert_eq!(client.response().await.body, "node");
    });
}
