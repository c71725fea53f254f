"""Puts a blob of some MiB in blocks over a few connections, reads it back over one, and says how long both took.

usage: blobs.py azurite PORT MIB | blobs.py URL-WITH-SAS MIB
"""
import base64, datetime, hashlib, hmac, http.client, json, os, sys, threading, time, urllib.parse

BLOCK = 4 << 20
CONNECTIONS = 4
# The account that azurite has for everybody.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


def signed():
    end = (datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    fields = {"sv": "2020-10-02", "ss": "b", "srt": "sco", "sp": "rwdlac", "se": end}
    text = "\n".join([ACCOUNT, fields["sp"], "b", "sco", "", end, "", "", fields["sv"], ""])
    digest = hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()
    return urllib.parse.urlencode(fields | {"sig": base64.b64encode(digest).decode()})


def ask(connection, method, target, body=b"", **headers):
    headers = {"x-ms-version": "2021-12-02", **headers}
    connection.request(method, target, body, headers)
    answer = connection.getresponse()
    if answer.status >= 300:
        sys.exit(f"{method} {target.split('?')[0]}: {answer.status} {answer.read()[:300]}")
    return answer


def put(where, path, query, data, blocks):
    def some(mine):
        connection = http.client.HTTPConnection(where)
        for n in mine:
            target = f"{path}?comp=block&blockid={urllib.parse.quote(blocks[n])}&{query}"
            ask(connection, "PUT", target, data[n * BLOCK : (n + 1) * BLOCK]).read()

    threads = [threading.Thread(target=some, args=(range(i, len(blocks), CONNECTIONS),)) for i in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    body = "<BlockList>" + "".join(f"<Latest>{b}</Latest>" for b in blocks) + "</BlockList>"
    ask(http.client.HTTPConnection(where), "PUT", f"{path}?comp=blocklist&{query}", body.encode()).read()


def get(where, path, query, size):
    answer = ask(http.client.HTTPConnection(where), "GET", f"{path}?{query}")
    piece, whole = memoryview(bytearray(1 << 20)), 0
    while n := answer.readinto(piece):
        whole += n
    assert whole == size, (whole, size)


def main():
    if sys.argv[1] == "azurite":
        where, folder, query = f"127.0.0.1:{sys.argv[2]}", f"/{ACCOUNT}/bench", signed()
        connection = http.client.HTTPConnection(where)
        connection.request("PUT", f"{folder}?restype=container&{query}", headers={"x-ms-version": "2021-12-02", "content-length": "0"})
        connection.getresponse().read()  # 409 when it is there
    else:
        url = urllib.parse.urlsplit(sys.argv[1])
        where, folder, query = url.netloc, url.path, url.query
    size = int(sys.argv[-1]) << 20
    data = memoryview(os.urandom(BLOCK) * (size // BLOCK))
    blocks = [base64.b64encode(f"{n:08}".encode()).decode() for n in range(size // BLOCK)]
    path, begun = f"{folder}/big", time.monotonic()
    put(where, path, query, data, blocks)
    there = time.monotonic()
    get(where, path, query, size)
    print(json.dumps({"put_s": there - begun, "get_s": time.monotonic() - there}))


main()
