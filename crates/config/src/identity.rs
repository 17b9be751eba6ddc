//! `[identity]` and `[pools.NAME.identity]`.

use std::{collections::HashMap, ops::Range};

use ::identity::{
    CertFormat, DnFormat, HeaderForm, HeaderRole, IdentityName, OwnNames, is_removed,
    settings::{Settings, SubjectRule},
};

use crate::{report::Problem, section::Section};

/// What concerns every client: the rule, and the formats that some pool's servers are told its subject in.
pub(crate) fn settings(root: &Section<'_>) -> Settings {
    Settings {
        subject: match root.table("identity").text("subject").as_deref() {
            Some("single-cn") => SubjectRule::SingleCn,
            _ => SubjectRule::Puppet,
        },
        dn_formats: forms(root).iter().map(|form| form.dn_format).collect(),
    }
}

/// The form of the trusted headers where a pool says nothing.
pub(crate) fn form(root: &Section<'_>) -> HeaderForm {
    let section = root.table("identity");
    merged(&section, &section)
}

/// The form of a pool: what it does not say is said by `[identity]`.
pub(crate) fn pool_form(pool: &Section<'_>, above: &Section<'_>) -> HeaderForm {
    merged(pool, above)
}

/// Reports names that would tell two things, and pairs that no server reads.
pub(crate) fn check(root: &Section<'_>, problems: &mut Vec<Problem>) {
    let mut roles = HashMap::new();
    for section in sections(root) {
        names_of_the_subject(&section, problems);
        for (name, role, span, key) in names(&section) {
            let known = name.known_role().unwrap_or(role);
            let first = *roles.entry(name.as_str().to_owned()).or_insert(known);
            if first != role {
                let problem = Problem::error(
                    section.key_path(key),
                    format!("{name} already tells {first}"),
                );
                let problem = problem.expected(format!(
                    "a name for {role} that tells nothing else, in any pool"
                ));
                problems.push(section.place(problem, Some(span)));
            }
        }
        certificate(&section, &root.table("identity"), problems);
    }
    conditions(root, problems);
}

fn sections<'d>(root: &Section<'d>) -> Vec<Section<'d>> {
    let pools = root.named("pools").into_iter();
    std::iter::once(root.table("identity"))
        .chain(pools.map(|(_, pool)| pool.table("identity")))
        .collect()
}

fn forms(root: &Section<'_>) -> Vec<HeaderForm> {
    let above = root.table("identity");
    let sections = sections(root);
    sections
        .iter()
        .map(|section| merged(section, &above))
        .collect()
}

fn merged(section: &Section<'_>, above: &Section<'_>) -> HeaderForm {
    let said = |key: &str| if section.is_set(key) { section } else { above };
    let cert_format = match said("cert_format").text("cert_format").as_deref() {
        Some("one-line") => CertFormat::OneLine,
        _ => CertFormat::Escaped,
    };
    let name = |key: &str| IdentityName::parse(&said(key).text(key)?).ok();
    let usual = HeaderForm::default();
    let dn: Vec<_> = names_of(said("dn_header"), "dn_header")
        .map(|(name, _)| name)
        .collect();
    HeaderForm {
        verify: name("verify_header").unwrap_or(usual.verify),
        dn: if dn.is_empty() { usual.dn } else { dn },
        dn_format: match said("dn_format").text("dn_format").as_deref() {
            Some("openssl") => DnFormat::OpenSsl,
            Some("cn-last") => DnFormat::CnLast,
            _ => DnFormat::Rfc2253,
        },
        cert: name("cert_header").unwrap_or_else(|| cert_format.usual_name()),
        cert_format,
    }
}

/// Names that the file gives, right ones only: the others have been reported.
fn names_of(
    section: &Section<'_>,
    key: &str,
) -> impl Iterator<Item = (IdentityName, Range<usize>)> {
    let texts = section.spanned_texts(key).into_iter();
    texts.filter_map(|(text, span)| Some((IdentityName::parse(&text).ok()?, span)))
}

fn names(section: &Section<'_>) -> Vec<(IdentityName, HeaderRole, Range<usize>, &'static str)> {
    let keys = [
        ("verify_header", HeaderRole::Verify),
        ("dn_header", HeaderRole::Dn),
        ("cert_header", HeaderRole::Cert),
    ];
    keys.into_iter()
        .flat_map(|(key, role)| {
            names_of(section, key).map(move |(name, span)| (name, role, span, key))
        })
        .collect()
}

fn names_of_the_subject(section: &Section<'_>, problems: &mut Vec<Problem>) {
    let expected = format!(
        "a name, or a list of 1 to {} names",
        HeaderForm::DN_NAMES_MAX
    );
    let given = section.spanned_texts("dn_header");
    if section.is_empty_list("dn_header") || given.len() > HeaderForm::DN_NAMES_MAX {
        let message = format!("{} names", given.len());
        problems.push(section.error("dn_header", message).expected(expected));
    }
    for (index, (text, span)) in given.iter().enumerate() {
        if given[..index]
            .iter()
            .any(|(other, _)| other.eq_ignore_ascii_case(text))
        {
            let problem = Problem::error(
                section.key_path("dn_header"),
                format!("\"{text}\" stands here twice"),
            );
            problems.push(section.place(problem, Some(span.clone())));
        }
    }
}

/// Puppet reads each encoding under one name, and takes the other for a broken certificate.
fn certificate(section: &Section<'_>, above: &Section<'_>, problems: &mut Vec<Problem>) {
    let form = merged(section, above);
    let Some(key) = ["cert_header", "cert_format"]
        .into_iter()
        .find(|key| section.is_set(key))
    else {
        return;
    };
    let others = match form.cert_format {
        CertFormat::Escaped => CertFormat::OneLine,
        CertFormat::OneLine => CertFormat::Escaped,
    };
    if form.cert.as_str() == others.usual_name().as_str() {
        let message = format!("Puppet reads {} in the other cert_format", form.cert);
        let problem = section.error(key, message);
        problems.push(problem.expected(format!("{} for this one", form.cert_format.usual_name())));
    }
}

/// A condition on a header that is removed from every request would never hold.
fn conditions(root: &Section<'_>, problems: &mut Vec<Problem>) {
    let own = OwnNames::of(&forms(root));
    for route in root.tables("routes") {
        for (name, _) in route.pairs("header") {
            if is_removed(&name, &own) && !is_removed(&name, &OwnNames::default()) {
                let message =
                    format!("{name} tells who the client is, and is removed from every request");
                problems.push(route.error("header", message));
            }
        }
    }
}
