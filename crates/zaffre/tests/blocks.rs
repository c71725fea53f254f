//! Block lists and append blobs with the blob client of Azure's SDK.

mod support;

use serde_json::Value;
use std::process::Command;
use support::{
    Server,
    plain::{Plain, WS},
    python::python,
};

const PROGRAM: &str = r#"
import sys
from azure.core.exceptions import HttpResponseError
from azure.storage.blob import BlobBlock, ContainerClient
url, ca = sys.argv[1:]
box = ContainerClient.from_container_url(url, connection_verify=ca)
blob = box.get_blob_client("parts/a")
for id, text in [("1", b"one "), ("2", b"two "), ("3", b"three")]:
    blob.stage_block(id, text)
blob.commit_block_list([BlobBlock("1"), BlobBlock("2")])
committed, pending = blob.get_block_list("all")
print([(b.id, b.size) for b in committed], [b.id for b in pending])
blob.stage_block("4", b"four")
committed, _ = blob.get_block_list()
blob.commit_block_list([*committed, BlobBlock("4")])
print(blob.download_blob().readall())
log = box.get_blob_client("log")
log.upload_blob(b"one ", blob_type="AppendBlob")
log.upload_blob(b"two ", blob_type="AppendBlob", overwrite=False)
print(log.append_block(b"three")["blob_append_offset"], log.get_blob_properties().blob_type.value)
try:
    log.append_block(b"lost", appendpos_condition=1)
except HttpResponseError as error:
    print(error.error_code.value if hasattr(error.error_code, "value") else error.error_code)
print(log.download_blob().readall())
"#;

#[test]
fn the_blob_client_of_azure_lists_blocks_and_appends() {
    let server = Server::start();
    let plain = Plain::of(&server.url, &server.token());
    let ask = |method: &str, path: &str| -> Value {
        let at = format!("{WS}/datastores/workspaceblobstore{path}");
        plain.ask(method, &at, &[], "{}").unwrap().json()
    };
    let store = ask("GET", "");
    let url = format!(
        "https://{}.blob.{}/{}?{}",
        store["properties"]["accountName"].as_str().unwrap(),
        store["properties"]["endpoint"].as_str().unwrap(),
        store["properties"]["containerName"].as_str().unwrap(),
        ask("POST", "/listSecrets")["sasToken"].as_str().unwrap()
    );
    let output = Command::new(python())
        .args(["-c", PROGRAM, &url])
        .arg(server.data().join("ca.pem"))
        .env("NO_PROXY", "*")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(
        said.lines().collect::<Vec<_>>(),
        [
            "[('1', 4), ('2', 4)] []",
            "b'one two four'",
            "8 AppendBlob",
            "AppendPositionConditionNotMet",
            "b'one two three'",
        ],
        "{error}"
    );
    server.stop();
}
