use postrider::Job;
use serde::Deserialize;
use uuid::Uuid;

/// Why a delivery is made, as the args of its job say it; `{}` if the relay made it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
pub(super) struct Errand {
    #[serde(default)]
    pub(super) trigger: Trigger,
    /// The endpoint, if the relay did not make it; then its job has no subscription.
    #[serde(default)]
    pub(super) endpoint: Option<i64>,
    /// The id that the request carries instead of the event's.
    #[serde(default, rename = "as")]
    pub(super) sent_as: Option<Uuid>,
}

/// What made an attempt; a probe is an automatic one that the database knows better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Trigger {
    #[default]
    Auto,
    Manual,
    Replay,
    Test,
}

impl Errand {
    /// What cannot be read was made by nobody here.
    pub(super) fn of(job: &Job) -> Self {
        job.args.decode().unwrap_or_default()
    }
}

impl Trigger {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Manual => "manual",
            Self::Replay => "replay",
            Self::Test => "test",
        }
    }
}
