//! What is looked at before a process may work: the schema, a pooler that nobody told of, and the connections that are free.

use sqlx::{Connection as _, PgConnection, PgPool};

use super::{Settings, WakeUps, pg};
use crate::error::{Error, Shortage};
use crate::migrate::{self, Component};
use crate::pg::{Pooler, connect, refuse_unknown};

/// Refuses a process that could not work here; answers with a connection for its declarations. `queues` are those that it works on.
pub(crate) async fn admit(pool: &PgPool, settings: &Settings, queues: &[&str]) -> Result<PgConnection, Error> {
    let options = pool.connect_options();
    let mut connection = connect(&options).await?;
    migrate::check_on(&mut connection, &[Component::Core]).await?;
    if settings.pooler == Pooler::None {
        let mut second = connect(&options).await?;
        refuse_unknown(&mut connection, &mut second).await?;
        let _ = second.close().await;
        // behind a pooler the connections of the server are the pooler's; one that only records opens none but the pool's
        let works = !queues.is_empty() || !settings.work && (settings.relay || settings.housekeeping);
        if works {
            room(pool, settings, queues, &mut connection).await?;
        }
    }
    Ok(connection)
}

async fn room(pool: &PgPool, settings: &Settings, queues: &[&str], connection: &mut PgConnection) -> Result<(), Error> {
    let limits = pg::limits(connection).await?;
    let still = pool.options().get_max_connections().saturating_sub(pool.size());
    shortage(needs(settings, queues, still), &limits).map_or(Ok(()), |shortage| Err(Error::Connections(shortage)))
}

/// What a process opens beside the connections that it has.
fn needs(settings: &Settings, queues: &[&str], pool: u32) -> Vec<(String, u32)> {
    let parts = [
        ("beat", true),
        ("listen", settings.wake_ups == WakeUps::Listen),
        ("finish", !queues.is_empty()),
        ("relay", settings.relay),
        ("housekeeping", settings.housekeeping),
        ("schedules", settings.schedules),
    ];
    let own = parts.into_iter().filter(|(_, opens)| *opens).map(|(part, _)| (part.to_owned(), 1));
    let claims = queues.iter().map(|queue| (format!("claim of queue {queue}"), 1));
    own.chain(claims).chain([("pool".to_owned(), pool)]).collect()
}

/// How many connections somebody may have, and how many there are; a negative number means no limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Limit {
    pub(super) of: &'static str,
    pub(super) most: i64,
    pub(super) reserved: i64,
    pub(super) in_use: i64,
}

impl Limit {
    fn free(&self) -> i64 {
        (self.most - self.reserved - self.in_use).max(0)
    }
}

/// The tightest limit, if what is needed does not fit.
fn shortage(needs: Vec<(String, u32)>, limits: &[Limit]) -> Option<Shortage> {
    let sum: i64 = needs.iter().map(|(_, count)| i64::from(*count)).sum();
    let tightest = limits.iter().filter(|limit| limit.most >= 0).min_by_key(|limit| limit.free())?;
    (sum > tightest.free()).then(|| Shortage {
        needs,
        free: u32::try_from(tightest.free()).unwrap_or(u32::MAX),
        limit: format!(
            "the {} allows {}, {} are reserved, {} in use",
            tightest.of, tightest.most, tightest.reserved, tightest.in_use
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: Limit = Limit { of: "server", most: 100, reserved: 3, in_use: 70 };

    #[test]
    fn what_is_opened_is_named_part_by_part() {
        let all = needs(&Settings::default(), &["default", "mail"], 10);
        let names: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
        let expected = ["beat", "listen", "finish", "relay", "housekeeping", "schedules", "claim of queue default"];
        assert_eq!(names[..7], expected);
        assert_eq!(all.iter().map(|(_, n)| n).sum::<u32>(), 18);
        let settings =
            Settings { wake_ups: WakeUps::Poll, housekeeping: false, schedules: false, ..Settings::default() };
        assert_eq!(needs(&settings, &[], 2).len(), 3, "the beat, the relay, and the pool");
    }

    #[test]
    fn the_tightest_limit_is_told_and_an_absent_one_is_none() {
        let of = |count| vec![("pool".to_owned(), count)];
        let role = Limit { of: "role", most: 40, reserved: 0, in_use: 20 };
        let without = Limit { of: "database", most: -1, reserved: 0, in_use: 70 };
        let limits = [SERVER, role, without];
        assert_eq!(shortage(of(20), &limits), None);
        let told = shortage(of(21), &limits).unwrap();
        assert_eq!((told.free, told.limit.as_str()), (20, "the role allows 40, 0 are reserved, 20 in use"));
        assert_eq!(shortage(of(27), &[SERVER]), None);
        assert!(shortage(of(28), &[SERVER]).is_some());
    }
}
