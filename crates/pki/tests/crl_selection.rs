//! The effect of each kind of CRL on a verdict, and the warnings about kinds that are not used.

use crate::support::crls::{List, element};
use crate::support::*;
use identity::Reason;
use pki::{PkiProblem, TrustStore};
use rustls_pki_types::CertificateRevocationListDer;

#[test]
fn a_crl_without_an_authority_key_identifier_is_used() {
    let root = TestCa::root("root");
    let store = trusting(&root, &[List::new(1).revoking(5).signed_by(&root)]);
    assert!(store.warnings().is_empty(), "{:?}", store.warnings());
    assert_eq!(
        verdict(&store, &root.agent("web05", 5)),
        Some(Reason::Revoked)
    );
    assert_eq!(verdict(&store, &root.agent("web06", 6)), None);
}

#[test]
fn incomplete_crls_are_refused_with_a_reason() {
    let root = TestCa::root("root");
    let base = element(0x02, &[1]);
    let indirect = element(0x30, &[0x84, 1, 0xff]);
    let users_alone = element(0x30, &[0x81, 1, 0xff]);
    let other_issuer = element(0x30, &element(0xa4, b"0\x00"));
    for (list, why) in [
        (
            List::new(9).with(DELTA_CRL_INDICATOR, true, &base),
            "delta CRL",
        ),
        // Some CAs do not mark it as critical, although they must.
        (
            List::new(9).with(DELTA_CRL_INDICATOR, false, &base),
            "delta CRL",
        ),
        (
            List::new(9).with(ISSUING_DISTRIBUTION_POINT, true, &indirect),
            "partitioned or indirect CRL",
        ),
        (
            List::new(9).with(ISSUING_DISTRIBUTION_POINT, true, &users_alone),
            "partitioned or indirect CRL",
        ),
        // An indirect CRL that is not marked as one: the entry is about a certificate of another issuer.
        (
            List::new(9).revoking_with(6, CERTIFICATE_ISSUER, true, &other_issuer),
            "partitioned or indirect CRL",
        ),
        (
            List::new(9).with(&[0x2a, 3, 4], true, &[5, 0]),
            "critical extension",
        ),
        (
            List::new(9).revoking_with(6, &[0x2a, 3, 4], true, &[5, 0]),
            "critical extension",
        ),
    ] {
        let list = list.signed_by(&root);
        // Without a usable CRL, the proxy does not start.
        let problems =
            store(std::slice::from_ref(&root.der), std::slice::from_ref(&list)).unwrap_err();
        let text = problems[0].to_string();
        assert!(text.contains(why) && text.contains("crl.pem"), "{text}");
        assert_eq!(problems[1..], [PkiProblem::NoCrl], "{why}");
        // Together with a complete CRL, it only causes a warning, although its number is higher.
        let good = List::new(1).revoking(5).signed_by(&root);
        for lists in [[list.clone(), good.clone()], [good, list]] {
            let store = trusting(&root, &lists);
            let is_warning = |warning: &String| warning.contains(why);
            assert!(
                store.warnings().iter().any(is_warning),
                "{:?}",
                store.warnings()
            );
            assert_eq!(
                verdict(&store, &root.agent("web05", 5)),
                Some(Reason::Revoked),
                "{why}"
            );
            assert_eq!(verdict(&store, &root.agent("web06", 6)), None, "{why}");
        }
    }
}

#[test]
fn crls_without_a_number_count_together_with_others() {
    let root = TestCa::root("root");
    for list in [List::version_1(), List::without_extensions()] {
        let bare = list.revoking(5).signed_by(&root);
        let alone = trusting(&root, std::slice::from_ref(&bare));
        assert_eq!(alone.status(now()).crls[0].number, "none");
        let numbered = List::new(7).revoking(6).signed_by(&root);
        let both = trusting(&root, &[bare.clone(), numbered.clone()]);
        let next = store_with(
            std::slice::from_ref(&root.der),
            &[numbered],
            &pki::TrustSettings::default(),
            Some(&alone),
        );
        for (store, revoked) in [
            (&alone, &[5][..]),
            (&both, &[5, 6]),
            (&next.unwrap(), &[5, 6]),
        ] {
            for serial in [5, 6, 7] {
                let expected = revoked.contains(&serial).then_some(Reason::Revoked);
                assert_eq!(
                    verdict(store, &root.agent("web01", serial)),
                    expected,
                    "{serial}"
                );
            }
        }
        // An operator accepts a CRL without a number in place of another.
        let shorter = List::version_1().revoking(7).signed_by(&root);
        let store = store_with(
            std::slice::from_ref(&root.der),
            std::slice::from_ref(&shorter),
            &pki::TrustSettings::default(),
            Some(&alone),
        );
        let store = store.unwrap();
        let accepted = store.accepting(store.dropped_revocations()[0].key, None);
        assert_eq!(verdict(&accepted, &root.agent("web01", 5)), None);
        for rule in accepted.set_aside_rules() {
            assert_eq!(rule.to_string().parse(), Ok(rule.clone()));
        }
    }
}

#[test]
fn known_entry_extensions_do_not_change_a_revocation() {
    let root = TestCa::root("root");
    let reason = element(0x0a, &[6]);
    let since = element(0x18, b"20240101000000Z");
    let list = List::new(1)
        .revoking_with(5, &[0x55, 0x1d, 21], false, &reason)
        .revoking_with(6, &[0x55, 0x1d, 24], true, &since)
        .revoking_with(7, &[0x2a, 3, 4], false, &[5, 0])
        .with(&[0x2a, 3, 4], false, &[5, 0]);
    let store = trusting(&root, &[list.signed_by(&root)]);
    for serial in [5, 6, 7] {
        let agent = root.agent("web01", serial);
        assert_eq!(verdict(&store, &agent), Some(Reason::Revoked), "{serial}");
    }
}

#[test]
fn a_crl_signed_by_another_key_of_the_name_revokes_no_certificate_and_replaces_no_crl() {
    let (root, impostor) = (TestCa::root("root"), TestCa::root("root"));
    let forged = List::new(99).revoking(5).signed_by(&impostor);
    let bundle = std::slice::from_ref(&root.der);
    let agent = root.agent("web05", 5);
    let alone = store(bundle, std::slice::from_ref(&forged)).unwrap();
    assert_eq!(verdict(&alone, &agent), Some(Reason::CrlMissing));
    let good = List::new(1).signed_by(&root);
    let beside = store(bundle, &[forged, good]).unwrap();
    assert_eq!(verdict(&beside, &agent), None);
    let is_warning = |warning: &String| warning.contains("another key of a CA with that name");
    assert!(beside.warnings().iter().any(is_warning));
}

#[test]
fn a_verdict_does_not_depend_on_the_size_of_the_crl() {
    let root = TestCa::root("root");
    let (good, bad) = (root.agent("web05", 5), root.agent("web06", 6));
    for count in [0, 1, 2, 1_000, 20_000] {
        let list = List::new(1).revoking_strangers(count).revoking(6);
        let store = trusting(&root, &[list.signed_by(&root)]);
        assert_eq!(store.status(now()).crls[0].entries, count as usize + 1);
        // The index contains only the serials, without separators.
        assert_eq!(store.index_bytes(), 20 * count as usize + 1);
        assert_eq!(verdict(&store, &good), None, "{count}");
        assert_eq!(verdict(&store, &bad), Some(Reason::Revoked), "{count}");
    }
}

fn trusting(root: &TestCa, lists: &[CertificateRevocationListDer<'_>]) -> TrustStore {
    store(std::slice::from_ref(&root.der), lists).unwrap()
}

const DELTA_CRL_INDICATOR: &[u8] = &[0x55, 0x1d, 27];
const ISSUING_DISTRIBUTION_POINT: &[u8] = &[0x55, 0x1d, 28];
const CERTIFICATE_ISSUER: &[u8] = &[0x55, 0x1d, 29];
