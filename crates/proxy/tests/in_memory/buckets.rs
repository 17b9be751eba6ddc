//! The search for a file of the filebucket: how many members it holds, and how long it takes.

use std::time::Duration;

use balancing::Administrative;
use tokio::time::Instant;

use crate::support::{InMemoryEstate, Wire, pass, run};

const FILE: &str = "/puppet/v3/file_bucket_file/sha256/abc//etc/motd";
/// The response arrives within this time, however slow further members are.
const SEARCH_TIME_MAX: Duration = Duration::from_secs(6);

/// The member that got the request for the file, and its connection.
async fn asked(estate: &mut InMemoryEstate) -> (usize, Wire) {
    let [first, second, third] = &mut estate.compilers[..] else {
        panic!("three compilers");
    };
    let (index, mut wire) = tokio::select! {
        wire = first.accept() => (0, wire),
        wire = second.accept() => (1, wire),
        wire = third.accept() => (2, wire),
    };
    wire.request().await;
    (index, wire)
}

fn in_flight(estate: &InMemoryEstate) -> u32 {
    estate
        .compilers
        .iter()
        .map(|member| member.in_flight())
        .sum()
}

#[test]
fn a_search_holds_one_connection_and_members_that_hang_delay_the_404_by_seconds() {
    run(async {
        let mut estate = InMemoryEstate::new(|setup| setup.compilers = 3);
        let mut client = estate.connect();
        client.get(FILE).await;
        let (first, mut member) = asked(&mut estate).await;
        member.answer(404, "not here").await;
        let began = Instant::now();
        let (_, hanging) = asked(&mut estate).await;
        assert_eq!(in_flight(&estate), 1, "the first is given back");
        let answer = client.response().await;
        assert_eq!((answer.status, &*answer.body), (404, "not here"));
        assert!(began.elapsed() < SEARCH_TIME_MAX, "{:?}", began.elapsed());
        drop(hanging);
        estate.assert_at_rest().await;
        assert_eq!(estate.compilers[first].open(), 1, "its connection is kept");
        let record = estate.record().await;
        assert_eq!(record["status"], 404);
        assert_eq!(record["member"], format!("127.0.0.1:{}", 8141 + first));
    });
}

#[test]
fn a_search_goes_on_where_its_member_is_taken_out_of_service() {
    run(async {
        let mut estate = InMemoryEstate::new(|setup| setup.compilers = 3);
        let mut client = estate.connect();
        client.get(FILE).await;
        let (_, mut member) = asked(&mut estate).await;
        member.answer(404, "not here").await;
        let (second, _hanging) = asked(&mut estate).await;
        estate.compilers[second].administer(Administrative::Maintenance);
        let (_, mut third) = asked(&mut estate).await;
        third.answer(200, "here").await;
        assert_eq!(client.response().await.body, "here");
        estate.assert_at_rest().await;
        assert_eq!(estate.record().await["attempts"], 3);
    });
}

#[test]
fn a_404_too_large_to_be_read_whole_is_passed_on_without_a_search() {
    run(async {
        let mut estate = InMemoryEstate::new(|setup| setup.compilers = 3);
        let mut client = estate.connect();
        client.get(FILE).await;
        let (_, mut member) = asked(&mut estate).await;
        let page = "x".repeat(100_000);
        let (_, answer) = tokio::join!(member.answer(404, &page), client.response());
        assert_eq!((answer.status, answer.body.len()), (404, page.len()));
        assert_eq!(estate.record().await["attempts"], 1);
    });
}

#[test]
fn searches_are_limited_for_all_clients_of_a_pool() {
    const NOWHERE: &str = "HTTP/1.1 404 X\r\nX-Puppet-Version: 8.0\r\nConnection: close\r\nContent-Length: 7\r\n\r\nnowhere";
    run(async {
        let mut estate = InMemoryEstate::new(|setup| setup.compilers = 3);
        let mut client = estate.connect();
        // Each search tries two further members. A pool allows twenty searches at once, and then ten per second.
        for n in 0..12 {
            if n == 11 {
                pass(1).await;
            }
            client.get(FILE).await;
            for _ in 0..if n == 10 { 1 } else { 3 } {
                let (_, mut member) = asked(&mut estate).await;
                member.send(NOWHERE).await;
            }
            assert_eq!(client.response().await.status, 404, "{n}");
        }
        estate.assert_at_rest().await;
        let records = estate.records().await;
        assert_eq!(records[10]["attempts"], 1);
        assert_eq!(records[11]["attempts"], 3);
    });
}
