//! The server's own authority and certificate.
//!
//! S1 keys are made once and are their owner's only; the authority outlives many certificates, so that a client trusts it once;
//! S2 the certificate is made anew when it does not name what the server is reached by, or is about to run out.

use super::folder::Folder;
use crate::{
    failure::{Failure, about},
    home,
};
use jiff::{Timestamp, ToSpan, civil::Date, tz::TimeZone};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeSet, fs, sync::Arc};

/// Years that the authority is valid.
const AUTHORITY_YEARS: i64 = 20;
/// Days that a certificate is valid: what browsers and Apple's libraries still accept.
const CERTIFICATE_DAYS: i64 = 390;
/// A certificate with fewer days left is made anew at start.
const RENEW_DAYS: i64 = 60;
/// The authority's name; constant, because the issuer is rebuilt from its key alone.
const AUTHORITY: &str = "Zaffre local authority";

/// What the certificate in the folder is good for.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Made {
    names: BTreeSet<String>,
    /// As in `2027-12-25`.
    not_after: String,
}

/// The TLS configuration of the server.
pub fn config(folder: &Folder, names: &[String]) -> Result<Arc<rustls::ServerConfig>, Failure> {
    let today = today();
    let mut wanted: BTreeSet<String> = ["127.0.0.1", "::1", "localhost"].map(str::to_owned).into();
    wanted.extend(host_name());
    wanted.extend(names.iter().cloned());
    let made: Option<Made> = fs::read(folder.at("tls.json"))
        .ok()
        .and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let good = made.is_some_and(|made| {
        wanted.is_subset(&made.names)
            && made
                .not_after
                .parse()
                .is_ok_and(|end: Date| today + RENEW_DAYS.days() < end)
    });
    if !good {
        make(folder, &wanted, today)?;
    }
    load(folder)
}

fn load(folder: &Folder) -> Result<Arc<rustls::ServerConfig>, Failure> {
    let bad = |name: &str, error: &dyn std::fmt::Display| {
        Failure::wrong(format!("{}: {error}", folder.at(name).display()))
            .hint("remove tls.json there; a new certificate is made at the next start")
    };
    let chain = CertificateDer::pem_file_iter(folder.at("server.pem"))
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| bad("server.pem", &error))?;
    let key = PrivateKeyDer::from_pem_file(folder.at("server.key"))
        .map_err(|error| bad("server.key", &error))?;
    let mut config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| bad("server.pem", &error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn make(folder: &Folder, names: &BTreeSet<String>, today: Date) -> Result<(), Failure> {
    let wrong =
        |error: rcgen::Error| Failure::failed(format!("no certificate can be made: {error}"));
    let key_path = folder.at("ca.key");
    let issuer = if key_path.exists() && folder.at("ca.pem").exists() {
        let pem = fs::read_to_string(&key_path).map_err(about(&key_path))?;
        Issuer::new(authority(), KeyPair::from_pem(&pem).map_err(wrong)?)
    } else {
        let key = KeyPair::generate().map_err(wrong)?;
        let mut params = authority();
        valid(&mut params, today, today + AUTHORITY_YEARS.years());
        let certificate = params.self_signed(&key).map_err(wrong)?;
        home::write_private(&key_path, key.serialize_pem().as_bytes())?;
        home::write_private(&folder.at("ca.pem"), certificate.pem().as_bytes())?;
        Issuer::new(authority(), key)
    };
    let not_after = today + CERTIFICATE_DAYS.days();
    let mut params =
        CertificateParams::new(names.iter().cloned().collect::<Vec<_>>()).map_err(|error| {
            Failure::wrong(format!("--host-name: {error}"))
                .hint("give host names and addresses without scheme and port")
        })?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "zaffre");
    valid(&mut params, today, not_after);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate().map_err(wrong)?;
    let certificate = params.signed_by(&key, &issuer).map_err(wrong)?;
    home::write_private(&folder.at("server.key"), key.serialize_pem().as_bytes())?;
    home::write_private(&folder.at("server.pem"), certificate.pem().as_bytes())?;
    home::write(
        &folder.at("tls.json"),
        &Made {
            names: names.clone(),
            not_after: not_after.to_string(),
        },
    )
}

fn authority() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, AUTHORITY);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn today() -> Date {
    TimeZone::UTC.to_datetime(Timestamp::now()).date()
}

/// From the day before, for clients whose clock is behind.
fn valid(params: &mut CertificateParams, today: Date, until: Date) {
    let midnight = |date: Date| {
        let part = |n: i8| u8::try_from(n).expect("months and days are positive");
        date_time_ymd(i32::from(date.year()), part(date.month()), part(date.day()))
    };
    params.not_before = midnight(today - 1.day());
    params.not_after = midnight(until);
}

/// This machine's name, when it can stand in a certificate.
fn host_name() -> Option<String> {
    let name = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    let fits = !name.is_empty()
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.');
    fits.then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(folder: &Folder, name: &str) -> Vec<u8> {
        fs::read(folder.at(name)).unwrap()
    }

    #[test]
    fn the_authority_stays_and_the_certificate_follows_the_names() {
        drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
        let parent = tempfile::tempdir().unwrap();
        let held = store::DataFolder::open(parent.path()).unwrap();
        let folder = Folder::of(&held);
        config(&folder, &[]).unwrap();
        let (ca, first) = (bytes(&folder, "ca.pem"), bytes(&folder, "server.pem"));
        config(&folder, &[]).unwrap();
        assert_eq!(
            bytes(&folder, "server.pem"),
            first,
            "an unchanged start makes no key"
        );
        config(&folder, &["gpu-box.example".to_owned()]).unwrap();
        assert_ne!(bytes(&folder, "server.pem"), first);
        assert_eq!(bytes(&folder, "ca.pem"), ca);
    }

    #[test]
    fn a_certificate_about_to_run_out_is_made_anew() {
        drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
        let parent = tempfile::tempdir().unwrap();
        let held = store::DataFolder::open(parent.path()).unwrap();
        let folder = Folder::of(&held);
        config(&folder, &[]).unwrap();
        let mut made: Made = serde_json::from_slice(&bytes(&folder, "tls.json")).unwrap();
        let first = bytes(&folder, "server.pem");
        made.not_after = (today() + 30.days()).to_string();
        home::write(&folder.at("tls.json"), &made).unwrap();
        config(&folder, &[]).unwrap();
        assert_ne!(bytes(&folder, "server.pem"), first);
    }
}
