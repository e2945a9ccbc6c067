//! A stage for deliveries: a database, a bus that delivers with quick retries, endpoints, and receivers.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use postrider::{Bus, EventTypeSpec, Kind, KindSpec, NewEvent, Payload, Retry, Running, Settings, Timestamp};
use postrider_testkit::TestDb;
use postrider_webhook::{
    Client, Clock, Deliverer, Delivery, EndpointId, Endpoints, Guard, NewEndpoint, QUEUE, Seal, kind_spec, replay_kind,
};
use sqlx::PgPool;

/// The base64 of 32 bytes of 1.
pub(crate) const SEAL_KEY: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";
/// Deliveries at a time, over all endpoints.
pub(crate) const SLOTS: usize = 64;
pub(crate) const GRACE: Duration = Duration::from_secs(10);

pub(crate) struct Stage {
    pub(crate) db: TestDb,
    pub(crate) bus: Bus,
    pub(crate) running: Running,
    pub(crate) endpoints: Endpoints,
}

impl Stage {
    pub(crate) async fn set() -> Self {
        Self::with_slots(SLOTS).await
    }

    pub(crate) async fn with_slots(slots: impl Into<Option<usize>>) -> Self {
        let db = TestDb::fresh().await;
        let (bus, running) = deliver(db.pool(), Seal::parse([SEAL_KEY]).unwrap(), slots).await;
        let endpoints = Endpoints::new(db.pool().clone(), Seal::parse([SEAL_KEY]).unwrap(), guard());
        Self { db, bus, running, endpoints }
    }

    pub(crate) fn pool(&self) -> &PgPool {
        self.db.pool()
    }

    /// An endpoint of the instance for `order.*`; its id and its secret.
    pub(crate) async fn endpoint(&self, name: &str, url: &str) -> (EndpointId, String) {
        self.create(NewEndpoint::new(name, url, ["order.*"])).await
    }

    pub(crate) async fn create(&self, new: NewEndpoint) -> (EndpointId, String) {
        let created = self.endpoints.create(new).await.unwrap();
        (created.id, created.secret.reveal().to_string())
    }

    pub(crate) async fn record(&self, r#type: &str, owner: &str, data: &str) -> String {
        let event =
            NewEvent { owner: owner.into(), ..NewEvent::new(r#type, "order/42", Payload::parse(data).unwrap()) };
        let mut connection = self.pool().acquire().await.unwrap();
        self.bus.recorder().record(&mut *connection, &event).await.unwrap().id.to_string()
    }

    /// Polls until the newest delivery is in a state; its end is a failure.
    pub(crate) async fn until(&self, state: &str) -> Delivery {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
        loop {
            let newest = self.endpoints.deliveries(1).await.unwrap().into_iter().next();
            if let Some(delivery) = &newest
                && delivery.state == state
            {
                return delivery.clone();
            }
            assert!(tokio::time::Instant::now() < deadline, "{newest:?} never became {state}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub(crate) async fn strike(self) {
        self.running.stop(GRACE).await;
    }
}

/// The loopback stands for the public internet here.
pub(crate) fn guard() -> Guard {
    Guard::new(["127.0.0.1/32"]).unwrap()
}

/// Starts a process that delivers, with retries after 10 ms and a clock that is one second later at each look.
pub(crate) async fn deliver(pool: &PgPool, seal: Seal, slots: impl Into<Option<usize>>) -> (Bus, Running) {
    let looks = AtomicI64::new(0);
    let clock = Clock::telling(move || {
        let now = Clock::system().now().as_micros();
        Timestamp::from_micros(now + looks.fetch_add(1, Ordering::SeqCst) * 1_000_000)
    });
    let deliverer = Deliverer::new(pool.clone(), seal, Client::new(guard(), []).unwrap()).clock(clock);
    let spec = KindSpec { retry: Retry::Steps(vec![Duration::from_millis(10)]), ..kind_spec() };
    let settings = Settings { beat: Duration::from_millis(100), ..Settings::default() };
    let mut builder = Bus::builder(pool.clone());
    if let Some(slots) = slots.into() {
        builder = builder.concurrency(QUEUE, slots);
    }
    let bus = builder
        .app("test")
        .types([
            EventTypeSpec::new("order.paid").public(),
            EventTypeSpec::new("order.shipped").public(),
            EventTypeSpec::new("order.audited"),
        ])
        .kinds([Kind::component(spec).handler(Arc::new(deliverer)), replay_kind(pool.clone())])
        .settings(settings)
        .build()
        .await
        .unwrap();
    let running = bus.start().unwrap();
    (bus, running)
}
