//! Conditional changes: entity tags of what can be changed, and `If-Match` (RFC 9110, section 13.1.1).

use std::hash::{DefaultHasher, Hash, Hasher};

use axum::{
    extract::FromRequestParts,
    http::{HeaderValue, StatusCode, header, request::Parts},
    response::{IntoResponse, Response},
};
use serde::Serialize;

use super::messages::{ApiError, Pretty, problem};
use crate::LastChange;

/// Maximum number of entity tags in `If-Match`.
const TAGS_MAX: usize = 16;

/// The tag of a state: equal states have equal tags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EntityTag {
    tag: String,
    /// The last change of the state, if it is known.
    last_change: Option<String>,
}

impl EntityTag {
    /// The tag of a state, which is computed from its JSON.
    pub(crate) fn of(state: &impl Serialize) -> Self {
        let mut hasher = DefaultHasher::new();
        serde_json::to_string(state)
            .unwrap_or_default()
            .hash(&mut hasher);
        Self {
            tag: format!("\"{:016x}\"", hasher.finish()),
            last_change: None,
        }
    }

    /// The same for a state that the proxies of a fleet share. Each change results in another tag, even if it leaves the
    /// state as it was or has no effect on this proxy.
    pub(crate) fn of_shared(state: &impl Serialize, last_change: Option<LastChange>) -> Self {
        Self {
            tag: Self::of(&(state, &last_change)).tag,
            last_change: last_change.map(|change| change.text),
        }
    }
}

/// A response with the entity tag of the state that it shows.
pub(crate) struct Tagged<T>(pub(crate) EntityTag, pub(crate) T);

impl<T: Serialize> IntoResponse for Tagged<T> {
    fn into_response(self) -> Response {
        let mut response = Pretty(StatusCode::OK, self.1).into_response();
        if let Ok(tag) = HeaderValue::from_str(&self.0.tag) {
            response.headers_mut().insert(header::ETAG, tag);
        }
        response
    }
}

/// The condition of a change: none, or one of these tags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Condition(Option<Vec<String>>);

impl Condition {
    /// Whether the request has a condition.
    pub(crate) fn is_given(&self) -> bool {
        self.0.is_some()
    }

    /// Refuses the change if the state is no longer the one that the client has seen.
    pub(crate) fn check(&self, current: &EntityTag) -> Result<(), ApiError> {
        match &self.0 {
            Some(tags) if !tags.iter().any(|tag| tag == "*" || *tag == current.tag) => {
                let last = current.last_change.as_ref();
                let last = last.map(|text| format!(" (last change: {text})"));
                let last = last.unwrap_or_default();
                let changed = format!(
                    "the state has changed since it was read{last}, so nothing was done; read it again, and repeat the \
                     change with its new ETag if it is still wanted"
                );
                Err(problem(StatusCode::PRECONDITION_FAILED, changed))
            }
            _ => Ok(()),
        }
    }

    /// Refuses a condition where no state has a tag.
    pub(crate) fn check_without_tag(&self) -> Result<(), ApiError> {
        match &self.0 {
            None => Ok(()),
            Some(_) => {
                let without = "this endpoint has no entity tag: send the request without If-Match";
                Err(problem(StatusCode::PRECONDITION_FAILED, without))
            }
        }
    }
}

impl<S: Sync> FromRequestParts<S> for Condition {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let fields: Vec<_> = parts.headers.get_all(header::IF_MATCH).iter().collect();
        if fields.is_empty() {
            return Ok(Self(None));
        }
        let mut tags = Vec::new();
        for field in fields {
            let text = field.to_str().unwrap_or_default();
            tags.extend(text.split(',').map(|tag| tag.trim().to_owned()));
        }
        match tags.len() {
            ..=TAGS_MAX => Ok(Self(Some(tags))),
            _ => {
                let many = format!("If-Match has more than {TAGS_MAX} entity tags");
                Err(problem(StatusCode::BAD_REQUEST, many))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_happens_only_if_a_tag_matches() {
        let current = EntityTag::of(&["web01"]);
        assert_ne!(current, EntityTag::of(&["web02"]));
        let condition =
            |tags: &[&str]| Condition(Some(tags.iter().map(ToString::to_string).collect()));
        for (condition, holds) in [
            (Condition(None), true),
            (condition(&["*"]), true),
            (condition(&["\"0\"", &current.tag]), true),
            (condition(&["\"0\""]), false),
            (condition(&[&format!("W/{}", current.tag)]), false),
            (condition(&[""]), false),
        ] {
            assert_eq!(condition.check(&current).is_ok(), holds, "{condition:?}");
        }
        // The same list after another change, by an operator who must be asked.
        let change = LastChange {
            at: 5,
            version: "5-p1".to_owned(),
            text: "uid 0 on p1 blocked certname web02 at noon".to_owned(),
        };
        let changed = EntityTag::of_shared(&["web01"], Some(change.clone()));
        let other = LastChange {
            version: "6-p2".to_owned(),
            ..change
        };
        assert_ne!(changed, EntityTag::of_shared(&["web01"], Some(other)));
        let refused = condition(&[&current.tag]).check(&changed);
        let detail = format!("{:?}", refused.expect_err("another tag"));
        assert!(
            detail.contains("(last change: uid 0 on p1 blocked"),
            "{detail}"
        );
        assert!(Condition(None).check_without_tag().is_ok());
        assert!(condition(&["*"]).check_without_tag().is_err());
    }
}
