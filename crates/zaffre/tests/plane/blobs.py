"""The same calls of azure-storage-blob, against any server of the protocol: what comes back, one line of JSON each.

Arguments: how to reach the container, `sas URL CA` or `key ACCOUNT_URL NAME KEY`, and how large the large blob is, in MiB.
"""

import base64
import hashlib
import io
import json
import sys
import uuid

from azure.core import MatchConditions
from azure.core.exceptions import AzureError, HttpResponseError
from azure.storage.blob import BlobBlock, BlobServiceClient, ContainerClient, ContentSettings

mode, *rest = sys.argv[1:]
size = int(rest.pop()) * 1024 * 1024
if mode == "sas":
    url, ca = rest
    # Small limits, so that a small blob is many blocks and many ranges.
    box = ContainerClient.from_container_url(
        url, connection_verify=ca, max_single_put_size=1 << 20, max_block_size=1 << 20,
        max_single_get_size=1 << 20, max_chunk_get_size=1 << 20, retry_total=0,
    )
else:
    account, name, key = rest
    service = BlobServiceClient(
        account, credential={"account_name": name, "account_key": key}, max_single_put_size=1 << 20,
        max_block_size=1 << 20, max_single_get_size=1 << 20, max_chunk_get_size=1 << 20, retry_total=0,
    )
    box = service.create_container("c" + uuid.uuid4().hex)


def say(what, **fields):
    print(json.dumps({"what": what, **fields}, ensure_ascii=False, sort_keys=True))


def refused(what, call):
    try:
        call()
    except HttpResponseError as error:
        say(what, status=error.status_code, code=str(error.error_code or ""))
    except AzureError as error:
        say(what, error=type(error).__name__)
    else:
        say(what, done=True)


def digest(data):
    return hashlib.sha256(data).hexdigest()


for left in list(box.list_blobs()):
    box.delete_blob(left.name)

# names and sizes
for name, data in {
    "a.txt": b"hello",
    "empty": b"",
    ".hidden": b"h",
    "日本/語 1+%25.txt": "日本".encode(),
    "dir/sub/x": b"1",
    "dir/sub/y": b"22",
    "dir/z": b"333",
    "dir.txt": b"4444",
}.items():
    made = box.upload_blob(name, data, validate_content=True)
    got = box.get_blob_client(name)
    props = got.get_blob_properties()
    say(
        "put", name=name, read=digest(got.download_blob().readall()), size=props.size,
        md5=base64.b64encode(bytes(props.content_settings.content_md5 or b"")).decode(), kind=str(props.blob_type),
        same=props.etag == made.get_blob_properties().etag,
    )
refused("put again", lambda: box.upload_blob("a.txt", b"other"))
box.upload_blob("a.txt", b"other", overwrite=True)
say("overwritten", read=box.download_blob("a.txt").readall().decode())

# content settings
box.upload_blob("typed.json", b"{}", content_settings=ContentSettings(content_type="application/x-own", content_encoding="identity",
                content_language="ja", cache_control="no-store", content_disposition="inline"))
props = box.get_blob_client("typed.json").get_blob_properties().content_settings
say("typed", type=props.content_type, language=props.content_language, cache=props.cache_control,
    encoding=props.content_encoding, disposition=props.content_disposition)
box.get_blob_client("typed.json").set_http_headers(ContentSettings(content_type="text/own"))
props = box.get_blob_client("typed.json").get_blob_properties().content_settings
say("retyped", type=props.content_type, language=props.content_language)

# metadata
blob = box.get_blob_client("a.txt")
blob.set_blob_metadata({"upload_status": "completed", "name": "n"})
say("metadata", found=blob.get_blob_properties().metadata, read=blob.download_blob().readall().decode())
box.upload_blob("m", b"m", metadata={"k": "v w"})
say("metadata at once", found=box.get_blob_client("m").get_blob_properties().metadata)

# a large blob: parallel blocks up, parallel ranges down
large = b"".join(hashlib.sha256(str(i).encode()).digest() for i in range(size // 32))
box.upload_blob("large", io.BytesIO(large), length=len(large), max_concurrency=4, validate_content=True)
say("large", read=digest(box.download_blob("large", max_concurrency=4, validate_content=True).readall()) == digest(large))
for offset, length in [(0, 1), (5, 10), (len(large) - 3, None), (len(large) - 3, 100)]:
    part = box.download_blob("large", offset=offset, length=length)
    say("range", offset=offset, length=length, read=digest(part.readall()), size=part.size)
refused("range beyond", lambda: box.download_blob("large", offset=len(large) + 5, length=1).readall())
refused("range of nothing", lambda: box.download_blob("empty", offset=0, length=1).readall())

# blocks by hand
blob = box.get_blob_client("blocks")
for number in range(4):
    blob.stage_block(f"id-{number}", str(number).encode() * 3, validate_content=True)
say("staged", uncommitted=sorted((b.id, b.size) for b in blob.get_block_list("uncommitted")[1]))
refused("not there before the list", blob.get_blob_properties)
refused("unknown block", lambda: blob.commit_block_list([BlobBlock("id-9")]))
blob.commit_block_list([BlobBlock(f"id-{n}") for n in (2, 0, 1)], metadata={"a": "b"},
                       content_settings=ContentSettings(content_type="text/blocks"))
say("committed", read=blob.download_blob().readall().decode(), metadata=blob.get_blob_properties().metadata,
    type=blob.get_blob_properties().content_settings.content_type)
refused("wrong md5", lambda: box.upload_blob("wrong", b"data", headers={"Content-MD5": base64.b64encode(b"0" * 16).decode()}))
refused("wrong md5 leaves nothing", box.get_blob_client("wrong").get_blob_properties)

# conditions
blob = box.get_blob_client("cond")
blob.upload_blob(b"1")
props = blob.get_blob_properties()
tag, time = props.etag, props.last_modified
import datetime
before, after = time - datetime.timedelta(hours=1), time + datetime.timedelta(hours=1)
is_it, is_not = MatchConditions.IfNotModified, MatchConditions.IfModified
refused("read if it", lambda: blob.download_blob(etag=tag, match_condition=is_it).readall())
refused("read if other", lambda: blob.download_blob(etag=tag, match_condition=is_not).readall())
refused("read since before", lambda: blob.download_blob(if_modified_since=before).readall())
refused("read since after", lambda: blob.download_blob(if_modified_since=after).readall())
refused("read unmodified since before", lambda: blob.download_blob(if_unmodified_since=before).readall())
refused("head unmodified since before", lambda: blob.get_blob_properties(if_unmodified_since=before))
refused("write unmodified since before", lambda: blob.upload_blob(b"2", overwrite=True, if_unmodified_since=before))
refused("write if other", lambda: blob.upload_blob(b"2", overwrite=True, etag='"0x0"', match_condition=is_it))
refused("write if it", lambda: blob.upload_blob(b"2", overwrite=True, etag=tag, match_condition=is_it))
refused("metadata if it was", lambda: blob.set_blob_metadata({"a": "b"}, etag=tag, match_condition=is_it))
refused("delete if it was", lambda: blob.delete_blob(etag=tag, match_condition=is_it))
say("now", read=blob.download_blob().readall().decode())
refused("delete", blob.delete_blob)
refused("delete again", blob.delete_blob)
refused("get deleted", lambda: blob.download_blob().readall())
say("exists", gone=blob.exists(), there=box.get_blob_client("a.txt").exists())

# copies
source = box.get_blob_client("日本/語 1+%25.txt")
copy = box.get_blob_client("copy of it")
told = copy.start_copy_from_url(source.url)
say("copied", status=str(told["copy_status"]), read=copy.download_blob().readall().decode())
refused("copy of nothing", lambda: copy.start_copy_from_url(box.get_blob_client("none").url))

# listings
say("list", names=[b.name for b in box.list_blobs()])
say("list sizes", found=[(b.name, b.size, b.metadata) for b in box.list_blobs(name_starts_with="d", include=["metadata"])])
say("list metadata", found=[(b.name, b.metadata) for b in box.list_blobs(name_starts_with="m", include=["metadata"])])
say("walk", names=[b.name for b in box.walk_blobs()])
say("walk below", names=[b.name for b in box.walk_blobs(name_starts_with="dir/")])
pages = [[b.name for b in page] for page in box.list_blobs(results_per_page=3).by_page()]
say("pages", sizes=[len(p) for p in pages], names=sum(pages, []))
first = box.list_blobs(results_per_page=2).by_page()
next(first)
again = box.list_blobs(results_per_page=2).by_page(continuation_token=first.continuation_token)
say("marker", names=[b.name for b in next(again)])
say("list of nothing", names=[b.name for b in box.list_blobs(name_starts_with="zz")])
refused("head of a folder", box.get_blob_client("dir/sub").get_blob_properties)
refused("properties of the container", box.get_container_properties)
