//! Tests of `scrub`.
