use std::pin::Pin;

use postrider_contract::{Code, Refused};

/// Any error, as a handler may return it.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The future of a port: boxed by hand, so that ports stay dyn-safe without a macro.
pub type Fut<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// What can go wrong between the library and its database.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The input was refused; nothing was written.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// Several declarations were refused, all of them named.
    #[error("{} declarations were refused: {}", .0.len(), .0.iter().map(ToString::to_string).collect::<Vec<_>>().join(" | "))]
    Declarations(Vec<Refused>),
    /// The database answered with an error.
    #[error("the database refused {statement}")]
    Database {
        /// The file of the statement.
        statement: &'static str,
        /// What the driver told.
        #[source]
        source: sqlx::Error,
    },
    /// No connection could be made: nothing was asked of the database.
    #[error("no connection to the database")]
    Connection(#[source] sqlx::Error),
    /// The connection broke before the answer was here; what the statement did is not known.
    #[error("the connection to the database broke during {statement}")]
    Broken {
        /// The file of the statement.
        statement: &'static str,
        /// What the driver told.
        #[source]
        source: sqlx::Error,
    },
    /// The database did not answer in time; what it did is not known.
    #[error("the database did not answer {statement} within {limit:?}")]
    Timeout {
        /// The file of the statement.
        statement: &'static str,
        /// How long was waited.
        limit: std::time::Duration,
    },
    /// A row was not what the statement promises.
    #[error("{statement}: column {column} is not {expected}")]
    Row {
        /// The file of the statement.
        statement: &'static str,
        /// The column, counted from 0.
        column: usize,
        /// What it should have been.
        expected: &'static str,
    },
    /// A bus is started once.
    #[error("the bus was already started; build another one to start again")]
    AlreadyStarted,
    /// There is nothing to stop: the bus was not started, or was stopped already.
    #[error("the bus does not run: it was not started, or was stopped already")]
    NotRunning,
    /// The attempt's lease is lost: another worker has the job, and nothing of this attempt counts any more.
    #[error("the lease of this attempt is lost: nothing was written")]
    LeaseLost,
    /// A pooler in transaction mode stands before the database, and nobody said so.
    #[error(
        "a pooler in transaction mode (such as PgBouncer) stands before this database: set `pooler` to `transaction`, or connect past it"
    )]
    Pooler {
        /// What the driver told, if that was how it was found out.
        #[source]
        source: Option<sqlx::Error>,
    },
    /// The server has fewer connections left than this process opens.
    #[error(transparent)]
    Connections(Shortage),
    /// The schema is not the one that this program knows, or a migration cannot be applied.
    #[error("{0}")]
    Schema(String),
}

impl Error {
    /// An error of a connection that could not be made.
    pub(crate) fn connecting(source: sqlx::Error) -> Self {
        if tells_of_pooler(&source) { Self::Pooler { source: Some(source) } } else { Self::Connection(source) }
    }

    pub(crate) fn from_sqlx(statement: &'static str, source: sqlx::Error) -> Self {
        if tells_of_pooler(&source) {
            return Self::Pooler { source: Some(source) };
        }
        if let sqlx::Error::Database(db) = &source
            && let Some(code) = db.code().as_deref().and_then(Code::from_sqlstate)
            && let Some(pg) = db.try_downcast_ref::<sqlx::postgres::PgDatabaseError>()
        {
            let field = pg.column().unwrap_or_default();
            let message = pg.message();
            let message = message.strip_prefix(&format!("{field}: ")).unwrap_or(message);
            return Self::Refused(Refused::new(code, field, message, pg.hint().unwrap_or_default()));
        }
        match source {
            sqlx::Error::Database(_) => Self::Database { statement, source },
            source => Self::Broken { statement, source },
        }
    }

    /// The stable code of a refusal.
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Refused(refused) => Some(refused.code),
            Self::Declarations(all) => all.first().map(|refused| refused.code),
            Self::Schema(_) => Some(Code::Schema),
            _ => None,
        }
    }

    /// Whether the answer was lost, so that a call in a transaction of its own may have done all that it was asked to, or nothing. In a
    /// transaction of the caller it did nothing, since that was not committed.
    ///
    /// False means: nothing was done.
    pub fn is_unknown(&self) -> bool {
        match self {
            Self::Broken { .. } | Self::Timeout { .. } | Self::Row { .. } => true,
            Self::Database { source: sqlx::Error::Database(db), .. } => {
                // a pooler lost the connection behind it; 40003: completion unknown
                let code = db.code().unwrap_or_default();
                code.starts_with("08") || code == "40003"
            }
            _ => false,
        }
    }

    /// Whether trying again later can help.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Connection(_) | Self::Broken { .. } | Self::Timeout { .. } => true,
            Self::Database { source: sqlx::Error::Database(db), .. } => {
                // 08 connection, 53 resources, 55 not in state (lock timeout), 57 operator intervention, 58 system, 40 serialisation;
                // 25006: the server became a standby; 25P03: it gave up a transaction that said nothing for too long
                let code = db.code().unwrap_or_default();
                ["25006", "25P03"].contains(&&*code)
                    || ["08", "40", "53", "55", "57", "58"].iter().any(|class| code.starts_with(class))
            }
            _ => false,
        }
    }

    /// Whether the connection that told it is of no use any more.
    pub(crate) fn breaks_connection(&self) -> bool {
        match self {
            Self::Connection(_) | Self::Broken { .. } | Self::Timeout { .. } | Self::Pooler { .. } => true,
            Self::Database { source: sqlx::Error::Database(db), .. } => {
                let code = db.code().unwrap_or_default();
                ["25006", "25P03"].contains(&&*code) || code.starts_with("57P") || code.starts_with("08")
            }
            _ => false,
        }
    }
}

/// What only a pooler answers: a parameter of the start that it does not know (08P01), a prepared statement that is there already
/// (42P05) or is not there (26000), since another session has served this connection before.
fn tells_of_pooler(source: &sqlx::Error) -> bool {
    let sqlx::Error::Database(db) = source else { return false };
    match db.code().as_deref() {
        Some("42P05" | "26000") => true,
        Some("08P01") => db.message().contains("unsupported startup parameter"),
        _ => false,
    }
}

/// The connections that a process opens, and how many it could have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "this process opens {} connections ({}) and {free} are free ({limit}): lower what it opens, or allow more",
    .needs.iter().map(|(_, count)| count).sum::<u32>(),
    .needs.iter().map(|(part, count)| format!("{part} {count}")).collect::<Vec<_>>().join(", ")
)]
#[non_exhaustive]
pub struct Shortage {
    /// Each part of the process, and how many connections it opens.
    pub needs: Vec<(String, u32)>,
    /// How many are free.
    pub free: u32,
    /// The limit that this comes from.
    pub limit: String,
}
