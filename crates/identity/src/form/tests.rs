//! Tests of the forms of the identity headers.

use super::*;

#[test]
fn formats_and_roles_are_displayed_as_the_configuration_spells_them() {
    let formats = [DnFormat::Rfc2253, DnFormat::OpenSsl, DnFormat::CnLast];
    assert_eq!(
        formats.map(|format| format.to_string()),
        ["rfc2253", "openssl", "cn-last"]
    );
    let roles = [HeaderRole::Verify, HeaderRole::Dn, HeaderRole::Cert];
    assert_eq!(
        roles.map(|role| role.to_string()),
        ["the verdict", "the subject", "the certificate"]
    );
    let name = IdentityName::parse("X-Agent-Name").expect("a name");
    assert_eq!(
        (name.to_string().as_str(), name.as_str()),
        ("X-Agent-Name", "x-agent-name")
    );
    let usual =
        [CertFormat::Escaped, CertFormat::OneLine].map(|format| format.usual_name().to_string());
    assert_eq!(usual, ["X-Client-Cert", "X-SSL-Client-Cert"]);
}

#[test]
fn a_set_of_formats_contains_its_formats_and_rfc_2253() {
    let set = |formats: &[DnFormat]| formats.iter().copied().collect::<DnFormats>();
    for (formats, openssl, cn_last) in [
        (&[][..], false, false),
        (&[DnFormat::Rfc2253], false, false),
        (&[DnFormat::OpenSsl, DnFormat::Rfc2253], true, false),
        (&[DnFormat::CnLast, DnFormat::Rfc2253], false, true),
        (&[DnFormat::CnLast, DnFormat::OpenSsl], true, true),
    ] {
        let set = set(formats);
        assert!(set.contains(DnFormat::Rfc2253));
        assert_eq!(set.contains(DnFormat::OpenSsl), openssl, "{formats:?}");
        assert_eq!(set.contains(DnFormat::CnLast), cn_last, "{formats:?}");
    }
}

#[test]
fn a_form_lists_each_header_with_its_role() {
    let form = HeaderForm {
        dn: ["X-A", "X-B"]
            .map(|name| IdentityName::parse(name).expect(name))
            .to_vec(),
        ..HeaderForm::default()
    };
    let names: Vec<_> = form
        .names()
        .map(|(name, role)| (name.as_str(), role))
        .collect();
    assert_eq!(
        names,
        [
            ("x-client-verify", HeaderRole::Verify),
            ("x-client-cert", HeaderRole::Cert),
            ("x-a", HeaderRole::Dn),
            ("x-b", HeaderRole::Dn),
        ]
    );
}
