//! The one route table: method, template, Azure action, who may, handler.
//!
//! R1 every route has an action; a route without one fails the tests;
//! R2 a request is authorised before its body is read;
//! R3 templates are matched without case.

use axum::{
    Router,
    body::Body,
    extract::Request,
    http::{HeaderValue, Method, StatusCode, Uri, header},
    response::Response,
    routing::{MethodFilter, on},
};
use futures_util::future::BoxFuture;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use crate::{
    Api, Scheme,
    call::Call,
    kube,
    plane::mlflow,
    problem::{Answer, Problem},
    runs,
};

/// Largest JSON body of an ARM or data-plane request: Azure's own limit.
pub const ARM_BODY_LIMIT: usize = 4 * 1024 * 1024;

/// Who may use a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// Everybody: it says nothing about the server's content.
    Open,
    /// Who holds the server's token.
    Token,
    /// Who holds the credential of a node.
    Agent,
    /// Who holds the server's token, or the credential of a run of the workspace that goes on; refusals are MLflow's.
    Run,
    /// Who holds a shared access signature, or the server's token; refusals are XML.
    Blob,
    /// Who holds the server's token; refusals are `Status` objects of Kubernetes.
    Kube,
}

/// What answers.
#[derive(Clone, Copy)]
pub(crate) enum Handler {
    /// At once: memory and at most a point read of the store.
    Now(fn(&Arc<Api>, &Call) -> Answer),
    /// As `Now`, made of documents and the published view alone: the answer is kept until the next turn that changes something.
    Kept(fn(&Arc<Api>, &Call) -> Answer),
    /// On the blocking pool: pages of documents, series, folders.
    Block(fn(&Arc<Api>, &Call) -> Answer),
    /// Asks the loop.
    Ask(fn(Arc<Api>, Call) -> BoxFuture<'static, Answer>),
    /// Becomes a connection of bytes.
    Switch(fn(&Arc<Api>, axum::http::request::Parts, &Uri) -> Answer),
    /// Takes the body as it comes.
    Stream(fn(Arc<Api>, Call, Body) -> BoxFuture<'static, Answer>),
}

/// One route.
pub struct Route {
    /// HTTP method.
    pub method: Method,
    /// Path with `{name}` and, last, `{*name}`.
    pub template: &'static str,
    /// Azure's name of the action, for access rules.
    pub action: &'static str,
    /// Who may.
    pub guard: Guard,
    pub(crate) handler: Handler,
}

/// Builds the router from the table.
pub(crate) fn router(api: Arc<Api>) -> Router {
    let (nowhere, wrong) = (api.clone(), api.clone());
    let mut router = Router::new();
    for route in crate::table::ROUTES {
        let filter =
            MethodFilter::try_from(route.method.clone()).expect("the table holds standard methods");
        let state = api.clone();
        let endpoint = on(filter, move |request: Request| {
            serve(state.clone(), route, request)
        });
        router = router.route(&lower_template(route.template), endpoint);
    }
    router
        .fallback(move |request: Request| async move {
            finish(&request_id(), not_found(&nowhere, &request))
        })
        .method_not_allowed_fallback(move |request: Request| async move {
            finish(&request_id(), wrong_method(&wrong, &request))
        })
}

/// Lower-cases the path for matching and keeps the one that was sent (R3, Q1).
pub(crate) fn fold<B>(mut request: axum::http::Request<B>) -> axum::http::Request<B> {
    let sent = request.uri().clone();
    let mut path = sent.path().to_ascii_lowercase();
    if path.len() > 1 && path.ends_with('/') && !path.starts_with("/storage/") {
        path.pop();
    }
    if let Ok(folded) = Uri::builder().path_and_query(path).build() {
        *request.uri_mut() = folded;
    }
    request.extensions_mut().insert(Sent(sent));
    request
}

/// The URI as sent.
#[derive(Clone)]
struct Sent(Uri);

fn sent(request: &Request) -> Uri {
    request
        .extensions()
        .get::<Sent>()
        .map_or_else(|| request.uri().clone(), |s| s.0.clone())
}

/// `{Name}` keeps its spelling, everything else is lower case.
fn lower_template(template: &str) -> String {
    template
        .split('/')
        .map(|part| {
            if part.starts_with('{') {
                part.to_owned()
            } else {
                part.to_ascii_lowercase()
            }
        })
        .collect::<Vec<_>>()
        .join("/")
}

fn not_found(api: &Api, request: &Request) -> Response {
    let uri = sent(request);
    if kube::holds(uri.path()) {
        return kube_refused(api, request, kube::nothing_here());
    }
    if mlflow::holds(uri.path()) {
        return mlflow::nothing_here(&uri).into_mlflow_response();
    }
    Problem::new(
        StatusCode::NOT_FOUND,
        "NotFound",
        format!(
            "no route for {} {}",
            request.method(),
            wire::names::shown(uri.path())
        ),
    )
    .into_arm_response()
}

/// A refusal of the Kubernetes part, which says nothing to those without the token (I8).
fn kube_refused(api: &Api, request: &Request, refused: kube::Refused) -> Response {
    if api.admits(request.headers()) {
        refused.into_response()
    } else {
        kube::denied().into_response()
    }
}

fn wrong_method(api: &Api, request: &Request) -> Response {
    let uri = sent(request);
    if kube::holds(uri.path()) {
        return kube_refused(api, request, kube::wrong_method());
    }
    Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "MethodNotAllowed",
        format!(
            "{} is not possible on {}",
            request.method(),
            wire::names::shown(uri.path())
        ),
    )
    .into_arm_response()
}

async fn serve(api: Arc<Api>, route: &'static Route, request: Request) -> Response {
    let id = request_id();
    let uri = sent(&request);
    let head = request.method() == Method::HEAD;
    let (parts, body) = request.into_parts();
    let response = match answer(api, route, parts, &uri, body).await {
        Ok(response) => response,
        Err(problem) if route.guard == Guard::Blob => problem.into_blob_response(head),
        Err(problem) if route.guard == Guard::Run => problem.into_mlflow_response(),
        Err(problem) if route.guard == Guard::Kube => kube::Refused::from(problem).into_response(),
        Err(problem) => problem.into_arm_response(),
    };
    finish(&id, response)
}

async fn answer(
    api: Arc<Api>,
    route: &'static Route,
    parts: axum::http::request::Parts,
    uri: &Uri,
    body: Body,
) -> Answer {
    if route.guard == Guard::Token && !api.admits(&parts.headers) {
        return Err(Problem::unauthorized());
    }
    if let Handler::Switch(handler) = route.handler {
        return handler(&api, parts, uri);
    }
    if route.guard == Guard::Kube && !api.admits(&parts.headers) {
        return Ok(kube::denied().into_response());
    }
    if let Handler::Kept(handler) = route.handler {
        let scheme = parts.extensions.get().copied().unwrap_or(Scheme::Https);
        return match api.kept.look(scheme, &parts.headers, uri) {
            Ok(response) => Ok(response),
            Err(asked) => {
                let response = handler(&api, &Call::new(route, parts, uri)?)?;
                Ok(api.kept.keep(asked, response).await)
            }
        };
    }
    let mut call = Call::new(route, parts, uri)?;
    if route.guard == Guard::Run {
        if !api.admits(&call.headers) && !runs::admits(&api, &call) {
            return Err(Problem::unauthorized());
        }
        if !mlflow::speaks(call.param("v")) {
            return Err(mlflow::nothing_here(uri));
        }
    }
    // What everybody may ask takes no body: nothing of it is read.
    let body = if route.guard == Guard::Open {
        Body::empty()
    } else {
        body
    };
    match route.handler {
        Handler::Switch(_) => unreachable!("answered above"),
        Handler::Stream(handler) => handler(api, call, body).await,
        Handler::Now(handler) | Handler::Kept(handler) => {
            call.body = read(body).await?;
            handler(&api, &call)
        }
        Handler::Ask(handler) => {
            call.body = read(body).await?;
            handler(api, call).await
        }
        Handler::Block(handler) => {
            call.body = read(body).await?;
            crate::blocking(move || handler(&api, &call)).await
        }
    }
}

async fn read(body: Body) -> Result<bytes::Bytes, Problem> {
    use http_body_util::{BodyExt, Limited};
    match Limited::new(body, ARM_BODY_LIMIT).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => {
            Err(Problem::too_large(ARM_BODY_LIMIT))
        }
        Err(_) => Err(Problem::bad("the body ended early")),
    }
}

fn finish(id: &str, mut response: Response) -> Response {
    let headers = response.headers_mut();
    if let Ok(id) = HeaderValue::from_str(id) {
        headers.insert("x-ms-request-id", id);
    }
    headers
        .entry(header::CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-cache"));
    response
}

/// Different for every request of this process; in the form of a UUID because clients expect one.
fn request_id() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    let start = crate::time::now().0;
    format!(
        "{:08x}-{:04x}-4000-8000-{:012x}",
        (start >> 16) & 0xffff_ffff,
        start & 0xffff,
        n & 0xffff_ffff_ffff
    )
}
