use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use postrider_contract::{KindSpec, OrderBy, Start, SubscriptionSpec};

use crate::handle::Handler;

/// A kind of job, with the handler that runs it in this process, if one does.
#[derive(Clone)]
pub struct Kind {
    pub(super) spec: KindSpec,
    pub(super) handler: Option<Arc<dyn Handler>>,
    pub(super) component: bool,
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kind")
            .field("spec", &self.spec)
            .field("handled", &self.handler.is_some())
            .finish_non_exhaustive()
    }
}

impl Kind {
    /// A kind with the defaults.
    pub fn new(name: impl Into<String>) -> Self {
        Self::spec(KindSpec::new(name))
    }

    /// A kind as specified.
    pub fn spec(spec: KindSpec) -> Self {
        Self { spec, handler: None, component: false }
    }

    /// A kind of a component of Postrider itself, whose name is reserved.
    pub fn component(spec: KindSpec) -> Self {
        Self { spec, handler: None, component: true }
    }

    /// What it specifies.
    pub fn specified(&self) -> &KindSpec {
        &self.spec
    }

    /// The handler that runs it in this process, if one does.
    pub fn handled_by(&self) -> Option<&Arc<dyn Handler>> {
        self.handler.as_ref()
    }

    /// The same kind, run by this process.
    #[must_use]
    pub fn handler(mut self, handler: Arc<dyn Handler>) -> Self {
        self.handler = Some(handler);
        self
    }
}

/// A subscription, with the handler that runs its jobs in this process, if one does.
#[derive(Debug, Clone)]
pub struct Subscription {
    pub(super) spec: SubscriptionSpec,
    pub(super) kind: Option<Kind>,
}

impl Subscription {
    /// A subscription of every owner's events that match one of the patterns; its jobs are of a kind with the same name.
    pub fn new<T: Into<String>>(name: impl Into<String>, types: impl IntoIterator<Item = T>) -> Self {
        let name = name.into();
        Self { kind: Some(Kind::new(name.clone())), spec: SubscriptionSpec::new(name, types) }
    }

    /// A subscription as specified, whose kind is declared elsewhere.
    pub fn spec(spec: SubscriptionSpec) -> Self {
        Self { spec, kind: None }
    }

    /// The same subscription, whose own kind is as specified; the name is the subscription's.
    #[must_use]
    pub fn kind(mut self, spec: KindSpec) -> Self {
        self.spec.kind.clone_from(&spec.name);
        self.kind = Some(Kind { spec, handler: self.kind.and_then(|kind| kind.handler), component: false });
        self
    }

    /// The same subscription, of one owner's events only.
    #[must_use]
    pub fn owner(mut self, owner: impl Into<String>) -> Self {
        self.spec.owner = owner.into();
        self
    }

    /// The same subscription, whose jobs become due so long after their events.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.spec.delay = delay;
        self
    }

    /// The same subscription, of those events for which this SQL/JSON path over their data is true: see [`SubscriptionSpec::predicate`].
    #[must_use]
    pub fn predicate(mut self, path: impl Into<String>) -> Self {
        self.spec.predicate = Some(path.into());
        self
    }

    /// The same subscription, whose jobs run in the order of the events.
    #[must_use]
    pub fn order_by(mut self, order_by: OrderBy) -> Self {
        self.spec.order_by = Some(order_by);
        self
    }

    /// The same subscription, of which the events of a subject make one job while it waits, with the latest of them.
    #[must_use]
    pub fn coalescing(mut self) -> Self {
        self.spec.coalescing = true;
        self
    }

    /// The same subscription, which begins there when it is new.
    #[must_use]
    pub fn start(mut self, start: Start) -> Self {
        self.spec.start = start;
        self
    }

    /// The same subscription, handled by this process.
    #[must_use]
    pub fn handler(mut self, handler: Arc<dyn Handler>) -> Self {
        let kind = self.kind.unwrap_or_else(|| Kind::new(self.spec.kind.clone()));
        self.kind = Some(kind.handler(handler));
        self
    }
}
