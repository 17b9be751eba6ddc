node default { include lab }
