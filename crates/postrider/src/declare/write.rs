use std::time::Duration;

use postrider_contract::{EventTypeSpec, KindSpec, Order, OrderBy, SubscriptionSpec, Unique};
use serde::Serialize;
use serde_json::json;

use crate::job::retry;

/// What an application declares. Types are written as they are, so that the bytes of their schemas are kept.
#[derive(Serialize)]
pub(super) struct Declared<'a> {
    pub(super) app: &'a str,
    pub(super) generation: i64,
    pub(super) types: &'a [EventTypeSpec],
    pub(super) kinds: Vec<serde_json::Value>,
    pub(super) subscriptions: Vec<serde_json::Value>,
    pub(super) schedules: Vec<serde_json::Value>,
    pub(super) attended: bool,
}

pub(super) fn kind_json(spec: &KindSpec) -> serde_json::Value {
    json!({
        "name": spec.name, "queue": spec.queue, "priority": spec.priority, "max_attempts": spec.max_attempts,
        "timeout_ms": ms(spec.timeout), "retry": retry::write(&spec.retry), "class": spec.class,
        "unique_mode": spec.unique.map(Unique::name), "unique_for_ms": spec.unique.and_then(Unique::window_ms),
        "max_age_ms": ms(spec.max_age), "order_policy": spec.order.policy(), "fair": spec.fair,
        "limit": spec.limit.map(|limit| json!({
            "most": limit.most, "starts": limit.rate.map(|rate| rate.starts), "per_ms": limit.rate.map(|rate| ms(rate.per)),
        })),
    })
}

pub(super) fn subscription_json(spec: &SubscriptionSpec) -> serde_json::Value {
    json!({
        "name": spec.name, "types": spec.types, "kind": spec.kind, "owner": spec.owner, "delay_ms": ms(spec.delay),
        "predicate": spec.predicate, "order_by": spec.order_by.map(OrderBy::name), "order_policy": spec.order.map(Order::policy),
        "coalescing": spec.coalescing, "start": spec.start.text(),
    })
}

pub(super) fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
