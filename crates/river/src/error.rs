use postrider::{Code, Error, Refused};

/// What River told about a call, for the name of what was called.
pub(crate) fn told(called: &'static str, error: riverqueue::Error) -> Error {
    match error {
        riverqueue::Error::Database(source @ sqlx::Error::Database(_)) => Error::Database { statement: called, source },
        riverqueue::Error::Database(source @ (sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed)) => {
            Error::Connection(source)
        }
        riverqueue::Error::Database(source) => Error::Broken { statement: called, source },
        riverqueue::Error::InvalidJob(why) => {
            Refused::new(Code::Option, "job", format!("River refuses it: {why}"), "see River's rules for jobs").into()
        }
        other => Error::Database { statement: called, source: sqlx::Error::Protocol(other.to_string()) },
    }
}
