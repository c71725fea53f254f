//! The watches of a cluster: lists, then changes, for ever; broken ones begin again after a pause that grows.

use crate::trouble::{self, Kind};
use futures_util::{Stream, StreamExt, stream::BoxStream};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, Client, Resource,
    core::{ApiResource, DynamicObject, GroupVersionKind},
    runtime::{
        WatchStreamExt,
        utils::Backoff,
        watcher::{self, Event, watcher},
    },
};
use serde::de::DeserializeOwned;
use std::{
    fmt::Debug,
    time::{Duration, Instant},
};

/// Pause after the first failure of a watch.
const FIRST: Duration = Duration::from_millis(200);
/// Longest pause: what is seen of a cluster is not older than this after it is back.
const LONGEST: Duration = Duration::from_secs(10);

/// What a watch says.
pub enum Said<K> {
    /// An object, or the begin or end of a list.
    Event(Event<K>),
    /// It is broken for now.
    Broken {
        /// How.
        kind: Kind,
        /// For people.
        words: Box<str>,
    },
}

/// A watch.
pub type Watch<K> = BoxStream<'static, Said<K>>;

/// A watch that has failed begins with the first pause again when it was quiet for so long. One success is not enough: who may
/// list and not watch succeeds at every other request.
const QUIET: Duration = Duration::from_secs(20);

/// The pauses of one watch.
struct Patience {
    pause: Duration,
    last: Option<Instant>,
}

impl Patience {
    const fn new() -> Patience {
        Patience {
            pause: FIRST,
            last: None,
        }
    }

    fn after(&mut self, now: Instant) -> Duration {
        let quiet = |last| now.saturating_duration_since(last) > self.pause + QUIET;
        if self.last.is_some_and(quiet) {
            self.pause = FIRST;
        }
        self.last = Some(now);
        let pause = self.pause;
        self.pause = (pause * 2).min(LONGEST);
        pause
    }
}

impl Iterator for Patience {
    type Item = Duration;
    fn next(&mut self) -> Option<Duration> {
        Some(self.after(Instant::now()))
    }
}
impl Backoff for Patience {
    fn reset(&mut self) {} // see `QUIET`
}

fn watch<K>(api: Api<K>, resource: &'static str, url: &str) -> Watch<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    K::DynamicType: Default,
{
    said(watcher(api, watcher::Config::default()), resource, url)
}

fn said<K: Send + 'static>(
    events: impl Stream<Item = watcher::Result<Event<K>>> + Send + 'static,
    resource: &'static str,
    url: &str,
) -> Watch<K> {
    let url = url.to_owned();
    events
        .backoff(Patience::new())
        .map(move |event| match event {
            Ok(event) => Said::Event(event),
            Err(error) => {
                let (kind, words) = trouble::watch_words(resource, &url, &error);
                Said::Broken { kind, words }
            }
        })
        .boxed()
}

/// All machines.
pub fn nodes(client: &Client, url: &str) -> Watch<Node> {
    watch(Api::all(client.clone()), "nodes", url)
}

/// All pods of the cluster, or those of one namespace.
pub fn pods(client: &Client, namespace: Option<&str>, url: &str) -> Watch<Pod> {
    let api = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    watch(api, "pods", url)
}

/// The instance types.
pub fn types(client: &Client, url: &str) -> Watch<DynamicObject> {
    let kind = GroupVersionKind::gvk(wire::crd::GROUP, wire::crd::VERSION, wire::crd::KIND);
    let resource = ApiResource::from_gvk_with_plural(&kind, wire::crd::PLURAL);
    let api = Api::all_with(client.clone(), &resource);
    said(
        watcher(api, watcher::Config::default()),
        wire::crd::PLURAL,
        url,
    )
}

/// A watch that never says anything: there is no way to the cluster.
pub fn none<K: Send + 'static>() -> Watch<K> {
    futures_util::stream::pending().boxed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_that_fails_again_and_again_asks_ever_less() {
        let mut patience = Patience::new();
        let mut now = Instant::now();
        let mut asked = 0;
        let end = now + Duration::from_secs(60);
        while now < end {
            patience.reset(); // the list worked
            now += patience.after(now);
            asked += 1;
        }
        assert!(asked < 15, "{asked} in a minute");
        now += LONGEST + QUIET + Duration::from_secs(1);
        assert_eq!(patience.after(now), FIRST);
    }
}
