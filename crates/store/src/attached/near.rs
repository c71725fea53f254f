//! Where a datastore may not be: who may attach one chooses an address that this server then asks, with the server's place in the
//! network (SSRF).
//!
//! F1 addresses that only a machine itself is meant to ask are asked for nobody: link-local ones, where clouds tell a machine its
//!    secrets, and the fixed ones of clouds beside them; however they are written, named, or redirected to;
//! F2 storage on this machine or beside it is allowed: that is where many have theirs.

use object_store::{
    ClientOptions,
    client::{HttpClient, HttpConnector},
};
use reqwest::{
    Url,
    dns::{Addrs, Name, Resolve, Resolving},
    redirect::{Attempt, Policy},
};
use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

/// Redirects that are followed.
const REDIRECTS: usize = 3;
/// What Azure tells its machines; what Alibaba and Oracle tell theirs is told at addresses of their own.
const CLOUDS: [Ipv4Addr; 3] = [
    Ipv4Addr::new(168, 63, 129, 16),
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(192, 0, 0, 192),
];
/// What AWS tells its machines over IPv6.
const CLOUD_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);

/// Whether an address is one that a machine is told its secrets at, or none of one machine (F1).
fn is_barred(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            v4.is_link_local() || v4.is_multicast() || v4.is_broadcast() || CLOUDS.contains(&v4)
        }
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            Some(v4) => is_barred(v4.into()),
            None => v6.is_unicast_link_local() || v6.is_multicast() || v6 == CLOUD_V6,
        },
    }
}

fn barred(host: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::PermissionDenied,
        format!("{host} is an address that machines are told their secrets at, and no storage"),
    )
}

/// Refuses an address that is written as one (F1). Names are looked at when they are resolved.
pub(super) fn check(endpoint: &str) -> io::Result<()> {
    let url = Url::parse(endpoint).map_err(|error| {
        io::Error::new(io::ErrorKind::InvalidInput, format!("{endpoint}: {error}"))
    })?;
    check_url(&url)
}

fn check_url(url: &Url) -> io::Result<()> {
    let host = url.host_str().unwrap_or_default();
    let plain = host.trim_start_matches('[').trim_end_matches(']');
    match plain.parse::<IpAddr>() {
        Ok(address) if is_barred(address) => Err(barred(host)),
        _ => Ok(()),
    }
}

/// Resolves names to what may be asked.
struct Resolver;

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            Ok(allowed(name.as_str(), found.collect())?)
        })
    }
}

fn allowed(name: &str, mut found: Vec<SocketAddr>) -> io::Result<Addrs> {
    // One such address is enough: a name that has both is no storage either.
    if found.iter().any(|address| is_barred(address.ip())) {
        return Err(barred(name));
    }
    found.dedup();
    Ok(Box::new(found.into_iter()))
}

fn follow(attempt: Attempt<'_>) -> reqwest::redirect::Action {
    if attempt.previous().len() > REDIRECTS {
        return attempt.error(io::Error::other(format!("more than {REDIRECTS} redirects")));
    }
    match check_url(attempt.url()) {
        Ok(()) => attempt.follow(),
        Err(error) => attempt.error(error),
    }
}

/// Makes clients that keep to this.
#[derive(Debug)]
pub(super) struct Connector {
    /// Whether the storage is asked over plain http.
    pub plain: bool,
    /// Longest wait for a connection.
    pub connect: Duration,
    /// Longest wait for an answer.
    pub answer: Duration,
}

impl HttpConnector for Connector {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = reqwest::Client::builder()
            .user_agent(concat!("zaffre/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(self.connect)
            .timeout(self.answer)
            .http1_only()
            .https_only(!self.plain)
            .redirect(Policy::custom(follow))
            .dns_resolver(Arc::new(Resolver))
            .build()
            .map_err(|error| object_store::Error::Generic {
                store: "attached",
                source: Box::new(error),
            })?;
        Ok(HttpClient::new(client))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f1_an_address_is_seen_however_it_is_written() {
        for endpoint in [
            "http://169.254.169.254",
            "http://169.254.169.254:80/latest",
            "http://2852039166/",
            "http://0xa9fea9fe/",
            "http://0251.0376.0251.0376/",
            "http://169.254.43518/",
            "http://user:word@169.254.169.254/",
            "http://[fe80::1]/",
            "http://[::ffff:169.254.169.254]/",
            "http://[::ffff:a9fe:a9fe]/",
            "http://[fd00:ec2::254]/",
            "http://168.63.129.16/",
            "http://224.0.0.1/",
        ] {
            assert!(check(endpoint).is_err(), "{endpoint}");
        }
        for endpoint in [
            "http://127.0.0.1:9000",
            "https://10.0.0.7",
            "http://[::1]:9000/x",
            "https://s3.example.com",
            // not these addresses, whatever they look like
            "https://169.254.169.254.example.com",
            "https://168.63.129.17",
        ] {
            assert!(check(endpoint).is_ok(), "{endpoint}");
        }
        assert!(check("not an address").is_err());
    }

    #[test]
    fn f1_a_name_that_means_such_an_address_is_none() {
        let at = |text: &str| SocketAddr::new(text.parse().unwrap(), 0);
        let metadata = vec![at("10.0.0.1"), at("169.254.169.254")];
        let refused = allowed("metadata.test", metadata).err().unwrap();
        assert!(refused.to_string().contains("metadata.test"), "{refused}");
        let good: Vec<_> = allowed("x", vec![at("10.0.0.1"), at("::1")])
            .unwrap()
            .collect();
        assert_eq!(good, [at("10.0.0.1"), at("::1")]);
    }
}
