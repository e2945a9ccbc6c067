use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::ask::Site;
use super::guard::{only_loopback, with_policy};
use super::page::{STYLE, not_found, notice, page};

/// How long a page may take; its statements are cut at the same time.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// Serves the page and the two answers for machines until it is told to stop.
pub async fn serve(listener: TcpListener, site: Arc<Site>, stop: CancellationToken) -> anyhow::Result<()> {
    let listens: SocketAddr = listener.local_addr()?;
    let router = Router::new()
        .route("/", get(show))
        .route("/page.css", get(style))
        .layer(from_fn_with_state(listens.ip(), only_loopback))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .fallback(|| async { (StatusCode::NOT_FOUND, not_found()) })
        .layer(from_fn(with_policy))
        .with_state(site);
    axum::serve(listener, router).with_graceful_shutdown(async move { stop.cancelled().await }).await?;
    Ok(())
}

async fn show(State(site): State<Arc<Site>>) -> Response {
    match timeout(ANSWER_MAX, site.view()).await {
        Ok(Ok(view)) => page(&view).into_response(),
        Ok(Err(error)) => {
            warn!("the page cannot be made: {:#}", error);
            unavailable("The database refused the page's questions; the log says why.")
        }
        Err(_) => unavailable("The database did not answer within 2 s."),
    }
}

fn unavailable(sentence: &str) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, notice(sentence)).into_response()
}

async fn style() -> Response {
    ([(CONTENT_TYPE, HeaderValue::from_static("text/css; charset=utf-8"))], STYLE).into_response()
}

async fn ready(State(site): State<Arc<Site>>) -> Response {
    match timeout(ANSWER_MAX, site.ready()).await {
        Ok(Ok(())) => "ready\n".into_response(),
        // What the database told may name hosts and users: the answer is for anybody.
        Ok(Err(error)) => {
            warn!("not ready: {error:#}");
            (StatusCode::SERVICE_UNAVAILABLE, "not ready: the log says why\n").into_response()
        }
        Err(_) => (StatusCode::SERVICE_UNAVAILABLE, "not ready: the database does not answer\n").into_response(),
    }
}
