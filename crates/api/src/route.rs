//! The one route table: method, template, Azure action, who may, handler.
//!
//! R1 every route has an action; a route without one fails the tests;
//! R2 a request is authorised before its body is read;
//! R3 templates are matched without case.

use axum::{
    body::{Body, HttpBody},
    extract::Request,
    http::{HeaderValue, Method, StatusCode, Uri, header},
    response::Response,
};
use futures_util::future::BoxFuture;
use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task,
};
use tower::Service;

use crate::{
    Api, Scheme,
    arm::put,
    call::{Base, Call},
    identity::Caller,
    kube,
    plane::mlflow,
    problem::{Answer, Problem},
    runs,
};

/// Largest JSON body of an ARM or data-plane request: Azure's own limit.
pub const ARM_BODY_LIMIT: usize = 4 * 1024 * 1024;
/// Largest body of a request that nobody is known to have sent: a form with a secret or a code, or a refresh token.
const OWN_BODY_LIMIT: usize = 16 * 1024;

/// Who may use a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// Everybody: it says nothing about the server's content.
    Open,
    /// Who may do the route's action where its path points (`identity::gate`).
    Token,
    /// Everybody who has signed in: no role is needed.
    Signed,
    /// Who shows the handler a credential of its own kind: a secret, a code, a job's key.
    Own,
    /// As `Token`, or who holds the credential of a run of the workspace that goes on; refusals are MLflow's.
    Run,
    /// Who holds the credential of a node.
    Agent,
    /// Who holds a shared access signature, or may do the route's action in the workspace of the container; refusals are XML.
    Blob,
    /// As `Token`; refusals are `Status` objects of Kubernetes.
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

/// The service: give it requests from TLS or plain connections, saying which (`over`).
#[derive(Clone)]
pub struct Routes {
    api: Arc<Api>,
    /// By lower-cased path, the routes of each method.
    paths: Arc<matchit::Router<Vec<&'static Route>>>,
    scheme: Option<Scheme>,
}

impl Routes {
    pub(crate) fn new(api: Api) -> Routes {
        let mut by_path: BTreeMap<String, Vec<&'static Route>> = BTreeMap::new();
        for route in crate::table::ROUTES {
            let path = lower_template(route.template);
            by_path.entry(path).or_default().push(route);
        }
        let mut paths = matchit::Router::new();
        for (path, routes) in by_path {
            let inserted = paths.insert(path, routes);
            inserted.expect(
                "no two templates of the table mean the same paths; a test makes the table",
            );
        }
        Routes {
            api: Arc::new(api),
            paths: Arc::new(paths),
            scheme: None,
        }
    }

    /// The same for connections of one kind. Without it a request says so among its extensions, or counts as https.
    #[must_use]
    pub fn over(&self, scheme: Scheme) -> Routes {
        Routes {
            scheme: Some(scheme),
            ..self.clone()
        }
    }

    async fn answer(self, mut request: Request) -> Response {
        if let Some(scheme) = self.scheme {
            request.extensions_mut().insert(scheme);
        }
        let path = folded(request.uri().path());
        let Some(routes) = self.paths.at(&path).ok().map(|found| found.value) else {
            let refused = not_found(&self.api, request).await;
            return finish(&request_id(), Guard::Open, refused);
        };
        let of = |method: &Method| routes.iter().copied().find(|r| r.method == *method);
        let read = of(&Method::GET).filter(|_| request.method() == Method::HEAD);
        match (of(request.method()), read) {
            (Some(route), _) => serve(self.api, route, request).await,
            (None, Some(route)) => without_body(serve(self.api, route, request).await),
            (None, None) => {
                let refused = wrong_method(&self.api, request).await;
                finish(&request_id(), Guard::Open, allowing(refused, routes))
            }
        }
    }
}

impl<B> Service<axum::http::Request<B>> for Routes
where
    B: HttpBody<Data = bytes::Bytes> + Send + 'static,
    B::Error: Into<axum::BoxError>,
{
    type Response = Response;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut task::Context<'_>) -> task::Poll<Result<(), Infallible>> {
        task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: axum::http::Request<B>) -> Self::Future {
        let routes = self.clone();
        Box::pin(async move { Ok(routes.answer(request.map(Body::new)).await) })
    }
}

/// The path as templates are matched with it (R3). Names of blobs may end with a slash; nothing else does.
fn folded(path: &str) -> String {
    let mut path = path.to_ascii_lowercase();
    if path.len() > 1 && path.ends_with('/') && !path.starts_with("/storage/") {
        path.pop();
    }
    path
}

/// The head of an answer to GET, with the length that the body would have.
fn without_body(mut response: Response) -> Response {
    if let Some(length) = response.body().size_hint().exact() {
        let headers = response.headers_mut();
        headers
            .entry(header::CONTENT_LENGTH)
            .or_insert(HeaderValue::from(length));
    }
    *response.body_mut() = Body::empty();
    response
}

/// A refusal of a method says which there are.
fn allowing(mut response: Response, routes: &[&Route]) -> Response {
    let mut methods: Vec<&str> = routes.iter().map(|r| r.method.as_str()).collect();
    if methods.contains(&"GET") && !methods.contains(&"HEAD") {
        methods.push("HEAD");
    }
    methods.sort_unstable();
    if let Ok(value) = HeaderValue::from_str(&methods.join(",")) {
        response.headers_mut().insert(header::ALLOW, value);
    }
    response
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

async fn not_found(api: &Api, request: Request) -> Response {
    let uri = request.uri().clone();
    if kube::holds(uri.path()) {
        return kube_refused(api, request, kube::nothing_here()).await;
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

/// A refusal of the Kubernetes part, which says nothing to those who have not signed in (I8).
async fn kube_refused(api: &Api, request: Request, refused: kube::Refused) -> Response {
    let uri = request.uri().clone();
    let (parts, _) = request.into_parts();
    match signed_in(api, &parts, &uri).await {
        Ok(_) => refused.into_response(),
        Err(_) => kube::denied().into_response(),
    }
}

async fn wrong_method(api: &Api, request: Request) -> Response {
    let uri = request.uri().clone();
    if kube::holds(uri.path()) {
        return kube_refused(api, request, kube::wrong_method()).await;
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

/// Who asks; 401 when that is nobody.
async fn signed_in(
    api: &Api,
    parts: &axum::http::request::Parts,
    uri: &Uri,
) -> Result<Caller, Problem> {
    let base = Base::of(parts, uri)?;
    let caller = api.caller(&parts.headers, &base).await;
    caller.ok_or_else(Problem::unauthorized)
}

/// Who asks, where the route wants that known, and whether that one may (R2).
async fn admitted(
    api: &Api,
    route: &'static Route,
    parts: &axum::http::request::Parts,
    uri: &Uri,
) -> Result<Option<Caller>, Problem> {
    match route.guard {
        Guard::Open | Guard::Own | Guard::Agent => Ok(None),
        // A signature may stand in place of a token: the handler knows for what.
        Guard::Blob => Ok(signed_in(api, parts, uri).await.ok()),
        Guard::Signed => signed_in(api, parts, uri).await.map(Some),
        Guard::Run if runs::admits(api, route, &parts.headers, uri) => Ok(None),
        Guard::Token | Guard::Kube | Guard::Run => {
            let caller = signed_in(api, parts, uri).await?;
            api.authorise(&caller, route, uri)?;
            Ok(Some(caller))
        }
    }
}

async fn serve(api: Arc<Api>, route: &'static Route, request: Request) -> Response {
    let id = request_id();
    let uri = request.uri().clone();
    let head = request.method() == Method::HEAD;
    let (parts, body) = request.into_parts();
    let response = match answer(api, route, parts, &uri, body).await {
        Ok(response) => response,
        Err(problem) if route.guard == Guard::Blob => problem.into_blob_response(head),
        Err(problem) if route.guard == Guard::Run && mlflow::holds(uri.path()) => {
            problem.into_mlflow_response()
        }
        Err(problem) if route.guard == Guard::Kube => kube::Refused::from(problem).into_response(),
        Err(problem) => problem.into_arm_response(),
    };
    finish(&id, route.guard, response)
}

async fn answer(
    api: Arc<Api>,
    route: &'static Route,
    parts: axum::http::request::Parts,
    uri: &Uri,
    body: Body,
) -> Answer {
    let caller = admitted(&api, route, &parts, uri).await;
    let caller = match caller {
        Err(problem)
            if route.guard == Guard::Kube && problem.status == StatusCode::UNAUTHORIZED =>
        {
            return Ok(kube::denied().into_response());
        }
        caller => caller?,
    };
    if let Handler::Switch(handler) = route.handler {
        return handler(&api, parts, uri);
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
    let of_mlflow = route.guard == Guard::Run && mlflow::holds(uri.path());
    if of_mlflow && !mlflow::speaks(call.param("v")) {
        return Err(mlflow::nothing_here(uri));
    }
    call.caller = caller;
    let spelling = match route.handler {
        Handler::Stream(_) => None,
        _ if of_mlflow => mlflow::plugin::Spelling::asked(&call.headers, &call),
        _ => None,
    };
    let limit = match route.guard {
        Guard::Own => OWN_BODY_LIMIT,
        _ => ARM_BODY_LIMIT,
    };
    // What everybody may ask takes no body: nothing of it is read.
    let body = if route.guard == Guard::Open {
        Body::empty()
    } else {
        body
    };
    let answered = match route.handler {
        Handler::Switch(_) => unreachable!("answered above"),
        Handler::Stream(handler) => handler(api, call, body).await,
        Handler::Now(handler) | Handler::Kept(handler) => {
            call.body = read(body, limit).await?;
            handler(&api, &call)
        }
        Handler::Ask(handler) => {
            call.body = read(body, limit).await?;
            match call.caller.as_ref().map(Caller::name) {
                Some(name) => put::acting_as(name.into(), handler(api, call)).await,
                None => handler(api, call).await,
            }
        }
        Handler::Block(handler) => {
            call.body = read(body, limit).await?;
            crate::blocking(move || handler(&api, &call)).await
        }
    };
    match spelling {
        Some(spelling) => spelling.apply(answered?).await,
        None => answered,
    }
}

async fn read(body: Body, limit: usize) -> Result<bytes::Bytes, Problem> {
    use http_body_util::{BodyExt, Limited};
    match Limited::new(body, limit).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => {
            Err(Problem::too_large(limit))
        }
        Err(_) => Err(Problem::bad("the body ended early")),
    }
}

fn finish(id: &str, guard: Guard, mut response: Response) -> Response {
    let headers = response.headers_mut();
    if let Ok(id) = HeaderValue::from_str(id) {
        headers.insert("x-ms-request-id", id);
    }
    // How a blob is kept by others is its owner's to say, and part of what copies of it keep.
    if guard != Guard::Blob {
        headers
            .entry(header::CACHE_CONTROL)
            .or_insert(HeaderValue::from_static("no-cache"));
    }
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
