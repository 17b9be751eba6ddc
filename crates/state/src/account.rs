//! The account of this process.

/// The name of the account, for commands in reports.
pub fn user() -> String {
    let uid = rustix::process::geteuid().as_raw().to_string();
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let mut accounts = passwd
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>());
    accounts
        .find(|fields| fields.get(2) == Some(&uid.as_str()))
        .map_or_else(|| uid.clone(), |fields| fields[0].to_owned())
}
