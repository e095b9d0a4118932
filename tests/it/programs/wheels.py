# Makes wheels for the tests, in the folder that is its argument.
import base64, hashlib, sys, zipfile


def wheel(folder, name, files, version="1.0"):
    info = "%s-%s.dist-info" % (name, version)
    files = dict(files)
    files[info + "/METADATA"] = "Metadata-Version: 2.1\nName: %s\nVersion: %s\n" % (name, version)
    files[info + "/WHEEL"] = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    record = ""
    for path, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
        record += "%s,sha256=%s,%d\n" % (path, digest, len(text))
    files[info + "/RECORD"] = record + info + "/RECORD,,\n"
    with zipfile.ZipFile("%s/%s-%s-py3-none-any.whl" % (folder, name, version), "w") as archive:
        for path, text in files.items():
            entry = zipfile.ZipInfo(path)
            # A path that ends so is a symbolic link.
            entry.external_attr = (0o120777 if path.endswith("link") else 0o100644) << 16
            archive.writestr(entry, text)


folder = sys.argv[1]
marks = "import os\nopen('/workspace/%s', 'w')\n"
wheel(folder, "shadow", {
    "shadow.py": "value = 'installed'\n",
    "json.py": "raise RuntimeError('shadowed')\n",
    "csv.py": "raise RuntimeError('shadowed')\n",
    "runtime.py": "value = 'a module'\n",
    "sitecustomize.py": marks % "sitecustomize-ran",
    "shadow.pth": "import os; open('/workspace/pth-ran', 'w')\n",
})
wheel(folder, "climbs", {"climbs.py": "", "../../../../climbed.py": "x = 1\n"})
wheel(folder, "absolute", {"absolute.py": "", folder + "/absolute-was-here": "x"})
wheel(folder, "links", {"links.py": "", "links-link": "/etc/passwd"})
wheel(folder, "data", {"data.py": "", "data-1.0.data/scripts/data-tool": "#!python\n", "data-1.0.data/data/../../../climbed.py": ""})
wheel(folder, "plain", {"plain.py": "value = 1\n"})
wheel(folder, "plain", {"plain.py": "value = 2\n"}, "2.0")
