//! The filebucket: every compiler has its own, and the proxy finds a file on whichever compiler stores it.

use testkit::{Reply, Response, StandIn};

use crate::support::{self, Estate};

const TARGET: &str = "/puppet/v3/file_bucket_file/sha256/abc//etc/motd";

fn request(estate: &Estate, method: &str, body: &[u8]) -> Response {
    let agent = estate.ca.agent("web01");
    estate.client(&agent).request(method, TARGET, &[], body)
}

#[track_caller]
fn set(estate: &Estate, verb: &str, compiler: &StandIn) {
    support::set_state(&estate.proxy, verb, "compilers", &compiler.address());
}

/// Compilers without probes, and their indices in the order in which the checksum selects them.
fn estate(compilers: usize, lines: &str) -> (Estate, Vec<usize>) {
    let estate = Estate::builder()
        .compilers(compilers)
        .compiler_pool("check = { type = \"none\" }")
        .with(lines)
        .start();
    let order = (0..compilers).map(|_| {
        estate.forget();
        request(&estate, "HEAD", b"");
        let asked = estate.only_request().member;
        let mut compilers = estate.compilers.iter();
        let index = compilers.position(|compiler| compiler.name() == asked);
        let index = index.expect("one of the compilers");
        set(&estate, "drain", &estate.compilers[index]);
        index
    });
    let order = order.collect();
    for compiler in &estate.compilers {
        set(&estate, "ready", compiler);
    }
    estate.forget();
    (estate, order)
}

/// The compilers that received the request, by their position in `order`: 0 is the first.
fn requested_compilers(estate: &Estate, order: &[usize]) -> Vec<usize> {
    let times = order
        .iter()
        .map(|index| estate.compilers[*index].requests().len());
    times.collect()
}

#[test]
fn a_file_stored_while_its_compiler_was_away_is_found_once_it_is_back() {
    let (estate, order) = estate(3, "");
    for away in [1, 2] {
        for index in &order[..away] {
            set(&estate, "drain", &estate.compilers[*index]);
        }
        let body = format!("stored at {away}");
        assert_eq!(request(&estate, "PUT", body.as_bytes()).status, 200);
        for index in &order[..away] {
            set(&estate, "ready", &estate.compilers[*index]);
        }
        estate.forget();
        // An agent sends HEAD to find out whether it must store the file. It would store it on the compiler that the checksum
        // selects, so the proxy sends HEAD to that compiler only.
        assert_eq!(request(&estate, "HEAD", b"").status, 404);
        assert_eq!(requested_compilers(&estate, &order), [1, 0, 0]);
        estate.forget();
        let found = request(&estate, "GET", b"");
        assert_eq!((found.status, found.text()), (200, body));
        let asked_until = |place: usize| usize::from(place <= away);
        assert_eq!(
            requested_compilers(&estate, &order),
            [0, 1, 2].map(asked_until)
        );
        let attempts = away + 1;
        let record = estate.wait_for_record(|record| record["attempts"] == attempts);
        let compiler = &estate.compilers[order[away]];
        assert_eq!(record["status"], 200);
        assert_eq!(record["member"], compiler.address());
        // From now on this compiler lacks the file, and the next compiler has it.
        compiler.answer(|request| {
            let lost = request.method != "PUT";
            lost.then(|| Reply::status(404).header("X-Puppet-Version", "8.7.0"))
        });
    }
}

#[test]
fn a_missing_file_is_requested_from_at_most_three_members() {
    for (lines, expected) in [
        ("", [1, 1, 1, 0]),
        ("[upstream]\nattempts_max = 9", [1, 1, 1, 0]),
        ("[upstream]\nattempts_max = 2", [1, 1, 0, 0]),
        ("[upstream]\nattempts_max = 1", [1, 0, 0, 0]),
    ] {
        let (estate, order) = estate(4, lines);
        let answer = request(&estate, "GET", b"");
        assert_eq!(answer.status, 404, "{lines}: {answer:?}");
        assert!(answer.text().contains("Could not find"), "{answer:?}");
        assert_eq!(requested_compilers(&estate, &order), expected, "{lines}");
    }
}

#[test]
fn the_first_response_is_used_where_other_members_fail() {
    let failures: [fn() -> Reply; 3] = [Reply::reset, || Reply::status(503), || Reply::status(403)];
    for fail in failures {
        let (estate, order) = estate(3, "");
        for index in &order[1..] {
            estate.compilers[*index].answer(move |_| Some(fail()));
        }
        let answer = request(&estate, "GET", b"");
        assert_eq!(answer.status, 404, "{answer:?}");
        assert!(answer.text().contains("Could not find"), "{answer:?}");
        assert_eq!(requested_compilers(&estate, &order), [1, 1, 1]);
        let record = estate.wait_for_record(|record| record["attempts"] == 3);
        let first = estate.compilers[order[0]].address();
        assert_eq!(record["status"], 404);
        assert_eq!(record["member"], first);
    }
}

#[test]
fn a_404_that_is_not_from_a_puppet_server_does_not_mean_that_the_file_is_missing() {
    let (estate, order) = estate(2, "");
    let answers = [
        (Reply::status(404), 404),
        // The 404 of Jetty itself, while the server starts.
        (
            Reply::status(404).header("Content-Type", "text/html;charset=iso-8859-1"),
            503,
        ),
    ];
    for (reply, expected) in answers {
        estate.forget();
        estate.compilers[order[0]].answer(move |_| Some(reply.clone()));
        assert_eq!(request(&estate, "GET", b"").status, expected);
        assert_eq!(requested_compilers(&estate, &order), [1, 0]);
    }
}
