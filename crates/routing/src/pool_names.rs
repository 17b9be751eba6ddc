//! Names of the pools that the built-in routes send requests to.

/// The CA server. Required while the built-in routes are on.
pub const CA: &str = "ca";
/// The compilers. Required while the built-in routes are on.
pub const COMPILERS: &str = "compilers";
/// The members that store filebucket files. Without this pool, the compilers store them.
pub const FILEBUCKET: &str = "filebucket";
/// The names of all these pools.
pub const ALL: [&str; 3] = [CA, COMPILERS, FILEBUCKET];
