//! Forms of PEM that OpenSSL writes or reads: byte order marks, TRUSTED CERTIFICATE and X509 CERTIFICATE.

use crate::support::{crls::element, *};
use identity::{IdentitySettings, Reason};
use pki::{Named, TrustMaterial, TrustSettings, TrustStore};

const CLIENT: [u8; 10] = [0x06, 8, 0x2b, 6, 1, 5, 5, 7, 3, 2];
const SERVER: [u8; 10] = [0x06, 8, 0x2b, 6, 1, 5, 5, 7, 3, 1];
const ANY: [u8; 6] = [0x06, 4, 0x55, 0x1d, 37, 0];
const EMAIL: [u8; 10] = [0x06, 8, 0x2b, 6, 1, 5, 5, 7, 3, 4];

fn built(bundle: &str, crls: &str) -> Result<TrustStore, String> {
    let material = TrustMaterial {
        bundle: vec![Named::new("ca.pem", bundle.as_bytes().to_vec())],
        crls: vec![Named::new("crl.pem", crls.as_bytes().to_vec())],
        copied_crls: Vec::new(),
    };
    let store = TrustStore::build(
        &material,
        &TrustSettings::default(),
        &IdentitySettings::default(),
        None,
    );
    store.map_err(|problems| format!("{problems:?}"))
}

#[test]
fn a_byte_order_mark_hides_no_ca_and_no_crl() {
    let root = TestCa::root("root");
    let other = TestCa::root("other");
    let (ca, others) = (
        pem("CERTIFICATE", &root.der),
        pem("CERTIFICATE", &other.der),
    );
    let (crl, more) = (
        pem("X509 CRL", &root.crl(1, &[5])),
        pem("X509 CRL", &root.crl(2, &[6])),
    );
    for (bundle, crls) in [
        (format!("\u{feff}{ca}"), format!("\u{feff}{crl}{more}")),
        // One file that was joined from two files, each with a mark.
        (
            format!("\u{feff}{others}\u{feff}{ca}"),
            format!("{crl}\u{feff}{more}"),
        ),
        (
            format!("\u{feff}{ca}").replace('\n', "\r\n"),
            format!("{crl}\u{feff}{more}"),
        ),
    ] {
        let store = built(&bundle, &crls).unwrap();
        for (serial, expected) in [
            (5, Some(Reason::Revoked)),
            (6, Some(Reason::Revoked)),
            (7, None),
        ] {
            assert_eq!(
                verdict(&store, &root.agent("web01", serial)),
                expected,
                "{bundle}"
            );
        }
    }
}

#[test]
fn a_trusted_certificate_is_a_ca_if_its_owner_trusts_it_for_clients_and_servers() {
    const BOTH: &str = "do not include both TLS clients and TLS servers";
    let root = TestCa::root("root");
    let crl = pem("X509 CRL", &root.crl(1, &[5]));
    let trust = |purposes: &[u8]| element(0x30, purposes);
    let reject = |purposes: &[u8]| element(0xa0, purposes);
    let alias = element(0x0c, b"the root");
    for (settings, refused) in [
        (Vec::new(), None),
        (element(0x30, &alias), None),
        (
            element(0x30, &[trust(&[SERVER, CLIENT].concat()), alias].concat()),
            None,
        ),
        (element(0x30, &trust(&ANY)), None),
        (element(0x30, &reject(&EMAIL)), None),
        (element(0x30, &trust(&CLIENT)), Some(BOTH)),
        (element(0x30, &trust(&SERVER)), Some(BOTH)),
        (element(0x30, &trust(&EMAIL)), Some(BOTH)),
        (element(0x30, &trust(&[])), Some(BOTH)),
        (element(0x30, &reject(&CLIENT)), Some("reject TLS")),
        (
            element(
                0x30,
                &[trust(&[SERVER, CLIENT].concat()), reject(&SERVER)].concat(),
            ),
            Some("reject TLS"),
        ),
        (vec![5, 0], Some("ca.pem")),
    ] {
        let trusted = pem(
            "TRUSTED CERTIFICATE",
            &[root.der.as_ref(), &settings].concat(),
        );
        match (built(&trusted, &crl), refused) {
            (Ok(store), None) => {
                let bad = root.agent("web01", 5);
                assert_eq!(verdict(&store, &bad), Some(Reason::Revoked));
                assert_eq!(verdict(&store, &root.agent("web01", 6)), None);
            }
            (Err(problem), Some(words)) => assert!(problem.contains(words), "{problem}"),
            (built, refused) => panic!("{settings:x?}: {refused:?}, but {:?}", built.err()),
        }
    }
    let store = built(&pem("X509 CERTIFICATE", &root.der), &crl).unwrap();
    assert_eq!(verdict(&store, &root.agent("web01", 6)), None);
    // Only OpenSSL's own label allows further data after the certificate.
    let settings = element(0x30, &trust(&CLIENT));
    let plain = pem("CERTIFICATE", &[root.der.as_ref(), &settings].concat());
    assert!(built(&plain, &crl).is_err());
}
