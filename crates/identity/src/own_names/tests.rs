//! Tests of the configured names that scrubbing must know.

use super::*;

fn form(dn: &[&str]) -> HeaderForm {
    let parsed = dn.iter().map(|name| IdentityName::parse(name).expect(name));
    HeaderForm {
        dn: parsed.collect(),
        ..HeaderForm::default()
    }
}

#[test]
fn names_of_the_default_form_do_not_count_as_renamed() {
    let own = OwnNames::of([&HeaderForm::default()]);
    assert_eq!(own.renamed().count(), 0);
    assert!(
        !own.holds(b"x-client-dn"),
        "scrub knows it without the configuration"
    );
}

#[test]
fn only_names_that_scrubbing_does_not_know_are_stored_for_it() {
    let own = OwnNames::of([&form(&["X-SSL-Subject", "Site-Agent"])]);
    assert!(own.holds(b"site_agent") && !own.holds(b"x-ssl-subject"));
    assert_eq!(own.renamed().count(), 2, "responses lose both");
}

#[test]
fn a_name_that_several_pools_use_counts_once_whatever_its_case() {
    let own = OwnNames::of([&form(&["X-A", "X-B"]), &form(&["x-B"])]);
    let renamed: Vec<_> = own.renamed().map(HeaderName::as_str).collect();
    assert_eq!(renamed, ["x-a", "x-b"]);
    assert!(own.holds(b"X_A") && own.holds(b"x.b") && !own.holds(b"x-c"));
}
