//! End-to-end tests: the built binary, real TLS, raw bytes at the far end.
