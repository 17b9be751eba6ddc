//! A route sends each client to the same member while it is available, by a cookie, a header or the client's address.

use std::collections::BTreeSet;

use tempfile::TempDir;
use testkit::{Ca, Client, Protocol, Proxy, Reply, Response, StandIn, TestCredential, wait_until};

use crate::support::{self, LIMIT, done, set_state};

const APP: &str = "/app/page";
const IN_FLIGHT: &str = "proscenium_member_in_flight";
const MOVES: &str = "proscenium_persistence_moves_total";

/// A proxy in front of three servers that are not Puppet servers.
struct Site {
    ca: Ca,
    proxy: Proxy,
    web01: TestCredential,
    members: Vec<StandIn>,
}

fn members() -> Vec<StandIn> {
    let started = ["a1", "a2", "a3"].map(StandIn::start);
    for member in &started {
        let name = member.name().to_owned();
        member.answer(move |request| (!request.is_probe()).then(|| Reply::ok(&name)));
    }
    started.into()
}

fn start(ca: Ca, members: Vec<StandIn>, persistence: &str, state: Option<&TempDir>) -> Site {
    let addresses = members.iter();
    let addresses: Vec<_> = addresses
        .map(|member| format!("\"{}\"", member.address()))
        .collect();
    let pool = |name: &str, members: &[String]| {
        format!(
            "[pools.{name}]\nscheme = \"http\"\nalgorithm = \"round-robin\"\nmembers = [{}]\ncheck = {{ type = \"none\" }}\n",
            members.join(", ")
        )
    };
    let tables = [
        pool("ca", &addresses[..1]),
        pool("compilers", &addresses),
        pool("app", &addresses),
        format!(
            "[upstream]\nconnections_max = 100\n[[routes]]\nname = \"app\"\npool = \"app\"\npersistence = {persistence}\n"
        ),
        state.map_or(String::new(), |state| {
            format!("[state]\ndirectory = {:?}\n", state.path())
        }),
    ];
    Site {
        proxy: support::proxy(&ca).with(&tables.concat()).start(),
        web01: ca.agent("web01"),
        ca,
        members,
    }
}

fn site(persistence: &str) -> Site {
    start(Ca::new(), members(), persistence, None)
}

impl Site {
    fn client(&self) -> Client {
        self.proxy.client(Some(&self.web01))
    }

    /// The response to a request with this field.
    fn ask(&self, name: &str, value: &str) -> Response {
        let answer = self.client().request("GET", APP, &[(name, value)], b"");
        assert_eq!(answer.status, 200, "{answer:?}");
        answer
    }

    fn with_cookie(&self, cookie: &str) -> Response {
        let (one, two) = (
            format!("other=1; {cookie}"),
            [("Cookie", "other=1"), ("Cookie", cookie)],
        );
        // Over HTTP/2 each cookie may be a separate field.
        let fields = match crate::protocol() {
            Protocol::Http1 => &[("Cookie", &*one)][..],
            Protocol::Http2 => &two,
        };
        let answer = self.client().request("GET", APP, fields, b"");
        assert_eq!(answer.status, 200, "{answer:?}");
        answer
    }

    /// Sends a first request; returns the member's name, and the cookie as a client sends it back.
    fn begin(&self) -> (String, String) {
        let answer = self.client().get(APP);
        (answer.text(), cookie(&answer).expect("a cookie"))
    }

    fn member(&self, name: &str) -> &StandIn {
        let mut members = self.members.iter();
        let member = members.find(|member| member.name() == name);
        member.expect("one of them")
    }

    /// Makes a member hold requests, with room for this many. Returns the member, and how many requests it has
    /// received.
    fn hold_with_room(&self, name: &str, room: usize) -> (&StandIn, usize) {
        let lowered = format!("connections_max = {room}");
        self.proxy.edit_config("connections_max = 100", &lowered);
        self.proxy.hang_up();
        let member = self.member(name);
        let idle = || (self.proxy.metrics().sum(IN_FLIGHT, &[]) == 0.0).then_some(());
        assert!(wait_until(LIMIT, idle).is_some(), "the first request ends");
        member.hold();
        (member, member.requests().len())
    }

    fn address(&self, name: &str) -> String {
        self.member(name).address()
    }

    fn set(&self, verb: &str, name: &str) {
        set_state(&self.proxy, verb, "app", &self.address(name));
    }
}

/// Name and value of the only cookie that a response sets.
fn cookie(answer: &Response) -> Option<String> {
    let set = answer.headers.get("set-cookie")?.to_owned();
    Some(set.split(';').next().unwrap_or_default().to_owned())
}

#[test]
fn a_cookie_keeps_a_client_on_its_member_and_foreign_values_are_ignored() {
    let site = site("{ cookie = \"PROXY\" }");
    let first = site.client().get(APP);
    let set = first.headers.only("set-cookie");
    let value = set
        .strip_prefix("PROXY=")
        .and_then(|rest| rest.strip_suffix("; Path=/; Secure; HttpOnly; SameSite=Lax"));
    let value = value.unwrap_or_else(|| panic!("{set}"));
    assert_eq!(value.len(), 32, "{set}");
    assert!(value.bytes().all(|byte| byte.is_ascii_hexdigit()), "{set}");
    let mine = format!("PROXY={value}");
    for _ in 0..6 {
        let again = site.with_cookie(&mine);
        assert_eq!(again.text(), first.text());
        assert_eq!(cookie(&again), None, "the client has it");
    }
    let begun: BTreeSet<_> = (0..3).map(|_| site.begin().1).collect();
    assert_eq!(begun.len(), 3, "each member has a value of its own");
    for forged in [
        "PROXY=0".to_owned(),
        format!("PROXY={}", "0".repeat(32)),
        format!("PROXY={}", site.address(&first.text())),
        format!("{mine}; {mine}"),
        format!("proxy={value}"),
        format!("PROXY=\"{value}\""),
    ] {
        let names: BTreeSet<_> = (0..3)
            .map(|_| {
                let answer = site.with_cookie(&forged);
                assert!(cookie(&answer).is_some(), "{forged}");
                answer.text()
            })
            .collect();
        assert_eq!(names.len(), 3, "{forged}: as without a cookie");
    }
    assert_eq!(site.proxy.metrics().sum(MOVES, &[]), 0.0);
    // Requests for Puppet Server follow the algorithm of the pool.
    let catalog = site
        .client()
        .get("/puppet/v3/catalog/web01?environment=production");
    assert_eq!((catalog.status, cookie(&catalog)), (200, None));
    let explained = site
        .proxy
        .command(&["explain"], &[APP, "--certname", "web01"]);
    let line = "persist  the client stays with the member in the proxy's cookie PROXY";
    assert!(explained.stdout.contains(line), "{}", explained.stdout);
}

#[test]
fn a_client_moves_when_its_member_is_not_available_and_the_move_is_logged() {
    let site = site("{ cookie = \"PROXY\" }");
    for verb in ["drain", "maintenance"] {
        let (home, mine) = site.begin();
        site.set(verb, &home);
        let before = site.proxy.metrics().sum(MOVES, &[]);
        let moved = site.with_cookie(&mine);
        assert_ne!(moved.text(), home, "{verb}");
        let new = cookie(&moved).expect("another cookie");
        assert_eq!(site.proxy.metrics().sum(MOVES, &[]), before + 1.0);
        let event = format!("from={}", site.address(&home));
        site.proxy.wait_for_event("persistent client moved");
        site.proxy.wait_for_event(&event);
        site.set("ready", &home);
        for _ in 0..4 {
            assert_eq!(
                site.with_cookie(&new).text(),
                moved.text(),
                "it stays there"
            );
        }
        assert_eq!(
            site.with_cookie(&mine).text(),
            home,
            "an old one still leads home"
        );
    }
    // A stopped member refuses connections.
    let (home, mine) = site.begin();
    site.member(&home).kill();
    let moved = site.with_cookie(&mine);
    assert_ne!(moved.text(), home);
    assert!(cookie(&moved).is_some());
}

#[test]
fn a_client_whose_member_is_full_does_not_wait_and_returns_to_it() {
    let site = site("{ cookie = \"PROXY\" }");
    let (home, mine) = site.begin();
    let (member, before) = site.hold_with_room(&home, 2);
    // The two held requests come from two clients, because one client gets only a share of the slots.
    let held: Vec<_> = ["web02", "web03"]
        .into_iter()
        .enumerate()
        .map(|(n, certname)| {
            let agent = site.ca.agent(certname);
            let mut connection = site.proxy.client(Some(&agent)).connect().expect("connects");
            let fields = [("Cookie", mine.as_str())];
            connection.send("GET", APP, &fields, b"").expect("sends");
            member.wait_for_request(before + n + 1, LIMIT);
            connection
        })
        .collect();
    assert_eq!(site.proxy.metrics().sum(MOVES, &[]), 0.0);
    for n in 1..=2 {
        let elsewhere = site.with_cookie(&mine);
        assert_ne!(elsewhere.text(), home);
        assert_eq!(cookie(&elsewhere), None, "it keeps its own");
        assert_eq!(site.proxy.metrics().sum(MOVES, &[]), f64::from(n));
    }
    site.proxy
        .wait_for_event("persistent client moved: its member is at its limit");
    member.release();
    for mut connection in held {
        let answer = connection.read_response().expect("an answer");
        assert_eq!((answer.text(), cookie(&answer)), (home.clone(), None));
    }
    let back = wait_until(LIMIT, || {
        (site.with_cookie(&mine).text() == home).then_some(())
    });
    assert!(back.is_some(), "{}", site.proxy.stderr());
}

#[test]
fn a_client_whose_member_is_full_keeps_its_cookie_although_the_next_member_fails() {
    let site = site("{ cookie = \"PROXY\" }");
    let (home, mine) = site.begin();
    let (member, before) = site.hold_with_room(&home, 1);
    let agent = site.ca.agent("web02");
    let mut held = site.proxy.client(Some(&agent)).connect().expect("connects");
    let fields = [("Cookie", mine.as_str())];
    held.send("GET", APP, &fields, b"").expect("sends");
    member.wait_for_request(before + 1, LIMIT);
    // One of the other members accepts no connections.
    let broken = site.members.iter().find(|member| member.name() != home);
    let broken = broken.expect("another");
    broken.kill();
    let retried = wait_until(LIMIT, || {
        let answer = site.with_cookie(&mine);
        assert_ne!(answer.text(), home);
        assert_eq!(cookie(&answer), None, "it keeps its own");
        let records = site.proxy.records();
        let retried = records.iter().any(|record| record["attempts"] == 2);
        retried.then_some(())
    });
    assert!(retried.is_some(), "one request meets the one that is gone");
    member.release();
    held.read_response().expect("an answer");
}

#[test]
fn explain_shows_the_member_that_a_cookie_or_a_header_leads_to() {
    let (state, ca) = (TempDir::new().expect("a directory"), Ca::new());
    let site = start(ca, members(), "{ cookie = \"PROXY\" }", Some(&state));
    let first = |site: &Site, headers: &[&str]| {
        let mut words = vec![APP, "--certname", "web01"];
        for header in headers {
            words.extend(["--header", header]);
        }
        let explained = site.proxy.command(&["explain"], &words).stdout;
        let lines = explained.lines();
        let mut lines = lines.skip_while(|line| !line.starts_with("persist  "));
        let persist = lines.next().unwrap_or_default().to_owned();
        let member = lines.find(|line| line.starts_with("member   "));
        (persist, member.unwrap_or_default().to_owned())
    };
    for _ in 0..3 {
        let (home, mine) = site.begin();
        let (persist, member) = first(&site, &[&format!("Cookie: a=1; {mine}")]);
        assert!(persist.ends_with("in its cookie PROXY"), "{persist}");
        assert!(member.contains(&site.address(&home)), "{member}");
        assert!(member.ends_with("by the persistence of the route"));
    }
    let (persist, _) = first(&site, &["Cookie: PROXY=0"]);
    assert!(persist.contains("PROXY is ignored"), "{persist}");
    let by_header = self::site("{ header = \"X-Session\" }");
    let (_, member) = first(&by_header, &["X-Session: a"]);
    assert!(member.ends_with("by the persistence of the route"));
    let (persist, member) = first(&by_header, &["X-Session: a", "X-Session: b"]);
    assert!(persist.contains("appears twice"), "{persist}");
    assert!(
        !member.ends_with("by the persistence of the route"),
        "{member}"
    );
}

#[test]
fn a_cookie_is_valid_after_a_restart_and_invalid_with_another_key() {
    let (ca, state, other) = (Ca::new(), TempDir::new(), TempDir::new());
    let (state, other) = (state.expect("a directory"), other.expect("a directory"));
    let persistence = "{ cookie = \"PROXY\" }";
    let first = start(ca.clone(), members(), persistence, Some(&state));
    let (home, mine) = first.begin();
    let Site { proxy, members, .. } = first;
    drop(proxy);
    let again = start(ca.clone(), members, persistence, Some(&state));
    for _ in 0..4 {
        let answer = again.with_cookie(&mine);
        assert_eq!((answer.text(), cookie(&answer)), (home.clone(), None));
    }
    let Site { proxy, members, .. } = again;
    drop(proxy);
    let stranger = start(ca, members, persistence, Some(&other));
    assert!(
        cookie(&stranger.with_cookie(&mine)).is_some(),
        "not its own"
    );
}

#[test]
fn a_header_or_an_address_leads_to_one_member_without_a_cookie() {
    let by_header = site("{ header = \"X-Session\" }");
    let homes: Vec<_> = (0..12)
        .map(|n| by_header.ask("X-Session", &format!("s{n}")))
        .collect();
    assert!(homes.iter().all(|answer| cookie(answer).is_none()));
    let homes: Vec<_> = homes.iter().map(Response::text).collect();
    let distinct: BTreeSet<_> = homes.iter().collect();
    assert!(distinct.len() > 1, "{homes:?}");
    by_header.set("drain", "a2");
    for (n, home) in homes.iter().enumerate() {
        let now = by_header.ask("X-Session", &format!("s{n}")).text();
        assert!(now != "a2" && (now == *home || home == "a2"), "s{n}");
    }
    let moved = homes.iter().filter(|home| *home == "a2").count();
    assert_eq!(by_header.proxy.metrics().sum(MOVES, &[]), moved as f64);
    by_header.set("ready", "a2");
    for (n, home) in homes.iter().enumerate() {
        let now = by_header.ask("X-Session", &format!("s{n}")).text();
        assert_eq!(now, *home, "it comes back");
    }
    let without: BTreeSet<_> = (0..3).map(|_| by_header.client().get(APP).text()).collect();
    assert_eq!(without.len(), 3, "as the algorithm says");

    let by_source = site("{ source = true }");
    let names: BTreeSet<_> = (0..6).map(|_| by_source.client().get(APP).text()).collect();
    assert_eq!(names.len(), 1, "{names:?}");
    let home = names.first().expect("one");
    let explained = by_source.proxy.command(
        &["explain"],
        &[APP, "--certname", "web01", "--source", "127.0.0.1"],
    );
    let first = format!(
        "member   {}: selected by the persistence",
        by_source.address(home)
    );
    assert!(explained.stdout.contains(&first), "{}", explained.stdout);
    done(
        &by_source.proxy,
        &["drain", "app", &by_source.address(home)],
        &[],
    );
    assert_ne!(by_source.client().get(APP).text(), *home);
}
