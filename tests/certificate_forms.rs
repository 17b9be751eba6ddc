//! Unusual certificates: what happens if one is too large to forward, and the page that lists the result for each form.

use std::fmt::Write;

use testkit::{Ca, TestCredential};

use crate::support::{
    Estate, assert_identity, assert_refused,
    fixtures::{self, Row},
    paths::CA_CERTIFICATE,
};

const CATALOG: &str =
    "/puppet/v3/catalog/web01?environment=production&configured_environment=production";
/// The size of a head that Jetty accepts by default.
const JETTY_HEAD_MAX: usize = 8192;

#[test]
fn a_certificate_too_large_for_a_server_is_refused_with_an_explanation_and_reaches_no_member() {
    let estate = Estate::start();
    let agent = with_names(&estate.ca, 200);
    let client = estate.client(&agent);
    let refused = client.request("POST", CATALOG, &[], b"facts");
    assert_refused(
        &refused,
        431,
        &[
            "bytes as a header",
            "`compilers`",
            "7168",
            "puppetserver ca clean",
            "alternative names",
        ],
    );
    // The text is for the agent's administrator, so it does not mention settings of the proxy.
    assert!(!refused.text().contains("forward_cert_max"), "{refused:?}");
    assert!(estate.far_end().is_empty());
    let record = estate.wait_for_record(|record| record["status"] == 431);
    assert_eq!(record["reason"], "certificate-too-large", "{record}");
    // No certificate is forwarded to the CA, so none is too large.
    assert_eq!(client.get(CA_CERTIFICATE).status, 200);
    // The connection remains usable.
    let mut connection = client.connect().expect("connects");
    assert_refused(&connection.get(CATALOG), 431, &[]);
    assert_eq!(connection.get(CA_CERTIFICATE).status, 200);
}

#[test]
fn a_pool_can_have_large_certificates_left_out_and_counted() {
    let estate = Estate::builder()
        .compiler_pool("forward_cert_too_large = \"omit\"")
        .start();
    let (large, small) = (with_names(&estate.ca, 200), estate.ca.agent("web01"));
    for (agent, certificates) in [(&large, 0), (&small, 1)] {
        estate.forget();
        assert_eq!(estate.client(agent).get(CATALOG).status, 200);
        let request = estate.only_request();
        assert_identity(&request, "SUCCESS", Some("CN=web01"));
        assert_eq!(
            request.headers.all("x-client-cert").len(),
            certificates,
            "{}",
            request.raw_text()
        );
    }
    let labels = [("pool", "compilers")];
    let name = "proscenium_certificates_omitted_total";
    assert_eq!(estate.wait_for_metric(name, &labels, 1.0), 1.0);
}

#[test]
fn a_pool_whose_servers_read_larger_heads_gets_larger_certificates() {
    let estate = Estate::builder()
        .compiler_pool("forward_cert_max = \"16KiB\"")
        .start();
    let agent = with_names(&estate.ca, 200);
    assert_eq!(estate.client(&agent).get(CATALOG).status, 200);
    let output = estate.only_request().only("x-client-cert").len();
    assert!(output > JETTY_HEAD_MAX, "{output}");
}

/// The largest certificate forwarded by default leaves room in Jetty's head for the headers of agents.
#[test]
fn what_is_forwarded_by_default_fits_the_head_that_jetty_reads() {
    let estate = Estate::start();
    let agents = [
        ("User-Agent", "Puppet/8.10.0 Ruby/3.2.5-p208 (x86_64-linux)"),
        (
            "Accept",
            "application/vnd.puppet.rich+json, application/json, application/vnd.dot",
        ),
        ("Accept-Encoding", "gzip;q=1.0,deflate;q=0.6,identity;q=0.3"),
        ("Content-Type", "application/x-www-form-urlencoded"),
    ];
    let mut largest = 0;
    for names in (60..200).step_by(2) {
        estate.forget();
        let client = estate.client(&with_names(&estate.ca, names));
        let answer = client.request("POST", CATALOG, &agents, b"facts");
        if answer.status == 431 {
            break;
        }
        let request = estate.only_request();
        largest = request.only("x-client-cert").len();
        let head = request.raw_text().find("\r\n\r\n").expect("a head") + 4;
        assert!(head <= JETTY_HEAD_MAX, "{names} names: {head}");
    }
    assert!(largest > 6 << 10, "close to the limit: {largest}");
}

/// docs/certificates.md describes the whole table in words.
#[test]
fn the_page_about_certificates_lists_each_verdict_of_the_table() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/certificates.md");
    let page = std::fs::read_to_string(page).expect("docs/certificates.md");
    let between = |(_, rest): (&str, &str)| rest.split_once(END).map(|(table, _)| table.to_owned());
    let output = page.split_once(BEGIN).and_then(between).expect("its marks");
    let expected = table(&fixtures::verdicts());
    assert!(
        output.trim() == expected.trim(),
        "docs/certificates.md is not what ssl-fixtures/verdicts.toml says; it has to be:\n{expected}"
    );
}

const BEGIN: &str = "<!-- verdicts: as ssl-fixtures/verdicts.toml says -->";
const END: &str = "<!-- end of verdicts -->";

fn table(rows: &[Row]) -> String {
    let mut text =
        "| certificate | CA bundle, CRLs | `subject = \"puppet\"` | `subject = \"single-cn\"` |\n\
                    | --- | --- | --- | --- |\n"
            .to_owned();
    for row in rows {
        let file = row.certificate.trim_end_matches(".pem");
        let trust = &row.trust;
        let lists = format!("{}, {}", trust.ca, trust.crl).replace(".pem", "");
        let policy = match trust.crl_expired.as_str() {
            "warn" => String::new(),
            other => format!(", `crl_expired = \"{other}\"`"),
        };
        let verdict = |verdict: &str| match verdict {
            "SUCCESS" | "alert" => verdict.to_owned(),
            failed => format!("`{failed}`"),
        };
        writeln!(
            text,
            "| {} (`{file}`) | {lists}{policy} | {} | {} |",
            row.form,
            verdict(&row.puppet),
            verdict(&row.single_cn)
        )
        .expect("text");
    }
    text
}

fn with_names(ca: &Ca, count: usize) -> TestCredential {
    let leaf = ca.leaf("web01");
    (0..count)
        .fold(leaf, |leaf, n| {
            leaf.dns(&format!("alternative-name-{n}.example.com"))
        })
        .issue()
}
