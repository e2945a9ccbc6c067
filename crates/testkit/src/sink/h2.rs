use std::future::{pending, poll_fn};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::body::Bytes;
use axum::http::{Request as HttpRequest, Response};
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::reply::Reply;
use super::request::Request;
use super::serve::{Call, echo};
use super::{Shared, lock};

/// Serves one connection of HTTP/2, its streams side by side.
pub(super) async fn serve<S>(stream: S, call: Call, shared: &Arc<Shared>) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut connection = h2::server::handshake(stream).await.map_err(io::Error::other)?;
    let mut streams = JoinSet::new();
    while let Some(accepted) = connection.accept().await {
        let (request, answer) = accepted.map_err(io::Error::other)?;
        let shared = shared.clone();
        streams.spawn(async move {
            let _given_up = one(request, answer, call, &shared).await;
        });
    }
    Ok(())
}

async fn one(
    request: HttpRequest<RecvStream>,
    answer: SendResponse<Bytes>,
    call: Call,
    shared: &Shared,
) -> Result<(), h2::Error> {
    let (parts, mut body) = request.into_parts();
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let mut head = format!("{} {path} HTTP/2\r\n", parts.method);
    for (name, value) in [
        (":scheme", parts.uri.scheme_str()),
        (":authority", parts.uri.authority().map(axum::http::uri::Authority::as_str)),
    ] {
        head.extend([name, ": ", value.unwrap_or_default(), "\r\n"]);
    }
    let mut head = head.into_bytes();
    for (name, value) in &parts.headers {
        head.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
    }
    head.extend(b"\r\n");
    let mut bytes = Vec::new();
    while let Some(chunk) = body.data().await {
        let chunk = chunk?;
        body.flow_control().release_capacity(chunk.len())?;
        bytes.extend(chunk);
    }
    let (connection, dialled) = (call.number, call.dialled);
    let request = Request { at: Instant::now(), connection, dialled, head, body: bytes };
    lock(&shared.requests).push(request.clone());
    act(answer, shared.next_reply(), &request, shared).await
}

/// Does what the script says; bytes that are not HTTP/2 stand for a reset of the stream here.
async fn act(
    mut answer: SendResponse<Bytes>,
    reply: Reply,
    request: &Request,
    shared: &Shared,
) -> Result<(), h2::Error> {
    let mut reply = reply;
    while let Reply::After(wait, then) = reply {
        sleep(wait).await;
        reply = *then;
    }
    match reply {
        Reply::Status(status) => full(&mut answer, status, &[], Vec::new(), shared).await,
        Reply::Full(status, headers, body) => full(&mut answer, status, &headers, body, shared).await,
        Reply::Echo => full(&mut answer, 200, &[], echo(request), shared).await,
        Reply::Endless(_, again) => {
            let mut stream = answer.send_response(Response::new(()), false)?;
            loop {
                send(&mut stream, again.clone(), false, shared).await?;
            }
        }
        Reply::Stall(_) => pending().await,
        Reply::Refuse => {
            answer.send_reset(Reason::REFUSED_STREAM);
            Ok(())
        }
        _ => {
            answer.send_reset(Reason::INTERNAL_ERROR);
            Ok(())
        }
    }
}

async fn full(
    answer: &mut SendResponse<Bytes>,
    status: u16,
    headers: &[(String, String)],
    body: Vec<u8>,
    shared: &Shared,
) -> Result<(), h2::Error> {
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(name, value);
    }
    let Ok(response) = response.body(()) else {
        answer.send_reset(Reason::INTERNAL_ERROR);
        return Ok(());
    };
    let mut stream = answer.send_response(response, body.is_empty())?;
    if body.is_empty() { Ok(()) } else { send(&mut stream, body, true, shared).await }
}

/// Sends as the other side's window allows.
async fn send(stream: &mut SendStream<Bytes>, bytes: Vec<u8>, last: bool, shared: &Shared) -> Result<(), h2::Error> {
    let mut rest = Bytes::from(bytes);
    while !rest.is_empty() {
        stream.reserve_capacity(rest.len());
        let Some(room) = poll_fn(|cx| stream.poll_capacity(cx)).await else {
            return Err(Reason::CANCEL.into());
        };
        let part = rest.split_to(room?.min(rest.len()));
        shared.bytes_sent.fetch_add(part.len() as u64, Ordering::Relaxed);
        stream.send_data(part, last && rest.is_empty())?;
    }
    Ok(())
}
