//! `[[access]]`: which clients may send which requests, in addition to the endpoint classes. The tests read the result
//! at the member.

use testkit::{Ca, Client, StandIn, TestCredential};

use crate::support::{
    Estate, assert_contains, assert_identity, assert_refused, paths::CATALOG, proxy,
};

const ROLE: &[u64] = &[1, 3, 6, 1, 4, 1, 34380, 1, 1, 13];
const ENVIRONMENT: &[u64] = &[1, 3, 6, 1, 4, 1, 34380, 1, 1, 12];
const AUTH_ROLE: &[u64] = &[1, 3, 6, 1, 4, 1, 34380, 1, 3, 13];
const CLI_AUTH: &[u64] = &[1, 3, 6, 1, 4, 1, 34380, 1, 3, 39];
const PRIVATE: &[u64] = &[1, 3, 6, 1, 4, 1, 34380, 1, 2, 7];
const OWN: &[u64] = &[1, 3, 6, 1, 4, 1, 99999, 7];
const FILE: &str = "/puppet/v3/file_content/modules/a/b?environment=production";
const STATUS_OF_WEB02: &str = "/puppet-ca/v1/certificate_status/web02";

/// An estate with these rules.
fn estate(rules: &'static str) -> Estate {
    Estate::builder().compilers(1).with(rules).start()
}

/// Asserts whether a request is allowed, by what the member received and by the response.
#[track_caller]
fn check(estate: &Estate, client: &Client, (method, target): (&str, &str), passes: bool) {
    estate.forget();
    let answer = client.request(method, target, &[], b"");
    let arrived = estate.far_end().len();
    // The member decides the status of an allowed request.
    assert_eq!(
        (answer.status != 403, arrived),
        (passes, usize::from(passes)),
        "{method} {target}: {answer:?}"
    );
}

#[test]
fn a_rule_refuses_the_clients_that_it_matches_and_names_a_contact() {
    let rule = |condition: &str| {
        format!("[[access]]\nname = \"closed\"\naction = \"refuse\"\n{condition}\n")
    };
    let plain = |ca: &Ca| ca.agent("web01");
    let with = |oid: &'static [u64]| move |ca: &Ca| ca.leaf("web01").extension(oid, "db").issue();
    type Make = Box<dyn Fn(&Ca) -> TestCredential>;
    let rows: [(&str, Make, Make); 7] = [
        (
            "certname = [\"web*\"]",
            Box::new(plain),
            Box::new(|ca: &Ca| ca.agent("db01")),
        ),
        (
            "extension = { pp_role = \"d*\" }",
            Box::new(with(ROLE)),
            Box::new(with(AUTH_ROLE)),
        ),
        (
            "extension = { pp_auth_role = \"db\" }",
            Box::new(with(AUTH_ROLE)),
            Box::new(with(ROLE)),
        ),
        (
            "extension = { \"1.3.6.1.4.1.34380.1.2.7\" = \"db\" }",
            Box::new(with(PRIVATE)),
            Box::new(plain),
        ),
        (
            "extension = { site = \"db\" }\n[identity]\nextensions = { site = \"1.3.6.1.4.1.99999.7\" }",
            Box::new(with(OWN)),
            Box::new(with(PRIVATE)),
        ),
        (
            "extension = { pp_role = \"db\", pp_environment = \"db\" }",
            Box::new(|ca: &Ca| {
                let leaf = ca.leaf("web01").extension(ROLE, "db");
                leaf.extension(ENVIRONMENT, "db").issue()
            }),
            Box::new(with(ROLE)),
        ),
        (
            "route = [\"builtin:files\"]\nclass = [\"files\", \"own-documents\"]",
            Box::new(plain),
            Box::new(plain),
        ),
    ];
    for (condition, refused, served) in rows {
        let rules = rule(condition);
        let estate = Estate::builder().compilers(1).with(&rules).start();
        let client = estate.client(&refused(&estate.ca));
        let answer = client.get(FILE);
        let words = [
            "Agent web01 is refused by the access rule \"closed\"",
            "class \"files\"",
            "route \"builtin:files\"",
            "contact the operator of this proxy",
        ];
        assert_refused(&answer, 403, &words);
        // The refusal must not tell clients how to change the proxy's configuration.
        assert!(!answer.text().contains("[["), "{answer:?}");
        assert!(estate.far_end().is_empty(), "{condition}");
        let other = estate.client(&served(&estate.ca));
        let target = if condition.starts_with("route") {
            CATALOG
        } else {
            FILE
        };
        check(&estate, &other, ("GET", target), true);
    }
}

#[test]
fn a_rule_matches_by_issuer_and_by_network() {
    let (ours, theirs) = (Ca::new(), Ca::other());
    let bundle = format!("{}{}", ours.bundle_pem(), theirs.bundle_pem());
    let crl = format!("{}{}", ours.crl_pem(), theirs.crl_pem());
    let rules = format!(
        "[trust]\nca = \"{{dir}}/ca.pem\"\ncrl = \"{{dir}}/crl.pem\"\n\
         [[access]]\nname = \"theirs\"\naction = \"refuse\"\nissuer = [\"CN={}\"]\n\
         [[access]]\nname = \"far\"\naction = \"refuse\"\nsource = [\"127.0.1.0/24\"]\n",
        theirs.name()
    );
    let estate = Estate::builder()
        .ca(&ours)
        .with(&rules)
        .file("ca.pem", &bundle, 0o644)
        .file("crl.pem", &crl, 0o644)
        .start();
    let mine = estate.client(&ours.agent("web01"));
    let foreign = estate.client(&theirs.agent("web01"));
    check(&estate, &mine, ("GET", FILE), true);
    check(&estate, &foreign, ("GET", FILE), false);
    let far = "127.0.1.7".parse().expect("an address");
    let from_afar = estate.client(&ours.agent("web03")).source(far);
    check(&estate, &from_afar, ("GET", FILE), false);
    // Rules about certificates do not match a client without a certificate, although it has an address.
    let stranger = ("GET", "/puppet-ca/v1/certificate/ca");
    check(&estate, &estate.anonymous(), stranger, true);
    check(&estate, &estate.anonymous().source(far), stranger, false);
}

#[test]
fn t11_only_clients_that_a_rule_names_may_administer_the_ca() {
    let estate = estate(
        "[[access]]\nname = \"hush\"\naction = \"refuse\"\nobserve = true\n\
         [[access]]\nname = \"admins\"\naction = \"allow\"\nclass = [\"ca-administration\"]\n\
         extension = { pp_cli_auth = \"true\" }\ncertname = [\"ops*\"]",
    );
    let with = |name: &str, value: &str| {
        let leaf = estate.ca.leaf(name).extension(CLI_AUTH, value);
        estate.client(&leaf.issue())
    };
    let sign = ("PUT", STATUS_OF_WEB02);
    check(&estate, &with("ops01", "true"), sign, true);
    let output = estate.only_request();
    assert_identity(&output, "SUCCESS", Some("CN=ops01"));
    assert_eq!(
        estate.ca_server.requests().len(),
        1,
        "it went to the CA server"
    );
    for other in [
        with("ops01", "TRUE"),
        with("web01", "true"),
        estate.agent("ops02"),
        estate.anonymous(),
    ] {
        check(&estate, &other, sign, false);
    }
    let claimed = [
        ("X-Client-Verify", "SUCCESS"),
        ("X-Client-DN", "CN=ops01"),
        ("X-Authentication", "pp_cli_auth"),
    ];
    let answer =
        estate
            .client(&estate.ca.agent("ops02"))
            .request("PUT", STATUS_OF_WEB02, &claimed, b"");
    assert_refused(&answer, 403, &["ca-administration"]);
    assert!(estate.far_end().is_empty());
    // Paths that the proxy never forwards stay closed, whatever a rule allows.
    check(
        &estate,
        &with("ops01", "true"),
        ("GET", "/puppet-admin-api/v1/jruby-pool"),
        false,
    );
}

#[test]
fn the_flushes_of_a_server_are_open_only_to_the_certnames_that_a_rule_names() {
    const FLUSHES: [(&str, &str); 2] = [
        (
            "DELETE",
            "/puppet-admin-api/v1/environment-cache?environment=production",
        ),
        ("DELETE", "/puppet-admin-api/v1/jruby-pool"),
    ];
    let rule = "[[access]]\nname = \"r10k\"\naction = \"allow\"\nclass = [\"server-administration\"]\n\
                certname = [\"r10k.example.com\"]";
    let estate = estate(rule);
    let r10k = estate.agent("r10k.example.com");
    let web01 = estate.agent("web01");
    for flush in FLUSHES {
        check(&estate, &r10k, flush, true);
        assert_identity(
            &estate.only_request(),
            "SUCCESS",
            Some("CN=r10k.example.com"),
        );
        check(&estate, &web01, flush, false);
        check(&estate, &estate.anonymous(), flush, false);
    }
    for closed in [
        ("GET", "/puppet-admin-api/v1/jruby-pool/thread-dump"),
        ("GET", "/puppet-admin-api/v1/environment-cache"),
        ("DELETE", "/puppet-admin-api/v1/environment-cache/"),
        ("DELETE", "/puppet-admin-api/v1/other"),
    ] {
        check(&estate, &r10k, closed, false);
    }
    estate.edit_config("r10k.example.com", "r10k.*");
    let checked = estate.proxy.command(&["check"], &[]);
    assert_contains(&checked.stderr, "complete certnames");
}

/// As docs/operating/compilers.md describes it: one route for each compiler, selected by the host name.
#[test]
fn a_deployment_flushes_the_environments_of_each_compiler() {
    const FLUSH: &str = "/puppet-admin-api/v1/environment-cache";
    let estate = Estate::builder().compilers(2).start();
    let pools = estate
        .compilers
        .iter()
        .enumerate()
        .map(|(index, compiler)| {
            let address = compiler.address();
            format!(
                "[pools.flush-c{index}]\nscheme = \"http\"\nmembers = [{address:?}]\n\
             [[routes]]\nname = \"flush-c{index}\"\nhost = [\"flush-c{index}.example.com\"]\n\
             path = {{ exact = \"{FLUSH}\" }}\npool = \"flush-c{index}\"\n"
            )
        });
    let rule = "[[access]]\nname = \"r10k\"\naction = \"allow\"\nclass = [\"server-administration\"]\n\
                certname = [\"r10k.example.com\"]\n";
    let more = pools.collect::<String>() + rule;
    let text = estate.proxy.config_text();
    estate.write_config(&format!("{text}\n{more}"));
    estate.proxy.reload_applied();
    for (index, compiler) in estate.compilers.iter().enumerate() {
        let host = format!("flush-c{index}.example.com");
        for (name, expected) in [("r10k.example.com", 404), ("web01", 403)] {
            let client = estate.agent(name);
            let answer = client.request("DELETE", FLUSH, &[("Host", &host)], b"");
            // The stand-in has no such endpoint.
            assert_eq!(answer.status, expected, "{name}: {}", answer.text());
        }
        let flushes = compiler.requests();
        let flushes = flushes.iter().filter(|request| request.path() == FLUSH);
        assert_eq!(flushes.count(), 1, "{host}");
    }
}

#[test]
fn t16_an_agent_gets_only_its_own_documents_except_where_a_rule_names_others() {
    let estate = estate(
        "[[access]]\nname = \"octocatalog\"\naction = \"allow\"\nclass = [\"own-documents\"]\n\
         certname = [\"diff.example.com\"]",
    );
    let web01 = estate.agent("web01");
    for (method, document) in [
        ("POST", "catalog"),
        ("GET", "node"),
        ("PUT", "facts"),
        ("PUT", "report"),
    ] {
        let of = |name: &str| format!("/puppet/v3/{document}/{name}?environment=production");
        check(&estate, &web01, (method, &of("web01")), true);
        check(&estate, &web01, (method, &of("web02")), false);
        let exception = estate.agent("diff.example.com");
        check(&estate, &exception, (method, &of("web02")), true);
        assert_identity(
            &estate.only_request(),
            "SUCCESS",
            Some("CN=diff.example.com"),
        );
    }
    for (target, status) in [
        // The name must be the certname in lower case, byte for byte.
        ("/puppet/v3/catalog/WEB01", 403),
        ("/puppet/v3/catalog/Web01", 403),
        ("/puppet/v3/catalog/WEB02", 403),
        ("/puppet/v3/catalog/web02/", 403),
        ("/puppet/v3/catalog/web01/web02", 403),
        ("/puppet/v3/catalog/web%302", 400),
        ("/puppet/v3/catalog/web02;web01", 400),
        ("/puppet/v3/catalog/web01;/../web02", 400),
        ("/puppet/v3/catalog//web02", 400),
        ("/puppet/v3//catalog/web02", 400),
        ("//puppet/v3/catalog/web02", 400),
        ("/puppet/v3/%63atalog/web02", 400),
        ("/puppet/v3/catalog/web01%2f..%2fweb02", 400),
        // The path layouts of Puppet 3, which Puppet Server still accepts.
        ("/production/catalog/web02", 403),
        ("/production/catalog/web01", 403),
        ("/puppet/catalog/web02", 403),
        ("/production/node/web02", 403),
        ("/production/facts/web02", 403),
        ("/production/report/web02", 403),
    ] {
        estate.forget();
        let answer = web01.request("GET", target, &[], b"");
        assert_eq!(answer.status, status, "{target}: {answer:?}");
        assert!(estate.far_end().is_empty(), "{target}");
    }
}

#[test]
fn the_first_rule_whose_conditions_match_decides() {
    let estate = estate(
        "[[access]]\nname = \"production\"\naction = \"allow\"\nextension = { pp_environment = \"production\" }\n\
         [[access]]\nname = \"rest\"\naction = \"refuse\"\nclass = [\"files\", \"own-documents\"]",
    );
    let production = estate.ca.leaf("web01").extension(ENVIRONMENT, "production");
    let production = estate.client(&production.issue());
    let other = estate.agent("web01");
    for target in [FILE, CATALOG] {
        check(&estate, &production, ("GET", target), true);
        check(&estate, &other, ("GET", target), false);
    }
    // A rule that allows opens only the class that it names.
    check(&estate, &production, ("PUT", STATUS_OF_WEB02), false);
    let others = ("GET", "/puppet/v3/node/web02");
    check(&estate, &production, others, false);
    // Enrolment is not a class that rules can name.
    let bootstrap = ("GET", "/puppet-ca/v1/certificate/ca");
    check(&estate, &estate.anonymous(), bootstrap, true);
}

#[test]
fn an_unreadable_extension_matches_no_rule_that_allows_and_every_rule_that_refuses() {
    let estate = estate(
        "[[access]]\nname = \"web\"\naction = \"allow\"\nclass = [\"services\"]\nextension = { pp_role = \"*\" }\n\
         [[access]]\nname = \"no-db\"\naction = \"refuse\"\nclass = [\"files\"]\nextension = { pp_role = \"db\" }",
    );
    let services = ("POST", "/puppet/v4/catalog");
    let readable = estate.client(&estate.ca.leaf("web01").extension(ROLE, "web").issue());
    check(&estate, &readable, services, true);
    check(&estate, &readable, ("GET", FILE), true);
    for value in [
        &b"web"[..],
        b"\x0c\x09web",
        b"\x14\x03web",
        b"\x0c\x03w\xffb",
    ] {
        let leaf = estate.ca.leaf("web01").raw_extension(ROLE, value);
        let unreadable = estate.client(&leaf.issue());
        check(&estate, &unreadable, services, false);
        check(&estate, &unreadable, ("GET", FILE), false);
        check(&estate, &unreadable, ("GET", CATALOG), true);
    }
}

#[test]
fn a_rule_that_observes_allows_and_logs_what_it_would_refuse() {
    let estate = estate(
        "[[access]]\nname = \"maybe\"\naction = \"refuse\"\nclass = [\"files\"]\nobserve = true\n\
         [[access]]\nname = \"sure\"\naction = \"refuse\"\ncertname = [\"bad*\"]",
    );
    let web01 = estate.agent("web01");
    for _ in 0..3 {
        check(&estate, &web01, ("GET", FILE), true);
    }
    check(&estate, &web01, ("GET", CATALOG), true);
    let bad = estate.agent("bad01");
    check(&estate, &bad, ("GET", FILE), false);
    let proxy = &estate.proxy;
    let records = proxy.wait_for_records(5);
    // Connections may end in any order, and so may their records.
    let output = |certname: &str, target: &str| -> Vec<_> {
        let of = |record: &&serde_json::Value| {
            record["certname"] == certname && record["target"] == target
        };
        let fields = |record: &serde_json::Value| {
            ["observed", "reason", "cause"]
                .map(|field| record[field].as_str().unwrap_or("-").to_owned())
                .join(", ")
        };
        records.iter().filter(of).map(fields).collect()
    };
    assert_eq!(output("web01", FILE), ["maybe, -, -"; 3]);
    assert_eq!(output("web01", CATALOG), ["-, -, -"]);
    assert_eq!(output("bad01", FILE), ["-, access-rule, access rule sure"]);
    let refused = proxy.wait_for_record(|record| record["reason"] == "access-rule");
    assert_eq!(refused["class"], "files");
    assert_eq!(refused["route"], "builtin:files");
    let counted = |rule: &str, result: &str| {
        let labels = [("rule", rule), ("result", result)];
        proxy
            .metrics()
            .sum("proscenium_access_rule_refusals_total", &labels)
    };
    assert_eq!(
        (counted("maybe", "observed"), counted("maybe", "refused")),
        (3.0, 0.0)
    );
    assert_eq!(
        (counted("sure", "observed"), counted("sure", "refused")),
        (0.0, 1.0)
    );
    let reason = [("reason", "access-rule")];
    assert_eq!(
        proxy.metrics().sum("proscenium_refusals_total", &reason),
        1.0
    );
    // The proxy logs one event per minute and rule, however many requests the rule would refuse.
    let events = proxy.stderr();
    let output = events.matches("would have refused a request").count();
    assert_eq!(output, 1, "{events}");
    assert!(
        events.contains("maybe") && events.contains("web01"),
        "{events}"
    );
}

#[test]
fn with_access_observe_no_rule_refuses_and_the_guards_still_apply() {
    let estate = Estate::builder()
        .compilers(1)
        .top("access_observe = true").with(
                "[[access]]\nname = \"all\"\naction = \"refuse\"\n\
                 [[access]]\nname = \"diff\"\naction = \"allow\"\nclass = [\"own-documents\"]\ncertname = [\"diff\"]",
            )
        .start();
    let web01 = estate.agent("web01");
    check(&estate, &web01, ("GET", FILE), true);
    assert_eq!(estate.wait_for_records(1)[0]["observed"], "all");
    let answer = web01.get("/status/v1/simple");
    assert_eq!((answer.status, answer.text()), (200, "running".into()));
    let output =
        |record: &serde_json::Value| record["class"] == "status" && record["observed"] == "all";
    estate.wait_for_record(output);
    for (method, target) in [
        ("PUT", STATUS_OF_WEB02),
        ("GET", "/metrics/v2/list"),
        ("GET", "/puppet/v3/node/web02"),
        ("POST", "/puppet/v4/catalog"),
    ] {
        check(&estate, &web01, (method, target), false);
    }
    check(&estate, &estate.anonymous(), ("GET", FILE), false);
    let output = estate.wait_for_records(7);
    let refused = output.iter().filter(|record| record["status"] == 403);
    assert_eq!(refused.clone().count(), 5, "{output:#?}");
    assert!(
        refused.clone().all(|record| record["observed"].is_null()),
        "{output:#?}"
    );
    // `check` warns that no client is refused.
    let checked = estate.proxy.command(&["check"], &[]);
    assert_contains(&checked.stderr, "access_observe");
    // The rules are enforced from the next request on, also on an open connection.
    let mut live = estate
        .client(&estate.ca.agent("web01"))
        .connect()
        .expect("connects");
    assert_eq!(live.get(FILE).status, 200);
    estate.edit_config("access_observe = true", "access_observe = false");
    estate.proxy.reload_applied();
    assert_refused(&live.get(FILE), 403, &["access rule \"all\""]);
}

#[test]
fn rules_change_for_live_connections_at_their_next_request() {
    let estate = estate(
        "[identity]\nextensions = { site = \"1.3.6.1.4.1.99999.7\" }\n\
         [[access]]\nname = \"north\"\naction = \"refuse\"\nextension = { site = \"north\" }",
    );
    let agent = estate.ca.leaf("web01");
    let agent = agent.extension(OWN, "south").extension(PRIVATE, "north");
    let mut live = estate.client(&agent.issue()).connect().expect("connects");
    assert_eq!(live.get(FILE).status, 200);
    // The certificate was read when the connection opened. A rule that now names one of its values still matches.
    estate.edit_config("1.3.6.1.4.1.99999.7", "1.3.6.1.4.1.34380.1.2.7");
    estate.proxy.reload_applied();
    let answer = live.get(FILE);
    assert_refused(&answer, 403, &["access rule \"north\""]);
    assert!(!answer.says_close(), "a rule is about a request");
    estate.edit_config("\"north\" }", "\"east\" }");
    estate.proxy.reload_applied();
    assert_eq!(live.get(FILE).status, 200);
}

#[test]
fn explain_shows_which_rule_decides() {
    let ca = Ca::new();
    let member = StandIn::start("all");
    let pool = |name: &str| {
        format!(
            "[pools.{name}]\nscheme = \"http\"\nmembers = [\"{}\"]\n",
            member.address()
        )
    };
    let agent = ca.leaf("web01").extension(ROLE, "db").issue();
    let odd = ca.leaf("web02").raw_extension(ROLE, b"db").issue();
    let proxy = proxy(&ca)
        .with(&[pool("ca"), pool("compilers")].concat())
        .with(
            "[identity]\nextensions = { site = \"1.3.6.1.4.1.99999.7\" }\n\
             [[access]]\nname = \"far\"\naction = \"refuse\"\nsource = [\"10.0.0.0/8\"]\n\
             [[access]]\nname = \"watch\"\naction = \"refuse\"\nclass = [\"files\"]\nobserve = true\n\
             [[access]]\nname = \"theirs\"\naction = \"refuse\"\nissuer = [\"CN=elsewhere\"]\n\
             [[access]]\nname = \"no-db\"\naction = \"refuse\"\nextension = { pp_role = \"db\" }\n\
             [[access]]\nname = \"north\"\naction = \"allow\"\nclass = [\"services\"]\nextension = { site = \"north\" }",
        )
        .file("agent.pem", &agent.cert_pem, 0o644)
        .file("odd.pem", &odd.cert_pem, 0o644)
        .start();
    let explain = |target: &str, arguments: &[&str], lines: &[&str]| {
        let outcome = proxy.command(&["explain"], &[&[target], arguments].concat());
        let is_refused = outcome.stdout.contains("\nanswer   403");
        let code = Some(i32::from(is_refused));
        assert_eq!(outcome.code, code, "{}", outcome.stderr);
        for line in lines {
            assert!(
                outcome.stdout.contains(line),
                "{line:?} is not in\n{}",
                outcome.stdout
            );
        }
    };
    let web01 = ["--certname", "web01"];
    let and = |more: &[&'static str]| [&web01[..], more].concat();
    explain(
        FILE,
        &web01,
        &[
            "rule far: no match, by its condition \"source\" (--source is not set)",
            "rule watch: matches, would refuse, but only observes",
            "rule theirs: no match, by its condition \"issuer\" (--issuer is not set)",
            "rule no-db: no match, by its condition \"extension\" (--extension is not set)",
            "access: granted (verified)",
            "observed rule watch would refuse this",
            "pool     compilers",
        ],
    );
    explain(
        FILE,
        &and(&["--source", "10.1.2.3"]),
        &[
            "rule far: matches, refuses",
            "access: denied (access-rule)",
            "answer   403 (access-rule)",
        ],
    );
    explain(
        FILE,
        &and(&["--issuer", "CN=elsewhere"]),
        &["rule theirs: matches, refuses"],
    );
    explain(
        FILE,
        &and(&["--extension", "pp_role=db"]),
        &["with     pp_role = \"db\"", "rule no-db: matches, refuses"],
    );
    let services = "/puppet/v3/environment_classes";
    explain(
        services,
        &and(&["--extension", "site=north"]),
        &[
            "with     site = \"north\"",
            "rule north: matches, allows",
            "access: granted (allowed-by-rule)",
            "pool     compilers",
        ],
    );
    explain(services, &web01, &["access: denied (class-closed)"]);
    let file = |name: &str| proxy.directory().join(name).display().to_string();
    explain(
        FILE,
        &["--cert", &file("agent.pem")],
        &[
            "issuer   CN=Puppet CA: test",
            "with     pp_role = \"db\"",
            "rule no-db: matches, refuses",
        ],
    );
    explain(
        FILE,
        &["--cert", &file("odd.pem")],
        &[
            "with     pp_role, whose value is ambiguous",
            "rule no-db: matches, refuses",
        ],
    );
    // `check` reports a name that no CA has, because a rule that refuses by it would refuse no client.
    let checked = proxy.command(&["check"], &[]);
    let warning = "no CA of the bundle has the subject \"CN=elsewhere\"";
    assert!(checked.stderr.contains(warning), "{}", checked.stderr);
    let wrong = proxy.command(
        &["explain"],
        &[&[FILE], &and(&["--extension", "pp_rolle=x"])[..]].concat(),
    );
    assert!(wrong.code != Some(0), "{}", wrong.stdout);
    assert!(wrong.stderr.contains("pp_rolle"), "{}", wrong.stderr);
}

#[test]
fn check_names_rules_that_open_a_class_by_values_that_agents_choose_themselves() {
    let estate = Estate::builder()
        .with(
            "[[access]]\nname = \"by-role\"\naction = \"allow\"\nclass = [\"services\"]\n\
                 extension = { pp_role = \"diff\" }\n\
                 [[access]]\nname = \"by-right\"\naction = \"allow\"\nclass = [\"services\"]\n\
                 extension = { pp_auth_role = \"diff\" }",
        )
        .start();
    let checked = estate.proxy.command(&["check"], &[]);
    assert_eq!(checked.code, Some(0), "{}", checked.stderr);
    let expected = "\"by-role\" opens services to clients with pp_role = \"diff\"";
    assert!(checked.stdout.contains(expected), "{}", checked.stdout);
    assert!(!checked.stdout.contains("by-right"), "{}", checked.stdout);
    assert!(!checked.stderr.contains("pp_role"), "{}", checked.stderr);
    estate.edit_config("\"services\"", "\"ca-administration\"");
    let checked = estate.proxy.command(&["check"], &[]);
    let expected = "the administration of the CA is opened by pp_role = \"diff\"";
    assert!(checked.stderr.contains(expected), "{}", checked.stderr);
    assert!(
        !checked.stderr.contains("pp_auth_role = \"diff\""),
        "{}",
        checked.stderr
    );
}
