//! A simulated Puppet estate, to see what `balancing` does to it and how other balancers would do.
//!
//! [`world::simulate`] runs a [`Scenario`](scenario::Scenario) against a [`Balancer`](balancer::Balancer) in virtual
//! time. [`proscenium::Proscenium`] is the code that the proxy runs; [`haproxy::Haproxy`] does what HAProxy does with the settings of
//! `bench/simulate`. Agents and compilers behave the same in every column, by the seed.

pub mod balancer;
pub mod column;
pub mod compiler;
pub mod fleet;
pub mod goals;
pub mod haproxy;
pub mod outcome;
pub mod proscenium;
pub mod random;
pub mod report;
pub mod rolling;
pub mod scenario;
pub mod several;
pub mod time;
pub mod world;
