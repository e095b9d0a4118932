"""A scripted MCP registry on a port of its own that it prints; it ends with its standard input. Standard library only.

Its argument is a file with the servers, a JSON list. The path before `/v0/servers` says how it answers: / as the published API
does, in pages of two; /html with a page; /status/N with that status; /endless with pages without end; /huge with an answer
without end. Each request for servers is a line of the file in the second argument.
"""

import http.server
import json
import sys
import threading
import urllib.parse

PAGE = 2


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def reply(self, status, body, kind="application/json"):
        body = body.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        url = urllib.parse.urlparse(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        with open(sys.argv[2], "a") as seen:
            seen.write(self.path + "\n")
        kind = url.path.removesuffix("/v0/servers")
        if kind == url.path:
            self.reply(404, '{"error": "no such path"}')
        elif kind == "/html":
            self.reply(200, "<html>welcome</html>", "text/html")
        elif kind.startswith("/status/"):
            self.reply(int(kind.removeprefix("/status/")), '{"error": "\\u001b[2J"}')
        elif kind == "/endless":
            number = int(query.get("cursor", "0"))
            server = {"name": f"endless/server{number}", "description": "", "version": "1"}
            self.reply(200, json.dumps({"servers": [{"server": server}], "metadata": {"nextCursor": str(number + 1)}}))
        elif kind == "/huge":
            self.send_response(200)
            self.send_header("Connection", "close")
            self.end_headers()
            self.close_connection = True
            try:
                self.wfile.write(b'{"servers": [')
                while True:
                    self.wfile.write(b'"' + b"x" * 65536 + b'",')
            except OSError:
                pass
        else:
            self.servers(query)

    def servers(self, query):
        with open(sys.argv[1]) as file:
            servers = json.load(file)
        wanted = query.get("search", "").lower()

        def name_of(entry):
            server = entry.get("server")
            return server["name"] if isinstance(server, dict) else ""

        found = [entry for entry in servers if wanted in name_of(entry).lower() or not name_of(entry)]
        start = int(query.get("cursor", "0"))
        page = found[start : start + PAGE]
        metadata = {"count": len(page)}
        if start + PAGE < len(found):
            metadata["nextCursor"] = str(start + PAGE)
        self.reply(200, json.dumps({"servers": page, "metadata": metadata}))


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
sys.stdin.read()
