"""Servers of files for tests: a web server with ranges and faults, and a store that speaks S3's language.

Both keep what they have in memory, write down every request, and answer wrongly where a test tells them to.
"""

import hashlib
import hmac
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from xml.sax.saxutils import escape

MODIFIED = "Tue, 01 Oct 2024 10:00:00 GMT"


class Server:
    """A server on a free port of this machine, until `stop`."""

    def __init__(self, handler):
        self.objects = {}
        # By path: a function of (handler, number of the request for that path, from 0); True: it has answered.
        self.faults = {}
        self.log = []
        self.lock = threading.Lock()
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (handler,), {"server_state": self}))
        self.http.daemon_threads = True
        self.port = self.http.server_address[1]
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def stop(self):
        self.http.shutdown()

    def seen(self, path=None, method=None):
        """Requests so far, of a path and method."""
        with self.lock:
            wanted = [r for r in self.log if path in (None, r["path"]) and method in (None, r["method"])]
        return wanted

    def forget(self):
        with self.lock:
            self.log.clear()
            self.faults.clear()


def tag_of(data):
    return f'"{hashlib.md5(data).hexdigest()}"'


class Web(BaseHTTPRequestHandler):
    """Files by their paths; GET with ranges, HEAD."""

    protocol_version = "HTTP/1.1"
    server_state = None

    def log_message(self, *_):
        pass

    def note(self):
        path = urllib.parse.unquote(self.path.split("?")[0])
        entry = {"method": self.command, "path": path, "range": self.headers.get("Range"),
                 "query": self.path.partition("?")[2], "if_match": self.headers.get("If-Match"), "sent": 0}
        with self.server_state.lock:
            number = sum(1 for r in self.server_state.log if r["path"] == path)
            self.server_state.log.append(entry)
        self.entry = entry
        return path, number

    def do_GET(self):
        path, number = self.note()
        fault = self.server_state.faults.get(path)
        if fault and fault(self, number):
            return
        self.send_object(path)

    do_HEAD = do_GET

    def send_object(self, path, ranges=True, tag=tag_of, keep=None, if_match=True):
        """An object, or a range of it; of its body no more than `keep` bytes."""
        data = self.server_state.objects.get(path)
        if data is None:
            return self.refuse(404, "NoSuchKey", "The specified key does not exist.")
        e_tag = tag(data)
        wanted = self.headers.get("If-Match")
        if if_match and wanted and (e_tag is None or wanted != e_tag or e_tag.startswith("W/")):
            return self.refuse(412, "PreconditionFailed", "At least one of the preconditions did not hold.")
        start, end, status = 0, len(data), 200
        asked = self.headers.get("Range")
        if asked and ranges:
            first, last = asked.removeprefix("bytes=").split("-")
            start, end = int(first), min(int(last) + 1, len(data)) if last else len(data)
            status = 206
            if start >= len(data):
                return self.refuse(416, "InvalidRange", "The requested range is not satisfiable")
        self.send_response(status)
        self.send_header("Content-Length", str(end - start))
        self.send_header("Last-Modified", MODIFIED)
        if e_tag:
            self.send_header("ETag", e_tag)
        if status == 206:
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(data)}")
        self.end_headers()
        if self.command == "HEAD":
            return None
        body = data[start:end]
        if keep is not None and keep < len(body):
            self.send_body(body[:keep])
            self.close_connection = True
            self.wfile.flush()
            return None
        self.send_body(body)
        return None

    def send_body(self, body):
        self.entry["sent"] += len(body)
        try:
            self.wfile.write(body)
        except OSError:
            self.close_connection = True

    def refuse(self, status, code="", message=""):
        body = f"<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
        body = body if code else b"no"
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        return True


KEY, SECRET, REGION = "AKIDTEST", "s3cr3t/+VALUE", "eu-test-1"


class S3(Web):
    """One bucket, `shop`, addressed by path. Every request must be signed with the key and the secret above."""

    bucket = "shop"
    page_keys = 3

    def handle_request(self):
        path, number = self.note()
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = self.server_state.faults.get(path)
        if fault and fault(self, number):
            return None
        refused = self.unsigned(body)
        if refused:
            return self.refuse(403, *refused)
        bucket, _, key = path.removeprefix("/").partition("/")
        if bucket != self.bucket:
            return self.refuse(404, "NoSuchBucket", "The specified bucket does not exist")
        query = dict(urllib.parse.parse_qsl(self.path.partition("?")[2], keep_blank_values=True))
        if self.command in ("GET", "HEAD"):
            return self.list(query) if not key else self.send_object(path)
        return self.write(path, query, body)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_request

    def unsigned(self, body):
        """Why the signature is none, as S3's rules have it (version 4)."""
        text = self.headers.get("Authorization") or ""
        if not text.startswith("AWS4-HMAC-SHA256 "):
            return "AccessDenied", "Access Denied."
        parts = dict(p.strip().split("=", 1) for p in text.removeprefix("AWS4-HMAC-SHA256 ").split(","))
        key, date, region, service, last = parts["Credential"].split("/")
        if key != KEY:
            return "InvalidAccessKeyId", "The AWS Access Key Id you provided does not exist in our records."
        if region != REGION:
            return "AuthorizationHeaderMalformed", f"the region '{region}' is wrong; expecting '{REGION}'"
        payload = self.headers["x-amz-content-sha256"]
        if payload not in ("UNSIGNED-PAYLOAD", hashlib.sha256(body).hexdigest()):
            return "XAmzContentSHA256Mismatch", "The body is another one."
        raw_path, _, raw_query = self.path.partition("?")
        query = "&".join(sorted(p if "=" in p else p + "=" for p in raw_query.split("&") if p))
        names = parts["SignedHeaders"].split(";")
        headers = "".join(f"{n}:{' '.join((self.headers.get(n) or '').split())}\n" for n in names)
        request = "\n".join([self.command, raw_path, query, headers, ";".join(names), payload])
        scope = f"{date}/{region}/{service}/{last}"
        digest = hashlib.sha256(request.encode()).hexdigest()
        to_sign = f"AWS4-HMAC-SHA256\n{self.headers['x-amz-date']}\n{scope}\n{digest}"
        signing = f"AWS4{SECRET}".encode()
        for part in (date, region, service, last):
            signing = hmac.new(signing, part.encode(), hashlib.sha256).digest()
        if hmac.new(signing, to_sign.encode(), hashlib.sha256).hexdigest() != parts["Signature"]:
            return "SignatureDoesNotMatch", "The request signature we calculated does not match the signature you provided."
        return None

    def list(self, query):
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        start = query.get("continuation-token", "")
        keys = sorted(p.removeprefix(f"/{self.bucket}/") for p in self.server_state.objects)
        found, folders, more = [], [], ""
        for key in (k for k in keys if k.startswith(prefix) and k > start):
            if len(found) + len(folders) == self.page_keys:
                more = last
                break
            inside = key[len(prefix):]
            if delimiter and delimiter in inside:
                folder = prefix + inside.split(delimiter)[0] + delimiter
                if folder not in folders and not start.startswith(folder):
                    folders.append(folder)
            else:
                found.append(key)
            last = key
        objects = self.server_state.objects
        text = "".join(
            f"<Contents><Key>{escape(k)}</Key><Size>{len(objects[f'/{self.bucket}/{k}'])}</Size>"
            f"<LastModified>2024-10-01T10:00:00.000Z</LastModified>"
            f"<ETag>{escape(tag_of(objects[f'/{self.bucket}/{k}']))}</ETag></Contents>" for k in found)
        text += "".join(f"<CommonPrefixes><Prefix>{escape(f)}</Prefix></CommonPrefixes>" for f in folders)
        token = f"<NextContinuationToken>{escape(more)}</NextContinuationToken>" if more else ""
        self.send_xml(f"<ListBucketResult><IsTruncated>{'true' if more else 'false'}</IsTruncated>{token}{text}"
                      "</ListBucketResult>")

    def write(self, path, query, body):
        state = self.server_state
        uploads = state.__dict__.setdefault("uploads", {})
        upload = query.get("uploadId")
        if self.command == "POST" and "uploads" in query:
            with state.lock:
                upload = f"upload-{len(uploads)}-{time.monotonic_ns()}"
                uploads[upload] = {}
            return self.send_xml(f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId>"
                                 "</InitiateMultipartUploadResult>")
        if self.command == "PUT" and upload:
            uploads[upload][int(query["partNumber"])] = body
            return self.send_empty(tag_of(body))
        if self.command == "PUT":
            state.objects[path] = body
            return self.send_empty(tag_of(body))
        if self.command == "DELETE" and upload:
            del uploads[upload]
            return self.send_empty(None, 204)
        if self.command == "POST" and upload:
            parts = uploads.pop(upload)
            state.objects[path] = b"".join(parts[number] for number in sorted(parts))
            return self.send_xml(f"<CompleteMultipartUploadResult><ETag>{escape(tag_of(state.objects[path]))}</ETag>"
                                 "</CompleteMultipartUploadResult>")
        return self.refuse(405, "MethodNotAllowed", "The specified method is not allowed.")

    def send_empty(self, e_tag, status=200):
        self.send_response(status)
        self.send_header("Content-Length", "0")
        if e_tag:
            self.send_header("ETag", e_tag)
        self.end_headers()

    def send_xml(self, text):
        body = f"<?xml version=\"1.0\" encoding=\"UTF-8\"?>{text}".encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
