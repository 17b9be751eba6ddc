//! Which CAs of a bundle belong to separate estates, so that each can issue a certificate for a name in the other estate.

use rcgen::KeyPair;

use crate::support::{TestCa, ca_params, now, store_with, unchecked};

/// The roots of separate estates in the bundle, and whether `one` and `two` are separate.
fn separate(bundle: &[&TestCa], one: &str, two: &str) -> (Vec<String>, bool) {
    let bundle: Vec<_> = bundle.iter().map(|ca| ca.der.clone()).collect();
    let store = store_with(&bundle, &[], &unchecked(&["*"]), None).unwrap();
    let roots = store.separate_roots(now());
    let roots = roots.into_iter().map(str::to_owned).collect();
    (roots, store.are_separate(one, two))
}

#[test]
fn cas_are_separate_unless_they_sign_each_other_or_share_a_key() {
    let key = KeyPair::generate().unwrap();
    let again = || KeyPair::from_pem(&key.serialize_pem()).unwrap();
    let (one, two) = (TestCa::root("one"), TestCa::root("two"));
    let new = TestCa::root_with(ca_params("two"), again());
    let cross = one.intermediate_with(ca_params("two"), again(), 7);
    let renamed = TestCa::root_with(ca_params("one"), again());
    let namesake = TestCa::root("one");
    let below = |ca: &TestCa, name: &str| {
        ca.intermediate_with(ca_params(name), KeyPair::generate().unwrap(), 8)
    };
    let (sub, other) = (below(&one, "sub"), below(&one, "other"));
    let of_two = below(&two, "sub2");
    let apart = vec!["CN=one".to_owned(), "CN=two".to_owned()];
    for (what, bundle, roots, is_separate) in [
        ("two roots", &[&one, &two][..], apart.clone(), true),
        ("one root", &[&one, &sub], vec![], false),
        (
            "a root and an estate below",
            &[&one, &sub, &two, &of_two],
            apart.clone(),
            true,
        ),
        (
            "a rotation with a cross certificate",
            &[&one, &new, &cross],
            vec![],
            false,
        ),
        ("a rotation without it", &[&one, &new], apart, true),
        (
            "a new name for the same key",
            &[&renamed, &new],
            vec![],
            false,
        ),
        (
            "the same name with another key",
            &[&one, &namesake],
            vec!["CN=one".to_owned(); 2],
            false,
        ),
        (
            "two intermediates of a root that is not there",
            &[&sub, &other],
            vec![],
            false,
        ),
        (
            "intermediates of two roots that are not there",
            &[&sub, &of_two],
            vec!["CN=sub".to_owned(), "CN=sub2".to_owned()],
            false,
        ),
    ] {
        let found = separate(bundle, "CN=one", "CN=two");
        assert_eq!(found, (roots, is_separate), "{what}");
    }
    assert!(separate(&[&one, &sub, &two, &of_two], "CN=sub", "CN=sub2").1);
    assert!(!separate(&[&one, &sub, &other], "CN=sub", "CN=other").1);
    assert!(!separate(&[&one, &two], "CN=one", "CN=unknown").1);
}
