//! Tests of `endpoint`.
