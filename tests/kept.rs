//! What is kept for the next start: what is in force and nothing older, and as soon as it can be written.

use std::path::Path;

use tempfile::TempDir;
use testkit::{Ca, Client, Credential, Proxy, Reply, StandIn};

use crate::support::{Estate, assert_refused, done, proxy};

const CATALOG: &str = "/puppet/v3/catalog/web01?environment=production";
const LIST: &str = "/puppet-ca/v1/certificate_revocation_list/ca";
const WHEN_ASKED: &str = "interval = \"24h\"\njitter = \"0s\"";

#[test]
fn t10_a_list_that_an_operator_has_replaced_is_neither_kept_nor_answered_with() {
    let state = TempDir::new().expect("a directory");
    let ca = Ca::new();
    let (lost, bad) = (ca.agent("web01"), ca.agent("web01"));
    let old = ca.crl_pem();
    ca.revoke(&lost);
    let estate = fetching(
        &ca,
        &old,
        state.path(),
        WHEN_ASKED,
        "[ca]\nedge_answers = true",
    );
    wait_for_answer(&estate.proxy);
    // The stand-in signs its list anew each time.
    ca.renew_crl();
    let replaced = ca.crl_pem();
    answers(&estate.ca_server, &replaced);
    done(&estate.proxy, &["crl", "fetch"], &[]);
    // The CA is restored from a backup, and goes on from there.
    answers(&estate.ca_server, &old);
    assert_eq!(estate.proxy.command(&["crl", "fetch"], &[]).code, Some(1));
    let issuer = format!("CN={}", ca.name());
    done(
        &estate.proxy,
        &["crl", "accept"],
        &[&issuer, "--why", "restored"],
    );
    let now = ca.other_crl_pem(ca.crl_number() + 1, &[&bad]);
    answers(&estate.ca_server, &now);
    done(&estate.proxy, &["crl", "fetch"], &[]);
    assert_refused(&estate.client(&bad).get(CATALOG), 403, &["revoked"]);
    // A copy of the list that was replaced answers.
    answers(&estate.ca_server, &replaced);
    done(&estate.proxy, &["crl", "fetch"], &[]);
    assert_refused(&estate.client(&bad).get(CATALOG), 403, &["revoked"]);
    let answered = estate.anonymous().get(LIST);
    assert_eq!(answered.text(), now, "agents get what is in force");
    let alarms = estate.proxy.status()["trust"]["alarms"].to_string();
    assert!(alarms.contains("an operator has replaced"), "{alarms}");
    drop(estate);
    // Nor is it what a start finds, whatever file there is.
    let front = without_ca(&ca, &old, state.path());
    assert_refused(&front.client(&bad).get(CATALOG), 403, &["revoked"]);
}

fn fetching(ca: &Ca, file: &str, state: &Path, lines: &str, tables: &str) -> Estate {
    let (file, state) = (file.to_owned(), state_in(state));
    let (lines, tables) = (lines.to_owned(), tables.to_owned());
    Estate::builder()
        .ca(ca)
        .proxy(move |proxy| {
            proxy
                .fetch(&lines)
                .file("ssl/crl.pem", &file, 0o644)
                .with(&state)
                .with(&tables)
        })
        .start()
}

fn without_ca(ca: &Ca, file: &str, state: &Path) -> Front {
    let compiler = StandIn::start("c1");
    let pools = format!(
        "[pools.ca]\nscheme = \"http\"\nmembers = [\"127.0.0.1:1\"]\n\
         [pools.compilers]\nscheme = \"http\"\nmembers = [{:?}]",
        compiler.address()
    );
    let proxy = proxy(ca)
        .fetch(WHEN_ASKED)
        .file("ssl/crl.pem", file, 0o644)
        .with(&state_in(state))
        .with(&pools)
        .start();
    proxy.wait_for_members(&["compilers"]);
    Front {
        proxy,
        _compiler: compiler,
    }
}

struct Front {
    proxy: Proxy,
    _compiler: StandIn,
}

impl Front {
    fn client(&self, agent: &Credential) -> Client {
        self.proxy.client(Some(agent))
    }
}

impl std::ops::Deref for Front {
    type Target = Proxy;

    fn deref(&self) -> &Proxy {
        &self.proxy
    }
}

fn state_in(directory: &Path) -> String {
    format!("[state]\ndirectory = {directory:?}")
}

fn answers(ca_server: &StandIn, text: &str) {
    let reply = Reply::ok(text);
    ca_server.answer(move |request| (request.path() == LIST).then(|| reply.clone()));
}

#[track_caller]
fn wait_for_answer(proxy: &Proxy) {
    proxy.wait_for_status("a list was fetched", |status| {
        status["trust"]["fetch"]["answered"].is_string()
    });
}
