"""An HTTP API on a port of its own that it prints; it ends with its standard input. Standard library only.

It keeps what was requested, and shows it at /requests. Its document is in api.yaml.
"""

import base64
import http.server
import json
import os
import sys
import threading
import urllib.parse

PIXEL = b"\x89PNG\r\n\x1a\n" + bytes(range(32))
PETS = [{"id": number, "name": "pet %d" % number} for number in range(1, 8)]
requests = []
tokens = []
arrived = threading.Condition()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def reply(self, status, body=b"", kind="application/json", headers=()):
        if not isinstance(body, bytes):
            body = json.dumps(body, ensure_ascii=False).encode()
        self.send_response(status)
        if body:
            self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def handle_any(self):
        url = urllib.parse.urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        query = urllib.parse.parse_qsl(url.query, keep_blank_values=True)
        if url.path == "/requests":
            return self.reply(200, requests)
        seen = {"method": self.command, "path": url.path, "query": query, "headers": {k.lower(): v for k, v in self.headers.items()}, "body": body.decode("latin-1")}
        with arrived:
            requests.append(seen)
            arrived.notify_all()
        name = "on_" + url.path.strip("/").split("/")[0].replace(".", "_").replace("-", "_")
        getattr(self, name, self.not_found)(url.path.strip("/").split("/")[1:], dict(query), body, seen)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = handle_any

    def not_found(self, *_):
        self.reply(404, {"detail": "nothing at %s" % self.path})

    def on_pets(self, rest, query, body, seen):
        if self.command == "POST":
            return self.reply(201, {"id": 99, **json.loads(body)}, headers=[("Location", "/pets/99"), ("Set-Cookie", "sid=5")])
        if not rest:
            page, limit = int(query.get("page", 1)), int(query.get("limit", 3))
            part = PETS[(page - 1) * limit : page * limit]
            more = page * limit < len(PETS)
            link = '<http://%s/pets?page=%d&limit=%d>; rel="next"' % (self.headers["Host"], page + 1, limit)
            return self.reply(200, part, headers=[("Link", link)] if more else [])
        if rest[0] == "missing":
            # As a careless server does: it repeats what it was sent.
            return self.reply(404, {"detail": "no such pet", "sent": self.headers.get("X-Api-Key")})
        if self.command == "DELETE":
            return self.reply(204)
        self.reply(200, {"id": urllib.parse.unquote(rest[0]), "name": "Rex", "big": 123456789012345678901234567890})

    def on_echo(self, rest, query, body, seen):
        self.reply(200, seen)

    def on_image(self, *_):
        self.reply(200, PIXEL, "image/png")

    def on_file(self, *_):
        self.reply(200, b"PK\x03\x04", "application/zip")

    def on_text(self, *_):
        self.reply(200, "42 grüße".encode(), "text/plain; charset=utf-8")

    def on_large(self, *_):
        self.reply(200, b'"' + b"x" * (33 << 20) + b'"')

    def on_moved(self, *_):
        self.reply(302, headers=[("Location", "/text")])

    def on_slow(self, *_):
        # Until the other side goes.
        self.rfile.read(1)
        with arrived:
            requests.append({"path": "/slow/ended"})

    def on_token(self, rest, query, body, seen):
        expected = "Basic " + base64.b64encode(b"client%2Did:client%2Dsecret%2D1").decode()
        if self.headers.get("Authorization") != expected:
            return self.reply(401, {"error": "invalid_client"})
        tokens.append("token-number-%d" % len(tokens))
        self.reply(200, {"access_token": tokens[-1], "token_type": "Bearer", "expires_in": 3600})

    def on_protected(self, rest, query, body, seen):
        if not tokens or self.headers.get("Authorization") != "Bearer " + tokens[-1]:
            return self.reply(401, {"detail": "no token"})
        if rest == ["revoke"]:
            tokens.append("revoked")
        self.reply(200, {"token": self.headers["Authorization"]})

    def on_openapi_json(self, *_):
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "fetched.json"), "rb") as file:
            self.reply(200, file.read())

    def on_moved_json(self, *_):
        self.reply(301, headers=[("Location", "/openapi.json")])


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
threading.Thread(target=server.serve_forever, daemon=True).start()
print(server.server_address[1], flush=True)
sys.stdin.read()
