//! Tests of the admission with examples, properties and threads.

mod order;
mod properties;
mod support;
mod waiting;
