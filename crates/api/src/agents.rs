//! The way in for agents on other machines: one request that becomes a connection of bytes.
//!
//! G1 a credential names one node and opens nothing but that node's connections: not the routes of people, not another node;
//! G2 what flows after the switch is between the agent and the engine: nothing here reads it.

use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, StatusCode, Uri, header, request::Parts},
    response::Response,
};
use hmac::{Hmac, KeyInit, Mac};
use hyper_util::rt::TokioIo;
use model::NodeId;
use sha2::Sha256;
use std::{io, os::unix::net::UnixStream, sync::Arc};

use crate::{
    Api,
    problem::{Answer, Problem},
    query::Query,
};

/// Bytes of the key that signs credentials of nodes.
pub const NODE_KEY_BYTES: usize = 32;
/// What the connection speaks after the switch.
pub const PROTOCOL: &str = "zaffre-agent";
/// A longer credential is none of ours.
const MAX_BYTES: usize = 4 * 1024;

/// What a connection of an agent is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentChannel {
    /// `channel=messages`
    Messages,
    /// `channel=files`
    Files,
}

/// Gives the engine's end of a connection.
pub type Agents = Box<dyn Fn(&NodeId, AgentChannel) -> io::Result<UnixStream> + Send + Sync>;

/// The key that signs credentials of nodes, and signs them alone.
#[derive(Clone)]
pub struct NodeKey([u8; NODE_KEY_BYTES]);

impl NodeKey {
    /// A key of these bytes.
    pub fn new(bytes: [u8; NODE_KEY_BYTES]) -> Self {
        NodeKey(bytes)
    }

    fn mac(&self, node: &str) -> Hmac<Sha256> {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        // The purpose first: a key that should ever sign something else cannot be made to sign this.
        mac.update(PROTOCOL.as_bytes());
        mac.update(b"\n");
        mac.update(node.as_bytes());
        mac
    }

    /// The key of the credentials of runs: another one, made of this.
    pub fn for_runs(&self) -> crate::RunKey {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        mac.update(b"zaffre/run-key/1\n");
        crate::RunKey::new(mac.finalize().into_bytes().into())
    }

    /// The credential of a node.
    pub fn credential(&self, node: &NodeId) -> String {
        let node = serde_json::to_string(node).expect("ids can be written");
        let signature = self.mac(&node).finalize().into_bytes();
        format!(
            "{}.{}",
            crate::base64(node.as_bytes()),
            crate::base64(&signature)
        )
    }

    /// The node whose credential the headers carry.
    fn node(&self, headers: &HeaderMap) -> Option<NodeId> {
        let header = headers.get(header::AUTHORIZATION)?.as_bytes();
        let (scheme, credential) = header.split_at_checked(7)?;
        if !scheme.eq_ignore_ascii_case(b"bearer ") || credential.len() > MAX_BYTES {
            return None;
        }
        let (node, signature) = std::str::from_utf8(credential)
            .ok()?
            .trim()
            .split_once('.')?;
        let node = String::from_utf8(crate::from_base64(node)?).ok()?;
        self.mac(&node)
            .verify_slice(&crate::from_base64(signature)?)
            .ok()?;
        serde_json::from_str(&node).ok()
    }
}

/// Switches a request to a connection of bytes.
pub(crate) fn connect(api: &Arc<Api>, mut parts: Parts, uri: &Uri) -> Answer {
    let Some((key, agents)) = &api.agents else {
        return Err(Problem::unauthorized());
    };
    let node = key.node(&parts.headers).ok_or_else(Problem::unauthorized)?;
    let query = Query::parse(uri.query().unwrap_or_default());
    let channel = match query.get("channel") {
        Some("messages") => AgentChannel::Messages,
        Some("files") => AgentChannel::Files,
        other => {
            return Err(Problem::bad(format!(
                "channel {} is neither messages nor files",
                wire::names::shown(other.unwrap_or_default())
            )));
        }
    };
    let asked = parts.headers.get(header::UPGRADE);
    let switch = parts.extensions.remove::<hyper::upgrade::OnUpgrade>();
    let Some(switch) = switch.filter(|_| asked.is_some_and(|a| a == PROTOCOL)) else {
        return Err(Problem::bad(format!(
            "an agent asks with Upgrade: {PROTOCOL} over HTTP/1.1"
        )));
    };
    let refuse = |error: &io::Error| {
        tracing::info!(%node, %error, "an agent is not let in");
        Problem::new(
            StatusCode::GONE,
            "Gone",
            format!("node {node} is not expected: {error}"),
        )
    };
    let ours = agents(&node, channel).map_err(|e| refuse(&e))?;
    ours.set_nonblocking(true).map_err(|e| refuse(&e))?;
    let mut ours = tokio::net::UnixStream::from_std(ours).map_err(|e| refuse(&e))?;
    tokio::spawn(async move {
        match switch.await {
            Ok(theirs) => {
                let mut theirs = TokioIo::new(theirs);
                // An end is an end, whichever side it came from and however.
                if let Err(error) = tokio::io::copy_bidirectional(&mut theirs, &mut ours).await {
                    tracing::debug!(%node, %error, "an agent's connection ended");
                }
            }
            Err(error) => tracing::debug!(%node, %error, "an agent did not switch"),
        }
    });
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static(PROTOCOL));
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{ComputeId, Workspace};

    #[test]
    fn g1_a_credential_is_one_nodes() {
        let node = |ordinal| NodeId {
            compute: ComputeId::new(&Workspace::new("s", "g", "w"), "k8s"),
            ordinal,
            incarnation: 1,
        };
        let key = NodeKey::new([7; NODE_KEY_BYTES]);
        let read = |key: &NodeKey, text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, text.parse().unwrap());
            key.node(&headers)
        };
        let one = key.credential(&node(1));
        assert_eq!(read(&key, &format!("Bearer {one}")), Some(node(1)));
        let two = key.credential(&node(2));
        let mixed = format!(
            "{}.{}",
            one.split_once('.').unwrap().0,
            two.split_once('.').unwrap().1
        );
        for wrong in [
            format!("Bearer {mixed}"),
            format!("Bearer {}", &one[..one.len() - 4]),
            format!("Bearer {}.", one.split_once('.').unwrap().0),
            format!("Basic {one}"),
            "Bearer x.y".into(),
            one.clone(),
        ] {
            assert_eq!(read(&key, &wrong), None, "{wrong}");
        }
        assert_eq!(
            read(&NodeKey::new([8; NODE_KEY_BYTES]), &format!("Bearer {one}")),
            None
        );
    }
}
