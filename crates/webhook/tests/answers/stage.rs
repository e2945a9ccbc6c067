use std::sync::Arc;
use std::time::Duration;

use postrider::{Bus, EventTypeSpec, Kind, KindSpec, NewEvent, Payload, Retry, Running, Settings};
use postrider_testkit::TestDb;
use postrider_webhook::{Client, Deliverer, EndpointId, Endpoints, Guard, NewEndpoint, Seal, kind_spec, replay_kind};
use sqlx::PgPool;

/// The base64 of 32 bytes of 1.
pub(crate) const SEAL_KEY: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";

/// A database, a bus that delivers, endpoints.
pub(crate) struct Stage {
    db: TestDb,
    pub(crate) bus: Bus,
    running: Running,
    pub(crate) endpoints: Endpoints,
}

impl Stage {
    /// Posts with a client of the test's, and retries as endpoints really do.
    pub(crate) async fn set(client: Client) -> Self {
        Self::with(client, kind_spec()).await
    }

    /// The same, with retries after 10 ms.
    pub(crate) async fn set_quick(client: Client) -> Self {
        Self::with(client, KindSpec { retry: Retry::Steps(vec![Duration::from_millis(10)]), ..kind_spec() }).await
    }

    async fn with(client: Client, spec: KindSpec) -> Self {
        let db = TestDb::fresh().await;
        let seal = || Seal::parse([SEAL_KEY]).unwrap();
        let deliverer = Deliverer::new(db.pool().clone(), seal(), client);
        let bus = Bus::builder(db.pool().clone())
            .app("test")
            .types([EventTypeSpec::new("order.paid").public()])
            .kinds([Kind::component(spec).handler(Arc::new(deliverer)), replay_kind(db.pool().clone())])
            .settings(Settings { beat: Duration::from_millis(100), ..Settings::default() })
            .build()
            .await
            .unwrap();
        let running = bus.start().unwrap();
        let endpoints = Endpoints::new(db.pool().clone(), seal(), guard());
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

    pub(crate) async fn record(&self, data: &str) -> String {
        let event = NewEvent::new("order.paid", "order/42", Payload::parse(data).unwrap());
        let mut connection = self.pool().acquire().await.unwrap();
        self.bus.recorder().record(&mut *connection, &event).await.unwrap().id.to_string()
    }

    pub(crate) async fn strike(self) {
        self.running.stop(Duration::from_secs(10)).await;
    }
}

/// The loopback stands for the public internet here.
pub(crate) fn guard() -> Guard {
    Guard::new(["127.0.0.1/32"]).unwrap()
}
