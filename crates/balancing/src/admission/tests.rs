//! The admission by examples, by properties and by threads.

mod order;
mod properties;
mod support;
mod waiting;
