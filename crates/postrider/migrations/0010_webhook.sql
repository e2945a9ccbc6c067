-- Webhooks: endpoints, their secrets, and one row for every POST, written before it.
-- Locks: none that matter, everything here is new.
-- By hand on a large table: nothing.
--
-- An endpoint is a subscription of kind webhook.deliver with a url; a delivery is a job of that subscription. Deleting an
-- endpoint keeps its row, so that attempts stay readable; its secrets and its subscription go.

create sequence postrider.endpoint_id;
create table postrider.endpoint (
    id                bigint      not null primary key,
    subscription      bigint      not null,
    name              text        not null,
    owner             text collate "C" not null default '',
    url               text        not null,
    types             text[]      not null,
    labels            json        not null default '{}',
    max_in_flight     smallint    not null default 5,
    rate_starts       int,
    rate_per          interval,
    format            smallint    not null default 1,
    schedule          text,                          -- the name of the schedule that steps_ms come from, if they have one
    steps_ms          bigint[],                      -- waits after failed attempts; null: what the kind says
    timeout_ms        int         not null,
    max_attempts      smallint    not null,
    on_4xx            text        not null default 'retry',
    answer_contains   text,                          -- else an answer of 2xx is no success
    headers           bytea,                         -- sealed, like the secrets
    headers_key       text,
    header_names      text[]      not null default '{}',
    revision          int         not null default 1,
    created_at        timestamptz not null default clock_timestamp(),
    enabled_at        timestamptz not null default clock_timestamp(),
    disabled_at       timestamptz,
    disabled_reason   text,
    disabled_evidence json,                          -- the last attempts before it
    deleted_at        timestamptz,
    constraint a_subscription_has_one_endpoint unique (subscription),
    constraint timeout_is_1_to_60_seconds check (timeout_ms between 1000 and 60000),
    constraint max_attempts_is_1_to_18 check (max_attempts between 1 and 18),
    constraint max_in_flight_is_1_to_32 check (max_in_flight between 1 and 32),
    constraint a_rate_has_starts_and_a_period check ((rate_starts is null) = (rate_per is null)),
    constraint on_4xx_is_retry_or_discard check (on_4xx in ('retry', 'discard')),
    constraint headers_have_a_key check ((headers is null) = (headers_key is null)),
    constraint a_disabled_endpoint_says_why check ((disabled_at is null) = (disabled_reason is null))
);
create unique index an_owner_names_an_endpoint_once on postrider.endpoint (owner, name) where deleted_at is null;

-- Sealed by the program with a key that the database never sees; more than one is valid while secrets rotate.
-- kind: v1, a secret that both sides know; v1a, the private half of a key pair.
create table postrider.endpoint_secret (
    id          uuid        not null primary key,
    endpoint    bigint      not null references postrider.endpoint (id) on delete cascade,
    kind        text        not null,
    sealed      bytea       not null,
    key_id      text        not null,
    valid_from  timestamptz not null default clock_timestamp(),
    valid_until timestamptz,
    constraint kind_is_v1_or_v1a check (kind in ('v1', 'v1a')),
    constraint a_secret_ends_after_it_begins check (valid_until >= valid_from)
);
create index secret_of_endpoint on postrider.endpoint_secret (endpoint);

-- The function that is asked about each delivery before it is sent, if the application has declared one; how often it failed to say, and with what
-- it did last.
create table postrider.scope_function (
    one         boolean     not null primary key default true,
    schema      text        not null,
    name        text        not null,
    declared_at timestamptz not null default clock_timestamp(),
    failures    bigint      not null default 0,
    failed_at   timestamptz,
    error       text,
    constraint there_is_one_scope_function check (one),
    constraint a_failure_has_a_time_and_an_error check ((failed_at is null) = (error is null) and (failed_at is null) = (failures = 0))
) with (fillfactor = 50);

-- How an endpoint does. failing_since: most of its attempts fail. silent_since, failed: since when none succeeded, and how many failed since.
-- in_flight: how many may run at a time while it is tried out again; null: as many as it may. pace_ms: one start in so much time, while what
-- has waited is made up for. The row is locked before any other of its endpoint.
create table postrider.endpoint_health (
    endpoint      bigint      not null primary key references postrider.endpoint (id) on delete cascade,
    failing_since timestamptz,
    silent_since  timestamptz,
    failed        int         not null default 0,
    warned        smallint    not null default 0,
    in_flight     smallint,
    pace_ms       bigint
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);

-- Attempts of an endpoint in five minutes, from `slot` on.
create table postrider.endpoint_window (
    endpoint  bigint      not null,
    slot      timestamptz not null,
    delivered int         not null default 0,
    failed    int         not null default 0,
    primary key (endpoint, slot)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);

-- One row for each POST. It is written in the transaction that claims the job, without an outcome: what still has none
-- was perhaps sent and perhaps not. No foreign keys: rows leave with their partition, endpoints are never removed.
create table postrider.delivery_attempt (
    class          smallint    not null,
    id             bigint      not null,
    lease          bigint      not null,
    attempt        smallint    not null,
    endpoint       bigint,
event          uuid,
    sent_as        uuid,                             -- the id that the request carried, if it is not the event's
    trigger        text        not null,
    started_at     timestamptz not null default clock_timestamp(),
    ended_at       timestamptz,
    outcome        text,
    reason         text,
    status         smallint,
    failure        text,
    excerpt        text,
    headers        json,
    request_sha256 bytea,
    peer           text,
    dns_us         bigint,
    connect_us     bigint,
    tls_us         bigint,
    first_byte_us  bigint,
    total_us       bigint,
    primary key (class, id, lease),
    constraint trigger_is_auto_manual_replay_test_probe_or_pull
        check (trigger in ('auto', 'manual', 'replay', 'test', 'probe', 'pull')),
    constraint outcome_is_delivered_failed_postponed_discarded_or_skipped
        check (outcome in ('delivered', 'failed', 'postponed', 'discarded', 'skipped')),
    constraint an_attempt_has_an_outcome_once_it_ended check ((ended_at is null) = (outcome is null))
) partition by range (class, id);
create index delivery_attempt_recent on postrider.delivery_attempt (started_at);
create index delivery_attempt_of_endpoint on postrider.delivery_attempt (endpoint, started_at);
create index delivered_event on postrider.delivery_attempt (endpoint, event) where outcome = 'delivered';

insert into postrider.partitioned (name, unit) values ('delivery_attempt', 'job');
select postrider.make_partitions('delivery_attempt');
