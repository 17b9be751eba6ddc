//! Tests of the path rule.

use proptest::prelude::*;

use super::{CanonicalPath, PathProblem, check_query, is_plain};

fn check(path: &str, expected: Result<(), PathProblem>) {
    assert_eq!(
        CanonicalPath::check(path).map(|path| path.as_str().len()),
        expected.map(|()| path.len()),
        "{path:?}"
    );
}

#[test]
fn what_agents_send_passes_untouched() {
    for path in [
        "/",
        "/puppet-ca/v1/certificate/ca",
        "/puppet-ca/v1/certificate/web01.example.com",
        "/puppet-ca/v1/certificate/",
        "/puppet/v3/catalog/web01",
        "/puppet/v3/file_bucket_file/sha256/0123abcd//etc/motd",
        "/puppet/v3/file_content/modules/a/file%20name%2B%C3%BC%E2%82%AC%F0%9F%98%80",
        "/puppet/v3/file_content/modules/a;b/c;d=e",
        "/puppet/v3/file_content/modules/..a/a../...",
        "/puppet/v3/file_content/modules/%2e%2e%2e",
        "/puppet/v3/file_content/modules/%252e%252e",
        "/puppet/v3/file_content//modules",
        "/puppet/v3/",
        "/a/b/",
        "/a~b!$&'()*+,=:@|^`{}[]<>\"",
    ] {
        check(path, Ok(()));
    }
}

#[test]
fn what_two_parsers_read_two_ways_is_refused_anywhere() {
    let prefix = "/puppet/v3/file_content/modules";
    for (tail, problem) in [
        ("/./x", PathProblem::DotSegment),
        ("/..", PathProblem::DotSegment),
        ("/../x", PathProblem::DotSegment),
        ("/%2e", PathProblem::DotSegment),
        ("/%2E%2e/x", PathProblem::DotSegment),
        ("/.%2e", PathProblem::DotSegment),
        ("/..;a=b/x", PathProblem::DotSegment),
        ("/.;", PathProblem::DotSegment),
        ("/%2e%2e%3bx/y", PathProblem::DotSegment),
        ("/a%2fb", PathProblem::ForbiddenEscape(b'/')),
        ("/a%2Fb", PathProblem::ForbiddenEscape(b'/')),
        ("/a%5cb", PathProblem::ForbiddenEscape(b'\\')),
        ("/a%00b", PathProblem::ForbiddenEscape(0)),
        ("/a%", PathProblem::BadEscape),
        ("/a%2", PathProblem::BadEscape),
        ("/a%zz", PathProblem::BadEscape),
        ("/a%2/b", PathProblem::BadEscape),
        ("/a%+1", PathProblem::BadEscape),
        ("/%C3", PathProblem::NotUtf8),
        ("/%C3x", PathProblem::NotUtf8),
        ("/%C3/%BC", PathProblem::NotUtf8),
        ("/%C3%", PathProblem::BadEscape),
        ("/%ff", PathProblem::NotUtf8),
        ("/%80", PathProblem::NotUtf8),
        ("/%c0%ae", PathProblem::NotUtf8),
        ("/%c0%af", PathProblem::NotUtf8),
        ("/%ed%a0%80", PathProblem::NotUtf8),
        ("/%f4%90%80%80", PathProblem::NotUtf8),
        ("/a\\b", PathProblem::Byte(b'\\')),
        ("/a b", PathProblem::Byte(b' ')),
        ("/a\tb", PathProblem::Byte(b'\t')),
        ("/a\0b", PathProblem::Byte(0)),
        ("/a\x7fb", PathProblem::Byte(0x7f)),
        ("/a#b", PathProblem::Byte(b'#')),
        ("/\u{fc}", PathProblem::Byte(0xc3)),
    ] {
        check(&format!("{prefix}{tail}"), Err(problem));
    }
}

#[test]
fn the_segments_that_name_endpoint_and_agent_are_plain() {
    for (path, problem) in [
        ("/%70uppet-ca/v1/sign", PathProblem::EscapedName),
        ("/puppet-ca/%761/sign", PathProblem::EscapedName),
        ("/puppet-ca/v1/sig%6e", PathProblem::EscapedName),
        ("/a/b/c%20d", PathProblem::EscapedName),
        ("/puppet-ca/v1/certificate/web%30", PathProblem::EscapedName),
        (
            "/puppet-ca/v1/certificate_request/web%30",
            PathProblem::EscapedName,
        ),
        (
            "/puppet-ca/v1/certificate_status/web%30",
            PathProblem::EscapedName,
        ),
        ("/puppet/v3/catalog/web%30", PathProblem::EscapedName),
        ("/puppet/v3/node/web%30", PathProblem::EscapedName),
        ("/puppet/v3/facts/web%30", PathProblem::EscapedName),
        ("/puppet/v3/report/web%30", PathProblem::EscapedName),
        ("/puppet-ca;x/v1/sign", PathProblem::Parameters),
        ("/puppet-ca/v1;/sign", PathProblem::Parameters),
        ("/puppet-ca/v1/sign;x=1", PathProblem::Parameters),
        ("/;x", PathProblem::Parameters),
        ("/puppet/v3/catalog/web01;x", PathProblem::Parameters),
        ("//puppet-ca/v1/sign", PathProblem::EmptySegment),
        ("/puppet-ca//v1/sign", PathProblem::EmptySegment),
        ("/puppet-ca/v1//sign", PathProblem::EmptySegment),
        ("//", PathProblem::EmptySegment),
        ("/puppet/v3/catalog//web01", PathProblem::EmptySegment),
        ("/puppet-ca/v1/certificate//", PathProblem::EmptySegment),
        ("*", PathProblem::NotAbsolute),
        ("", PathProblem::NotAbsolute),
        ("puppet", PathProblem::NotAbsolute),
    ] {
        check(path, Err(problem));
    }
}

#[test]
fn problems_are_sentences() {
    let problem = CanonicalPath::check("/a%2fb/c/d/e").expect_err("a name with an escape");
    assert!(problem.to_string().ends_with('.') && problem.to_string().is_ascii());
    assert_eq!(problem.as_str(), "path-escaped-name");
}

#[test]
fn a_query_is_left_alone_but_for_what_no_target_may_hold() {
    for query in [
        "",
        "environment=production",
        "ignore=.svn&ignore=CVS&x=%zz%2f..//;?\\",
    ] {
        assert_eq!(check_query(query), Ok(()), "{query}");
    }
    for (query, byte) in [
        ("a b", b' '),
        ("a\tb", b'\t'),
        ("a\0", 0),
        ("a#b", b'#'),
        ("\u{fc}", 0xc3),
        ("\x7f", 0x7f),
    ] {
        assert_eq!(
            check_query(query),
            Err(PathProblem::QueryByte(byte)),
            "{query}"
        );
    }
}

proptest! {
    /// No accepted path has a dot segment or a hidden slash for a server that decodes escapes and removes parameters.
    #[test]
    fn no_dot_segment_hides_from_a_decoding_reader(path in "(/([a-z.;%/\\\\]|%2e|%2f|%3b|%c3|%bc|%5c|\\.\\.){0,5}){1,7}") {
        if let Ok(path) = CanonicalPath::check(&path) {
            for segment in path.as_str().split('/') {
                let bytes: Vec<u8> = percent_encoding::percent_decode_str(segment).collect();
                let text = String::from_utf8(bytes).expect("UTF-8");
                let cut = text.split(';').next().unwrap_or_default();
                prop_assert!(cut != "." && cut != ".." && !text.contains(['/', '\\', '\0']), "{}", path.as_str());
            }
        }
    }

    /// The fast check accepts no path that the complete rule refuses.
    #[test]
    fn what_is_plain_passes_the_rule(path in "(/?[a-z.;%/\\\\#?\u{1}\u{e9}-]{0,6}){1,5}") {
        if is_plain(path.as_bytes()) {
            prop_assert_eq!(CanonicalPath::check_thoroughly(&path), Ok(CanonicalPath(&path)));
        }
    }

    #[test]
    fn no_text_panics(path in "\\PC{0,40}") {
        let _ = CanonicalPath::check(&path);
        let _ = CanonicalPath::check(&format!("/{path}"));
    }
}

#[test]
fn a_target_is_checked_by_its_path_then_by_its_query() {
    let checked = |path, query| CanonicalPath::of_target(path, query).map(|path| path.as_str());
    assert_eq!(checked("/a", None), Ok("/a"));
    assert_eq!(checked("/a", Some("b=%zz")), Ok("/a"));
    assert_eq!(
        checked("/a", Some("b c")),
        Err(PathProblem::QueryByte(b' '))
    );
    assert_eq!(checked("/..", Some("b c")), Err(PathProblem::DotSegment));
}

#[test]
fn every_problem_has_a_name_and_a_sentence() {
    for (problem, name) in [
        (PathProblem::NotAbsolute, "path-not-absolute"),
        (PathProblem::Byte(9), "path-byte"),
        (PathProblem::QueryByte(9), "query-byte"),
        (PathProblem::DotSegment, "path-dot-segment"),
        (PathProblem::BadEscape, "path-bad-escape"),
        (PathProblem::ForbiddenEscape(0), "path-forbidden-escape"),
        (PathProblem::NotUtf8, "path-not-utf8"),
        (PathProblem::EscapedName, "path-escaped-name"),
        (PathProblem::Parameters, "path-parameters"),
        (PathProblem::EmptySegment, "path-empty-segment"),
    ] {
        assert_eq!(problem.as_str(), name);
        assert!(problem.to_string().ends_with('.'), "{problem}");
    }
}

/// The fast check gives the same results as the complete rule, and accepts the paths that agents send.
#[test]
fn what_agents_send_is_plain_at_a_look() {
    for path in [
        "/",
        "/puppet/v3/catalog/web01.example.com",
        "/puppet-ca/v1/certificate_revocation_list/ca",
        "/puppet/v3/file_content/modules/a/b.c..d",
        "/a/b/",
    ] {
        assert!(is_plain(path.as_bytes()), "{path}");
    }
    for path in [
        "", "a", "//", "/a//b", "/.a", "/a/.b", "/a%20", "/a;b", "/a\\b", "/a b", "/a#",
    ] {
        assert!(!is_plain(path.as_bytes()), "{path}");
    }
}
