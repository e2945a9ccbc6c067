//! Events that the program makes itself, always the same ones.

use postrider_contract::{Payload, Refused};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::json;

use super::events::Line;

const EVENTS: usize = 200;
const SEED: u64 = 7_117;

const TYPES: &[&str] = &[
    "repository.pushed",
    "repository.starred",
    "issue.opened",
    "issue.closed",
    "review.submitted",
    "release.published",
];
const REPOSITORIES: &[&str] =
    &["lighthouse", "harbour", "saddle", "relay-station", "mailbag", "milestone", "inn", "ferry"];
const PEOPLE: &[&str] = &["ada", "grace", "katherine", "radia", "barbara", "frances"];
const WORDS: &[&str] =
    &["mend", "the", "lamp", "before", "night", "carry", "letters", "over", "a", "river", "horse", "road"];

/// Events for machines without a file of them: always the same ones, of six types, 0.2 to 6 kB each.
pub fn events() -> Result<Vec<Line>, Refused> {
    let mut dice = StdRng::seed_from_u64(SEED);
    (0..EVENTS).map(|number| event(number, &mut dice)).collect()
}

fn event(number: usize, dice: &mut StdRng) -> Result<Line, Refused> {
    let repository = pick(REPOSITORIES, dice);
    let commits: Vec<_> = (0..dice.random_range(1..24))
        .map(|_| {
            let message: Vec<&str> = (0..dice.random_range(4..16)).map(|_| pick(WORDS, dice)).collect();
            json!({ "author": pick(PEOPLE, dice), "sha": format!("{:016x}", dice.random::<u64>()), "message": message.join(" ") })
        })
        .collect();
    let data = json!({
        "number": number,
        "sender": pick(PEOPLE, dice),
        "repository": { "name": repository, "description": format!("The {repository} of the demonstration") },
        "commits": commits,
    });
    Ok(Line {
        r#type: pick(TYPES, dice).to_owned(),
        subject: format!("repository/{repository}"),
        data: Payload::of(&data)?,
    })
}

fn pick<'a>(from: &[&'a str], dice: &mut StdRng) -> &'a str {
    from.get(dice.random_range(0..from.len())).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_events_are_always_the_same_and_of_every_type() {
        let events = events().unwrap();
        assert_eq!(events, super::events().unwrap());
        assert_eq!(events.len(), EVENTS);
        for name in TYPES {
            assert!(events.iter().any(|event| event.r#type == *name), "{name}");
        }
    }
}
