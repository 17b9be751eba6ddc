//! Tests of valid configurations: defaults, the examples in `conf/`, printing and reloading, the reference page.

#![expect(
    clippy::disallowed_methods,
    reason = "the examples and the reference page are files"
)]

use std::{fs, path::Path};

use crate::machine::Machine;
use config::{AccessLogOutput, LoadedConfig, Overrides};

const SIX_LINES: &str = r#"
[listeners.agents]
address = "0.0.0.0:8140"
[pools.ca]
members = ["ca.example.com:8140"]
[pools.compilers]
members = ["c1.example.com:8140", "c2.example.com:8140"]
"#;

/// Every key of every table, each with a value other than its default.
const EVERYTHING: &str = include_str!("everything.toml");

fn load(text: &str) -> LoadedConfig {
    let loaded = Machine::with_agent().load("proscenium.toml", text, &Overrides::default());
    loaded.unwrap_or_else(|report| panic!("{report}"))
}

fn project(path: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

#[test]
fn six_lines_get_the_defaults_of_every_crate() {
    let config = load(SIX_LINES).config;
    assert_eq!(config.workers, 2);
    assert_eq!(
        config.upstream,
        upstream::settings::UpstreamSettings::default()
    );
    assert_eq!(config.exchange, proxy::settings::ProxySettings::default());
    assert_eq!(
        config.identity,
        identity::settings::IdentitySettings::default()
    );
    assert_eq!(
        config.trust.settings,
        pki::settings::TrustSettings::default()
    );
    // The CRLs are fetched, so the documents of the CA are answered from copies.
    assert!(config.ca.edge_answers);
    let routes = routing::settings::RoutingSettings {
        edge_answers: true,
        ..Default::default()
    };
    assert_eq!(config.routes, routes);
    assert_eq!(
        config.access_log.settings,
        telemetry::settings::AccessLogSettings::default()
    );
    assert_eq!(config.access_log.output, AccessLogOutput::Stdout);
    assert_eq!(config.events, config::EventOutput::Stderr);
    assert_eq!(config.admin, admin::settings::AdminSettings::default());
    for pool in &config.pools {
        assert_eq!(
            pool.pool.check,
            balancing::settings::CheckSettings::default()
        );
        assert_eq!(
            pool.pool.algorithm,
            balancing::settings::Algorithm::default()
        );
        let rules = proxy::settings::PoolRules {
            identity: match pool.pool.name.as_str() {
                "ca" => proxy::settings::IdentityRule::Renewal,
                _ => proxy::settings::IdentityRule::Always,
            },
            ..Default::default()
        };
        assert_eq!(pool.rules, rules);
        assert_eq!(pool.upstream, config.upstream);
    }
}

#[test]
fn six_lines_use_the_agents_files_for_clients_and_members() {
    let config = load(SIX_LINES).config;
    let ssldir = Path::new("/etc/puppetlabs/puppet/ssl");
    let credential = &config.certificates[0];
    assert_eq!(
        credential.chain,
        ssldir.join("certs/puppet.example.com.pem")
    );
    assert_eq!(
        credential.key,
        ssldir.join("private_keys/puppet.example.com.pem")
    );
    assert_eq!(config.trust.ca, [ssldir.join("certs/ca.pem")]);
    assert_eq!(config.trust.crl, [ssldir.join("crl.pem")]);
    assert!(config.trust.crl_is_agents_copy);
    for pool in &config.pools {
        let tls = pool.tls.as_ref().expect("https");
        assert_eq!(
            (&tls.credential, &tls.ca, &tls.crl),
            (credential, &config.trust.ca, &config.trust.crl)
        );
    }
}

#[test]
fn the_command_line_overrides_the_file_and_the_file_overrides_the_machine() {
    let file = format!("ssldir = \"/from/file\"\ncertname = \"file\"\n{SIX_LINES}");
    let line = Overrides {
        ssldir: Some("/from/line".into()),
        certname: Some("line".into()),
    };
    let machine = Machine {
        certnames: vec!["only".into()],
    };
    for (text, overrides, ssldir, certname) in [
        (&file, &line, "/from/line", "line"),
        (&file, &Overrides::default(), "/from/file", "file"),
        (
            &SIX_LINES.to_owned(),
            &Overrides::default(),
            "/etc/puppetlabs/puppet/ssl",
            "only",
        ),
    ] {
        let config = machine
            .load("proscenium.toml", text, overrides)
            .expect("a right file")
            .config;
        assert_eq!(config.ssldir.as_deref(), Some(Path::new(ssldir)));
        assert_eq!(config.certname.as_deref(), Some(certname));
    }
}

#[test]
fn the_default_ssldir_is_that_of_puppets_packages_or_else_debians() {
    let source = config::ConfigSource {
        name: "x".into(),
        text: SIX_LINES.into(),
    };
    for (there, used) in [([true, true], 0), ([false, true], 1)] {
        let ssldirs = config::Environment::SSLDIRS.iter().zip(there);
        let environment = config::Environment {
            ssldirs: ssldirs
                .filter(|(_, there)| *there)
                .map(|(path, _)| path.into())
                .collect(),
            ..crate::machine::environment()
        };
        let machine = Machine::with_agent();
        let loaded = config::load(&source, &Overrides::default(), &environment, &machine);
        let config = loaded.expect("a right file").config;
        let ssldir = Path::new(["/etc/puppetlabs/puppet/ssl", "/var/lib/puppet/ssl"][used]);
        assert_eq!(config.ssldir.as_deref(), Some(ssldir));
        assert_eq!(config.trust.crl, [ssldir.join("crl.pem")]);
        assert!(
            config.certificates[0]
                .key
                .starts_with(ssldir.join("private_keys"))
        );
    }
}

#[test]
fn the_host_name_selects_one_of_several_certificates() {
    let machine = Machine {
        certnames: vec!["a".into(), "b".into()],
    };
    let config = machine
        .load("x", SIX_LINES, &Overrides::default())
        .expect("a right file")
        .config;
    assert_eq!(config.certname.as_deref(), Some("puppet.example.com"));
}

#[test]
fn without_a_certificate_for_the_host_the_report_lists_the_other_names() {
    let machine = Machine {
        certnames: vec!["a.example.com".into(), "b.example.com".into()],
    };
    let text = format!("ssldir = \"/missing\"\n{SIX_LINES}");
    let report = machine
        .load("x", &text, &Overrides::default())
        .expect_err("no certificate");
    assert!(
        report
            .render(config::Colour::Never)
            .contains("a.example.com, b.example.com"),
        "{report}"
    );
}

#[test]
fn an_invalid_certname_on_the_command_line_is_refused() {
    let overrides = Overrides {
        certname: Some("../../etc/passwd".into()),
        ..Overrides::default()
    };
    let report = Machine::with_agent()
        .load("x", SIX_LINES, &overrides)
        .expect_err("no certname");
    assert_eq!(report.problems[0].key, "--certname");
}

#[test]
fn a_crl_is_optional_if_unchecked_allows_it() {
    let text = format!("[trust]\nunchecked = [\"*\"]\n{SIX_LINES}");
    let missing = Overrides {
        ssldir: Some("/etc/ssl".into()),
        certname: Some("a".into()),
    };
    let with_list = Machine::with_agent()
        .load("x", &text, &missing)
        .expect("a right file")
        .config;
    assert_eq!(with_list.trust.crl.len(), 1, "a list that is there is used");
    let text = format!("[trust]\nunchecked = [\"*\"]\nca = \"/etc/pki/ca.pem\"\n{SIX_LINES}");
    let without = Machine::with_agent()
        .load("x", &text, &missing)
        .expect("a right file")
        .config;
    assert!(without.trust.crl.is_empty() && !without.trust.crl_is_agents_copy);
}

#[test]
fn a_printed_configuration_loads_as_the_same_configuration() {
    for text in [SIX_LINES, EVERYTHING]
        .into_iter()
        .map(ToOwned::to_owned)
        .chain(examples().into_iter().map(|(_, text)| text))
    {
        let config = load(&text).config;
        for defaults in [false, true] {
            let shown = config.show(defaults);
            let again = load(&shown).config;
            assert_eq!(again, config, "{shown}");
        }
    }
}

#[test]
fn log_daemons_have_default_sockets_and_can_use_others() {
    use telemetry::{Facility, LogProtocol};
    let local0 = LogProtocol::Syslog(Facility::parse("local0").expect("one of them"));
    let usual = LogProtocol::Syslog(Facility::default());
    for (lines, protocol, socket) in [
        ("path = \"syslog\"", usual, "/dev/log"),
        (
            "path = \"syslog:/run/x\"\nfacility = \"local0\"",
            local0,
            "/run/x",
        ),
        (
            "path = \"journal\"",
            LogProtocol::Journal,
            "/run/systemd/journal/socket",
        ),
        ("path = \"journal:/run/x\"", LogProtocol::Journal, "/run/x"),
    ] {
        let daemon = telemetry::DaemonSettings {
            protocol,
            socket: socket.into(),
        };
        let text = format!("{SIX_LINES}[access_log]\n{lines}\n[events]\n{lines}\n");
        let config = load(&text).config;
        assert_eq!(
            config.access_log.output,
            AccessLogOutput::Daemon(daemon.clone())
        );
        assert_eq!(config.events, config::EventOutput::Daemon(daemon));
        assert_eq!(load(&config.show(false)).config, config);
    }
}

#[test]
fn every_setting_that_differs_from_its_default_is_printed() {
    let shown = load(EVERYTHING).config.show(false);
    let keys = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines
            .filter_map(|line| line.split_once(" = "))
            .map(|(key, _)| key.to_owned())
            .collect()
    };
    let (mut written, mut shown) = (keys(EVERYTHING), keys(&shown));
    for list in [&mut written, &mut shown] {
        list.sort();
        list.dedup();
    }
    assert_eq!(written, shown);
}

#[test]
fn everything_toml_has_every_key_of_the_reference() {
    for line in config::defaults().lines() {
        let Some((key, _)) = line.trim_start_matches(['#', ' ']).split_once(" = ") else {
            continue;
        };
        // `exact` and `regex` are in inline tables.
        assert!(
            EVERYTHING.contains(&format!("{key} = ")),
            "{key} is not in everything.toml"
        );
    }
}

#[test]
fn each_example_in_conf_is_valid() {
    let examples = examples();
    assert!(examples.len() >= 3, "the examples are there");
    for (name, text) in examples {
        let report = config::check_text(&name, &text);
        assert_eq!(report.count(config::ProblemSeverity::Error), 0, "{report}");
        load(&text);
    }
}

#[test]
fn a_pool_has_at_most_1024_members() {
    for (count, errors) in [(1_024, 0), (1_025, 1)] {
        let members: Vec<_> = (0..count)
            .map(|n| format!("\"c{n}.example.com:8140\""))
            .collect();
        let text = format!(
            "[listeners.agents]\naddress = \"127.0.0.1:0\"\n[pools.ca]\nmembers = [\"ca.example.com:8140\"]\n\
             [pools.compilers]\nmembers = [{}]\n",
            members.join(", ")
        );
        let report = config::check_text("proscenium.toml", &text);
        assert_eq!(
            report.count(config::ProblemSeverity::Error),
            errors,
            "{report}"
        );
        let rendered = report.render(config::Colour::Never);
        assert_eq!(rendered.contains("1025 members"), errors == 1, "{rendered}");
    }
}

#[test]
fn the_installed_file_adds_a_log_file_to_the_six_lines() {
    let log = "[access_log]\npath = \"/var/log/proscenium/access.log\"\n";
    let (installed, expected) = (load(&filled_in()), load(&format!("{SIX_LINES}{log}")));
    assert_eq!(installed.config, expected.config);
}

#[test]
fn the_report_on_the_installed_file_names_what_to_fill_in() {
    let report = config::check_text("proscenium.toml", &installed());
    let rendered = report.render(config::Colour::Never);
    assert_eq!(
        report.count(config::ProblemSeverity::Error),
        2,
        "{rendered}"
    );
    for expected in ["FILL IN the CA server", "FILL IN the compilers"] {
        assert!(
            rendered.contains(expected),
            "{expected} is not in {rendered}"
        );
    }
}

fn installed() -> String {
    fs::read_to_string(project("packaging/proscenium.toml")).expect("the installed file")
}

/// The installed file with the members of the six lines.
fn filled_in() -> String {
    let mut text = installed();
    for members in [
        r#"["ca.example.com:8140"]"#,
        r#"["c1.example.com:8140", "c2.example.com:8140"]"#,
    ] {
        text = text.replacen("members = []", &format!("members = {members}"), 1);
    }
    text
}

#[test]
fn the_readme_shows_the_six_lines() {
    let readme = fs::read_to_string(project("README.md")).expect("the README");
    assert!(readme.contains(&format!("```toml{SIX_LINES}```")));
}

/// Readers may copy each block marked as TOML, so each must be a complete configuration.
#[test]
fn each_configuration_in_the_documents_is_valid() {
    let blocks: Vec<_> = documents().iter().flat_map(toml_blocks).collect();
    assert!(blocks.len() >= 4, "the blocks are found: {blocks:?}");
    for (place, text) in blocks {
        let report = config::check_text(&place, &text);
        assert_eq!(report.count(config::ProblemSeverity::Error), 0, "{report}");
        load(&text);
    }
}

/// The commented lines in the installed file are valid, and their values are the defaults.
#[test]
fn the_commented_settings_of_the_installed_file_are_the_defaults() {
    let text = filled_in();
    let is_setting = |line: &str| {
        line.starts_with('[')
            || line
                .split_once(" = ")
                .is_some_and(|(key, _)| !key.contains(' '))
    };
    let lines: Vec<_> = text
        .lines()
        .filter_map(|line| match line.strip_prefix('#') {
            Some(commented) if is_setting(commented) => Some(commented),
            Some(_) => None,
            None => Some(line),
        })
        .collect();
    let uncommented = load(&lines.join("\n")).config;
    assert_eq!(uncommented.show(false), load(&text).config.show(false));
}

#[test]
fn the_reference_page_is_up_to_date() {
    let page = project("docs/configuration.md");
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&page, config::reference()).expect("a writable directory");
    }
    let written = fs::read_to_string(&page).unwrap_or_default();
    assert!(
        written == config::reference(),
        "docs/configuration.md is stale: run `cargo xtask reference`"
    );
}

/// Modules without imports must exist, so that a reader can start there. Without cycles, a change affects only the
/// modules that import the changed one.
#[test]
fn the_modules_of_this_crate_import_each_other_in_one_direction() {
    let sources = files("crates/config/src", "rs");
    let module = |path: &str| {
        Path::new(path)
            .file_stem()
            .map(|stem| stem.to_string_lossy().into_owned())
    };
    let names: Vec<_> = sources
        .iter()
        .filter_map(|(path, _)| module(path))
        .collect();
    let imports = |text: &str, own: &str| -> Vec<String> {
        let statements = text.split("use crate::").skip(1);
        let imported: Vec<_> = statements
            .filter_map(|rest| rest.split(';').next())
            .collect();
        let words = imported
            .iter()
            .flat_map(|it| it.split(|c: char| !(c.is_alphanumeric() || c == '_')));
        let inline = text
            .split("crate::")
            .skip(1)
            .filter_map(|rest| rest.split("::").next());
        let mentioned: Vec<_> = words.chain(inline).collect();
        names
            .iter()
            .filter(|name| **name != own && mentioned.contains(&name.as_str()))
            .cloned()
            .collect()
    };
    let mut left: Vec<_> = sources
        .iter()
        .filter_map(|(path, text)| Some((module(path)?, text)))
        .filter(|(name, _)| name != "lib")
        .map(|(name, text)| (imports(text, &name), name))
        .collect();
    assert!(
        left.iter()
            .any(|(imports, name)| name == "draft" && imports.contains(&"keys".into()))
    );
    loop {
        let standing: Vec<_> = left.iter().map(|(_, name)| name.clone()).collect();
        let before = left.len();
        left.retain(|(imports, _)| imports.iter().any(|name| standing.contains(name)));
        if left.len() == before {
            break;
        }
    }
    let circle: Vec<_> = left.iter().map(|(_, name)| name).collect();
    assert!(circle.is_empty(), "a circle of imports is among {circle:?}");
}

#[test]
fn equal_files_give_equal_configurations() {
    assert_eq!(load(EVERYTHING).config, load(EVERYTHING).config);
    assert_ne!(load(EVERYTHING).config, load(SIX_LINES).config);
}

fn changes(old: &str, new: &str) -> Vec<String> {
    let changes = load(old).config.changes(&load(new).config);
    changes.iter().map(ToString::to_string).collect()
}

#[test]
fn changes_are_listed_by_key_path() {
    for (lines, expected) in [
        ("[csr]\nobserve = true", "csr.observe"),
        ("[ca]\nanonymous_rate = 7", "ca.anonymous_rate"),
        ("[ca]\nedge_answers = false", "ca.edge_answers"),
        ("[tls]\nsession_lifetime = \"1h\"", "tls.session_lifetime"),
        ("[trust.fetch]\ninterval = \"5s\"", "trust.fetch.interval"),
        ("[upstream]\nkeepalive = \"5s\"", "upstream.keepalive"),
        ("[pools.ca.check]\nrise = 7", "pools.ca.check.rise"),
        ("[[routes]]\nname = \"a\"\npool = \"ca\"", "routes"),
        ("[pools.more]\nmembers = [\"m:1\"]", "pools.more (added)"),
        (
            "[state]\ndirectory = \"/x\"",
            "state.directory (applies after a restart)",
        ),
    ] {
        let text = format!("{SIX_LINES}\n{lines}\n");
        let found = changes(SIX_LINES, &text);
        assert!(found.contains(&expected.to_owned()), "{lines}: {found:?}");
        assert!(found.len() <= 2, "{lines}: {found:?}");
        assert!(!changes(&text, SIX_LINES).is_empty(), "{lines}");
    }
    let gone = format!("{SIX_LINES}\n[pools.more]\nmembers = [\"m:1\"]\n");
    assert_eq!(changes(&gone, SIX_LINES), ["pools.more (removed)"]);
    assert!(changes(EVERYTHING, EVERYTHING).is_empty());
}

#[test]
fn a_running_process_keeps_the_settings_that_need_a_restart() {
    let started = load(SIX_LINES).config;
    let accepted = load(EVERYTHING).config;
    let waiting = started.after_restart(&accepted);
    assert!(waiting.contains("workers"), "{waiting:?}");
    let running = accepted.running_since(&started);
    assert!(started.after_restart(&running).is_empty(), "{waiting:?}");
    assert_eq!(running.after_restart(&accepted), waiting);
    assert_eq!(accepted.changes(&running).len(), waiting.len());
}

/// If two configurations behave differently, the report of a reload names at least one setting.
#[test]
fn every_changed_setting_is_listed() {
    let machine = Machine::with_agent();
    let everything = load(EVERYTHING).config;
    let mut compared = 0;
    for (number, line) in EVERYTHING.lines().enumerate() {
        if line.starts_with(['#', '[']) || line.is_empty() {
            continue;
        }
        let without: Vec<_> = EVERYTHING
            .lines()
            .enumerate()
            .filter(|(other, _)| *other != number)
            .map(|(_, line)| line)
            .collect();
        let Ok(loaded) = machine.load("x", &without.join("\n"), &Overrides::default()) else {
            continue;
        };
        let changes = everything.changes(&loaded.config);
        assert_eq!(changes.is_empty(), everything == loaded.config, "{line}");
        compared += 1;
    }
    assert!(compared > 80, "{compared} lines can be left out");
}

#[test]
fn a_report_as_json_leaves_out_the_text_of_the_file() {
    let report = config::check_text("a.toml", "workrs = 4\n");
    let json = serde_json::to_value(&report).expect("plain data");
    assert_eq!(json["file"], "a.toml");
    assert_eq!(json["problems"][0]["key"], "workrs");
    assert_eq!(json["problems"][0]["severity"], "error");
    assert_eq!(json["problems"][0]["place"]["line"], 1);
    assert_eq!(json["problems"][0]["place"]["column"], 1);
    assert!(json.get("text").is_none());
}

#[test]
fn a_problem_that_is_added_later_gets_the_position_of_its_key() {
    let mut report = load(EVERYTHING).report;
    for (key, line) in [
        ("listeners.outside.address", "address = \"[::1]:8140\""),
        ("pools.main.members[1].address", "members = [\"c1:8140\""),
        ("trust.ca", "ca = [\"/etc/pki/ca\""),
        ("identity.no_such_key", "[identity]"),
        ("nowhere", ""),
    ] {
        report.fail(key, &"later", &[]);
        let problem = report
            .problems
            .iter()
            .find(|problem| problem.key == key)
            .expect("it is there");
        let found = problem
            .place
            .as_ref()
            .and_then(|place| EVERYTHING.lines().nth(place.line - 1));
        assert!(
            found.unwrap_or_default().starts_with(line),
            "{key}: {found:?}"
        );
        assert_eq!(found.is_none(), line.is_empty(), "{key}");
    }
    assert!(report.has_errors());
}

/// A file that is truncated or damaged anywhere gives a report and no panic.
#[test]
fn problems_of_damaged_files_have_positions_inside_the_file() {
    for at in (0..EVERYTHING.len()).step_by(5) {
        let (before, after) = EVERYTHING.split_at(at);
        for damaged in [
            before.to_owned(),
            format!("{before}\"{after}"),
            format!("{before}ä[{after}"),
        ] {
            let report = config::check_text("damaged.toml", &damaged);
            for place in report
                .problems
                .iter()
                .filter_map(|problem| problem.place.as_ref())
            {
                assert!(
                    place.line <= damaged.lines().count() + 1 && place.span.end <= damaged.len()
                );
            }
        }
    }
}

/// Rendering is slow, so this test damages the file in fewer places.
#[test]
fn reports_of_damaged_files_can_be_rendered() {
    for at in (0..EVERYTHING.len()).step_by(37) {
        let damaged = format!("{}\t\u{e4}{{", &EVERYTHING[..at]);
        let report = config::check_text("damaged.toml", &damaged);
        assert!(
            report.has_errors()
                && report
                    .render(config::Colour::Always)
                    .contains("damaged.toml")
        );
    }
}

fn examples() -> Vec<(String, String)> {
    files("conf", "toml")
}

fn documents() -> Vec<(String, String)> {
    [
        "",
        "docs",
        "docs/operating",
        "docs/guides",
        "docs/decisions",
    ]
    .into_iter()
    .flat_map(|folder| files(folder, "md"))
    .collect()
}

/// The files with this extension in a folder of the project, each with its contents.
fn files(folder: &str, extension: &str) -> Vec<(String, String)> {
    let mut paths: Vec<_> = fs::read_dir(project(folder))
        .expect("a folder of the project")
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .collect();
    paths.sort();
    let read = |path: &Path| {
        (
            path.display().to_string(),
            fs::read_to_string(path).expect("a file of the project"),
        )
    };
    paths.iter().map(|path| read(path)).collect()
}

/// The TOML blocks of a page, each with the file and the line before it.
fn toml_blocks((name, text): &(String, String)) -> Vec<(String, String)> {
    let mut blocks = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((number, _)) = lines.find(|(_, line)| *line == "```toml") {
        let block: String = lines
            .by_ref()
            .take_while(|(_, line)| *line != "```")
            .map(|(_, line)| format!("{line}\n"))
            .collect();
        blocks.push((format!("{name} after line {}", number + 1), block));
    }
    blocks
}

/// The pool `ca` gets identity headers only if the configuration gives a reason.
#[test]
fn a_plain_ca_over_tls_gets_identity_headers_only_on_request() {
    use proxy::settings::IdentityRule::{Always, Renewal};
    for (lines, expected) in [
        ("", Renewal),
        ("[identity]\nsubject = \"single-cn\"", Renewal),
        ("[identity]\ndn_format = \"openssl\"", Always),
        ("[identity]\nheaders = [\"puppet\", \"xfcc\"]", Always),
        ("legacy_routes = true", Always),
        ("[pools.ca.identity]\ndn_header = \"X-SSL-Subject\"", Always),
        (
            "[listeners.other]\naddress = \"127.0.0.1:1\"\non_invalid = \"forward\"",
            Always,
        ),
    ] {
        let text = if lines.starts_with('[') {
            format!("{SIX_LINES}\n{lines}\n")
        } else {
            format!("{lines}\n{SIX_LINES}\n")
        };
        let config = load(&text).config;
        let of = |name: &str| {
            let mut pools = config.pools.iter();
            let pool = pools.find(|pool| pool.pool.name == name);
            pool.expect("the pool").rules.identity
        };
        assert_eq!((of("ca"), of("compilers")), (expected, Always), "{lines}");
        assert_eq!(load(&config.show(false)).config, config, "{lines}");
    }
}

#[test]
fn the_command_for_a_certificate_names_the_ca_server_and_the_name_that_agents_use() {
    let source = |members: &str| config::ConfigSource {
        name: "proscenium.toml".into(),
        text: format!(
            "[listeners.agents]\naddress = \"127.0.0.1:8140\"\n[pools.ca]\nmembers = [{members}]\n\
             [pools.compilers]\nmembers = [\"c1:8140\"]"
        ),
    };
    for (server, members, expected) in [
        (
            None,
            "\"ca.example.com:8140\"",
            "puppet,p.example.com --ca_server ca.example.com",
        ),
        (
            Some("puppet.example.com"),
            "{ address = \"ca:8141\" }",
            "puppet,p.example.com,puppet.example.com --ca_server ca --ca_port 8141",
        ),
        (
            Some("p.example.com"),
            "\"unix:/run/ca.sock\"",
            "puppet,p.example.com",
        ),
    ] {
        let environment = config::Environment {
            ssldirs: vec![],
            agents_server: server.map(str::to_owned),
            hostname: Some("p.example.com".into()),
            ..config::Environment::default()
        };
        let machine = Machine {
            certnames: Vec::new(),
        };
        let report = config::load(
            &source(members),
            &Overrides::default(),
            &environment,
            &machine,
        );
        let report = report
            .expect_err("no certificate")
            .render(config::Colour::Never);
        let command = format!(
            "`puppet ssl bootstrap --certname p.example.com --dns_alt_names {expected} --waitforcert 60`"
        );
        assert!(report.contains(&command), "{command}: {report}");
    }
}
