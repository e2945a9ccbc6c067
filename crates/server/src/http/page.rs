use maud::{DOCTYPE, Markup, html};

use super::view::{DeliveryRow, EventRow, Figure, JobRow, View, WorkerRow};

/// How often the page asks again, in seconds.
const REFRESH: u32 = 2;
/// The most characters of a text that are shown.
const SHOWN_MAX: usize = 160;

/// The style sheet, served as a file of its own: the policy allows no style inside the page.
pub const STYLE: &str = include_str!("page.css");

/// The page.
pub fn page(view: &View) -> Markup {
    frame(&html! {
        p.place { "Postrider " (env!("CARGO_PKG_VERSION")) " on " bdi { (shown(&view.database)) } }
        dl.figures { @for figure in &view.figures { (figure_of(figure)) } }
        (table("Events", &["recorded", "type", "subject", "id"], view.events.iter().map(event)))
        (table("Jobs", &["made", "kind", "state", "attempt", "reason", "id"], view.jobs.iter().map(job)))
        (table(
            "Deliveries",
            &["began", "event", "endpoint", "attempt", "outcome", "reason", "took"],
            view.deliveries.iter().map(delivery),
        ))
        (table("Workers", &["application", "process", "queues", "running", "beat"], view.workers.iter().map(worker)))
    })
}

/// The page when there is nothing to show, and why.
pub fn notice(sentence: &str) -> Markup {
    frame(&html! { p.notice role="alert" { (shown(sentence)) } })
}

fn frame(body: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta http-equiv="refresh" content=(REFRESH);
                title { "Postrider" }
                link rel="stylesheet" href="/page.css";
                link rel="icon" href="data:,";
            }
            body {
                header { h1 { "Postrider" } }
                main { (body) }
            }
        }
    }
}

fn figure_of(figure: &Figure) -> Markup {
    html! {
        div { dt { (figure.name) } dd { (shown(&figure.value)) small { (figure.note) } } }
    }
}

fn table(title: &str, columns: &[&str], rows: impl ExactSizeIterator<Item = Markup>) -> Markup {
    html! {
        section {
            h2 { (title) }
            @if rows.len() == 0 {
                p.none { "None yet." }
            } @else {
                div.wide tabindex="0" role="region" aria-label=(title) {
                    table {
                        thead { tr { @for column in columns { th scope="col" { (column) } } } }
                        tbody { @for row in rows { tr { (row) } } }
                    }
                }
            }
        }
    }
}

fn cells(texts: &[&str]) -> Markup {
    html! { @for text in texts { td { bdi { (shown(text)) } } } }
}

fn event(row: &EventRow) -> Markup {
    cells(&[&row.recorded_at, &row.r#type, &row.subject, &row.id])
}

fn job(row: &JobRow) -> Markup {
    cells(&[&row.created_at, &row.kind, &row.state, &row.attempts, &row.reason, &row.id])
}

fn delivery(row: &DeliveryRow) -> Markup {
    cells(&[&row.started_at, &row.event, &row.endpoint, &row.attempt, &row.outcome, &row.reason, &row.took])
}

fn worker(row: &WorkerRow) -> Markup {
    cells(&[&row.app, &row.process, &row.queues, &row.running, &row.beat_at])
}

/// A text that cannot leave its cell: short, without control characters and without those that turn the reading
/// direction. The template escapes what is markup.
fn shown(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN_MAX).map(|c| if is_tricky(c) { '\u{fffd}' } else { c }).collect();
    if text.chars().nth(SHOWN_MAX).is_some() {
        shown.push('…');
    }
    shown
}

fn is_tricky(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// The page of an address that is not there.
pub(super) fn not_found() -> Markup {
    html! { (DOCTYPE) html lang="en" { head { title { "Not found" } } body { p { "Not found. " a href="/" { "To the page" } } } } }
}
