"""A scripted MCP server over HTTP, streamable and older, on a port of its own that it prints; it ends with its standard input.

The path says how it answers: /json, /events, /session (a session and a stream), /older (GET opens the stream, POST to it
is not allowed), /refuse/STATUS, /redirect/STATUS, /page, /auth (wants `Authorization: Bearer good`). Standard library only.

With three arguments it speaks TLS: its certificate, the key of that, and a file that gets a line for each request. With a fourth
one it serves only clients with a certificate of this authority.
"""

import http.server
import json
import os
import queue
import ssl
import sys
import threading
import urllib.parse

sessions = {}
streams = {}
requests = []
answers = {}
lock = threading.Lock()
arrived = threading.Condition()


def result_of(method, params):
    if method == "initialize":
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": "fake", "version": "1"},
        }
    if method == "tools/list":
        return {"tools": [{"name": "echo", "inputSchema": {"type": "object"}, "x": 1}]}
    return {}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def parse_request(self):
        if sys.argv[1:]:
            with open(sys.argv[3], "a") as seen:
                seen.write("request\n")
        return super().parse_request()

    def reply(self, status, body=b"", kind="application/json", headers=()):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def start_events(self, headers=()):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Connection", "close")
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.close_connection = True

    def event(self, data, name=None):
        text = "".join(f"data: {line}\n" for line in data.split("\n"))
        self.wfile.write(((f"event: {name}\n" if name else "") + text + "\n").encode())
        self.wfile.flush()

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = urllib.parse.urlparse(self.path)
        message = json.loads(body)
        with lock:
            requests.append([self.path, dict(self.headers), message.get("method")])
        kind, _, rest = path.path.strip("/").partition("/")
        if kind == "refuse":
            self.reply(int(rest), b'{"error": "no, not with key-123456"}')
        elif kind == "page":
            self.reply(200, b"<html>hello</html>", "text/html")
        elif kind == "redirect":
            self.reply(int(rest), headers=[("Location", "/json")])
        elif kind == "older":
            self.reply(405)
        elif kind == "auth" and self.headers.get("Authorization") != "Bearer good":
            self.reply(401, headers=[("WWW-Authenticate", 'Bearer error="invalid_token"')])
        elif kind == "messages":
            self.reply(202)
            self.answer(message, lambda text: streams[rest].put(text))
        elif message.get("id") is None or "method" not in message:
            with arrived:
                answers[message.get("id")] = {key: message[key] for key in ("result", "error") if key in message}
                arrived.notify_all()
            self.reply(202)
        elif kind == "session":
            self.in_session(message)
        elif kind == "events":
            self.start_events()
            self.answer(message, self.event)
        else:
            parts = []
            self.answer(message, parts.append)
            self.reply(200, "\n".join(parts).encode("utf-8", "surrogateescape"))

    def in_session(self, message):
        session = self.headers.get("Mcp-Session-Id")
        if message["method"] == "initialize":
            session = f"s{len(sessions)}"
            sessions[session] = queue.Queue()
        elif session not in sessions:
            return self.reply(404)
        if message["method"] == "tools/call" and message["params"]["name"] == "expire":
            sessions.clear()
        self.start_events([("Mcp-Session-Id", session)])
        self.answer(message, self.event)
        if message["method"] == "tools/call" and message["params"]["name"] == "announce":
            sessions[session].put(json.dumps({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}))

    def answer(self, message, put):
        id, params = message.get("id"), message.get("params") or {}
        if id is None or "method" not in message:
            return
        if message["method"] == "tools/call":
            arguments = params.get("arguments") or {}
            if params["name"] == "raw":
                return put(arguments["text"].replace("ID", str(id)))
            if params["name"] == "none":
                return
            if params["name"] == "ask":
                put(json.dumps({"jsonrpc": "2.0", "id": f"ask-{id}", "method": arguments["method"], "params": {"a": 1}}))
                with arrived:
                    arrived.wait_for(lambda: f"ask-{id}" in answers, timeout=20)
                arguments = answers.get(f"ask-{id}")
            if params["name"] == "progress":
                token = params["_meta"]["progressToken"]
                for step in (1, 2, 3):
                    step = {"progressToken": token, "progress": step}
                    put(json.dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": step}))
            result = {"content": [], "structuredContent": {"arguments": arguments, "headers": dict(self.headers)}}
            if params["name"] == "requests":
                with lock:
                    result["structuredContent"] = {"requests": requests}
        else:
            result = result_of(message["method"], params)
        put(json.dumps({"jsonrpc": "2.0", "id": id, "result": result}))

    def do_GET(self):
        path = urllib.parse.urlparse(self.path).path
        session = self.headers.get("Mcp-Session-Id")
        if path == "/older":
            key = str(len(streams))
            streams[key] = queue.Queue()
            self.start_events()
            self.event(f"/messages/{key}", "endpoint")
            waiting = streams[key]
        elif path == "/session" and session in sessions:
            self.start_events()
            waiting = sessions[session]
        else:
            return self.reply(405)
        while True:
            try:
                self.event(waiting.get(timeout=0.2))
            except queue.Empty:
                self.wfile.write(b": still here\n\n")
                self.wfile.flush()

    def do_DELETE(self):
        with lock:
            requests.append([self.path, dict(self.headers), "DELETE"])
        sessions.pop(self.headers.get("Mcp-Session-Id"), None)
        self.reply(200)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        pass


server = Server(("127.0.0.1", 0), Handler)
if sys.argv[1:]:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(sys.argv[1], sys.argv[2])
    if sys.argv[4:]:
        tls.verify_mode = ssl.CERT_REQUIRED
        tls.load_verify_locations(sys.argv[4])
    server.socket = tls.wrap_socket(server.socket, server_side=True)
print(server.server_address[1], flush=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
sys.stdin.read()
os._exit(0)
