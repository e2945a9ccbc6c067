use std::sync::{Arc, OnceLock};
use std::time::Duration;

use postrider::{
    Act, BoxError, Code, Context, Effect, Error, Job, Jobs, Kind, NewEvent, NewJob, Payload, Recorder, State, Verdict,
    Waited, handler, inspect,
};

use super::super::{App, Engine, Gate, Heard, Scene, gated, json, quick, refused, telling};

const SOON: Duration = Duration::from_mins(1);

/// A table for the effects of handlers.
async fn effects(scene: &Scene) {
    sqlx::query("create table public.effect (what text not null)").execute(scene.pool()).await.unwrap();
}

async fn count(scene: &Scene, what: &str) -> i64 {
    let sql = "select count(*) from public.effect where what = $1";
    sqlx::query_scalar(sql).bind(what).fetch_one(scene.pool()).await.unwrap()
}

async fn effect(tx: &mut sqlx::PgConnection, what: &str) -> Result<(), BoxError> {
    sqlx::query("insert into public.effect (what) values ($1)").bind(what).execute(tx).await?;
    Ok(())
}

/// True if the engine has no completion in a transaction; then it has refused one.
async fn lacks_completion(engine: &dyn Engine, scene: &Scene) -> bool {
    if scene.jobs().capabilities().transactional_completion {
        return false;
    }
    let (mouth, mut heard) = Heard::new();
    let kind = Kind::new("t.a").handler(handler(move |_: Arc<Job>, cx: Context| {
        let mouth = mouth.clone();
        async move {
            mouth.send(cx.begin().await.map(drop))?;
            Ok(Verdict::Complete)
        }
    }));
    let scene = Scene::at_work(engine, App::new([kind])).await;
    scene.enqueue(NewJob::new("t.a", json("{}"))).await;
    assert_eq!(refused(heard.next().await).0, Code::Capability);
    scene.stop().await;
    true
}

/// Says in its args what it does with its transaction, and then with its attempt.
async fn act(job: Arc<Job>, cx: Context, gate: Gate) -> Result<Verdict, BoxError> {
    let what: String = job.args.decode()?;
    let mut tx = cx.begin().await?;
    effect(&mut tx, &what).await?;
    gate.pass().await;
    if what.starts_with("commit") {
        tx.commit(None).await?;
    } else {
        drop(tx);
    }
    if what.ends_with("fail") { Err("on purpose".into()) } else { Ok(Verdict::Complete) }
}

/// Committed, it is completed whatever the handler says then; rolled back, the attempt goes on.
pub async fn a12_effects_and_the_end_of_the_attempt_commit_together_or_not_at_all(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let gate = Gate::default();
    let pass = gate.clone();
    let acts = Kind::spec(quick("t.a")).handler(handler(move |job: Arc<Job>, cx: Context| {
        let (told, gate) = (mouth.send(job.id.clone()), pass.clone());
        async move {
            told?;
            act(job, cx, gate).await
        }
    }));
    let scene = Scene::set(engine, App::new([acts])).await;
    if lacks_completion(engine, &scene).await {
        return;
    }
    effects(&scene).await;
    let words = ["commit", "commit then fail", "roll back", "roll back then fail"];
    let jobs = words.map(|word| NewJob { max_attempts: Some(1), ..NewJob::new("t.a", json(&format!("{word:?}"))) });
    let made = scene.jobs().enqueue(None, &jobs).await.unwrap();
    scene.start().await;
    for _ in words {
        heard.next().await;
    }
    for (made, word) in made.iter().zip(words) {
        assert_eq!((scene.job(&made.id).await.state, count(&scene, word).await), (State::Running, 0), "{word}");
    }
    gate.open(4);
    for (made, word) in made.iter().zip(words) {
        let end = if word == "roll back then fail" { State::Discarded } else { State::Completed };
        let view = scene.until(&made.id, end).await;
        assert_eq!(view.attempts.len(), usize::from(end == State::Discarded), "{word}");
        assert_eq!(count(&scene, word).await, i64::from(word.starts_with("commit")), "{word}");
    }
    scene.stop().await;
    assert!(heard.rest().is_empty());
}

/// The job was taken from its worker; its commit is refused, and the effect is that of the run that came after.
pub async fn a12_a_completion_whose_lease_is_lost_writes_nothing(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let gate = Gate::default();
    let pass = gate.clone();
    let acts = Kind::spec(quick("t.a")).handler(handler(move |job: Arc<Job>, cx: Context| {
        let (mouth, gate) = (mouth.clone(), pass.clone());
        async move {
            let mut tx = cx.begin().await?;
            effect(&mut tx, "it").await?;
            mouth.send((job.lease, None))?;
            gate.pass().await;
            let end = tx.commit(None).await;
            mouth.send((job.lease, Some(end.as_ref().map(drop).map_err(ToString::to_string))))?;
            end?;
            Ok(Verdict::Complete)
        }
    }));
    let scene = Scene::at_work(engine, App::new([acts])).await;
    if lacks_completion(engine, &scene).await {
        return;
    }
    if !scene.jobs().capabilities().leases {
        // nothing tells the end of one attempt from that of another
        return;
    }
    effects(&scene).await;
    let id = scene.enqueue(NewJob::new("t.a", json("{}"))).await;
    let (stale, _) = heard.next().await;
    scene.stage().rob(&id).await;
    gate.open(2);
    let mut ends = Vec::new();
    while ends.len() < 2 {
        let (lease, end) = heard.next().await;
        ends.extend(end.map(|end| (lease == stale, end)));
    }
    ends.sort();
    assert_eq!(ends, [(false, Ok(())), (true, Err(Error::LeaseLost.to_string()))]);
    let view = scene.until(&id, State::Completed).await;
    assert_eq!((view.attempts.len(), count(&scene, "it").await), (1, 1));
    assert_eq!(view.attempts[0].outcome, "lost");
    scene.stop().await;
}

/// In the transaction of a completion: they are there if and only if it commits.
pub async fn a13_follow_ups_and_events_commit_with_the_completion(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let jobs: Arc<OnceLock<Arc<dyn Jobs>>> = Arc::default();
    let door = Arc::clone(&jobs);
    let leads = Kind::spec(quick("t.lead")).handler(handler(move |job: Arc<Job>, cx: Context| {
        let door = door.get().cloned();
        async move {
            let door = door.ok_or("no door")?;
            let commits: bool = job.args.decode()?;
            let mut tx = cx.begin().await?;
            let follow = NewJob::new("t.follow", Payload::of(&commits)?);
            door.enqueue(Some(&mut *tx), &[follow]).await?;
            let subject = if commits { "kept" } else { "gone" };
            Recorder::new().record(&mut *tx, &NewEvent::new("t.happened", subject, Payload::of(&1)?)).await?;
            if commits {
                tx.commit(None).await?;
            }
            Ok(Verdict::Complete)
        }
    }));
    let mut app = App::new([leads, telling("t.follow", mouth)]);
    app.types.push(postrider::EventTypeSpec::new("t.happened"));
    let scene = Scene::set(engine, app).await;
    if lacks_completion(engine, &scene).await {
        return;
    }
    assert!(jobs.set(scene.jobs()).is_ok());
    scene.start().await;
    for commits in [false, true] {
        let id = scene.enqueue(NewJob::new("t.lead", json(&commits.to_string()))).await;
        scene.until(&id, State::Completed).await;
    }
    let follow = heard.next().await;
    assert_eq!(follow.args, json("true"));
    scene.until(&follow.id, State::Completed).await;
    let events = inspect::events(scene.pool(), 10).await.unwrap();
    let subjects: Vec<&str> = events.iter().map(|event| event.subject.as_str()).collect();
    assert_eq!(subjects, ["kept"]);
    scene.stop().await;
    assert!(heard.rest().is_empty());
}

/// A job that runs cannot be deleted; one that was taken from its worker, cancelled and deleted leaves nothing, whatever its worker says.
pub async fn a14_completing_a_job_that_was_deleted_meanwhile_changes_nothing(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let gate = Gate::default();
    let app = App::new([gated(quick("t.a"), mouth.clone(), &gate), telling("t.b", mouth)]);
    let scene = Scene::at_work(engine, app).await;
    let id = scene.enqueue(NewJob::new("t.a", json("{}"))).await;
    heard.next().await;
    let jobs = scene.jobs();
    let ids = std::slice::from_ref(&id);
    let deleted = jobs.act(None, Act::Delete, ids).await;
    if !jobs.capabilities().delete || !jobs.capabilities().pause || !jobs.capabilities().leases {
        if !jobs.capabilities().delete {
            assert_eq!(refused(deleted).0, Code::Capability);
        }
        gate.open(1);
        scene.until(&id, State::Completed).await;
        return;
    }
    assert_eq!(deleted.unwrap(), [Effect::Running]);
    jobs.pause("default", true).await.unwrap();
    scene.stage().rob(&id).await;
    assert_eq!(jobs.act(None, Act::Delete, ids).await.unwrap(), [Effect::Done]);
    jobs.pause("default", false).await.unwrap();
    gate.open(1);
    let other = scene.enqueue(NewJob::new("t.b", json("{}"))).await;
    scene.until(&other, State::Completed).await;
    scene.stop().await;
    assert_eq!(scene.inspector().job(&id).await.unwrap(), None);
    assert_eq!(jobs.act(None, Act::Retry, ids).await.unwrap(), [Effect::Unknown]);
    let all = scene.inspector().jobs(&postrider::Filter::default(), None, 10).await.unwrap();
    assert_eq!(all.jobs.len(), 1);
}

/// What a handler leaves, the last word of it, if it completes; at most 64 KiB.
pub async fn a15_an_output_is_kept_and_returned(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let kind = Kind::spec(quick("t.a")).handler(handler(move |job: Arc<Job>, cx: Context| {
        let mouth = mouth.clone();
        async move {
            let first = cx.output(json(r#"{"draft": true}"#));
            let large = cx.output(json(&format!("\"{}\"", "x".repeat(65_535))));
            mouth.send((first, large))?;
            if job.attempt == 1 {
                return Err("on purpose".into());
            }
            let _ = cx.output(json(r#"{"b": 1.0, "a": [2]}"#));
            Ok(Verdict::Complete)
        }
    }));
    let scene = Scene::at_work(engine, App::new([kind])).await;
    let id = scene.enqueue(NewJob::new("t.a", json("{}"))).await;
    let (first, large) = heard.next().await;
    if !scene.jobs().capabilities().output {
        assert_eq!(refused(first).0, Code::Capability);
        return;
    }
    first.unwrap();
    assert_eq!(refused(large), (Code::Size, "output".to_owned()));
    let Waited::Ended(waited) = scene.jobs().wait(&id, SOON).await.unwrap() else { panic!("it has not ended") };
    let got = scene.job(&id).await;
    assert_eq!((got.state, got.attempt), (State::Completed, 2));
    for output in [waited.output, got.output] {
        assert_eq!(output, Some(json(r#"{"b": 1.0, "a": [2]}"#)));
    }
    completes_with_output(engine).await;
    scene.stop().await;
}

/// The same at the end of a completion in a transaction; an attempt that does not complete leaves none.
async fn completes_with_output(engine: &dyn Engine) {
    let kind = Kind::spec(quick("t.a")).handler(handler(move |job: Arc<Job>, cx: Context| async move {
        cx.output(json("1"))?;
        if job.args == json("true") {
            cx.begin().await?.commit(Some(&json("[2]"))).await?;
            return Ok(Verdict::Complete);
        }
        Ok(Verdict::Discard("on purpose".into()))
    }));
    let scene = Scene::set(engine, App::new([kind])).await;
    if scene.jobs().capabilities().transactional_completion {
        scene.start().await;
        let kept = scene.enqueue(NewJob::new("t.a", json("true"))).await;
        assert_eq!(scene.until(&kept, State::Completed).await.output, Some(json("[2]")));
        let none = scene.enqueue(NewJob::new("t.a", json("false"))).await;
        assert_eq!(scene.until(&none, State::Discarded).await.output, None);
        scene.stop().await;
    }
}

/// 0 to 100 and a note; the last word counts, and it is gone with the attempt.
pub async fn a16_progress_is_readable_while_the_attempt_runs(engine: &dyn Engine) {
    let (mouth, mut heard) = Heard::new();
    let gate = Gate::default();
    let pass = gate.clone();
    let kind = Kind::spec(quick("t.a")).handler(handler(move |job: Arc<Job>, cx: Context| {
        let (mouth, gate) = (mouth.clone(), pass.clone());
        async move {
            for (percent, note) in [(10, "reading"), (55, "writing \0"), (250, "closing")] {
                cx.progress(percent, note);
                mouth.send(job.id.clone())?;
                gate.pass().await;
            }
            Ok(Verdict::Complete)
        }
    }));
    let scene = Scene::at_work(engine, App::new([kind])).await;
    let id = scene.enqueue(NewJob::new("t.a", json("{}"))).await;
    let has = scene.jobs().capabilities().progress;
    for (percent, note) in [(10, "reading"), (55, "writing \\0"), (100, "closing")] {
        heard.next().await;
        if has {
            let progress = crate::until(note, SOON, async || {
                scene.job(&id).await.progress.filter(|progress| progress.percent == percent)
            })
            .await;
            assert_eq!(progress.note, note);
        } else {
            assert_eq!(scene.job(&id).await.progress, None);
        }
        gate.open(1);
    }
    assert_eq!(scene.until(&id, State::Completed).await.progress, None);
    scene.stop().await;
}
