//! Tests which certificates can be starts, whatever webpki reported before. `tests/path_start.rs` of this crate tests whole
//! chains.

use std::time::Duration;

use rcgen::{
    BasicConstraints, Certificate as Made, CertificateParams, CustomExtension, DistinguishedName,
    DnType, IsCa, Issuer, KeyPair, date_time_ymd,
};

use super::*;
use crate::pem::Named;

#[test]
fn a_start_must_be_within_its_validity_to_the_second() {
    let root = Root::new();
    let sub = root.signs(constraining());
    for (seconds, starts) in [
        (IN_2025 - 1, 0),
        (IN_2025, 1),
        (IN_2035, 1),
        (IN_2035 + 1, 0),
    ] {
        assert_eq!(root.steps_at(&[&sub], seconds), starts, "{seconds}");
    }
}

#[test]
fn certificates_that_are_not_cas_or_not_signed_by_the_anchor_are_not_starts() {
    let root = Root::new();
    let starts = |params: CertificateParams| root.steps_at(&[&root.signs(params)], IN_2030);
    assert_eq!(starts(constraining()), 1);
    // webpki accepts this CA itself.
    assert_eq!(starts(params("sub")), 0);
    for is_ca in [IsCa::NoCa, IsCa::ExplicitNoCa] {
        let mut params = constraining();
        params.is_ca = is_ca;
        assert_eq!(starts(params), 0);
    }
    let mut unknown = CustomExtension::from_oid_content(&[1, 2, 3], vec![5, 0]);
    unknown.set_criticality(true);
    let mut params = constraining();
    params.custom_extensions.push(unknown);
    assert_eq!(starts(params), 0);
    // Another key with the root's name has signed it.
    let other = Root::new().signs(constraining());
    assert_eq!(root.steps_at(&[&other], IN_2030), 0);
}

#[test]
fn a_self_issued_certificate_makes_the_cas_above_it_starts() {
    let root = Root::new();
    let short = root.signs(with_length(1));
    let again = root.signs(params("root"));
    assert_eq!(root.steps_at(&[&short], IN_2030), 0);
    assert_eq!(root.steps_at(&[&short, &again], IN_2030), 2);
}

#[test]
fn the_path_length_limits_the_cas_that_follow() {
    let root = Root::new();
    let (other, again) = (root.signs(params("other")), root.signs(params("root")));
    let below = |others: usize, agains: usize| {
        let others = std::iter::repeat_n(other.der().clone(), others);
        others
            .chain(std::iter::repeat_n(again.der().clone(), agains))
            .collect::<Vec<_>>()
    };
    for (length, others, agains, admitted) in [
        (Some(0), 0, 3, true),
        (Some(0), 1, 0, false),
        (Some(1), 1, 3, true),
        (Some(1), 2, 0, false),
        (None, 5, 5, true),
    ] {
        let params = length.map_or_else(|| params("sub"), with_length);
        let bundle = root.bundle();
        let ders = [root.signs(params).der().clone(), again.der().clone()];
        let starts = PathStart::all(&bundle, &ders, at(IN_2030));
        let actual = starts[0].admits(&below(others, agains));
        assert_eq!(actual, admitted, "{length:?} {others} {agains}");
    }
}

#[test]
fn basic_constraints_are_read_strictly() {
    for (bytes, expected) in [
        (&[0x30, 3, 1, 1, 0xff][..], Ok(None)),
        (&[0x30, 6, 1, 1, 0xff, 2, 1, 0], Ok(Some(0))),
        (&[0x30, 6, 1, 1, 0xff, 2, 1, 127], Ok(Some(127))),
        (&[0x30, 0], Err(())),
        (&[0x30, 3, 1, 1, 0x00], Err(())),
        (&[0x30, 3, 1, 1, 0x01], Err(())),
        (&[0x30, 3, 2, 1, 1], Err(())),
        // The path length is negative, longer than one byte, or empty.
        (&[0x30, 6, 1, 1, 0xff, 2, 1, 0x80], Err(())),
        (&[0x30, 7, 1, 1, 0xff, 2, 2, 0, 0x80], Err(())),
        (&[0x30, 5, 1, 1, 0xff, 2, 0], Err(())),
        // There is an additional element.
        (&[0x30, 9, 1, 1, 0xff, 2, 1, 0, 2, 1, 0], Err(())),
        (&[0x30, 3, 1, 1, 0xff, 0], Err(())),
    ] {
        assert_eq!(path_length(bytes).map_err(|_| ()), expected, "{bytes:02x?}");
    }
}

const IN_2025: u64 = 1_735_689_600;
const IN_2030: u64 = 1_893_456_000;
const IN_2035: u64 = 2_051_222_400;

fn at(seconds: u64) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(seconds))
}

/// A trusted CA.
struct Root {
    certificate: Made,
    issuer: Issuer<'static, KeyPair>,
}

impl Root {
    fn new() -> Self {
        let key = KeyPair::generate().expect("a key");
        let certificate = params("root").self_signed(&key).expect("signed");
        Self {
            certificate,
            issuer: Issuer::new(params("root"), key),
        }
    }

    fn signs(&self, params: CertificateParams) -> Made {
        let key = KeyPair::generate().expect("a key");
        params.signed_by(&key, &self.issuer).expect("signed")
    }

    fn bundle(&self) -> std::sync::Arc<Bundle> {
        let pem = self.certificate.pem().into_bytes();
        Bundle::read(&[Named::new("ca.pem", pem)], None).expect("a CA")
    }

    fn steps_at(&self, sent: &[&Made], seconds: u64) -> usize {
        let ders: Vec<_> = sent.iter().map(|made| made.der().clone()).collect();
        PathStart::all(&self.bundle(), &ders, at(seconds)).len()
    }
}

fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.not_before = date_time_ymd(2025, 1, 1);
    params.not_after = date_time_ymd(2035, 1, 1);
    params
}

fn with_length(length: u8) -> CertificateParams {
    let mut params = params("short");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(length));
    params
}

/// Parameters of a CA with a constraint that permits every directory name.
fn constraining() -> CertificateParams {
    let content = vec![0x30, 8, 0xa0, 6, 0x30, 4, 0xa4, 2, 0x30, 0];
    let extension = CustomExtension::from_oid_content(&[2, 5, 29, 30], content);
    let mut params = params("sub");
    params.custom_extensions.push(extension);
    params
}
