# Packages that the host installs into a folder of this session. `guest` is the interpreter.

import os
import sys

FOLDER = "/packages"
PIP_OPTIONS = {"-q", "-qq", "-qqq", "--quiet", "-y", "--no-input", "--disable-pip-version-check", "--user", "--progress-bar=off"}
USAGE = "pip has here: install PACKAGE…, install -r FILE, list, freeze, show PACKAGE"


def install(requirements, upgrade=False):
    """Has packages installed; returns what was added, as `name version`."""
    requirements = [text for item in requirements for text in (item if isinstance(item, (list, tuple)) else [item])]
    if not all(isinstance(text, str) for text in requirements):
        raise TypeError("install needs the names of packages, such as 'polars' or 'httpx>=0.27'")
    if not requirements:
        return []
    return ask(requirements=requirements, upgrade=bool(upgrade))


def install_named():
    """Has the packages installed that the operator named. After an error, the next run tries again."""
    ask(**{"with": True})
    del guest.settings["with"]


def install_script(source):
    """Has the packages installed that the metadata of a script names: PEP 723."""
    import re

    # The reference expression of the PEP.
    block = r"(?m)^# /// (?P<type>[a-zA-Z0-9-]+)$\s(?P<content>(^#(| .*)$\s)+)^# ///$"
    found = [match for match in re.finditer(block, source.replace("\r\n", "\n")) if match["type"] == "script"]
    if len(found) > 1:
        raise ValueError("the code has %d blocks `# /// script`, of which there may be one" % len(found))
    if found:
        lines = found[0]["content"].splitlines(True)
        ask(script="".join(line[2:] if line.startswith("# ") else line[1:] for line in lines))


def ask(**wanted):
    present = versions()
    answer = guest.runtime._ask("install", dict(wanted, python=about_python(), present=present))
    guest.notices += answer["notices"]
    packages = answer["packages"]
    if packages:
        make_importable()
    for package in packages:
        name, version = package["name"], package["version"]
        if present.get(name, version) != version and name.replace("-", "_") in sys.modules:
            guest.notices.append(
                "%s %s is already imported; to use %s, install it in a new session before the import"
                % (name, present[name], version)
            )
    return ["%s %s" % (package["name"], package["version"]) for package in packages]


def about_python():
    """Returns what the choice of wheels depends on."""
    return {
        "version": "%d.%d.%d" % sys.version_info[:3],
        "machine": os.uname().machine,
        "libc": libc(),
        "abi_flags": sys.abiflags,
    }


def libc():
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or "musl 1.2"
    except (ValueError, OSError):
        # Every musl of the last years loads wheels for 1.2.
        return "musl 1.2"


def versions():
    """Returns the versions of what can be imported, by name, from the names of folders: metadata takes long to parse."""
    found = {}
    for folder in sys.path:
        try:
            entries = os.listdir(folder) if folder else []
        except OSError:
            continue
        for entry in entries:
            stem, _, kind = entry.rpartition(".")
            if kind in ("dist-info", "egg-info"):
                name, version = (stem.split("-") + [""])[:2]
                found.setdefault(name.lower().replace("_", "-").replace(".", "-"), version)
    return found


def make_importable():
    """Adds the folder to the path: after the standard library, which it must not shadow, and before the packages of the image."""
    if FOLDER not in sys.path:
        places = [at for at, path in enumerate(sys.path) if path.endswith(("/site-packages", "/dist-packages"))]
        sys.path.insert(places[0] if places else len(sys.path), FOLDER)
    # For processes that code starts.
    folders = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if FOLDER not in folders:
        os.environ["PYTHONPATH"] = os.pathsep.join(folders + [FOLDER])
    for path, finder in list(sys.path_importer_cache.items()):
        if path.startswith(FOLDER) and finder is not None:
            finder.invalidate_caches()


# Imports that fail.


def hint(error):
    """Says how a package can be had whose module is missing."""
    try:
        module = missing_module(error)
        text = module and guest.runtime._ask("missing_module", {"module": module})
        if text:
            guest.notices.append(text)
    except Exception:
        # User code controls the error, and may have broken what this needs: the error itself says enough.
        pass


def missing_module(error):
    """Returns the name of a module that an import did not find, also where a library caught that and raised another error."""
    for cause in error, error.__cause__, error.__context__:
        if isinstance(cause, ModuleNotFoundError) and isinstance(cause.name, str) and cause.name:
            top = cause.name.partition(".")[0]
            known = getattr(sys, "stdlib_module_names", sys.builtin_module_names)
            return None if top in known or top in sys.modules or top == "mcp" else cause.name
    return None


# What `%pip` and `!pip` do.


def pip(words):
    """Does what a pip command means here; `words` are those after `pip`."""
    command, rest = (words[0], list(words[1:])) if words else ("", [])
    if command == "install":
        return pip_install(rest)
    if command in ("list", "freeze"):
        form = "%s==%s" if command == "freeze" else "%-30s %s"
        lines = [form % item for item in sorted(versions().items())]
        if lines or command == "list":
            print("\n".join(lines) or "no packages are installed")
    elif command == "show" and rest:
        return show(rest)
    elif command in ("--version", "-V"):
        print("pip of codebridge: the host downloads packages for this sandbox")
    else:
        raise ValueError("pip %s is not available in the sandbox; %s" % (command, USAGE))


def pip_install(words):
    wanted, upgrade, quiet = [], False, False
    words = iter(words)
    for word in words:
        if word in ("-U", "--upgrade"):
            upgrade = True
        elif word in ("-r", "--requirement"):
            wanted += lines_of(next(words, ""))
        elif word in PIP_OPTIONS:
            quiet = quiet or word.startswith(("-q", "--q"))
        elif word.startswith("-"):
            raise ValueError("pip install %s is not available in the sandbox; %s" % (word, USAGE))
        else:
            wanted.append(word)
    if not wanted:
        raise ValueError("pip install needs the names of packages")
    added = install(wanted, upgrade)
    if not quiet:
        print("Installed %s" % ", ".join(added) if added else "Already installed: %s" % ", ".join(wanted))
        for program, module in programs(added):
            print("Instead of %s: %s -m %s" % (program, os.path.basename(sys.executable), module))


def programs(added):
    """Yields the programs of packages, which are not installed, and the modules that do the same."""
    for package in added:
        name, _, version = package.partition(" ")
        try:
            with open("%s/%s-%s.dist-info/entry_points.txt" % (FOLDER, name.replace("-", "_"), version), encoding="utf-8") as file:
                section = file.read(1 << 16).partition("[console_scripts]")[2].partition("\n[")[0]
        except (OSError, UnicodeDecodeError):
            continue
        for line in section.splitlines():
            program = line.partition("=")[0].strip()
            module = program.replace("-", "_")
            if module and os.path.exists("%s/%s/__main__.py" % (FOLDER, module)):
                yield program, module


def lines_of(path):
    """Returns the requirements of a file."""
    with open(path, encoding="utf-8") as file:
        lines = [line.partition(" #")[0].strip() for line in file]
    return [line for line in lines if line and not line.startswith("#")]


def show(names):
    import importlib.metadata

    for name in names:
        try:
            metadata = importlib.metadata.metadata(name)
        except importlib.metadata.PackageNotFoundError:
            raise ValueError("the package %s is not installed" % name) from None
        for key in "Name", "Version", "Summary", "Home-page", "License":
            if metadata[key]:
                print("%s: %s" % (key, metadata[key]))
