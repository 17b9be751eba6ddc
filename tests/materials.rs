//! Materials that change on disk: the proxy loads a change once the files are complete.

use std::{
    fs::{self, File, OpenOptions},
    io::Write,
    os::unix::fs::symlink,
    path::Path,
    process::Command,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant, SystemTime},
};

use testkit::{Ca, Proxy, wait_until};

use crate::support::{
    Estate, LIMIT, assert_refused,
    materials::{
        CHECK_INTERVAL_MIN, CHECKS, IMPATIENT, MEMBER_TLS, NOT_VALID_YET, NOTIFY, PATIENT, REFUSED,
        estate, refusals, served, wait_for_alarm, wait_for_certificate, wait_for_crl,
        wait_for_end_of_alarm, wait_for_words,
    },
    paths::CATALOG,
    wait_for,
};

const SWAPS: usize = 20;
/// Minimum and maximum number of other files that are written before the CRL changes.
const STORM_LEAST: usize = 2000;
const STORM_MAX: usize = 2_000_000;

#[test]
fn many_writes_of_other_files_do_not_delay_a_crl_and_cause_few_checks() {
    let estate = estate(NOTIFY).start();
    let bad = estate.ca.agent("web01");
    assert_eq!(estate.client(&bad).get(CATALOG).status, 200);
    let looks = || estate.proxy.metrics().sum(CHECKS, &[]);
    let (began, before) = (Instant::now(), looks());
    let (beside, list) = (
        estate.proxy.ssldir().join("beside"),
        estate.proxy.ssldir().join("crl.pem"),
    );
    let (written, is_taken) = (AtomicUsize::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            while written.load(Ordering::SeqCst) < STORM_MAX && !is_taken.load(Ordering::SeqCst) {
                // The kernel reports this write to the proxy too, but the proxy ignores it.
                fs::write(&beside, "text").expect("is written");
                fs::remove_file(&beside).expect("is removed");
                // The proxy notices that the CRL was opened, but its content is unchanged.
                let opened = OpenOptions::new().append(true).open(&list);
                drop(opened.expect("is there"));
                written.fetch_add(1, Ordering::SeqCst);
            }
        });
        let storm = || (written.load(Ordering::SeqCst) > STORM_LEAST).then_some(());
        assert!(wait_until(LIMIT, storm).is_some());
        estate.ca.revoke(&bad);
        estate.proxy.write_crl();
        let taken = wait_until(LIMIT, || {
            (estate.client(&bad).get(CATALOG).status == 403).then_some(())
        });
        is_taken.store(true, Ordering::SeqCst);
        assert!(taken.is_some(), "{}", estate.proxy.stderr());
    });
    // A slow machine checks less often, so the limit does not depend on its speed.
    let looked = looks() - before;
    let most = began.elapsed().as_secs_f64() / CHECK_INTERVAL_MIN.as_secs_f64() + 1.0;
    assert!(
        (1.0..=most).contains(&looked),
        "{looked} looks, {most} at most"
    );
}

#[test]
fn a_crl_closes_connections_of_revoked_clients_as_soon_as_it_is_written() {
    for watching in [
        NOTIFY.to_owned(),
        "watch = \"poll\"\ninterval = \"20ms\"\nsettle = \"20ms\"".to_owned(),
    ] {
        let estate = estate(&watching).listener("idle_timeout = \"10m\"").start();
        let (good, bad) = (estate.ca.agent("web01"), estate.ca.agent("web01"));
        let mut stays = estate.client(&good).connect().expect("connects");
        let mut goes = estate.client(&bad).connect().expect("connects");
        for connection in [&mut stays, &mut goes] {
            assert_eq!(connection.get(CATALOG).status, 200);
        }
        let watch = watching.split('"').nth(1).expect("a word");
        estate.wait_for_status(watch, |status| status["materials"]["watch"] == watch);
        estate.ca.revoke(&bad);
        estate.proxy.write_crl();
        assert!(goes.is_closed_within(LIMIT), "{watching}");
        assert_refused(&estate.client(&bad).get(CATALOG), 403, &["revoked"]);
        assert_eq!(stays.get(CATALOG).status, 200);
        estate.wait_for_event("asked_by=materials");
    }
}

#[test]
fn a_file_that_is_written_in_two_steps_is_loaded_once_complete() {
    let estate = estate(&[NOTIFY, PATIENT].join("\n")).start();
    // The first cut is within a CRL. The second is between the two CRLs: the file is valid PEM, but lacks the CRL of
    // one issuer.
    let within = |list: &str| list.find("-----END").map(|end| end - 100);
    let between = |list: &str| list.rfind("-----BEGIN");
    for (turn, cut) in [(1, within as fn(&str) -> Option<usize>), (2, between)] {
        let number = estate.ca.renew_crl();
        let list = estate.ca.crl_pem();
        let (one, other) = list.split_at(cut(&list).expect("two lists"));
        let mut file = File::create(estate.proxy.ssldir().join("crl.pem")).expect("is ours");
        file.write_all(one.as_bytes()).expect("is written");
        wait_for_words(&estate.proxy, NOT_VALID_YET, turn);
        assert_eq!(
            estate.proxy.generation(),
            turn as u64,
            "half a file is not taken"
        );
        file.write_all(other.as_bytes()).expect("is written");
        wait_for_crl(&estate.proxy, number);
    }
    assert_eq!(refusals(&estate.proxy), 0.0);
    assert_eq!(estate.proxy.metrics().sum(REFUSED, &[]), 0.0);
}

#[test]
fn a_file_that_changes_all_the_time_is_loaded_all_the_same() {
    let estate =
        estate("watch = \"notify\"\ninterval = \"1h\"\nsettle = \"1h\"\nsettle_max = \"50ms\"")
            .start();
    let number = estate.ca.renew_crl();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stopping = Stopping(&stop);
        scope.spawn(|| {
            while !stop.load(Ordering::SeqCst) {
                estate.proxy.write_crl();
            }
        });
        wait_for_crl(&estate.proxy, number);
    });
}

#[test]
fn a_certificate_and_its_key_are_loaded_together_whichever_is_written_first() {
    let estate = estate(&[NOTIFY, PATIENT].join("\n")).start();
    for turn in 1..=2 {
        let renewed = estate.ca.server("puppet");
        let mut halves = [
            ("ssl/private_keys/puppet.pem", &renewed.key_pem, 0o640),
            ("ssl/certs/puppet.pem", &renewed.cert_pem, 0o644),
        ];
        if turn == 2 {
            halves.reverse();
        }
        let old = served(&estate.anonymous());
        let [(first, one, mode), (second, other, other_mode)] = halves;
        estate.proxy.write(first, one, mode);
        wait_for_words(&estate.proxy, NOT_VALID_YET, turn);
        assert_eq!(served(&estate.anonymous()), old);
        estate.proxy.write(second, other, other_mode);
        wait_for_certificate(&estate.anonymous(), &renewed.cert_der);
    }
    assert_eq!(estate.proxy.generation(), 3);
    assert!(!estate.proxy.stderr().contains("are refused"));
}

/// Reading a pipe would block every reload until a writer opens the pipe.
#[test]
fn a_pipe_instead_of_a_file_is_refused_and_blocks_no_reload() {
    let estate = estate(&[NOTIFY, IMPATIENT].join("\n")).start();
    let list = estate.proxy.ssldir().join("crl.pem");
    let pipe = list.with_extension("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("mkfifo is there").success());
    fs::rename(&pipe, &list).expect("is replaced");
    let report = wait_for_alarm(&estate.proxy);
    assert!(report.contains("neither a file"), "{report}");
    assert_eq!(estate.proxy.reload()["result"], "refused");
    let number = estate.ca.renew_crl();
    fs::remove_file(&list).expect("is removed");
    estate.proxy.write_crl();
    wait_for_crl(&estate.proxy, number);
    wait_for_end_of_alarm(&estate.proxy);
}

/// As Kubernetes mounts a ConfigMap or Secret: the files are links through `..data`, which is itself a link, and an
/// update replaces that link.
#[test]
fn swapped_symbolic_links_are_followed() {
    let ca = Ca::new();
    let list = ca.crl_pem();
    let estate = Estate::builder()
        .ca(&ca)
        .proxy(move |proxy| {
            proxy
                .materials(&[NOTIFY, PATIENT].join("\n"))
                .file("mount/..version_0/crl.pem", &list, 0o644)
                .link("mount/..data", "..version_0")
                .link("mount/crl.pem", "..data/crl.pem")
                .with("[trust]\ncrl = [\"{dir}/mount/crl.pem\", \"{dir}/mount\"]")
        })
        .start();
    let mount = estate.proxy.directory().join("mount");
    estate.wait_for_status("watched", |status| status["materials"]["watch"] == "notify");
    let mut watches = None;
    for turn in 1..=SWAPS {
        let number = estate.ca.renew_crl();
        publish(&mount, turn, &estate.ca.crl_pem());
        wait_for_crl(&estate.proxy, number);
        let watches = *watches.get_or_insert_with(|| inotify_watches(&estate.proxy));
        assert!(watches > 0);
        let same = wait_until(LIMIT, || {
            (inotify_watches(&estate.proxy) == watches).then_some(())
        });
        assert!(same.is_some(), "no more than {watches} watches");
    }
}

/// As certbot stores its certificates: `live/NAME/chain.pem` is a link into an archive, and the parent directory may be
/// replaced.
#[test]
fn a_parent_directory_may_be_replaced() {
    let estate = estate(&[NOTIFY, PATIENT].join("\n")).start();
    let ssl = estate.proxy.ssldir();
    for turn in 0..3 {
        let renewed = estate.ca.server("puppet");
        let next = estate.proxy.directory().join(format!("ssl.{turn}"));
        estate.ca.write_ssldir_with(&next, &renewed);
        let away = estate.proxy.directory().join(format!("ssl.{turn}.away"));
        fs::rename(&ssl, away).expect("is renamed");
        // Replaced first by a directory, then by links to directories.
        match turn {
            0 => fs::rename(&next, &ssl).expect("is renamed"),
            1 => symlink(&next, &ssl).expect("is linked"),
            _ => symlink(next.file_name().expect("a name"), &ssl).expect("is linked"),
        }
        wait_for_certificate(&estate.anonymous(), &renewed.cert_der);
    }
}

#[test]
fn without_enough_watches_of_the_kernel_files_are_polled_and_an_event_is_logged() {
    let looking = "watch = \"notify\"\ninterval = \"20ms\"\nsettle = \"20ms\"";
    let estate = estate(looking).start();
    let root = estate.proxy.directory();
    fs::create_dir(root.join("lists")).expect("is made");
    // One file has the CRL; the others are behind links to many other directories.
    for n in 0..600 {
        let way = root.join(format!("ways/{n}"));
        fs::create_dir_all(&way).expect("is made");
        let text = match n {
            0 => estate.ca.crl_pem(),
            _ => "no list".to_owned(),
        };
        fs::write(way.join("text"), text).expect("is written");
        symlink(way.join("text"), root.join(format!("lists/{n}"))).expect("is linked");
    }
    estate.edit_config("[pools.ca]", "[trust]\ncrl = \"{dir}/lists\"\n[pools.ca]");
    estate.proxy.reload_applied();
    wait_for_words(
        &estate.proxy,
        "does not report every change of materials",
        1,
    );
    let number = estate.ca.renew_crl();
    fs::write(root.join("ways/0/text"), estate.ca.crl_pem()).expect("is written");
    wait_for_crl(&estate.proxy, number);
}

#[test]
fn loading_a_crl_does_not_apply_an_edited_configuration() {
    let estate = estate(NOTIFY).start();
    let agent = estate.ca.agent("web01");
    let text = estate.proxy.config_text();
    let edits = [
        format!("{text}\n[pools"),
        text.replace(
            "[pools.compilers]",
            "[pools.compilers]\nalgorithm = \"round-robin\"",
        ),
    ];
    for edited in edits {
        estate.write_config(&edited);
        let number = estate.ca.renew_crl();
        estate.proxy.write_crl();
        wait_for_crl(&estate.proxy, number);
        assert_eq!(estate.client(&agent).get(CATALOG).status, 200);
        let status = estate.proxy.status();
        let pools = status["pools"].as_array().expect("pools");
        assert!(pools.iter().all(|pool| pool["algorithm"] == "least-load"));
    }
    estate.proxy.reload_applied();
    let status = estate.proxy.status().to_string();
    assert!(status.contains("round-robin"));
}

#[test]
fn a_log_that_cannot_be_opened_does_not_prevent_loading_a_crl() {
    let estate = estate(NOTIFY).start();
    let log = estate.proxy.directory().join("access.json");
    let away = estate.proxy.directory().join("away.json");
    fs::rename(&log, &away).expect("is renamed");
    fs::create_dir(&log).expect("is made");
    let number = estate.ca.renew_crl();
    estate.proxy.write_crl();
    wait_for_crl(&estate.proxy, number);
    fs::remove_dir(&log).expect("is empty");
    fs::rename(&away, &log).expect("is renamed");
}

#[test]
fn credential_and_crls_towards_members_are_loaded_too() {
    let ca = Ca::new();
    let (credential, bundle, list) = (ca.agent("front"), ca.bundle_pem(), ca.crl_pem());
    let estate = Estate::builder()
        .ca(&ca)
        .tls_members()
        .materials(&[NOTIFY, PATIENT].join("\n"))
        .file("members/chain.pem", &credential.cert_pem, 0o644)
        .file("members/key.pem", &credential.key_pem, 0o600)
        .file("members/ca.pem", &bundle, 0o644)
        .file("members/crl.pem", &list, 0o644)
        .with(MEMBER_TLS)
        .start();
    let agent = estate.ca.agent("web01");
    assert_eq!(estate.client(&agent).get(CATALOG).status, 200);
    let renewed = estate.ca.agent("front");
    estate
        .proxy
        .write("members/chain.pem", &renewed.cert_pem, 0o644);
    estate
        .proxy
        .write("members/key.pem", &renewed.key_pem, 0o600);
    let shown = wait_until(LIMIT, || {
        estate.forget();
        assert_eq!(estate.client(&agent).get(CATALOG).status, 200);
        (estate.only_request().peer_certificates[0] == renewed.cert_der).then_some(())
    });
    assert!(shown.is_some(), "the far end sees the new certificate");
    // The issuer of the members is revoked, in the CRL for members only.
    estate.ca.revoke_intermediate();
    estate
        .proxy
        .write("members/crl.pem", &estate.ca.crl_pem(), 0o644);
    wait_for("members are no longer believed", || {
        estate.client(&agent).get(CATALOG).status >= 500
    });
}

#[test]
fn twenty_swaps_under_load_lose_no_request() {
    let estate = estate(NOTIFY).one_agent_for_many().start();
    let client = estate.agent("web01");
    let (stop, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        let _stopping = Stopping(&stop);
        for _ in 0..8 {
            scope.spawn(|| {
                let mut connection = client.connect().expect("connects");
                while !stop.load(Ordering::SeqCst) {
                    let answer = connection.request("POST", CATALOG, &[], b"facts");
                    assert_eq!((answer.status, answer.says_close()), (200, false));
                    asked.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        for turn in 0..SWAPS {
            let enough = asked.load(Ordering::SeqCst) + 8;
            if turn % 2 == 0 {
                let number = estate.ca.renew_crl();
                estate.proxy.write_crl();
                wait_for_crl(&estate.proxy, number);
            } else {
                let renewed = estate.ca.server("puppet");
                estate
                    .proxy
                    .write("ssl/private_keys/puppet.pem", &renewed.key_pem, 0o640);
                estate
                    .proxy
                    .write("ssl/certs/puppet.pem", &renewed.cert_pem, 0o644);
                wait_for_certificate(&estate.anonymous(), &renewed.cert_der);
            }
            wait_until(LIMIT, || {
                (asked.load(Ordering::SeqCst) >= enough).then_some(())
            });
        }
    });
    assert_eq!(estate.proxy.generation(), SWAPS as u64 + 1);
    let posts = estate.compilers.iter().flat_map(|c| c.requests());
    assert_eq!(
        posts.filter(|post| post.complete).count(),
        asked.load(Ordering::SeqCst),
        "each POST was seen once"
    );
}

#[test]
fn rewriting_the_agents_copy_unchanged_resets_its_age_without_a_reload() {
    let estate = estate(NOTIFY).start();
    let age = || {
        estate
            .proxy
            .metrics()
            .sum("proscenium_crl_agent_copy_age_seconds", &[])
    };
    let day = Duration::from_secs(86_400);
    let path = estate.proxy.ssldir().join("crl.pem");
    let file = OpenOptions::new()
        .append(true)
        .open(path)
        .expect("is there");
    for (written, range) in [
        (SystemTime::now() - 2 * day, 100_000.0..200_000.0),
        (SystemTime::now(), 0.0..1000.0),
    ] {
        file.set_modified(written).expect("is ours");
        let seen = wait_until(LIMIT, || range.contains(&age()).then_some(()));
        assert!(seen.is_some(), "{} s old", age());
    }
    assert_eq!(estate.proxy.generation(), 1);
    assert_eq!(
        estate.proxy.metrics().sum("proscenium_reloads_total", &[]),
        0.0
    );
}

#[test]
fn a_reload_starts_and_stops_watching() {
    let estate = Estate::start();
    assert_eq!(estate.proxy.status()["materials"]["watch"], "off");
    assert_eq!(inotify_watches(&estate.proxy), 0);
    for watch in ["poll", "notify"] {
        let text = estate.proxy.config_text();
        let from = text.split("[materials]\n").nth(1).expect("the table");
        let line = from.lines().next().expect("a line").to_owned();
        estate.edit_config(&line, &format!("watch = \"{watch}\""));
        estate.proxy.reload_applied();
        estate.wait_for_status(watch, |status| status["materials"]["watch"] == watch);
        assert_eq!(inotify_watches(&estate.proxy) > 0, watch == "notify");
    }
    let number = estate.ca.renew_crl();
    estate.proxy.write_crl();
    wait_for_crl(&estate.proxy, number);
    // The proxy watches only configured files.
    estate.proxy.write("other.pem", &estate.ca.crl_pem(), 0o644);
    estate.edit_config(
        "[pools.ca]",
        "[trust]\ncrl = \"{dir}/other.pem\"\n[pools.ca]",
    );
    estate.proxy.reload_applied();
    let number = estate.ca.renew_crl();
    estate.proxy.write("other.pem", &estate.ca.crl_pem(), 0o644);
    wait_for_crl(&estate.proxy, number);
}

struct Stopping<'a>(&'a AtomicBool);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Publishes a new version of the mounted files, as Kubernetes does.
fn publish(mount: &Path, turn: usize, list: &str) {
    let version = format!("..version_{turn}");
    fs::create_dir(mount.join(&version)).expect("is made");
    fs::write(mount.join(&version).join("crl.pem"), list).expect("is written");
    symlink(&version, mount.join("..data_tmp")).expect("is linked");
    fs::rename(mount.join("..data_tmp"), mount.join("..data")).expect("is renamed");
    let before = mount.join(format!("..version_{}", turn - 1));
    fs::remove_dir_all(before).expect("was there");
}

/// The number of inotify watches of the process, over all its descriptors.
fn inotify_watches(proxy: &Proxy) -> usize {
    let directory = format!("/proc/{}/fdinfo", proxy.pid());
    let descriptors = fs::read_dir(directory).expect("it runs").flatten();
    let texts = descriptors.filter_map(|entry| fs::read_to_string(entry.path()).ok());
    texts.map(|text| text.matches("inotify wd:").count()).sum()
}
