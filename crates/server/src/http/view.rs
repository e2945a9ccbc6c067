/// Everything that the page shows, as text. Nothing of it is trusted: it comes from events, handlers and receivers.
#[derive(Debug, Clone, Default)]
pub struct View {
    /// What is shown: the database's name and place, without a password.
    pub database: String,
    /// Figures, in the order of an event's way.
    pub figures: Vec<Figure>,
    /// The last events.
    pub events: Vec<EventRow>,
    /// The last jobs.
    pub jobs: Vec<JobRow>,
    /// The last attempts of deliveries.
    pub deliveries: Vec<DeliveryRow>,
    /// The workers that beat.
    pub workers: Vec<WorkerRow>,
}

/// One figure.
#[derive(Debug, Clone)]
pub struct Figure {
    /// What it is.
    pub name: &'static str,
    /// How much.
    pub value: String,
    /// What is counted, in a few words.
    pub note: &'static str,
}

/// One event.
#[derive(Debug, Clone)]
pub struct EventRow {
    /// When it was recorded.
    pub recorded_at: String,
    /// Its type.
    pub r#type: String,
    /// What it is about.
    pub subject: String,
    /// Its id.
    pub id: String,
}

/// One job.
#[derive(Debug, Clone)]
pub struct JobRow {
    /// When it was made.
    pub created_at: String,
    /// Its kind.
    pub kind: String,
    /// Where it is on its way.
    pub state: String,
    /// The attempt it is at, and how many it has.
    pub attempts: String,
    /// Why it failed, if it did.
    pub reason: String,
    /// Its id.
    pub id: String,
}

/// One attempt of a delivery.
#[derive(Debug, Clone)]
pub struct DeliveryRow {
    /// When it began.
    pub started_at: String,
    /// The event.
    pub event: String,
    /// The endpoint.
    pub endpoint: String,
    /// The attempt's number.
    pub attempt: String,
    /// How it ended.
    pub outcome: String,
    /// What it came to, in words.
    pub reason: String,
    /// How long it took.
    pub took: String,
}

/// One worker.
#[derive(Debug, Clone)]
pub struct WorkerRow {
    /// The application.
    pub app: String,
    /// Its process id.
    pub process: String,
    /// The queues that it works.
    pub queues: String,
    /// The jobs that it runs.
    pub running: String,
    /// When it beat last.
    pub beat_at: String,
}

impl View {
    /// Two samples: an ordinary view, and one in which every text is hostile.
    pub fn samples() -> [Self; 2] {
        [Self::of("orders"), Self::of(HOSTILE)]
    }

    fn of(text: &str) -> Self {
        let text = || text.to_owned();
        Self {
            database: text(),
            figures: vec![Figure { name: "recorded", value: text(), note: "events" }],
            events: vec![EventRow { recorded_at: text(), r#type: text(), subject: text(), id: text() }],
            jobs: vec![JobRow {
                created_at: text(),
                kind: text(),
                state: text(),
                attempts: text(),
                reason: text(),
                id: text(),
            }],
            deliveries: vec![DeliveryRow {
                started_at: text(),
                event: text(),
                endpoint: text(),
                attempt: text(),
                outcome: text(),
                reason: text(),
                took: text(),
            }],
            workers: vec![WorkerRow { app: text(), process: text(), queues: text(), running: text(), beat_at: text() }],
        }
    }
}

/// Breaks out of text, of an attribute, of a script; turns the reading direction; rings the bell.
pub const HOSTILE: &str = "<img src=x onerror=fetch('/canary')></td></script><script>alert(1)</script>\" onload=\"a' &amp;\u{202e}gpj.exe\u{2066}\u{7}\u{0}";
