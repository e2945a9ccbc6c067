use std::collections::{BTreeMap, BTreeSet};

use postrider_contract::{Payload, Refused, Watch, check_name, check_public_name};
use serde_json::json;

use super::Builder;
use super::check::{once, option};
use crate::error::Error;
use crate::pg::{Arg, Statement, Tx};

pub(super) const WATCH: Statement = crate::statement!("../sql/watch.sql");

/// What is wrong with watches, as far as it can be known without their tables.
pub(super) fn refusals(watches: &[Watch]) -> Vec<Refused> {
    let mut refused = Vec::new();
    let mut names = BTreeSet::new();
    for watch in watches {
        let mut note = |result: Result<(), Refused>| refused.extend(result.err());
        if let Some(name) = &watch.name {
            note(check_name("name", name));
        }
        // without a name it has the table's, which only the database knows
        note(once(&mut names, "watch", watch.name.as_ref().unwrap_or(&watch.relation)));
        watch.types.values().for_each(|name| note(check_public_name("types", name)));
        if watch.operations.is_empty() {
            let message = format!("the watch of {} tells no operation", watch.relation);
            note(Err(option("operations", message, "use some of insert, update, delete, truncate")));
        }
        if watch.columns.as_ref().is_some_and(Vec::is_empty) {
            let message = format!("the watch of {} has no column", watch.relation);
            note(Err(option("columns", message, "name some, or leave them out to watch every one")));
        }
    }
    refused
}

/// Declares watches in the transaction of the other declarations, whose types they may have.
pub(super) async fn declare(watches: &[Watch], tx: &mut dyn Tx, app: &str, generation: i64) -> Result<(), Error> {
    for watch in watches {
        let text = Payload::of_trusted(&watch_json(watch, app, generation))?;
        tx.run(&WATCH, &[Arg::Text(text.as_str())]).await.map_err(|error| named(watch, error))?;
    }
    Ok(())
}

fn watch_json(watch: &Watch, app: &str, generation: i64) -> serde_json::Value {
    let operations: Vec<_> = watch.operations.iter().map(|operation| operation.name()).collect();
    let types: BTreeMap<_, _> = watch.types.iter().map(|(operation, name)| (operation.name(), name)).collect();
    json!({
        "relation": watch.relation, "name": watch.name, "columns": watch.columns, "operations": operations, "types": types,
        "condition": watch.condition, "subject": watch.subject, "data": watch.data, "owner": watch.owner,
        "app": app, "generation": generation,
    })
}

/// Of several watches it matters which one was refused.
fn named(watch: &Watch, error: Error) -> Error {
    match error {
        Error::Refused(refused) => {
            let message = format!("watch of {}: {}", watch.relation, refused.message);
            Error::Refused(Refused { message, ..refused })
        }
        error => error,
    }
}

impl Builder {
    /// Declares watches: changes of tables become events. The role of the connection must own the tables, or be a member of a role that
    /// does. A watch that does not stand yet locks its table against writers until the declarations are committed; one that does, locks nothing.
    /// Other types than the derived ones are declared with [`Builder::types`].
    #[must_use]
    pub fn watches(mut self, watches: impl IntoIterator<Item = Watch>) -> Self {
        self.watches.extend(watches);
        self
    }
}
