//! Records an event in a transaction and sees it handled. `DATABASE_URL` names the database.
use postrider::{BoxError, Bus, NewEvent, Payload, Subscription, Verdict, handler, migrate};

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let pool = sqlx::PgPool::connect(&std::env::var("DATABASE_URL")?).await?;
    migrate::run(&pool, &[migrate::Component::Core]).await?;
    let (seen, mut handled) = tokio::sync::mpsc::unbounded_channel();
    let receipt = handler(move |job, _| {
        let _ = seen.send(job.event.as_ref().map(|event| event.subject.clone()));
        async { Ok(Verdict::Complete) }
    });
    let on_paid = Subscription::new("receipt.on-paid", ["order.paid"]).handler(receipt);
    let bus = Bus::builder(pool.clone()).types(["order.paid"]).subscriptions([on_paid]).build().await?;
    let running = bus.start()?;

    let mut tx = pool.begin().await?; // your own rows go into the same transaction
    bus.recorder().record(&mut *tx, &NewEvent::new("order.paid", "order/42", Payload::of(&("total", 10))?)).await?;
    tx.commit().await?;

    assert_eq!(handled.recv().await.flatten().as_deref(), Some("order/42"));
    running.stop(std::time::Duration::from_secs(5)).await;
    Ok(())
}
