//! Bodies of the admin API: JSON in both directions, and problem details (RFC 9457) for errors.

use std::time::Duration;

use axum::{
    body::Body,
    extract::{FromRequest, Request},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tokio::time::timeout;
use utoipa::{IntoResponses, ToSchema};

/// Time allowed for a request body.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// Content type of problem details.
const PROBLEM_JSON: &str = "application/problem+json";

/// Why a request was refused: problem details (RFC 9457).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Problem {
    /// Always `about:blank`: the status code says which kind of problem it is.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// The meaning of the status code.
    pub(crate) title: String,
    /// The status code.
    pub(crate) status: u16,
    /// What is wrong, and what to do.
    pub(crate) detail: String,
}

/// Every endpoint can answer with a problem.
impl IntoResponses for Problem {
    fn responses() -> std::collections::BTreeMap<
        String,
        utoipa::openapi::RefOr<utoipa::openapi::response::Response>,
    > {
        let content = utoipa::openapi::ContentBuilder::new()
            .schema(Some(utoipa::openapi::Ref::from_schema_name("Problem")))
            .build();
        let response = utoipa::openapi::ResponseBuilder::new()
            .description("The request was refused")
            .content(PROBLEM_JSON, content)
            .build();
        [("default".to_owned(), response.into())].into()
    }
}

/// A refusal that explains in `detail` what is wrong.
pub(crate) fn problem(status: StatusCode, detail: impl Into<String>) -> ApiError {
    let detail = detail.into();
    ApiError { status, detail }
}

/// A refusal, answered as [`Problem`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApiError {
    status: StatusCode,
    detail: String,
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let problem = Problem {
            kind: "about:blank".to_owned(),
            title: self.status.canonical_reason().unwrap_or("Error").to_owned(),
            status: self.status.as_u16(),
            detail: self.detail,
        };
        let mut response = Pretty(self.status, problem).into_response();
        let content_type = header::HeaderValue::from_static(PROBLEM_JSON);
        response
            .headers_mut()
            .insert(header::CONTENT_TYPE, content_type);
        response
    }
}

/// A response in JSON. It is indented, because the reader is often a person with curl.
pub(crate) struct Pretty<T>(pub(crate) StatusCode, pub(crate) T);

impl<T: Serialize> IntoResponse for Pretty<T> {
    fn into_response(self) -> Response {
        match serde_json::to_string_pretty(&self.1) {
            Ok(text) => {
                let content_type = [(header::CONTENT_TYPE, "application/json")];
                (self.0, content_type, text + "\n").into_response()
            }
            Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
        }
    }
}

/// A JSON request body of at most `BYTES_MAX` bytes.
pub(crate) struct Document<T, const BYTES_MAX: usize>(pub(crate) T);

/// Maximum length of most request bodies: a block with its reason and the longest name has under 2 KiB.
pub(crate) const BODY_BYTES_MAX: usize = 4 << 10;
/// Maximum length of a body with a certificate and the CAs above it.
pub(crate) const CERTIFICATES_BYTES_MAX: usize = 64 << 10;

impl<S: Sync, T: DeserializeOwned + Describe, const BYTES_MAX: usize> FromRequest<S>
    for Document<T, BYTES_MAX>
{
    type Rejection = ApiError;

    async fn from_request(request: Request<Body>, _: &S) -> Result<Self, ApiError> {
        let body = Limited::new(request.into_body(), BYTES_MAX).collect();
        let body = match timeout(BODY_TIMEOUT, body).await {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(error)) if error.is::<LengthLimitError>() => {
                return Err(problem(StatusCode::PAYLOAD_TOO_LARGE, T::FORM));
            }
            Ok(Err(_)) => return Err(problem(StatusCode::BAD_REQUEST, T::FORM)),
            Err(_) => {
                let late = "the request body did not arrive in time";
                return Err(problem(StatusCode::REQUEST_TIMEOUT, late));
            }
        };
        // Parsed as an object first, because serde would also accept an array with the fields in their order.
        let object = serde_json::from_slice::<serde_json::Map<_, _>>(&body);
        match object.and_then(|object| serde_json::from_value(object.into())) {
            Ok(document) => Ok(Self(document)),
            Err(error) => {
                let form = T::FORM;
                Err(problem(StatusCode::BAD_REQUEST, format!("{form}: {error}")))
            }
        }
    }
}

/// A body whose form an error message can explain.
pub(crate) trait Describe {
    /// One sentence.
    const FORM: &str;
}
