//! The member of a pool to which a request goes: the algorithms, the limits of members and the files of the filebucket.

use std::collections::BTreeMap;

use testkit::StandIn;

use crate::support::{
    self, Estate, connection,
    paths::{CATALOG, FILE},
    pools::{UNPROBED, answered, one_worker, pending, shares},
};

#[test]
fn least_connections_picks_the_member_with_the_fewest_requests_in_flight_for_its_weight() {
    let estate = Estate::builder()
        .one_agent_for_many()
        .compilers(3)
        .compiler(3, "weight = 2")
        .start();
    estate.compilers.iter().for_each(StandIn::hold);
    let connections = pending(&estate, 8);
    assert_eq!(shares(&estate), [2, 2, 4]);
    answered(&estate, connections);
}

#[test]
fn least_connections_counts_requests_in_flight_and_not_past_ones() {
    let estate = Estate::builder()
        .compiler_pool("algorithm = \"least-connections\"")
        .start();
    estate.compilers.iter().for_each(StandIn::hold);
    let slow = pending(&estate, 1);
    let busy = shares(&estate)
        .iter()
        .position(|n| *n == 1)
        .expect("one of them");
    let free = 1 - busy;
    estate.compilers[free].release();
    for _ in 0..6 {
        assert_eq!(connection(&estate).get(FILE).status, 200);
    }
    assert_eq!((shares(&estate)[busy], shares(&estate)[free]), (1, 6));
    answered(&estate, slow);
}

#[test]
fn round_robin_interleaves_members_by_weight() {
    let estate = one_worker(Estate::builder())
        .compilers(3)
        .compiler_pool("algorithm = \"round-robin\"")
        .compiler(1, "weight = 3")
        .start();
    let mut connection = connection(&estate);
    let mut order = Vec::new();
    for _ in 0..20 {
        let text = connection.request("POST", CATALOG, &[], b"facts").json();
        order.push(text["compiler"].as_str().expect("a name").to_owned());
    }
    let mut count = BTreeMap::new();
    order
        .iter()
        .for_each(|name| *count.entry(name.as_str()).or_insert(0) += 1);
    assert_eq!(count, BTreeMap::from([("c1", 12), ("c2", 4), ("c3", 4)]));
    let runs = order
        .windows(3)
        .filter(|three| three.iter().all(|name| name == "c1"))
        .count();
    assert_eq!(runs, 0, "five turns are c1 c2 c1 c3 c1: {order:?}");
}

#[test]
fn random_shares_by_weight_without_a_fixed_order() {
    let estate = one_worker(Estate::builder())
        .compilers(3)
        .compiler_pool("algorithm = \"random\"")
        .compiler(1, "weight = 8")
        .start();
    let mut connection = connection(&estate);
    let mut order = Vec::new();
    for _ in 0..400 {
        let answer = connection.request("POST", CATALOG, &[], b"facts").json();
        order.push(answer["compiler"].as_str().expect("a name").to_owned());
    }
    // The fair share is 320 requests for the first member, and 80 for the other two together. The order is random: a
    // rotation would repeat its period.
    let shares = shares(&estate);
    assert!(
        shares[0] > 240 && shares[1] > 5 && shares[2] > 5,
        "{shares:?}"
    );
    let period = order
        .windows(20)
        .filter(|twenty| twenty[..10] == twenty[10..])
        .count();
    assert!(period < 300, "{order:?}");
}

#[test]
fn random_avoids_a_busy_member() {
    let estate = Estate::builder()
        .compiler_pool("algorithm = \"random\"")
        .start();
    estate.compilers.iter().for_each(StandIn::hold);
    let slow = pending(&estate, 1);
    let busy = shares(&estate).iter().position(|n| *n == 1).expect("one");
    let free = 1 - busy;
    estate.compilers[free].release();
    for _ in 0..40 {
        assert_eq!(connection(&estate).get(FILE).status, 200);
    }
    // The algorithm draws both members each time, and selects the idle one.
    assert_eq!((shares(&estate)[busy], shares(&estate)[free]), (1, 40));
    answered(&estate, slow);
}

/// The compiler that each client address is sent to, found with one request each.
fn homes(estate: &Estate) -> BTreeMap<u8, String> {
    let agent = estate.agent("web01");
    let home = |n: u8| {
        let client = agent.clone().source([127, 0, 2, n].into());
        let answer = client.request("POST", CATALOG, &[], b"facts").json();
        (n, answer["compiler"].as_str().expect("a name").to_owned())
    };
    (1..=40).map(home).collect()
}

#[test]
fn source_hash_keeps_clients_on_their_member_and_moves_only_those_of_a_member_that_leaves() {
    let estate = Estate::builder()
        .compilers(3)
        .compiler_pool("algorithm = \"source-hash\"")
        .start();
    let before = homes(&estate);
    let mut names: Vec<_> = before.values().collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 3, "the addresses spread: {before:?}");
    assert_eq!(homes(&estate), before, "over other connections and workers");
    // Neither the certificate nor a request header changes the client address that counts.
    let (other, address) = (estate.ca.agent("web02"), [127, 0, 2, 1].into());
    let client = estate.client(&other).source(address);
    let fields = [("X-Forwarded-For", "127.0.2.9"), ("X-Real-IP", "127.0.2.9")];
    estate.forget();
    client.request("GET", FILE, &fields, b"");
    assert_eq!(estate.only_request().member, before[&1]);

    let second = estate.compilers[1].address();
    let administer = |verb| {
        support::set_state(&estate.proxy, verb, "compilers", &second);
    };
    administer("drain");
    for (n, home) in homes(&estate) {
        assert!(
            home == before[&n] || before[&n] == "c2",
            "127.0.2.{n}: {home}"
        );
        assert_ne!(home, "c2");
    }
    administer("ready");
    assert_eq!(homes(&estate), before, "and they come back");
}

#[test]
fn source_hash_uses_another_member_where_a_clients_member_refuses_connections() {
    let estate = Estate::builder()
        .compiler_pool("algorithm = \"source-hash\"")
        .compiler_pool(UNPROBED)
        .start();
    estate.compilers[0].kill();
    let homes = homes(&estate);
    assert!(homes.values().all(|home| home == "c2"), "{homes:?}");
}

#[test]
fn explain_shows_the_member_that_a_clients_address_leads_to() {
    let estate = Estate::builder()
        .compilers(3)
        .compiler_pool("algorithm = \"source-hash\"\ncheck = { type = \"none\" }")
        .start();
    for (n, home) in homes(&estate).into_iter().take(12) {
        let (source, index) = (format!("127.0.2.{n}"), home[1..].parse::<usize>());
        let member = estate.compilers[index.expect("c1, c2 or c3") - 1].address();
        let arguments = [CATALOG, "--certname", "web01", "--source", &source];
        let output = estate.proxy.command(&["explain"], &arguments).stdout;
        let first = output.lines().find(|line| line.starts_with("member"));
        let expected = format!("member   {member}: selected by the hash of the client's address");
        assert_eq!(first, Some(&*expected), "{output}");
    }
    let output = estate
        .proxy
        .command(&["explain"], &[CATALOG, "--certname", "web01"]);
    assert!(
        output.stdout.contains("(--source is not set)"),
        "{output:?}"
    );
}

#[test]
fn a_member_gets_no_more_requests_than_its_max_and_a_full_queue_is_a_503() {
    let estate = Estate::builder()
        .one_agent_for_many()
        .compiler(1, "max = 1")
        .compiler(2, "max = 2")
        .with("[upstream]\nclient_share = \"100%\"\nqueue_max = 0")
        .start();
    estate.compilers.iter().for_each(StandIn::hold);
    let connections = pending(&estate, 3);
    assert_eq!(shares(&estate), [1, 2]);
    assert_eq!(connection(&estate).get(FILE).status, 503);
    let record = estate.wait_for_record(|record| record["status"] == 503);
    assert_eq!(record["reason"], "queue-full");
    answered(&estate, connections);
    assert_eq!(connection(&estate).get(FILE).status, 200);
}

#[test]
fn a_filebuckets_file_is_found_where_it_was_put() {
    let estate = Estate::builder().compilers(3).start();
    let (web01, web02) = (estate.ca.agent("web01"), estate.ca.agent("web02"));
    let mut seen = BTreeMap::new();
    for n in 0..24 {
        let path = format!("/puppet/v3/file_bucket_file/sha256/{n:064x}//etc/motd");
        assert_eq!(
            estate
                .client(&web01)
                .request("PUT", &path, &[], b"motd")
                .status,
            200
        );
        assert_eq!(estate.client(&web02).get(&path).text(), "motd", "{path}");
        *seen
            .entry(estate.far_end().pop().expect("a request").member)
            .or_insert(0) += 1;
        estate.forget();
    }
    assert_eq!(seen.len(), 3, "the checksums spread: {seen:?}");
}

#[test]
fn a_pool_named_filebucket_gets_the_filebuckets_files() {
    let bucket = StandIn::start("bucket");
    let table = format!(
        "[pools.filebucket]\nscheme = \"http\"\nmembers = [\"{}\"]",
        bucket.address()
    );
    let estate = Estate::builder().with(&table).start();
    estate.wait_for_members(&["filebucket"]);
    let path = "/puppet/v3/file_bucket_file/sha256/abc//etc/motd";
    assert_eq!(
        connection(&estate)
            .request("PUT", path, &[], b"motd")
            .status,
        200
    );
    assert_eq!(
        (bucket.last().target.as_str(), shares(&estate)),
        (path, vec![0, 0])
    );
}
