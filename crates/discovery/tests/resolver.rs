//! The resolver with a real DNS server, and with servers that fail or send wrong answers.

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr, UdpSocket},
    thread,
    time::Duration,
};

use discovery::{
    DnsAnswer, DnsQuestion, LookupError, Resolved, Resolver,
    settings::{DnsServer, DnsSettings},
};
use hickory_resolver::proto::{
    op::{Message, MessageType, ResponseCode},
    rr::{
        Name, RData, Record, RecordType,
        rdata::{A, AAAA, CNAME, SRV},
    },
};
use testkit::NameServer;

/// Long enough for a machine under load, and short enough for servers that do not answer.
const LIMIT: Duration = Duration::from_secs(2);

fn settings(servers: &[SocketAddr]) -> DnsSettings {
    DnsSettings {
        servers: servers.iter().copied().map(DnsServer).collect(),
        timeout: LIMIT,
        ..DnsSettings::default()
    }
}

fn host(name: &str) -> DnsQuestion {
    DnsQuestion::Host(name.to_owned())
}

fn service() -> DnsQuestion {
    DnsQuestion::Service("_x-puppet._tcp.example.com".to_owned())
}

fn addresses(answer: &DnsAnswer) -> Vec<String> {
    match answer {
        DnsAnswer::Host(addresses) => addresses.iter().map(ToString::to_string).collect(),
        DnsAnswer::Service(targets) => {
            let shown = targets.iter().map(|target| {
                let addresses: Vec<_> = target.addresses.iter().map(ToString::to_string).collect();
                format!("{}:{}@{}", target.host, target.port, addresses.join(","))
            });
            shown.collect()
        }
    }
}

async fn ask(resolver: &Resolver, question: &DnsQuestion) -> Resolved {
    resolver.resolve(question).await.expect("an answer")
}

#[tokio::test]
async fn the_hosts_file_comes_first() {
    let Some(server) = NameServer::start("c1 A 192.0.2.1\nc2 A 192.0.2.2\n") else {
        return;
    };
    let hosts =
        "127.0.0.9 C1.example.com alias # a comment\n::1 alias\nnot-an-address c2.example.com\n";
    let resolver = Resolver::with_hosts_file(&settings(&[server.address()]), hosts);
    let c1 = ask(&resolver, &host("c1.example.com")).await;
    assert_eq!(addresses(&c1.answer), ["127.0.0.9"]);
    assert_eq!(c1.ttl, Duration::from_secs(30));
    let alias = ask(&resolver, &host("alias")).await;
    assert_eq!(addresses(&alias.answer), ["127.0.0.9", "::1"]);
    let c2 = ask(&resolver, &host("c2.example.com")).await;
    assert_eq!(addresses(&c2.answer), ["192.0.2.2"]);
    server.replace("_x-puppet._tcp SRV 0 1 8140 c1\nc1 A 192.0.2.1\n");
    let targets = ask(&resolver, &service()).await;
    assert_eq!(
        addresses(&targets.answer),
        ["c1.example.com:8140@127.0.0.9"]
    );
}

#[tokio::test]
async fn aliases_lead_to_hosts_and_to_services() {
    let Some(server) = NameServer::start(
        "www CNAME one\none CNAME two\ntwo CNAME c1\nc1 60 A 192.0.2.1\nc1 60 AAAA 2001:db8::1\n\
         _x-puppet._tcp CNAME services\nservices CNAME more\nmore 60 SRV 0 1 8140 www\n\
         _a._tcp CNAME _b._tcp\n_b._tcp CNAME _a._tcp\n",
    ) else {
        return;
    };
    let resolver = Resolver::with_hosts_file(&settings(&[server.address()]), "");
    let www = ask(&resolver, &host("www.example.com")).await;
    assert_eq!(addresses(&www.answer), ["192.0.2.1", "2001:db8::1"]);
    assert_eq!(www.ttl, Duration::ZERO, "that of the aliases");
    let targets = ask(&resolver, &service()).await;
    let expected = ["www.example.com:8140@192.0.2.1,2001:db8::1"];
    assert_eq!(addresses(&targets.answer), expected);
    let circle = DnsQuestion::Service("_a._tcp.example.com".to_owned());
    assert!(resolver.resolve(&circle).await.is_err());
}

#[tokio::test]
async fn the_ttl_is_the_shortest_of_the_records() {
    let Some(server) =
        NameServer::start("_x-puppet._tcp 2147483647 SRV 0 1 8140 c1\nc1 2147483647 A 192.0.2.1\n")
    else {
        return;
    };
    let settings = settings(&[server.address()]);
    let resolver = Resolver::with_hosts_file(&settings, "");
    let long = ask(&resolver, &service()).await;
    assert!(long.ttl > settings.ttl_max, "{:?}", long.ttl);
    assert_eq!(settings.refresh_after(long.ttl), settings.ttl_max);
    server.replace("_x-puppet._tcp 300 SRV 0 1 8140 c1\nc1 60 A 192.0.2.1\nc1 7 AAAA ::1\n");
    let short = ask(&resolver, &service()).await;
    assert_eq!(short.ttl, Duration::from_secs(7));
    server.replace("_x-puppet._tcp 0 SRV 0 1 8140 c1\nc1 60 A 192.0.2.1\n");
    let none = ask(&resolver, &service()).await;
    assert_eq!(none.ttl, Duration::ZERO);
    assert_eq!(settings.refresh_after(none.ttl), settings.ttl_min);
}

#[tokio::test]
async fn names_that_dns_does_not_know_are_resolved_by_the_system() {
    let Some(server) = NameServer::start("c1 A 192.0.2.1\n") else {
        return;
    };
    let resolver = Resolver::with_hosts_file(&settings(&[server.address()]), "");
    // The system reads the name as an address, and a DNS server for another zone refuses to answer.
    let found = ask(&resolver, &host("127.1")).await;
    assert_eq!(addresses(&found.answer), ["127.0.0.1"]);
    assert_eq!(found.ttl, Duration::from_secs(30));
    let doubt = found.doubts.get("127.1").expect("a doubt").to_string();
    assert_eq!(
        doubt,
        "the DNS servers answer with an error (Query Refused)"
    );
    let unknown = resolver.resolve(&host("c9.example.com")).await;
    let why = unknown.expect_err("no system knows it").to_string();
    assert_eq!(why, "DNS has no such name (NXDOMAIN)");
    // Concurrent lookups wait for each other.
    let many = (1..=40).map(|n| host(&format!("127.{n}")));
    let queried: Vec<_> = many
        .map(|question| {
            let resolver = resolver.clone();
            tokio::spawn(async move { resolver.resolve(&question).await.is_ok() })
        })
        .collect();
    for found in queried {
        assert!(found.await.expect("no panic"));
    }
}

#[tokio::test]
async fn the_next_server_answers_if_the_first_is_silent() {
    let Some(server) = NameServer::start("c1 A 192.0.2.1\n") else {
        return;
    };
    let silent = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let silent = silent.local_addr().expect("bound");
    for dead in [silent, "127.0.0.1:1".parse().expect("an address")] {
        let resolver = Resolver::with_hosts_file(&settings(&[dead, server.address()]), "");
        let found = ask(&resolver, &host("c1.example.com")).await;
        assert_eq!(addresses(&found.answer), ["192.0.2.1"], "{dead}");
    }
}

/// A DNS server over UDP. `answer` returns the response code and the records for a name and type. `None`: it does not
/// answer.
struct Lying {
    address: SocketAddr,
}

impl Lying {
    fn start(
        answer: impl Fn(&Name, RecordType) -> Option<(ResponseCode, Vec<Record>)> + Send + 'static,
    ) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let address = socket.local_addr().expect("bound");
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok((length, client)) = socket.recv_from(&mut bytes) {
                let Ok(mut message) = Message::from_vec(&bytes[..length]) else {
                    continue;
                };
                let Some(query) = message.queries.first().cloned() else {
                    continue;
                };
                let Some((code, records)) = answer(query.name(), query.query_type()) else {
                    continue;
                };
                message.metadata.message_type = MessageType::Response;
                message.metadata.response_code = code;
                message.metadata.recursion_available = true;
                message.answers = records;
                let reply = message.to_vec().expect("a message");
                let _ = socket.send_to(&reply, client);
            }
        });
        Self { address }
    }

    fn resolver(&self) -> Resolver {
        Resolver::with_hosts_file(&settings(&[self.address]), "")
    }
}

fn name(text: &str) -> Name {
    Name::from_ascii(text).expect("a name")
}

fn four(owner: &Name, address: [u8; 4]) -> Record {
    Record::from_rdata(owner.clone(), 60, RData::A(A(address.into())))
}

fn six(owner: &Name) -> Record {
    let address: IpAddr = "2001:db8::1".parse().expect("an address");
    let IpAddr::V6(address) = address else {
        unreachable!()
    };
    Record::from_rdata(owner.clone(), 60, RData::AAAA(AAAA(address)))
}

#[tokio::test]
async fn the_next_server_answers_if_the_first_fails() {
    let Some(server) = NameServer::start("c1 A 192.0.2.1\n_x-puppet._tcp SRV 0 1 8140 c1\n") else {
        return;
    };
    for code in [ResponseCode::ServFail, ResponseCode::Refused] {
        let failing = Lying::start(move |_, _| Some((code, Vec::new())));
        let settings = settings(&[failing.address, server.address()]);
        let resolver = Resolver::with_hosts_file(&settings, "");
        let found = ask(&resolver, &host("c1.example.com")).await;
        assert_eq!(addresses(&found.answer), ["192.0.2.1"], "{code}");
        assert!(found.doubts.is_empty(), "{code}: {:?}", found.doubts);
        let found = ask(&resolver, &service()).await;
        assert_eq!(addresses(&found.answer), ["c1.example.com:8140@192.0.2.1"]);
    }
}

#[tokio::test]
async fn a_failed_query_for_one_family_is_reported_and_a_family_without_addresses_is_not() {
    for code in [ResponseCode::ServFail, ResponseCode::NoError] {
        let server = Lying::start(move |owner, kind| match kind {
            RecordType::AAAA => Some((ResponseCode::NoError, vec![six(owner)])),
            _ => Some((code, Vec::new())),
        });
        let found = ask(&server.resolver(), &host("c1.example.com")).await;
        assert_eq!(addresses(&found.answer), ["2001:db8::1"]);
        assert_eq!(
            found.doubts.len(),
            usize::from(code == ResponseCode::ServFail),
            "{code}"
        );
    }
}

#[tokio::test]
async fn records_of_other_names_are_ignored() {
    let server = Lying::start(|owner, kind| {
        let other = name("evil.example.com.");
        let srv = |owner: &Name, target: &Name| {
            let srv = SRV::new(0, 1, 8140, target.clone());
            Record::from_rdata(owner.clone(), 60, RData::SRV(srv))
        };
        let records = match kind {
            RecordType::A => vec![four(&other, [192, 0, 2, 66]), four(owner, [192, 0, 2, 1])],
            RecordType::SRV => {
                let target = name("c1.example.com.");
                vec![srv(owner, &target), srv(&other, &other)]
            }
            _ => Vec::new(),
        };
        Some((ResponseCode::NoError, records))
    });
    let found = ask(&server.resolver(), &host("c1.example.com")).await;
    assert_eq!(addresses(&found.answer), ["192.0.2.1"]);
    let found = ask(&server.resolver(), &service()).await;
    assert_eq!(addresses(&found.answer), ["c1.example.com:8140@192.0.2.1"]);
}

#[tokio::test]
async fn an_answer_to_another_question_is_ignored() {
    let server = Lying::start(|_, _| {
        let other = name("evil.example.com.");
        let alias = RData::CNAME(CNAME(name("c1.example.com.")));
        let records = vec![
            four(&other, [192, 0, 2, 66]),
            Record::from_rdata(other, 60, alias),
        ];
        Some((ResponseCode::NoError, records))
    });
    let refused = server.resolver().resolve(&host("c1.example.com")).await;
    assert!(refused.is_err(), "{refused:?}");
}

#[tokio::test]
async fn a_silent_server_costs_at_most_the_timeout() {
    let server = Lying::start(|_, _| None);
    let started = std::time::Instant::now();
    let resolver = server.resolver();
    let late = resolver.resolve(&service()).await.expect_err("no answer");
    assert!(
        matches!(late, LookupError::Late(_)) || late.to_string() == "the DNS servers do not answer",
        "{late}"
    );
    assert!(started.elapsed() < LIMIT * 3, "{:?}", started.elapsed());
}

#[tokio::test]
async fn a_target_is_not_completed_by_search_domains() {
    // A host with the same name below a search domain would be another host.
    let seen = std::sync::Arc::new(std::sync::Mutex::new(BTreeSet::new()));
    let queried = std::sync::Arc::clone(&seen);
    let server = Lying::start(move |owner, kind| {
        queried.lock().expect("no panic").insert(owner.to_ascii());
        let target = SRV::new(0, 1, 8140, name("c9.example.com."));
        match kind {
            RecordType::SRV => {
                let record = Record::from_rdata(owner.clone(), 60, RData::SRV(target));
                Some((ResponseCode::NoError, vec![record]))
            }
            _ => Some((ResponseCode::NXDomain, Vec::new())),
        }
    });
    let found = ask(&server.resolver(), &service()).await;
    assert_eq!(addresses(&found.answer), ["c9.example.com:8140@"]);
    assert!(found.doubts.contains_key("c9.example.com"));
    let names: Vec<_> = seen.lock().expect("no panic").iter().cloned().collect();
    assert_eq!(names, ["_x-puppet._tcp.example.com.", "c9.example.com."]);
}
