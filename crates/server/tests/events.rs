//! Files of events: what is taken, and how a bad line is told before anything is recorded.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use postrider_server::dev::events::{BadLine, read};

const GOOD: &str = r#"{"type": "order.paid", "subject": "order/42", "data": {"total": 1.50}}"#;

fn refused(text: impl AsRef<[u8]>) -> BadLine {
    read(text.as_ref()).expect_err("it is refused")
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text).expect("it is packed");
    encoder.finish().expect("it is packed")
}

#[test]
fn the_bytes_of_data_are_kept_as_they_stand_in_the_line() {
    let data = r#"{ "b":1.0,"a" : 12345678901234567890123, "b": 1e2, "t": "\u00e4\/" }"#;
    let line = format!(r#"{{"data":{data},"subject":"s","type":"a.b"}}"#);
    let lines = read(line.as_bytes()).expect("a good line");
    assert_eq!(lines[0].data.as_str(), data);
    assert_eq!((lines[0].r#type.as_str(), lines[0].subject.as_str()), ("a.b", "s"));
}

#[test]
fn gzip_is_told_by_its_first_bytes_also_in_several_members() {
    let text = format!("{GOOD}\n{GOOD}\n");
    let plain = read(text.as_bytes()).expect("plain");
    assert_eq!(plain.len(), 2);
    assert_eq!(read(gzip(text.as_bytes()).as_slice()).expect("gzip"), plain);
    let members = [gzip(GOOD.as_bytes()), gzip(format!("\n{GOOD}").as_bytes())].concat();
    assert_eq!(read(members.as_slice()).expect("two members"), plain);
}

#[test]
fn blank_lines_and_line_ends_of_other_systems_are_no_events() {
    assert_eq!(read(format!("\n{GOOD}\r\n \n{GOOD}").as_bytes()).expect("two events").len(), 2);
}

#[test]
fn a_bad_line_is_told_by_its_number_and_its_field() {
    for (bad, field) in [
        (r#"{"subject": "s", "data": {}}"#, "type"),
        (r#"{"type": 7, "subject": "s", "data": {}}"#, "type"),
        (r#"{"type": "Order.Paid", "subject": "s", "data": {}}"#, "type"),
        (r#"{"type": "webhook.mine", "subject": "s", "data": {}}"#, "type"),
        (r#"{"type": "a", "data": {}}"#, "subject"),
        (r#"{"type": "a", "subject": "", "data": {}}"#, "subject"),
        (r#"{"type": "a", "subject": null, "data": {}}"#, "subject"),
        (r#"{"type": "a", "subject": "a\u0007", "data": {}}"#, "subject"),
        (r#"{"type": "a", "subject": "s"}"#, "data"),
        (r#"{"type": "a", "subject": "s", "data": "\u0000"}"#, "data"),
        (r#"{"type": "a", "subject": "s", "data": 1e99999}"#, "data"),
    ] {
        let error = refused(format!("{GOOD}\n\n{bad}\n"));
        assert_eq!((error.line, error.field), (3, Some(field)), "{bad}: {error}");
        assert!(error.to_string().starts_with(&format!("line 3: {field}: ")), "{error}");
    }
    for (bad, says) in [
        ("{", "not an object"),
        ("[]", "not an object"),
        (r#"{"type": "a", "subject": "s", "data": {}} {}"#, "trailing"),
        (r#"{"type": "a", "type": "b", "subject": "s", "data": {}}"#, "duplicate field `type`"),
        (r#"{"type": "a", "subject": "s", "data": {}, "owner": "o"}"#, "unknown field `owner`"),
    ] {
        let error = refused(format!("{GOOD}\n{bad}"));
        assert_eq!(error.line, 2);
        assert!(error.to_string().contains(says), "{bad}: {error}");
    }
    let error = refused([GOOD.as_bytes(), b"\n{\"type\": \"\xff\"}"].concat());
    assert!(error.line == 2 && error.to_string().contains("UTF-8"), "{error}");
}

#[test]
fn a_file_without_events_a_torn_archive_and_an_endless_line_are_told() {
    assert!(refused("").to_string().contains("no events"));
    assert!(refused(" \n\n").to_string().contains("no events"));
    let archive = gzip(format!("{GOOD}\n").repeat(1_000).as_bytes());
    let error = refused(&archive[..archive.len() / 2]);
    assert!(error.to_string().contains("cannot be read"), "{error}");
    let error = refused(format!("{GOOD}\n{}", " ".repeat(300_000)));
    assert!(error.line == 2 && error.to_string().contains("longer than"), "{error}");
}

#[test]
fn a_large_payload_is_refused_by_its_field_and_the_largest_is_taken() {
    let line = |bytes: usize| format!(r#"{{"type":"a","subject":"s","data":"{}"}}"#, "a".repeat(bytes - 2));
    assert_eq!(read(line(262_144).as_bytes()).expect("the largest").len(), 1);
    let error = refused(line(262_145));
    assert_eq!(error.field, Some("data"));
}
