//! The route for each request: every row of the built-in table for every kind of client, and configured routes in addition.

mod builtin;
mod classes;
mod conditions;
mod decisions;
mod legacy;
mod problems;
mod support;
