/// A name of configuration: one key, which is also an environment variable and a flag.
#[derive(Debug, Clone, Copy)]
pub struct Name {
    /// The key in `postrider.toml`, in `snake_case`.
    pub key: &'static str,
    /// What it takes, with its unit.
    pub takes: &'static str,
    /// What it is when nobody says.
    pub default: Default,
    /// The commands that read it.
    pub commands: &'static [&'static str],
    /// What it does.
    pub meaning: &'static str,
}

/// The value of a name that nobody gave.
#[derive(Debug, Clone, Copy)]
pub enum Default {
    /// This text, read like any other value.
    Text(&'static str),
    /// No text; the sentence says what happens.
    Said(&'static str),
}

impl Name {
    /// The environment variable: the key in upper case behind `POSTRIDER_`.
    pub fn env(&self) -> String {
        format!("POSTRIDER_{}", self.key.to_uppercase())
    }

    /// The flag, without its dashes.
    pub fn flag(&self) -> String {
        self.key.replace('_', "-")
    }
}

/// The name with this key.
pub fn named(key: &str) -> Option<&'static Name> {
    NAMES.iter().find(|name| name.key == key)
}

/// Every name there is. `docs/configuration.md` prints this list; a test keeps them equal.
pub const NAMES: &[Name] = &[
    Name {
        key: "database_url",
        takes: "a `postgres://` URL",
        default: Default::Said("`DATABASE_URL`; without that, `dev` starts a Postgres of its own"),
        commands: &["dev", "serve", "migrate", "verify", "outbound"],
        meaning: "The database. Shown nowhere: it may hold a password.",
    },
    Name {
        key: "database_connections",
        takes: "a number of connections, 2 to 1000",
        default: Default::Text("10"),
        commands: &["dev", "serve"],
        meaning: "The most connections of the pool that the bus is given.",
    },
    Name {
        key: "pooler",
        takes: "`none` or `transaction`",
        default: Default::Text("none"),
        commands: &["serve"],
        meaning: "What stands before the database. `transaction` is a pooler such as PgBouncer in transaction mode; `migrate` needs no word of it.",
    },
    Name {
        key: "direct_url",
        takes: "a `postgres://` URL",
        default: Default::Said("none: without a pooler `database_url` is direct"),
        commands: &["serve"],
        meaning: "The same database past the pooler, for the one connection that listens. Shown nowhere: it may hold a password.",
    },
    Name {
        key: "wake_ups",
        takes: "`listen` or `poll`",
        default: Default::Text("listen"),
        commands: &["serve"],
        meaning: "How the process learns that there is work: by notifications, or by looking every `poll_interval`.",
    },
    Name {
        key: "poll_interval",
        takes: "whole milliseconds, 10 to 3600000",
        default: Default::Text("1000"),
        commands: &["serve"],
        meaning: "How often an idle process looks for work while no notification can tell it.",
    },
    Name {
        key: "listen",
        takes: "an IP address and a port; port 0 takes a free one",
        default: Default::Text("127.0.0.1:7117"),
        commands: &["dev", "serve"],
        meaning: "Where HTTP is served. The page has no sign-in, so only loopback addresses show it; others serve `/healthz` and `/readyz` alone.",
    },
    Name {
        key: "roles",
        takes: "a list of `relay`, `work`, `housekeeping`",
        default: Default::Text("relay,work,housekeeping"),
        commands: &["serve"],
        meaning: "What this process does: `relay` turns events into jobs, `work` delivers webhooks, `housekeeping` keeps the next partitions there and forgets old idempotency keys.",
    },
    Name {
        key: "instance",
        takes: "a name, such as `production`",
        default: Default::Said("none: it fits every database"),
        commands: &["serve"],
        meaning: "The instance that this process is meant for. The first name that is told to a database becomes its own; on a database with another one, such as a copy, outbound work is held.",
    },
    Name {
        key: "queue_concurrency",
        takes: "a number of jobs, 1 to 10000",
        default: Default::Text("8"),
        commands: &["dev"],
        meaning: "How many jobs of handlers run at a time.",
    },
    Name {
        key: "webhook_concurrency",
        takes: "a number of deliveries, 1 to 10000",
        default: Default::Text("16"),
        commands: &["dev", "serve"],
        meaning: "How many webhook deliveries run at a time, over all endpoints.",
    },
    Name {
        key: "allow_cidrs",
        takes: "a list of CIDRs, such as `10.0.0.0/8`",
        default: Default::Text(""),
        commands: &["dev", "serve"],
        meaning: "Private networks that endpoints may point into, also over plain http. `dev` adds the loopback of its own receiver.",
    },
    Name {
        key: "seal_key",
        takes: "a list of 32 bytes in base64 each, as `openssl rand -base64 32` prints them",
        default: Default::Said(
            "`dev` makes one and keeps it in the data directory; `serve` needs it for the role `work`",
        ),
        commands: &["dev", "serve"],
        meaning: "The keys of the secrets of endpoints in the database: the first one seals, all of them open. Shown nowhere. Without the right one no delivery can be signed.",
    },
    Name {
        key: "grace",
        takes: "whole seconds, 0 to 3600",
        default: Default::Text("30"),
        commands: &["dev", "serve"],
        meaning: "How long running work may take to finish at a stop. A second signal cuts it at once.",
    },
    Name {
        key: "log",
        takes: "a filter, such as `info` or `warn,postrider=debug`",
        default: Default::Said("`warn`; `error` for `dev`, whose receiver fails on purpose"),
        commands: &["dev", "serve", "migrate", "verify", "outbound"],
        meaning: "What is written to the standard error.",
    },
    Name {
        key: "data_dir",
        takes: "a directory",
        default: Default::Said(
            "`$XDG_DATA_HOME/postrider/dev`, else `~/.local/share/postrider/dev`; for root `/var/lib/postrider/dev`",
        ),
        commands: &["dev"],
        meaning: "Where `dev` keeps its Postgres and the key that it makes.",
    },
    Name {
        key: "pg_bin",
        takes: "a directory",
        default: Default::Said("`PATH`, then the known places of this system"),
        commands: &["dev"],
        meaning: "Where `postgres` and `initdb` are.",
    },
    Name {
        key: "events",
        takes: "a file of events as NDJSON, plain or gzip",
        default: Default::Said("`.cache/events.ndjson` if there is one, else events that the program makes itself"),
        commands: &["dev"],
        meaning: "The events that `dev` records, again and again.",
    },
    Name {
        key: "rate",
        takes: "events per second, above 0, up to 100000",
        default: Default::Text("20"),
        commands: &["dev"],
        meaning: "How fast `dev` records them.",
    },
];
