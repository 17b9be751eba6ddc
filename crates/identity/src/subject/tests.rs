//! Tests of `subject`.
