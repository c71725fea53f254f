//! The Kubernetes paths of the server: writes that another may come before.

use super::{Client, accepted, body};
use crate::failure::Failure;
use reqwest::{Method, StatusCode};
use serde_json::Value;

impl Client {
    /// A write of one object; `None` when another write came before it. It may be repeated: the second time it finds its own
    /// first.
    pub async fn offer(
        &self,
        method: Method,
        at: &str,
        json: &Value,
    ) -> Result<Option<Value>, Failure> {
        let response = self.send(self.request(method, at)?.json(json)).await?;
        if response.status() == StatusCode::CONFLICT {
            return Ok(None);
        }
        body(accepted(response).await?).await.map(Some)
    }

    /// DELETE; whether there was anything.
    pub async fn remove(&self, at: &str) -> Result<bool, Failure> {
        let response = self.send(self.request(Method::DELETE, at)?).await?;
        if response.status() == StatusCode::NOT_FOUND {
            return Ok(false);
        }
        accepted(response).await.map(|_| true)
    }
}
