//! D6, C31: when a cron expression is due around changes of the clock. The instants were worked out by hand from the published rules of each zone.
#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::time::Duration;

use postrider::{Timestamp, When, next_runs};

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// The due times after a moment, to the minute.
fn due(cron: &str, zone: &str, after: &str, most: usize) -> Vec<String> {
    let runs = next_runs(&When::Cron(cron.to_owned()), zone, at(after), most).unwrap();
    runs.iter().map(|run| run.to_string().replace(":00.000000Z", "Z")).collect()
}

#[test]
fn d6_a_time_in_a_gap_comes_once_as_soon_as_the_gap_is_over() {
    for (cron, zone, after, expected) in [
        // 29 March 2026: 02:00 CET becomes 03:00 CEST at 01:00Z
        (
            "30 2 * * *",
            "Europe/Berlin",
            "2026-03-27T12:00:00Z",
            ["2026-03-28T01:30Z", "2026-03-29T01:00Z", "2026-03-30T00:30Z"],
        ),
        (
            "0,15,30 2 * * *",
            "Europe/Berlin",
            "2026-03-28T12:00:00Z",
            ["2026-03-29T01:00Z", "2026-03-30T00:00Z", "2026-03-30T00:15Z"],
        ),
        (
            "30 2,3 * * *",
            "Europe/Berlin",
            "2026-03-28T12:00:00Z",
            ["2026-03-29T01:00Z", "2026-03-29T01:30Z", "2026-03-30T00:30Z"],
        ),
        // 8 March 2026: 02:00 CST becomes 03:00 CDT at 08:00Z
        (
            "30 2 * * *",
            "America/Chicago",
            "2026-03-07T00:00:00Z",
            ["2026-03-07T08:30Z", "2026-03-08T08:00Z", "2026-03-09T07:30Z"],
        ),
        // 6 September 2026: midnight becomes 01:00 at 04:00Z
        (
            "0 0 * * *",
            "America/Santiago",
            "2026-09-05T00:00:00Z",
            ["2026-09-05T04:00Z", "2026-09-06T04:00Z", "2026-09-07T03:00Z"],
        ),
        // 30 March 2024: 23:00 becomes midnight of the next day at 01:00Z
        (
            "30 23 * * *",
            "America/Nuuk",
            "2024-03-30T12:00:00Z",
            ["2024-03-31T01:00Z", "2024-04-01T00:30Z", "2024-04-02T00:30Z"],
        ),
        // 4 October 2026: 02:00 becomes 02:30 at 15:30Z of the day before
        (
            "15 2 * * *",
            "Australia/Lord_Howe",
            "2026-10-02T12:00:00Z",
            ["2026-10-02T15:45Z", "2026-10-03T15:30Z", "2026-10-04T15:15Z"],
        ),
        // a whole day that never was: 30 December 2011
        (
            "0 12 * * *",
            "Pacific/Apia",
            "2011-12-29T12:00:00Z",
            ["2011-12-29T22:00Z", "2011-12-30T10:00Z", "2011-12-30T22:00Z"],
        ),
    ] {
        assert_eq!(due(cron, zone, after, 3), expected, "{cron} {zone}");
    }
}

#[test]
fn d6_a_time_that_the_clock_shows_twice_comes_once_the_first_time() {
    for (cron, zone, after, expected) in [
        // 25 October 2026: 03:00 CEST becomes 02:00 CET at 01:00Z
        ("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", ["2026-10-25T00:30Z", "2026-10-26T01:30Z"]),
        ("0,30 2 * * *", "Europe/Berlin", "2026-10-25T00:10:00Z", ["2026-10-25T00:30Z", "2026-10-26T01:00Z"]),
        // asked in the second half of the hour that comes twice
        ("30 2 * * *", "Europe/Berlin", "2026-10-25T01:10:00Z", ["2026-10-26T01:30Z", "2026-10-27T01:30Z"]),
        // 1 November 2026: 02:00 CDT becomes 01:00 CST at 07:00Z
        ("30 1 * * *", "America/Chicago", "2026-10-31T12:00:00Z", ["2026-11-01T06:30Z", "2026-11-02T07:30Z"]),
        // 5 April 2026: 02:00 becomes 01:30 at 15:00Z of the day before
        ("45 1 * * *", "Australia/Lord_Howe", "2026-04-04T12:00:00Z", ["2026-04-04T14:45Z", "2026-04-05T15:15Z"]),
    ] {
        assert_eq!(due(cron, zone, after, 2), expected, "{cron} {zone}");
    }
}

#[test]
fn d6_wildcards_and_periods_go_on_in_real_time() {
    let minutes = |from: &str, step: i64, most: i64| -> Vec<String> {
        let from = at(from).as_micros();
        let moment = |n| Timestamp::from_micros(from + n * step * 60_000_000).to_string().replace(":00.000000Z", "Z");
        (1..=most).map(moment).collect()
    };
    for (zone, change) in [
        ("Europe/London", "2026-03-28T22:00:00Z"),
        ("Europe/London", "2026-10-24T22:00:00Z"),
        ("Australia/Lord_Howe", "2026-04-04T12:00:00Z"),
        ("Australia/Lord_Howe", "2026-10-03T12:00:00Z"),
    ] {
        // four in each hour of ten
        assert_eq!(due("*/15 * * * *", zone, change, 40), minutes(change, 15, 40), "{zone}");
    }
    // each hour that passes, also the one that comes twice: 00:30 CEST to 04:30 CET
    assert_eq!(due("30 * * * *", "Europe/Berlin", "2026-10-24T22:00:00Z", 6), minutes("2026-10-24T21:30:00Z", 60, 6));
    assert_eq!(due("30 * * * *", "Europe/Berlin", "2026-03-28T23:00:00Z", 6), minutes("2026-03-28T22:30:00Z", 60, 6));
    let every =
        next_runs(&When::Every(Duration::from_hours(24)), "Europe/Berlin", at("2026-03-28T12:34:56Z"), 2).unwrap();
    assert_eq!(every, [at("2026-03-29T12:34:56Z"), at("2026-03-30T12:34:56Z")]);
}

#[test]
fn d6_half_an_hour_is_leapt_over_and_comes_twice_as_an_hour_does() {
    let in_lord_howe = |after, cron, expected: [&str; 3]| {
        assert_eq!(due(cron, "Australia/Lord_Howe", after, 3), expected, "{cron}");
    };
    // 4 October 2026: 02:00 (+10:30) becomes 02:30 (+11) at 15:30Z of the day before; what is shown from 02:30 on is not leapt over
    let gap = "2026-10-03T12:00:00Z";
    in_lord_howe(gap, "30 1-3 * * *", ["2026-10-03T15:00Z", "2026-10-03T15:30Z", "2026-10-03T16:30Z"]);
    in_lord_howe(gap, "0,15,30,45 2 * * *", ["2026-10-03T15:30Z", "2026-10-03T15:45Z", "2026-10-04T15:00Z"]);
    in_lord_howe(gap, "0 */2 * * *", ["2026-10-03T13:30Z", "2026-10-03T17:00Z", "2026-10-03T19:00Z"]);
    in_lord_howe(gap, "*/20 2 * * *", ["2026-10-03T15:40Z", "2026-10-04T15:00Z", "2026-10-04T15:20Z"]);
    // 5 April 2026: 02:00 (+11) becomes 01:30 (+10:30) at 15:00Z of the day before; 01:15 and 02:00 are shown once
    let overlap = "2026-04-04T12:00:00Z";
    in_lord_howe(overlap, "15,45 1 * * *", ["2026-04-04T14:15Z", "2026-04-04T14:45Z", "2026-04-05T14:45Z"]);
    in_lord_howe(overlap, "0,30 2 * * *", ["2026-04-04T15:30Z", "2026-04-04T16:00Z", "2026-04-05T15:30Z"]);
    in_lord_howe(overlap, "0 */2 * * *", ["2026-04-04T13:00Z", "2026-04-04T15:30Z", "2026-04-04T17:30Z"]);
    in_lord_howe(overlap, "*/20 2 * * *", ["2026-04-04T15:30Z", "2026-04-04T15:50Z", "2026-04-04T16:10Z"]);
    in_lord_howe("2026-04-04T14:00:00Z", "45 * * * *", ["2026-04-04T14:45Z", "2026-04-04T15:15Z", "2026-04-04T16:15Z"]);

    let in_pyongyang = |after, cron, expected: [&str; 3]| {
        assert_eq!(due(cron, "Asia/Pyongyang", after, 3), expected, "{cron}");
    };
    // 4 May 2018: 23:30 (+08:30) becomes midnight (+09) at 15:00Z
    in_pyongyang(
        "2018-05-03T12:00:00Z",
        "45 23 * * *",
        ["2018-05-03T15:15Z", "2018-05-04T15:00Z", "2018-05-05T14:45Z"],
    );
    in_pyongyang("2018-05-04T13:45:00Z", "7 * * * *", ["2018-05-04T14:37Z", "2018-05-04T15:07Z", "2018-05-04T16:07Z"]);
    // 15 August 2015: midnight (+09) becomes 23:30 (+08:30) of the day before at 15:00Z, so midnight is shown at 15:30Z
    in_pyongyang(
        "2015-08-14T12:00:00Z",
        "0 */2 * * *",
        ["2015-08-14T13:00Z", "2015-08-14T15:30Z", "2015-08-14T17:30Z"],
    );
}

#[test]
fn d6_two_hours_a_midnight_and_a_whole_day_are_as_any_gap_and_overlap() {
    let in_troll = |after, cron, expected: [&str; 3]| {
        assert_eq!(due(cron, "Antarctica/Troll", after, 3), expected, "{cron}");
    };
    // 29 March 2026: 01:00 (+00) becomes 03:00 (+02) at 01:00Z; 25 October 2026: 03:00 (+02) becomes 01:00 (+00) at 01:00Z
    in_troll("2026-03-28T12:00:00Z", "30 1,2 * * *", ["2026-03-29T01:00Z", "2026-03-29T23:30Z", "2026-03-30T00:30Z"]);
    in_troll("2026-03-28T12:00:00Z", "*/30 2 * * *", ["2026-03-30T00:00Z", "2026-03-30T00:30Z", "2026-03-31T00:00Z"]);
    in_troll("2026-10-24T12:00:00Z", "30 1,2 * * *", ["2026-10-24T23:30Z", "2026-10-25T00:30Z", "2026-10-26T01:30Z"]);
    in_troll("2026-10-25T00:10:00Z", "*/30 2 * * *", ["2026-10-25T00:30Z", "2026-10-25T02:00Z", "2026-10-25T02:30Z"]);

    let in_sao_paulo = |after, cron, expected: [&str; 3]| {
        assert_eq!(due(cron, "America/Sao_Paulo", after, 3), expected, "{cron}");
    };
    // 4 November 2018: midnight (-03) becomes 01:00 (-02) at 03:00Z
    in_sao_paulo(
        "2018-11-03T03:10:00Z",
        "0,30 0 * * *",
        ["2018-11-03T03:30Z", "2018-11-04T03:00Z", "2018-11-05T02:00Z"],
    );
    // 18 February 2018: midnight (-02) becomes 23:00 (-03) of the day before at 02:00Z, so midnight is shown at 03:00Z
    in_sao_paulo("2018-02-16T12:00:00Z", "0 0 * * *", ["2018-02-17T02:00Z", "2018-02-18T03:00Z", "2018-02-19T03:00Z"]);
    in_sao_paulo(
        "2018-02-17T00:00:00Z",
        "30 23 * * *",
        ["2018-02-17T01:30Z", "2018-02-18T01:30Z", "2018-02-19T02:30Z"],
    );

    let in_beirut = |after, cron, expected: [&str; 3]| {
        assert_eq!(due(cron, "Asia/Beirut", after, 3), expected, "{cron}");
    };
    // 31 March 2024: midnight (+02) becomes 01:00 (+03) at 22:00Z of the day before
    in_beirut("2024-03-29T12:00:00Z", "30 0 * * *", ["2024-03-29T22:30Z", "2024-03-30T22:00Z", "2024-03-31T21:30Z"]);
    // 27 October 2024: midnight (+03) becomes 23:00 (+02) of the day before at 21:00Z
    in_beirut("2024-10-26T20:10:00Z", "*/30 23 * * *", ["2024-10-26T20:30Z", "2024-10-26T21:00Z", "2024-10-26T21:30Z"]);

    let in_apia = |after, cron, expected: [&str; 3]| {
        assert_eq!(due(cron, "Pacific/Apia", after, 3), expected, "{cron}");
    };
    // 30 December 2011, a Friday, never was: its midnight (-10) becomes that of the 31st (+14) at 10:00Z
    in_apia("2011-12-23T12:00:00Z", "15 9 * * 5", ["2011-12-23T19:15Z", "2011-12-30T10:00Z", "2012-01-05T19:15Z"]);
    in_apia("2011-12-29T12:00:00Z", "0,30 12 30 12 *", ["2011-12-30T10:00Z", "2012-12-29T22:00Z", "2012-12-29T22:30Z"]);
    in_apia("2011-12-29T12:00:00Z", "0 */12 * * *", ["2011-12-29T22:00Z", "2011-12-30T10:00Z", "2011-12-30T22:00Z"]);
}

#[test]
fn c31_no_week_is_lost_and_no_hour_runs_twice() {
    // 14 March 2021, a Sunday: 02:00 CST becomes 03:00 CDT at 08:00Z
    let winnipeg = due("15 2 * * 0", "America/Winnipeg", "2021-03-08T00:00:00Z", 3);
    assert_eq!(winnipeg, ["2021-03-14T08:00Z", "2021-03-21T07:15Z", "2021-03-28T07:15Z"]);
    let berlin = due("0 12 * * 0", "Europe/Berlin", "2022-03-24T00:00:00Z", 3);
    assert_eq!(berlin, ["2022-03-27T10:00Z", "2022-04-03T10:00Z", "2022-04-10T10:00Z"]);
    let chicago = due("30 2 * * *", "America/Chicago", "2026-03-07T12:00:00Z", 2);
    assert_eq!(chicago, ["2026-03-08T08:00Z", "2026-03-09T07:30Z"]);
    assert_eq!(
        due("30 1 * * *", "America/Chicago", "2026-11-01T06:00:00Z", 2),
        ["2026-11-01T06:30Z", "2026-11-02T07:30Z"]
    );
}

#[test]
fn days_of_the_month_and_of_the_week_are_either_unless_one_of_them_is_any() {
    let days = |cron: &str, after: &str, most| {
        due(cron, "UTC", after, most).iter().map(|at| at.split_once('T').unwrap().0.to_owned()).collect::<Vec<_>>()
    };
    // January 2027 begins on a Friday
    assert_eq!(days("0 0 13 * 5", "2027-01-01T12:00:00Z", 4), ["2027-01-08", "2027-01-13", "2027-01-15", "2027-01-22"]);
    assert_eq!(days("0 0 13 * *", "2027-01-01T12:00:00Z", 2), ["2027-01-13", "2027-02-13"]);
    assert_eq!(days("0 0 L * *", "2027-01-01T12:00:00Z", 3), ["2027-01-31", "2027-02-28", "2027-03-31"]);
    assert_eq!(days("0 0 * * 5L", "2027-01-01T12:00:00Z", 2), ["2027-01-29", "2027-02-26"]);
    assert_eq!(days("0 0 * * MON#1", "2027-01-01T12:00:00Z", 2), ["2027-01-04", "2027-02-01"]);
    assert_eq!(days("0 0 * * FRI-SUN", "2027-01-01T12:00:00Z", 3), ["2027-01-02", "2027-01-03", "2027-01-08"]);
    assert_eq!(days("0 0 29 2 *", "2027-01-01T12:00:00Z", 2), ["2028-02-29", "2032-02-29"]);
    assert_eq!(days("@weekly", "2027-01-01T12:00:00Z", 2), ["2027-01-03", "2027-01-10"]);
    assert_eq!(due("@hourly", "UTC", "2027-01-01T12:30:00Z", 1), ["2027-01-01T13:00Z"]);
}

#[test]
fn c29_what_is_no_schedule_is_refused_with_the_field() {
    let refused = |when: When, zone: &str| {
        let refused = next_runs(&when, zone, at("2027-01-01T00:00:00Z"), 1).unwrap_err();
        (refused.code.as_str(), refused.field, refused.message)
    };
    let cron = |text: &str, zone: &str| refused(When::Cron(text.to_owned()), zone);
    for (text, column) in [("*0 2 * * *", 1), ("60 * * * *", 1), ("0 0 31 2 *", 5), ("* * * *", 8), ("", 1)] {
        let (code, field, message) = cron(text, "UTC");
        assert_eq!((code, field.as_str()), ("PR005", "cron"), "{text:?}");
        assert!(message.contains(&format!("column {column}:")), "{text:?}: {message}");
    }
    assert_eq!(cron(&",".repeat(10_000), "UTC").1, "cron");
    for zone in ["Mars/Olympus", "", "europe/berlin", "EST5EDT4"] {
        assert_eq!(cron("* * * * *", zone).1, "zone", "{zone}");
    }
    for period in [Duration::ZERO, Duration::from_millis(999), Duration::MAX] {
        assert_eq!(refused(When::Every(period), "UTC").1, "every", "{period:?}");
    }
}
