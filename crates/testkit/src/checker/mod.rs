//! Looks at what processes wrote down outside of the database, at what the database says in the end, and at which faults fired; and
//! computes from that what was lost, doubled, torn or changed by a stranger. It asks nothing of the library that it judges.
//!
//! In: a folder with the ledgers of producers, workers, receivers and the nemesis, and with the tables as they were at the end
//! ([`dump`]). Out: a [`Table`]. The folder is all that is needed: a run can be judged again later.

mod line; // what the ledgers say
mod state; // what the database says
mod story; // both, by transaction
mod fault; // which fault explains a lost lease
mod judge; // what is wrong with it
mod table; // as numbers

use std::io;
use std::path::Path;
use std::time::Duration;

pub use fault::Blow;
pub use line::{Answer, Item, Posted, Ran, Word, now_us};
pub use state::{dump, watch};
pub use table::{Number, Table, Tally};

/// What is to come of each event and each job, and how long a fault is felt.
#[derive(Debug, Clone)]
pub struct Terms {
    /// Subscriptions whose handlers note each event.
    pub subscriptions: Vec<String>,
    /// Endpoints that receive each event.
    pub endpoints: Vec<String>,
    /// The kind of the jobs that producers enqueue themselves.
    pub kind: String,
    /// How long after a fault a lease may still be lost because of it.
    pub aftermath: Duration,
}

/// Judges a run. The ledgers are read line by line; memory grows with the number of events, and is bounded by reading them as often as
/// needed, for a part of the transactions each time.
///
/// # Errors
/// If a file cannot be read, or a line is not what it should be.
pub fn check(folder: &Path, terms: &Terms) -> io::Result<Table> {
    let parts = story::parts(folder)?;
    let mut table = Table::default();
    for part in 0..parts {
        let story = story::read(folder, terms, (part, parts))?;
        judge::judge(&story, terms, part == 0, &mut table);
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;

    use super::*;

    const A: &str = "00000000-0000-0000-0000-00000000000a";
    const B: &str = "00000000-0000-0000-0000-00000000000b";
    const EVENT: &str = "01a20000-0000-7000-8000-000000000001";
    const WORKER: &str = "00000000-0000-0000-0000-0000000000f1";
    const OTHER: &str = "00000000-0000-0000-0000-0000000000f2";

    fn terms() -> Terms {
        Terms {
            subscriptions: vec!["s".to_owned()],
            endpoints: vec!["h".to_owned()],
            kind: "k".to_owned(),
            aftermath: Duration::ZERO,
        }
    }

    /// Transaction A committed an event and a job, B rolled back. Worker 1 was paused at second 11 and lost what it ran for `s`, which
    /// worker 2 ran again.
    fn written() -> BTreeMap<&'static str, String> {
        let state = [
            ("rows.state", format!("{A}\t0\n{A}\t1\n{A}\t2\n")),
            ("events.state", format!("{A}\t1\t{EVENT}\n")),
            (
                "jobs.state",
                format!(
                    "{A}\t1\ts\t10\t3\t10000000\tf\t2\t1\t101\tf\n{A}\t1\th\t11\t3\t10000000\tf\t2\t1\t102\tf\n\
                     {A}\t2\tk\t12\t3\t12000000\tt\t2\t1\t103\tf\n"
                ),
            ),
            (
                "notes.state",
                format!(
                    "10\t100\tgiven\t1\tworker-1.1\t{WORKER}\t-\t10000000\n10\t100\tended\t2\tworker-2.1\t{WORKER}\t-\t0\n\
                     10\t101\tgiven\t3\tworker-2.1\t{OTHER}\t-\t14000000\n10\t101\tended\t4\tworker-2.1\t{OTHER}\t-\t0\n\
                     10\t101\tdone\t4\tworker-2.1\t-\t1\t0\n\
                     11\t102\tgiven\t5\tworker-2.1\t{OTHER}\t-\t10000000\n11\t102\tended\t6\tworker-2.1\t{OTHER}\t-\t0\n\
                     11\t102\tdone\t6\tworker-2.1\t-\t1\t0\n\
                     12\t103\tgiven\t7\tworker-2.1\t{OTHER}\t-\t12000001\n12\t103\tended\t8\tworker-2.1\t{OTHER}\t-\t0\n\
                     12\t103\tdone\t8\tworker-2.1\t-\t1\t0\n"
                ),
            ),
            ("attempts.state", "10\t100\t1\t3\t13000000\n".to_owned()),
            ("deliveries.state", "11\t1\t10500000\n".to_owned()),
        ];
        let ledgers = [
            ("producer-1.1.ledger", format!("intent {A} 1,2j,\nacked {A}\nintent {B} 1,\nrolled-back {B}\n")),
            ("worker-1.1.ledger", format!("started {WORKER}\neffect {A} 1 s {EVENT} 10 100 1 aa 10500000\n")),
            (
                "worker-2.1.ledger",
                format!(
                    "started {OTHER}\neffect {A} 1 s {EVENT} 10 101 1 aa 14500000\neffect {A} 2 k - 12 103 1 cc 12500000\n"
                ),
            ),
            ("receiver-1.1.ledger", format!("listening x\npost {A} 1 h {EVENT} 1 bb good 10 ok 10600000\n")),
            ("faults.ledger", "begin 0 pause worker-1.1 11000000\nend 0 true 15000000\n".to_owned()),
        ];
        state.into_iter().chain(ledgers).collect()
    }

    fn judged(written: &BTreeMap<&str, String>) -> Table {
        let folder = std::env::temp_dir().join(format!("postrider-checker-{}", uuid::Uuid::new_v4().simple()));
        fs::create_dir(&folder).unwrap();
        for (name, text) in written {
            fs::write(folder.join(name), text).unwrap();
        }
        let table = check(&folder, &terms()).unwrap();
        fs::remove_dir_all(folder).unwrap();
        table
    }

    #[test]
    fn a_second_effect_is_explained_by_the_fault_that_took_the_lease_of_the_first() {
        let table = judged(&written());
        assert_eq!(table.red(), [], "{table}");
        let numbers = (table.committed, table.rolled_back, table.items, table.expected, table.effects, table.extra);
        assert_eq!(numbers, (1, 1, 2, 3, 4, 1));
        assert_eq!(table.faults["pause"], Tally { planned: 1, fired: 1, losses: 1 });
    }

    #[test]
    fn each_number_turns_red_for_what_it_counts() {
        let a_row_of_b = format!("{B}\t0\n{A}\t0");
        let no_effect = format!("started {OTHER}\neffect {A} 1 s {EVENT} 10 101 1 aa 14500000\n");
        let twice = format!("effect {A} 2 k - 12 103 1 cc 12500000\neffect {A} 2 k - 12 103 1 cc 12500001\n");
        let done_by_1 = "12\t103\tdone\t8\tworker-1.1";
        let taken = format!("12\t104\tgiven\t9\tworker-2.1\t{OTHER}\t-\t12000002\n12\t103\tended");
        let open = format!("{A}\t2\tk\t12\t3\t12000000\tt\t\\N\t\\N\t0\tf\n");
        let closed = format!("{A}\t2\tk\t12\t3\t12000000\tt\t2\t1\t103\tf\n");
        let dead = format!("{A}\t2\tk\t12\t3\t12000000\tt\t3\t1\t103\tf\n");
        let cases: &[(Number, &str, &str, &str)] = &[
            (Number::Lost, "worker-2.1.ledger", &written()["worker-2.1.ledger"], &no_effect),
            (Number::Lost, "jobs.state", &closed, ""),
            (Number::Lost, "jobs.state", &closed, &dead),
            (Number::Lost, "receiver-1.1.ledger", " ok ", " fail "),
            (Number::Phantom, "rows.state", &format!("{A}\t0"), &a_row_of_b),
            (Number::Phantom, "worker-2.1.ledger", "k - 12 103", "k - 12 999"),
            (Number::Phantom, "deliveries.state", "11\t1\t", "11\t2\t"),
            (Number::Torn, "rows.state", &format!("{A}\t2\n"), ""),
            (Number::Torn, "rows.state", &format!("{A}\t2\n"), &format!("{A}\t2\n{A}\t3\n")),
            (Number::UnexplainedExtra, "faults.ledger", "worker-1.1", "worker-3.1"),
            (Number::UnexplainedExtra, "faults.ledger", "end 0 true", "end 0 false"),
            (Number::UnexplainedExtra, "faults.ledger", "pause", "terminate"),
            (Number::UnexplainedExtra, "attempts.state", "10\t100\t1\t3", "10\t100\t1\t2"),
            (Number::UnexplainedExtra, "worker-2.1.ledger", &twice[..twice.len() / 2], &twice),
            (Number::UnexplainedExtra, "jobs.state", &closed, &format!("{closed}{}", closed.replace("12\t3", "13\t3"))),
            (Number::NotDedupable, "worker-2.1.ledger", " aa ", " ab "),
            (Number::NotDedupable, "receiver-1.1.ledger", EVENT, A),
            (Number::StaleWrite, "notes.state", "12\t103\tdone\t8", "12\t103\tdone\t9"),
            (Number::StaleWrite, "notes.state", "12\t103\tdone\t8\tworker-2.1", done_by_1),
            (Number::StaleWrite, "notes.state", "12\t103\tended", &taken),
            (Number::OverMax, "worker-2.1.ledger", "k - 12 103 1", "k - 12 103 4"),
            (Number::Early, "notes.state", "12000001", "11999999"),
            (Number::Stuck, "jobs.state", &closed, &open),
            (Number::BadSignature, "receiver-1.1.ledger", "good", "bad"),
            (Number::BadSignature, "receiver-1.1.ledger", "good 10", "good 9"),
            (Number::Died, "faults.ledger", "begin", "died worker-1.1\nbegin"),
        ];
        for &(number, file, there, planted) in cases {
            let mut written = written();
            let text = written.get_mut(file).unwrap();
            assert!(text.contains(there), "{number:?}: {there:?}");
            *text = text.replacen(there, planted, 1);
            let table = judged(&written);
            assert!(table.number(number) > 0, "{number:?} stays 0 for {planted:?}: {table}");
        }
    }

    #[test]
    fn a_file_that_says_something_else_is_refused() {
        let mut written = written();
        written.insert("worker-3.1.ledger", "effect 1 2 3\n".to_owned());
        let folder = std::env::temp_dir().join(format!("postrider-checker-{}", uuid::Uuid::new_v4().simple()));
        fs::create_dir(&folder).unwrap();
        for (name, text) in &written {
            fs::write(folder.join(name), text).unwrap();
        }
        let refused = check(&folder, &terms()).unwrap_err().to_string();
        fs::remove_dir_all(folder).unwrap();
        assert!(refused.contains("worker-3.1.ledger: what does this say?"), "{refused}");
    }
}
