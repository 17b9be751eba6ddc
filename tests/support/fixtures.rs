//! `ssl-fixtures/` and its table of verdicts.

use std::{collections::BTreeMap, fs, path::PathBuf};

use testkit::TestCredential;

/// One row of `ssl-fixtures/verdicts.toml`.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// Description.
    pub(crate) form: String,
    /// File of the certificate.
    pub(crate) certificate: String,
    /// File of the key.
    pub(crate) key: String,
    /// The trust store that verifies it.
    pub(crate) trust: TrustFiles,
    /// Expected with `subject = "puppet"`.
    pub(crate) puppet: String,
    /// Expected with `subject = "single-cn"`.
    pub(crate) single_cn: String,
}

/// The files and the policy of `[trust]`: rows that share them share a proxy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TrustFiles {
    /// CA bundle.
    pub(crate) ca: String,
    /// CRLs.
    pub(crate) crl: String,
    /// `crl_expired`.
    pub(crate) crl_expired: String,
}

/// Path of a fixture.
pub(crate) fn path(file: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../ssl-fixtures")).join(file)
}

/// Content of a fixture.
#[track_caller]
pub(crate) fn text(file: &str) -> String {
    fs::read_to_string(path(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// The rows of the table. The test parses it itself, because it contains only `[[verdict]]`, comments and `key =
/// "value"`, and the TOML parser belongs to `config`.
pub(crate) fn verdicts() -> Vec<Row> {
    let whole = text("verdicts.toml");
    let tables: Vec<_> = whole.split("[[verdict]]").skip(1).map(row).collect();
    assert!(tables.len() > 40, "the table is there");
    tables
}

fn row(table: &str) -> Row {
    let lines = table
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default().trim());
    let pairs: BTreeMap<&str, &str> = lines
        .filter(|line| !line.is_empty())
        .map(|line| {
            let (key, value) = line
                .split_once(" = ")
                .unwrap_or_else(|| panic!("{line:?} is no `key = \"value\"`"));
            (key, value.trim_matches('"'))
        })
        .collect();
    let value = |key: &str| {
        (*pairs
            .get(key)
            .unwrap_or_else(|| panic!("no {key} in {table}")))
        .to_owned()
    };
    Row {
        form: value("form"),
        certificate: value("certificate"),
        key: value("key"),
        trust: TrustFiles {
            ca: value("ca"),
            crl: value("crl"),
            crl_expired: pairs
                .get("crl_expired")
                .copied()
                .unwrap_or("warn")
                .to_owned(),
        },
        puppet: value("puppet"),
        single_cn: value("single_cn"),
    }
}

impl Row {
    /// Certificate and key.
    pub(crate) fn credential(&self) -> TestCredential {
        TestCredential::from_pem(
            self.certificate.trim_end_matches(".pem"),
            &text(&self.certificate),
            &text(&self.key),
        )
    }
}

#[test]
fn every_row_names_files_that_are_there_and_a_key_that_loads() {
    for row in verdicts() {
        for file in [&row.trust.ca, &row.trust.crl] {
            assert!(path(file).is_file(), "{file}");
        }
        let client = testkit::Client::try_new(
            ([127, 0, 0, 1], 1).into(),
            &text("ca-bundle.pem"),
            Some(&row.credential()),
        );
        // A key that TLS libraries load may still cause an alert.
        assert!(
            client.is_ok() || row.puppet == "alert",
            "{}",
            row.certificate
        );
    }
}
