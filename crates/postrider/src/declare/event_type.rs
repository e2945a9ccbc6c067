use std::collections::BTreeSet;

use postrider_contract::{Code, EventTypeSpec, Refused, Validation, check_public_name};

use super::check::{once, option};

/// What is wrong with event types, as far as it can be told without the database, which reads the schemas.
pub(super) fn refusals(types: &[EventTypeSpec]) -> Vec<Refused> {
    let mut refused = Vec::new();
    let mut names = BTreeSet::new();
    for spec in types {
        let mut note = |result: Result<(), Refused>| refused.extend(result.err());
        note(check_public_name("type", &spec.name));
        note(once(&mut names, "type", &spec.name));
        note(check_versions(spec));
    }
    refused
}

fn check_versions(spec: &EventTypeSpec) -> Result<(), Refused> {
    let name = &spec.name;
    if spec.validation != Validation::Off && spec.versions.is_empty() {
        let message = format!("{name} has nothing to validate by");
        return Err(option("validation", message, "declare a version with a schema, or use off"));
    }
    let mut numbers = BTreeSet::new();
    for version in &spec.versions {
        if version.version < 1 {
            return Err(option("version", format!("{} is not a version of {name}", version.version), "use 1 to 32767"));
        }
        if !numbers.insert(version.version) {
            let message = format!("{name} has version {} twice", version.version);
            return Err(Refused::new(Code::Conflict, "versions", message, "declare it once"));
        }
    }
    Ok(())
}
