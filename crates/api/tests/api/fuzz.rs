//! Targets of the fault plan that have a better oracle than "no crash": documents that are patched with nothing (F3), paths that
//! are spelled in odd ways (F4), and blobs beside a map (F5). Every case has a seed, which is told when it fails.

use crate::{
    hostile::{Draw, broken},
    server::*,
};
use axum::body::Body;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use md5::{Digest, Md5};
use model::Kind;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A kind of document that can be patched.
struct Patched {
    kind: Kind,
    /// Its collection below the workspace.
    at: &'static str,
    /// What its name is stored behind.
    below: &'static str,
    body: Value,
}

fn patched() -> Vec<Patched> {
    let of = |kind, at, below, body| Patched {
        kind,
        at,
        below,
        body,
    };
    vec![
        of(Kind::Compute, "computes", "", cluster_body(0, 1)),
        of(
            Kind::Compute,
            "computes",
            "",
            json!({"location": "local", "tags": {"a": "b"}, "properties": {"computeType": "VirtualMachine", "resourceId": "/x/vm",
                "properties": {"sshPort": 2222, "administratorAccount": {"username": "u", "password": "p"}}}}),
        ),
        of(
            Kind::BatchEndpoint,
            "batchEndpoints",
            "",
            json!({"location": "local", "tags": {"a": "b"}, "properties": {"authMode": "aadToken", "description": "d",
                "properties": {"k": "v"}}}),
        ),
        of(
            Kind::BatchDeployment,
            "batchEndpoints/end/deployments",
            "end/",
            deployment_body("c01"),
        ),
        of(
            Kind::OnlineEndpoint,
            "onlineEndpoints",
            "",
            json!({"location": "local", "tags": {"a": "b"}, "properties": {"authMode": "Key", "description": "d"}}),
        ),
    ]
}

/// F3: the same for a workspace, which is not below one.
#[tokio::test]
async fn f3_a_patch_of_nothing_changes_no_workspace() {
    let s = server();
    let good = json!({"location": "local", "tags": {"a": "b"}, "properties": {"friendlyName": "f", "description": "d",
        "zaffre-unknown": {"n": 1.5}}});
    let mut taken = 0;
    for seed in 1..=80_u64 {
        let body = match seed {
            1 => good.clone(),
            seed => broken(&good, &mut Draw(seed * 15_485_863)),
        };
        let path = WS.replace("workspaces/default", &format!("workspaces/w{seed}"));
        let got = s.ask("PUT", &path, body.clone()).await;
        assert!(got.status < 500, "seed {seed}: {body}: {}", got.text());
        if got.status >= 400 {
            continue;
        }
        taken += 1;
        let before = s.get(&path).await.is(200).json();
        let patched = s.ask("PATCH", &path, json!({})).await;
        assert!(
            patched.status < 300,
            "seed {seed}: {body}: {}",
            patched.text()
        );
        let after = s.get(&path).await.is(200).json();
        assert_eq!(lasting(&after), lasting(&before), "seed {seed}: {body}");
    }
    assert!(taken > 20, "only {taken} were taken");
}

/// F3: `PATCH(PUT(x), {}) = x`: whatever document was taken, a patch of nothing is taken too and changes no byte of what it
/// means; what the document says beyond what we know is kept.
#[tokio::test]
async fn f3_a_patch_of_nothing_changes_nothing() {
    let s = server();
    s.batch().await;
    for (n, target) in patched().into_iter().enumerate() {
        let mut taken = 0;
        for round in 0..120_u64 {
            let seed = (n as u64 + 1) * 7_919 + round;
            let mut draw = Draw(seed);
            let mut body = target.body.clone();
            // The first is right as it is; the others are broken somewhere.
            if round > 0 {
                body = broken(&body, &mut draw);
            }
            if let Some(properties) = body
                .pointer_mut("/properties")
                .and_then(Value::as_object_mut)
            {
                properties.insert("zaffre-unknown".into(), json!({"n": [1.5, seed]}));
            }
            let name = format!("x{n}-{round}");
            let path = format!("{WS}/{}/{name}", target.at);
            let got = s.ask("PUT", &path, body.clone()).await;
            let told = || format!("seed {seed}: {path} {body}");
            if got.status >= 400 {
                assert!(got.status < 500, "{}: {}", told(), got.text());
                continue;
            }
            taken += 1;
            let stored = || -> Value {
                let path = format!("{}{name}", target.below);
                serde_json::from_str(&s.stored(target.kind, &path)).unwrap()
            };
            let before = stored();
            assert_eq!(
                before["properties"]["zaffre-unknown"],
                json!({"n": [1.5, seed]}),
                "{}",
                told()
            );
            // A cluster is patched when it is there.
            if target.kind == Kind::Compute {
                s.until(&path, |c| {
                    c["properties"]["provisioningState"] == "Succeeded"
                })
                .await;
            }
            let patched = s.ask("PATCH", &path, json!({})).await;
            assert!(patched.status < 300, "{}: {}", told(), patched.text());
            assert_eq!(stored(), before, "{}", told());
        }
        assert!(taken > 20, "{}: only {taken} were taken", target.at);
    }
}

/// What a view says, without what is the server's to say and changes by itself.
fn lasting(view: &Value) -> Value {
    const OWN: [&str; 6] = [
        "systemData",
        "modifiedOn",
        "createdOn",
        "provisioningState",
        "allocationState",
        "allocationStateTransitionTime",
    ];
    match view {
        Value::Object(map) => map
            .iter()
            .filter(|(name, _)| !OWN.contains(&name.as_str()))
            .map(|(name, value)| (name.clone(), lasting(value)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        Value::Array(items) => items.iter().map(lasting).collect(),
        other => other.clone(),
    }
}

/// F3: `PUT(GET(x)) = x`: clients read a document, change a part and send it back; what they were shown is taken, and means
/// what it meant.
#[tokio::test]
async fn f3_what_is_shown_can_be_sent_back() {
    let s = server();
    s.batch().await;
    let mut targets: Vec<(&str, &str, Value)> =
        patched().into_iter().map(|t| (t.at, "", t.body)).collect();
    let tags = json!({"a": "b"});
    targets.extend([
        ("environments", "/versions/1", json!({"properties": {"image": "x", "condaFile": "dependencies: []", "tags": tags, "description": "d"}})),
        ("models", "/versions/1", json!({"properties": {"modelUri": "azureml://datastores/workspaceblobstore/paths/a", "modelType": "custom_model", "tags": tags, "properties": {"k": "v"}}})),
        ("data", "/versions/1", json!({"properties": {"dataType": "uri_folder", "dataUri": "azureml://datastores/workspaceblobstore/paths/a", "tags": tags}})),
        ("datastores", "", json!({"properties": {"datastoreType": "AzureBlob", "accountName": "a", "containerName": "c", "tags": tags,
            "credentials": {"credentialsType": "AccountKey", "secrets": {"secretsType": "AccountKey", "key": "k"}}}})),
    ]);
    for (n, (at, end, good)) in targets.into_iter().enumerate() {
        let mut taken = 0;
        for round in 0..120_u64 {
            let seed = (n as u64 + 1) * 104_729 + round;
            let mut draw = Draw(seed);
            let body = if round > 0 {
                broken(&good, &mut draw)
            } else {
                good.clone()
            };
            let path = format!("{WS}/{at}/y{n}-{round}{end}");
            if s.ask("PUT", &path, body.clone()).await.status >= 400 {
                continue;
            }
            taken += 1;
            if at == "computes" {
                s.until(&path, |c| {
                    c["properties"]["provisioningState"] == "Succeeded"
                })
                .await;
            }
            let shown = s.get(&path).await.is(200).json();
            let again = s.ask("PUT", &path, shown.clone()).await;
            let told = || format!("seed {seed}: {path} {body}, shown as {shown}");
            assert!(again.status < 300, "{}: {}", told(), again.text());
            let after = s.get(&path).await.is(200).json();
            assert_eq!(lasting(&after), lasting(&shown), "{}", told());
        }
        assert!(taken > 10, "{at}: only {taken} were taken");
    }
}

/// One spelling of a segment of a path: the same name, or one that looks like it.
fn spelled(segment: &str, draw: &mut Draw) -> String {
    let odd = [
        "%00", "%2f", "/", "//", "%2F..%2F", "/../", "/./", "%2e", ".", "%20", "%", "%25", ";",
        "?", "#", "%0a", "%C3%9F", "+",
    ];
    let mut out = String::new();
    for c in segment.chars() {
        match draw.below(100) {
            0..10 => out.push_str(&format!("%{:02X}", u32::from(c))),
            10..20 => out.push_str(&format!("%{:02x}", u32::from(c))),
            20..45 if c.is_ascii_lowercase() => out.push(c.to_ascii_uppercase()),
            // Letters that only Unicode takes for ours: the Kelvin sign and the long s.
            45..49 if c == 'k' => out.push_str("%E2%84%AA"),
            45..49 if c == 's' => out.push_str("%C5%BF"),
            49 => out.push_str(draw.of(&odd)),
            _ => out.push(c),
        }
    }
    out
}

/// F4: a path names the resource whose segments it has, letters compared without case and escapes read once, or none at all;
/// never another resource, whatever stands in it.
#[tokio::test]
async fn f4_a_path_names_its_resource_or_none() {
    let s = server();
    s.cluster("desk", 0, 1).await.is(201);
    for (name, version) in [
        ("kiosk", "1"),
        ("kiosk", "12"),
        ("kiosk.1", "1"),
        ("a", "kiosk"),
    ] {
        let path = format!("{WS}/environments/{name}/versions/{version}");
        let body = json!({"properties": {"image": "library/python:latest", "description": format!("{name}:{version}")}});
        s.ask("PUT", &path, body).await.is(201);
    }
    let known = [
        "computes/desk",
        "environments/kiosk",
        "environments/kiosk/versions/1",
        "environments/kiosk/versions/12",
        "environments/kiosk.1",
        "environments/kiosk.1/versions/1",
        "environments/a",
        "environments/a/versions/kiosk",
        "datastores/workspaceblobstore",
    ];
    let (mut found, mut missed) = (0, 0);
    for seed in 1..=4_000_u64 {
        let mut draw = Draw(seed * 0x9e37_79b9);
        let path = draw.of(&known);
        let parts: Vec<String> = path.split('/').map(|p| spelled(p, &mut draw)).collect();
        let uri = format!("{WS}/{}", parts.join("/"));
        // Not every text is a URI; a client cannot send those over HTTP either.
        let Ok(parsed) = uri.parse::<axum::http::Uri>() else {
            continue;
        };
        let mut decoded: Vec<Vec<u8>> = parsed.path()[WS.len() + 1..]
            .split('/')
            .map(|part| percent_decode_str(part).collect())
            .collect();
        decoded.pop_if(|last| last.is_empty()); // one slash at the end says nothing
        if decoded.is_empty() {
            continue; // the workspace itself: what came behind was a query or a fragment
        }
        let named = known.iter().find(|known| {
            let parts: Vec<&str> = known.split('/').collect();
            parts.len() == decoded.len()
                && parts
                    .iter()
                    .zip(&decoded)
                    .all(|(a, b)| a.as_bytes().eq_ignore_ascii_case(b))
        });
        let got = s.get(&uri).await;
        match (got.status, named) {
            (200, Some(named)) => {
                found += 1;
                let id = got.json()["id"].as_str().unwrap().to_owned();
                let whole = format!("{WS}/{named}");
                assert!(id.eq_ignore_ascii_case(&whole), "seed {seed}: {uri} → {id}");
            }
            (200, None) => {
                // A shorter path may be a collection; then it lists what is below it and is no resource.
                let body = got.json();
                assert!(body["value"].is_array(), "seed {seed}: {uri} → {body}");
            }
            (400 | 404 | 405, _) => missed += 1,
            (status, _) => panic!("seed {seed}: {uri} → {status} {}", got.text()),
        }
    }
    assert!(found > 500 && missed > 500, "{found} found, {missed} not");
}

/// F4: the tokens of pages lead through a list once; one that was tampered with is refused or leads to a place in the same list.
#[tokio::test]
async fn f4_a_token_of_a_page_stays_in_its_list() {
    let s = server();
    let body = json!({"properties": {"image": "library/python:latest"}});
    for n in 0..30 {
        for name in ["mine", "other"] {
            let path = format!("{WS}/environments/{name}/versions/{n}");
            s.ask("PUT", &path, body.clone()).await.is(201);
        }
    }
    let first = format!("{WS}/environments/mine/versions?$maxpagesize=7");
    let (mut at, mut seen, mut tokens) = (Some(first.clone()), Vec::new(), Vec::new());
    while let Some(path) = at {
        let page = s
            .get(path.trim_start_matches("https://zaffre.test:8443"))
            .await
            .is(200)
            .json();
        let items = page["value"].as_array().unwrap();
        seen.extend(items.iter().map(|i| i["name"].as_str().unwrap().to_owned()));
        at = page["nextLink"].as_str().map(str::to_owned);
        tokens.extend(at.iter().map(|link| {
            let token = link.split("$skipToken=").nth(1).unwrap();
            token.split('&').next().unwrap().to_owned()
        }));
    }
    assert_eq!(seen.len(), 30);
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 30, "each once");
    assert_eq!(tokens.len(), 4);
    for seed in 1..=1_000_u64 {
        let mut draw = Draw(seed * 0x9e37_79b9);
        let mut token = draw.of(&tokens).into_bytes();
        for _ in 0..=draw.below(3) {
            let at = draw.below(token.len());
            match draw.below(3) {
                0 => token[at] = draw.of(b"AZaz09-_%.=:"),
                1 => token.truncate(at.max(1)),
                _ => token.insert(at, draw.of(b"AZaz09-_.=:")),
            }
        }
        let token = String::from_utf8(token).unwrap();
        let path = format!("{first}&$skipToken={token}");
        if path.parse::<axum::http::Uri>().is_err() {
            continue;
        }
        let got = s.get(&path).await;
        if got.status == 200 {
            for item in got.json()["value"].as_array().unwrap() {
                let id = item["id"].as_str().unwrap();
                assert!(
                    id.contains("/environments/mine/versions/"),
                    "seed {seed}: {token} → {id}"
                );
            }
        } else {
            assert_eq!(got.status, 400, "seed {seed}: {token} → {}", got.text());
        }
    }
}

fn digest(bytes: &[u8]) -> String {
    STANDARD.encode(Md5::digest(bytes))
}

/// F5: after any sequence of requests, right and wrong ones, a container is the map from names to bytes that the answers
/// promised: what is read, read in part, listed and refused follows from the map.
#[tokio::test]
async fn f5_a_container_is_a_map_of_names_to_bytes() {
    const NAMES: [&str; 6] = ["a", "A", "b/c", "b/d/e", "%E5%AD%A6", "f%20g.txt"];
    let s = server();
    let path = format!("{WS}/codes/c/versions/1/startPendingUpload");
    let pending = s.ask("POST", &path, Value::Null).await.is(200).json();
    let reference = &pending["blobReferenceForConsumption"];
    let base = reference["blobUri"].as_str().unwrap().to_owned();
    let sas = reference["credential"]["sasUri"].as_str().unwrap();
    let sas = sas.split_once('?').unwrap().1.to_owned();
    let call =
        async |method: &str, name: &str, query: &str, headers: &[(&str, &str)], body: Vec<u8>| {
            let url = format!("{base}/{name}?{query}&{sas}");
            s.call(method, &url, headers, Body::from(body)).await
        };
    let mut map: BTreeMap<&str, Vec<u8>> = BTreeMap::new();
    let mut draw = Draw(0xf5);
    let mut blocks = 0_u64;
    for step in 0..1_500 {
        let name = draw.of(&NAMES);
        let bytes: Vec<u8> = (0..draw.below(40))
            .map(|_| u8::try_from(draw.below(256)).unwrap())
            .collect();
        let block = [("x-ms-blob-type", "BlockBlob")];
        let there = map.contains_key(name);
        match draw.below(9) {
            0 | 1 => {
                let got = call("PUT", name, "", &block, bytes.clone()).await.is(201);
                assert_eq!(got.header("content-md5"), digest(&bytes), "step {step}");
                map.insert(name, bytes);
            }
            2 => {
                let headers = [block[0], ("if-none-match", "*")];
                let got = call("PUT", name, "", &headers, bytes.clone()).await;
                assert_eq!(got.status, if there { 409 } else { 201 }, "step {step}");
                map.entry(name).or_insert(bytes);
            }
            3 => {
                let wrong = digest(b"something else");
                let headers = [block[0], ("content-md5", &wrong)];
                call("PUT", name, "", &headers, bytes).await.is(400);
            }
            4 => {
                // Blocks in any order, committed in the order of the list, some of them twice.
                let count = 1 + draw.below(4);
                let ids: Vec<String> = (0..count)
                    .map(|n| STANDARD.encode(format!("{:08}", blocks + n as u64)))
                    .collect();
                blocks += 10;
                let pieces: Vec<Vec<u8>> = (0..count)
                    .map(|n| format!("<{step}.{n}>").into_bytes())
                    .collect();
                for n in (0..count).rev() {
                    let query = format!(
                        "comp=block&blockid={}",
                        ids[n].replace('=', "%3D").replace('+', "%2B")
                    );
                    call("PUT", name, &query, &[], pieces[n].clone())
                        .await
                        .is(201);
                }
                let order: Vec<usize> = (0..=draw.below(5)).map(|_| draw.below(count)).collect();
                let list: String = order
                    .iter()
                    .map(|n| format!("<Latest>{}</Latest>", ids[*n]))
                    .collect();
                let missing = draw.below(4) == 0;
                let extra = if missing {
                    "<Latest>bm9uZQ==</Latest>"
                } else {
                    ""
                };
                let xml = format!("<?xml version=\"1.0\"?><BlockList>{list}{extra}</BlockList>");
                let got = call("PUT", name, "comp=blocklist", &[], xml.into_bytes()).await;
                assert_eq!(
                    got.status,
                    if missing { 400 } else { 201 },
                    "step {step}: {}",
                    got.text()
                );
                if !missing {
                    map.insert(
                        name,
                        order.iter().flat_map(|n| pieces[*n].clone()).collect(),
                    );
                }
            }
            5 => {
                let got = call("DELETE", name, "", &[], vec![]).await;
                assert_eq!(got.status, if there { 202 } else { 404 }, "step {step}");
                map.remove(name);
            }
            6 => {
                let (from, to) = (draw.below(40), draw.below(60));
                let range = format!("bytes={from}-{to}");
                let got = call("GET", name, "", &[("x-ms-range", &range)], vec![]).await;
                let Some(all) = map.get(name) else {
                    assert_eq!(got.status, 404, "step {step}");
                    continue;
                };
                if from > to {
                    // No range at all (RFC 9110): refused, or read as if it were not there.
                    assert!(
                        matches!(got.status, 200 | 400 | 416),
                        "step {step}: {range} → {}",
                        got.status
                    );
                } else if from >= all.len() {
                    assert_eq!(got.status, 416, "step {step}: {range} of {}", all.len());
                } else {
                    assert_eq!(
                        (got.status, &got.bytes[..]),
                        (206, &all[from..all.len().min(to + 1)]),
                        "step {step}"
                    );
                }
            }
            7 => {
                let got = call("HEAD", name, "", &[], vec![]).await;
                let length = map.get(name).map(|all| all.len().to_string());
                assert_eq!(got.status, if there { 200 } else { 404 }, "step {step}");
                if let Some(length) = length {
                    assert_eq!(got.header("content-length"), length, "step {step}");
                }
            }
            _ => {
                let url = format!("{base}?restype=container&comp=list&{sas}");
                let xml = s.call("GET", &url, &[], Body::empty()).await.is(200).text();
                let names: Vec<&str> = xml
                    .split("<Name>")
                    .skip(1)
                    .map(|p| p.split('<').next().unwrap())
                    .collect();
                let mut expected: Vec<String> = map
                    .keys()
                    .map(|n| percent_decode_str(n).decode_utf8().unwrap().into_owned())
                    .collect();
                expected.sort();
                assert_eq!(names, expected, "step {step}: sorted by bytes");
            }
        }
        let got = call("GET", name, "", &[], vec![]).await;
        match map.get(name) {
            Some(all) => assert_eq!((got.status, &got.bytes), (200, all), "step {step}: {name}"),
            None => assert_eq!(got.status, 404, "step {step}: {name}"),
        }
    }
}
