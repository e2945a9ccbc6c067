//! E: a job is enqueued in the caller's transaction, or refused before anything is written.

use postrider::{NewJob, State};

use super::{App, Engine, Heard, Scene, json, telling};

/// This family's cases as tests.
#[macro_export]
macro_rules! conformance_enqueue {
    ($engine:expr) => {
        $crate::conformance_family!($engine, enqueue, [e1_a_job_exists_if_and_only_if_its_transaction_commits,]);
    };
}

/// Half of the transactions commit; exactly their jobs run.
pub async fn e1_a_job_exists_if_and_only_if_its_transaction_commits(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let scene = Scene::at_work(engine, App::new([telling("t.tell", mouth)])).await;
    let mut ids = Vec::new();
    for n in 0..4 {
        let mut tx = scene.pool().begin().await.unwrap();
        let job = NewJob::new("t.tell", json(&n.to_string()));
        let made = scene.jobs().enqueue(Some(&mut *tx), &[job]).await.unwrap();
        let end = if n % 2 == 0 { tx.commit().await } else { tx.rollback().await };
        end.unwrap();
        ids.extend(made.into_iter().map(|made| made.id));
    }
    for id in ids.iter().step_by(2) {
        scene.until(id, State::Completed).await;
    }
    for id in ids.iter().skip(1).step_by(2) {
        assert_eq!(scene.inspector().job(id).await.unwrap(), None);
    }
    let mut told = vec![heard.next().await.args, heard.next().await.args];
    told.sort_by(|a, b| a.as_str().cmp(b.as_str()));
    assert_eq!(told, [json("0"), json("2")]);
    scene.stop().await;
    assert!(heard.rest().is_empty());
}
