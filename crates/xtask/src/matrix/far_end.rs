//! The far end, read as servers read it: what a request that arrived says of its client.

use testkit::Recorded;

use super::rows::Outcome;

/// What every forged value contains, and nothing else does.
pub(super) const MARK: &str = "forged";

/// The client was told as this agent, once, and nothing else was said of it.
pub(super) fn identified_as(requests: &[Recorded], certname: &str) -> Outcome {
    let [request] = requests else {
        let arrived: Vec<_> = requests.iter().map(summary).collect();
        return Outcome::Wrong(format!("not one request arrived but {arrived:?}"));
    };
    let (verdicts, names) = (
        values(request, "x-client-verify"),
        values(request, "x-client-dn"),
    );
    let forms = [format!("CN={certname}"), format!("/CN={certname}")];
    match (verdicts.as_slice(), names.as_slice()) {
        _ if request.raw_text().contains(MARK) => {
            Outcome::Wrong("a forged field arrived".to_owned())
        }
        ([verdict], [name]) if verdict == "SUCCESS" && forms.contains(name) => Outcome::Right,
        _ => Outcome::Wrong(format!("told as {verdicts:?} {names:?}")),
    }
}

/// Nobody was told of as verified, by nobody's reading.
pub(super) fn no_client_verified(requests: &[Recorded]) -> Outcome {
    for request in requests {
        let verdicts = values(request, "x-client-verify");
        if verdicts.iter().any(|verdict| verdict.contains("SUCCESS")) || verdicts.len() > 1 {
            let names = values(request, "x-client-dn");
            return Outcome::Wrong(format!("told as {verdicts:?} {names:?}"));
        }
        if request.raw_text().contains(MARK) {
            return Outcome::Wrong("a forged field arrived".to_owned());
        }
    }
    Outcome::Right
}

/// Nothing arrived at all.
pub(super) fn nothing(requests: &[Recorded]) -> Outcome {
    match requests {
        [] => Outcome::Right,
        [request, ..] => Outcome::Wrong(format!("{} arrived", summary(request))),
    }
}

fn summary(request: &Recorded) -> String {
    format!(
        "{} {} at {}",
        request.method, request.target, request.member
    )
}

/// Values of all fields that some server takes for this one: `_` and `.` are `-` to those with CGI's names.
fn values(request: &Recorded, wanted: &str) -> Vec<String> {
    let folded = |name: &str| name.to_ascii_lowercase().replace(['_', '.'], "-");
    let fields = request.headers.0.iter();
    fields
        .filter(|(name, _)| folded(name) == wanted)
        .map(|(_, value)| value.clone())
        .collect()
}
