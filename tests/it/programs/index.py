# A package index on loopback that wants a password: the folder of its wheels is its argument, the password that of SECRET.
# On each request it looks for the password in the arguments of every process.
import base64, glob, hashlib, http.server, os, sys

folder = sys.argv[1]
secret = os.environb[b"SECRET"]
expected = "Basic " + base64.b64encode(b"somebody:" + secret).decode()


def look():
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            with open(path, "rb") as file:
                words = file.read()
        except OSError:
            continue
        if secret in words:
            with open(os.path.join(folder, "seen"), "ab") as file:
                file.write(words + b"\n")


class Index(http.server.BaseHTTPRequestHandler):
    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        look()
        if self.headers["Authorization"] != expected:
            self.send_response(401)
            self.send_header("WWW-Authenticate", "Basic")
            self.send_header("Content-Length", "0")
            return self.end_headers()
        name = os.path.basename(self.path.rstrip("/"))
        wheels = [n for n in os.listdir(folder) if n.endswith(".whl") and n.split("-")[0] == name]
        if name.endswith(".whl"):
            with open(os.path.join(folder, name), "rb") as file:
                self.answer(200, "application/octet-stream", file.read())
        else:
            links = ""
            for wheel in wheels:
                with open(os.path.join(folder, wheel), "rb") as file:
                    digest = hashlib.sha256(file.read()).hexdigest()
                links += '<a href="/files/%s#sha256=%s">%s</a>\n' % (wheel, digest, wheel)
            self.answer(200 if wheels else 404, "text/html", links.encode())

    def answer(self, status, kind, body):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *words):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Index)
print(server.server_port, flush=True)
server.serve_forever()
