//! What the other libraries do in another way, and why. docs/decisions/0013 says the same in more words.

use std::ops::RangeInclusive;

/// A known difference.
pub(super) struct Explained {
    /// Oracle, sort of expression, what the clock does, and whose due time it is.
    group: &'static str,
    /// How many minutes after the change.
    within: RangeInclusive<i64>,
    /// Zones in which it is known; any if this names none.
    zones: &'static [&'static str],
    pub(super) why: &'static str,
}

const fn known(
    group: &'static str,
    within: RangeInclusive<i64>,
    zones: &'static [&'static str],
    why: &'static str,
) -> Explained {
    Explained { group, within, zones, why }
}

impl Explained {
    pub(super) fn explains(&self, group: &str, after: i64, zone: &str) -> bool {
        self.group == group && self.within.contains(&after) && (self.zones.is_empty() || self.zones.contains(&zone))
    }
}

const ANY: &[&str] = &[];
const CASEY: &[&str] = &["Antarctica/Casey"];
/// Those whose clock changes one minute after midnight.
const AT_00_01: &[&str] = &["America/Goose_Bay", "America/Moncton", "America/St_Johns", "Asia/Gaza", "Asia/Hebron"];
/// That changes at a quarter to an hour.
const CHATHAM: &[&str] = &["Pacific/Chatham"];
/// Those in which 01:00 becomes midnight.
const MIDNIGHT_TWICE: &[&str] =
    &["America/Havana", "America/Scoresbysund", "Asia/Amman", "Asia/Gaza", "Asia/Hebron", "Atlantic/Azores"];
const MOLDOVA: &[&str] = &["Europe/Chisinau", "Europe/Tiraspol"];
/// Those in which 23:00 becomes midnight.
const EVENING_LOST: &[&str] = &["America/Godthab", "America/Nuuk", "Asia/Dacca", "Asia/Dhaka"];
const LORD_HOWE: &[&str] = &["Australia/LHI", "Australia/Lord_Howe"];
const CARACAS_PYONGYANG: &[&str] = &["America/Caracas", "Asia/Pyongyang"];
/// Those whose clock has shown half an hour twice.
const HALF_TWICE: &[&str] =
    &["America/Caracas", "Asia/Colombo", "Asia/Pyongyang", "Australia/LHI", "Australia/Lord_Howe", "Pacific/Norfolk"];

const PART: &str = "it goes on by an hour, or by the minutes to the next one, in real time from the hour's begin; where the clock changes by half an hour, or not on the hour, it comes into the middle of an hour and passes over times that the clock shows, or goes round without an end";
const RULES: &str = "its zone database knows that Moldova has changed its clocks with the European Union since 2022, an hour later than older ones tell";
const LANDING: &str = "what is leapt over it runs in the hour that the clock leaps to, at its minutes (02:30 becomes 03:30), each of them; ours comes once, when it has leapt";
const UNSEEN: &str =
    "of a gap of half an hour or of a day it sees nothing: a time in it does not come; ours comes when it has leapt";
const HOURS: &str =
    "it runs an hour that is leapt over in the next one, and one that comes twice once, unless every hour is meant";
const TWICE: &str =
    "when more than an hour comes twice it runs a time twice, or the second time only; ours comes the first time";
const DAY: &str = "it takes the day to begin when the clock shows midnight the second time, and passes over the first";
const SKIPPED: &str = "it goes on by a day at the same time of the day; if the clock leaps over that and into the day after, the day is passed over";
const BACK: &str = "it goes on by an hour and back to the hour's begin, which is wrong where the clock has changed by half an hour, or not on the hour: it passes over times that the clock shows, or comes back to those that were, or finds no way on";

/// All that is known; the first that holds is told.
pub(super) const EXPLAINED: &[Explained] = &[
    known("cronsim, real time, a gap of 30 minutes, ours only", 0..=7, CARACAS_PYONGYANG, PART),
    known("cronsim, real time, an overlap of 30 minutes, ours only", 0..=50, HALF_TWICE, PART),
    known("cronsim, real time, an overlap of 30 minutes, given up", 0..=0, &["Asia/Colombo"], PART),
    known("cronsim, real time, an overlap of 60 minutes, given up", 0..=0, AT_00_01, PART),
    known("cronsim, real time, a gap of 180 minutes, ours only", 59..=179, CASEY, PART),
    known("cronsim, real time, a gap of 60 minutes, ours only", 59..=59, AT_00_01, PART),
    known("cronsim, fixed, a gap of 60 minutes, ours only", 0..=0, MOLDOVA, RULES),
    known("cronsim, fixed, a gap of 60 minutes, theirs only", 15..=60, MOLDOVA, RULES),
    known("cronsim, fixed, an overlap of 60 minutes, ours only", 60..=90, MOLDOVA, RULES),
    known("cronsim, fixed, an overlap of 60 minutes, theirs only", 0..=30, MOLDOVA, RULES),
    known("cronsim, real time, a gap of 60 minutes, theirs only", 0..=40, MOLDOVA, RULES),
    known("cronsim, real time, an overlap of 60 minutes, ours only", 0..=40, MOLDOVA, RULES),
    known("cron-parser, fixed, a gap of 60 minutes, theirs only", 15..=45, CHATHAM, BACK),
    known("cron-parser, fixed, a gap of 60 minutes, ours only", 1..=29, AT_00_01, BACK),
    known("cron-parser, fixed, a gap of 60 minutes, theirs only", 60..=74, AT_00_01, BACK),
    known("cron-parser, fixed, an overlap of 60 minutes, ours only", -1..=-1, AT_00_01, BACK),
    known("cron-parser, fixed, an overlap of 60 minutes, theirs only", 59..=59, AT_00_01, BACK),
    known("cron-parser, fixed, an overlap of 60 minutes, ours only", -60..=-30, MIDNIGHT_TWICE, DAY),
    known("cron-parser, fixed, an overlap of 60 minutes, theirs only", 0..=30, MIDNIGHT_TWICE, DAY),
    known("cron-parser, fixed, a gap of 60 minutes, ours only", 0..=0, ANY, LANDING),
    known("cron-parser, fixed, a gap of 60 minutes, theirs only", 1..=59, ANY, LANDING),
    known("cron-parser, fixed, a gap of 120 minutes, ours only", 0..=0, ANY, LANDING),
    known("cron-parser, fixed, a gap of 120 minutes, theirs only", 1..=59, ANY, LANDING),
    known("cron-parser, fixed, a gap of 180 minutes, ours only", 0..=0, CASEY, LANDING),
    known("cron-parser, fixed, a gap of 180 minutes, theirs only", 1..=59, CASEY, LANDING),
    known("cron-parser, fixed, a gap of 180 minutes, ours only", 1..=29, CASEY, BACK),
    known("cron-parser, fixed, a gap of 180 minutes, theirs only", 60..=104, CASEY, BACK),
    known("cron-parser, fixed, a gap of 30 minutes, ours only", 0..=0, CARACAS_PYONGYANG, UNSEEN),
    known("cron-parser, fixed, a gap of 30 minutes, ours only", 0..=0, LORD_HOWE, BACK),
    known("cron-parser, fixed, a gap of 1440 minutes, ours only", 0..=0, ANY, UNSEEN),
    known("cron-parser, fixed, an overlap of 30 minutes, ours only", -30..=-30, &["Asia/Colombo"], BACK),
    known("cron-parser, fixed, an overlap of 30 minutes, theirs only", 0..=0, &["Asia/Colombo"], BACK),
    known("cron-parser, fixed, an overlap of 30 minutes, given up", 0..=0, HALF_TWICE, BACK),
    known("cron-parser, fixed, an overlap of 120 minutes, ours only", -120..=-1, ANY, TWICE),
    known("cron-parser, fixed, an overlap of 120 minutes, theirs only", 0..=119, ANY, TWICE),
    known("cron-parser, fixed, an overlap of 180 minutes, ours only", -180..=-1, CASEY, TWICE),
    known("cron-parser, fixed, an overlap of 180 minutes, theirs only", 0..=179, CASEY, TWICE),
    known("cron-parser, fixed, throughout, given up", 0..=0, LORD_HOWE, BACK),
    known("cron-parser, real time, a gap of 60 minutes, ours only", -1380..=-60, EVENING_LOST, SKIPPED),
    known("cron-parser, real time, a gap of 30 minutes, ours only", -30..=-15, CARACAS_PYONGYANG, BACK),
    known("cron-parser, real time, a gap of 30 minutes, ours only", 0..=15, LORD_HOWE, BACK),
    known("cron-parser, real time, a gap of 60 minutes, ours only", -1..=59, AT_00_01, BACK),
    known("cron-parser, real time, a gap of 60 minutes, ours only", -45..=44, CHATHAM, BACK),
    known("cron-parser, real time, a gap of 60 minutes, theirs only", 0..=59, ANY, HOURS),
    known("cron-parser, real time, a gap of 120 minutes, theirs only", 0..=59, ANY, HOURS),
    known("cron-parser, real time, a gap of 180 minutes, theirs only", 0..=59, CASEY, HOURS),
    known("cron-parser, real time, a gap of 180 minutes, theirs only", 60..=99, CASEY, BACK),
    known("cron-parser, real time, a gap of 180 minutes, ours only", -1..=164, CASEY, BACK),
    known("cron-parser, real time, an overlap of 30 minutes, ours only", -30..=15, HALF_TWICE, BACK),
    known("cron-parser, real time, an overlap of 30 minutes, given up", 0..=0, HALF_TWICE, BACK),
    known("cron-parser, real time, an overlap of 60 minutes, ours only", -1..=-1, AT_00_01, BACK),
    known("cron-parser, real time, an overlap of 60 minutes, given up", 0..=0, AT_00_01, BACK),
    known("cron-parser, real time, an overlap of 60 minutes, given up", 0..=0, CHATHAM, BACK),
    known("cron-parser, real time, an overlap of 60 minutes, ours only", -60..=-60, MIDNIGHT_TWICE, DAY),
    known("cron-parser, real time, an overlap of 60 minutes, ours only", 0..=59, ANY, HOURS),
    known("cron-parser, real time, an overlap of 120 minutes, ours only", -120..=119, ANY, HOURS),
    known("cron-parser, real time, an overlap of 180 minutes, ours only", -180..=179, CASEY, HOURS),
];
