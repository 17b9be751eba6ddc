//! The commands of this crate, as a developer runs them.

mod demo;
mod herd;
mod matrix;
mod soak;
mod tutorial;
