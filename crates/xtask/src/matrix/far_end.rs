//! The far end: reads the client's identity from the requests that arrived, as servers read it.

use testkit::Recorded;

use super::rows::Outcome;

/// Every forged value contains this text, and no genuine value does.
pub(super) const MARK: &str = "forged";

/// Asserts that one request has arrived, with this agent's identity and no other.
pub(super) fn identified_as(requests: &[Recorded], certname: &str) -> Outcome {
    let [request] = requests else {
        let arrived: Vec<_> = requests.iter().map(summary).collect();
        return Outcome::Wrong(format!("expected one request, seen {arrived:?}"));
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
        _ => Outcome::Wrong(format!("the identity was {verdicts:?} {names:?}")),
    }
}

/// Asserts that no request carries a verified identity, whichever way a server reads its headers.
pub(super) fn no_client_verified(requests: &[Recorded]) -> Outcome {
    for request in requests {
        let verdicts = values(request, "x-client-verify");
        if verdicts.iter().any(|verdict| verdict.contains("SUCCESS")) || verdicts.len() > 1 {
            let names = values(request, "x-client-dn");
            return Outcome::Wrong(format!("the identity was {verdicts:?} {names:?}"));
        }
        if request.raw_text().contains(MARK) {
            return Outcome::Wrong("a forged field arrived".to_owned());
        }
    }
    Outcome::Right
}

/// Asserts that no request has arrived.
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

/// The values of every field that a server could treat as the field `wanted`. CGI-style servers treat `_` and `.` in a name
/// like `-`.
fn values(request: &Recorded, wanted: &str) -> Vec<String> {
    let folded = |name: &str| name.to_ascii_lowercase().replace(['_', '.'], "-");
    let fields = request.headers.0.iter();
    fields
        .filter(|(name, _)| folded(name) == wanted)
        .map(|(_, value)| value.clone())
        .collect()
}
