# What the special lines of a cell do: `__notebook__` in translated code is this module. A function line_NAME is the magic
# `%NAME`, a function cell_NAME is `%%NAME`. `guest` is the interpreter.

import os
import re
import shlex
import sys

ALIASES = ("cat", "cp", "ls", "ll", "mkdir", "mv", "rm", "rmdir", "touch", "head", "tail")
SCRIPTS = ("perl", "python", "python3", "ruby", "js", "node")
# These get their text as it stands.
PLAIN = "time", "timeit", "pip"


def names(escape):
    kind = "line_" if escape == "%" else "cell_"
    found = [name[len(kind) :] for name in globals() if name.startswith(kind) and name != "cell_magic"]
    return sorted(found + list(ALIASES if kind == "line_" else SCRIPTS) + (["time", "capture"] if kind == "cell_" else []))


def magic(name, line):
    frame = sys._getframe(1)
    if name not in PLAIN:
        line = interpolated(line, frame)
    if name in ALIASES:
        return run_shell("ls -lF %s" % line if name == "ll" else "%s %s" % (name, line))
    return globals()["line_" + name](line)


def cell_magic(name, line, body):
    if name in SCRIPTS:
        return cell_script("node" if name == "js" else name + " " + line, body)
    return globals()["cell_" + name](line, body)


def usage(text):
    raise ValueError(text)


# Shells.


def interpolated(text, frame):
    """Replaces `{expression}` and `$name` by values, where they have one."""
    names = {**frame.f_globals, **frame.f_locals}
    pieces, at = [], 0
    quoted = False
    while at < len(text):
        letter = text[at]
        if letter == "'":
            quoted = not quoted
        if text.startswith(("{{", "}}", "$$"), at) and not text.startswith("$${", at):
            # Two of them are one, but for $$, which shells know.
            pieces.append("$$" if letter == "$" else letter)
            at += 2
            continue
        value, end = None, 0
        if letter == "{" and text[at - 1 : at] != "$":
            value, end = expression_at(text, at, names)
        elif letter == "$" and not quoted:
            value, end = name_at(text, at, names)
        if end:
            pieces.append(value)
            at = end
        else:
            pieces.append(letter)
            at += 1
    return "".join(pieces)


def expression_at(text, at, names):
    end = at
    for _ in range(20):
        end = text.find("}", end) + 1
        if not end:
            break
        try:
            code = compile(text[at + 1 : end - 1].strip(), "<command>", "eval", 0, True)
        except (SyntaxError, ValueError):
            continue
        try:
            return str(eval(code, names)), end
        except Exception:
            break
    return None, 0


def name_at(text, at, names):
    match = re.compile(r"\$([^\W\d]\w*)((?:\.[^\W\d]\w*)*)").match(text, at)
    if match is None or match[1] not in names:
        return None, 0
    value, end = names[match[1]], match.end(1)
    for attribute in match[2].split(".")[1:]:
        if not hasattr(value, attribute):
            break
        value, end = getattr(value, attribute), end + 1 + len(attribute)
    return str(value), end


def system(command):
    command = interpolated(command, sys._getframe(1))
    shell = guest.part("shell")
    pip = shell.split_pip(command)
    if pip is not None:
        words, command = pip
        guest.part("packages").pip(words)
        if not command:
            return
    run_shell(command)


def run_shell(command):
    shell = guest.part("shell")
    guest.namespace["_exit_code"] = shell.say_status(shell.shell(command))


class Lines(list):
    """The lines that a command printed; `.s` joins them with spaces, `.n` with line ends."""

    @property
    def s(self):
        return " ".join(self)

    @property
    def n(self):
        return "\n".join(self)

    @property
    def l(self):  # noqa: E743
        return list(self)


def lines(command):
    return lines_of(interpolated(command, sys._getframe(1)))


def lines_of(command):
    import subprocess

    shell = guest.part("shell")
    pieces = []
    status = shell.shell(command, out=pieces.append, err=subprocess.STDOUT)
    guest.namespace["_exit_code"] = shell.say_status(status)
    return Lines(b"".join(pieces).decode("utf-8", "replace").splitlines())


def line_sx(line):
    return lines_of(line)


def line_system(line):
    return lines_of(line)


def cell_sx(line, body):
    return lines_of(line + "\n" + body)


def cell_bash(line, body):
    run_cell_shell("bash", line, body)


def cell_sh(line, body):
    run_cell_shell("sh", line, body)


def run_cell_shell(name, line, body):
    options, words, how = script_options(line)
    arguments = words[words.index("-s") + 1 :] if "-s" in words else []
    words = words[: words.index("-s")] if "-s" in words else words
    shell = guest.part("shell")
    finish_script(options, shell.shell(body, name, words, arguments, **how), how)


def cell_script(line, body):
    options, words, how = script_options(line)
    if not words:
        usage("%%script needs a program: %%script node")
    if os.path.basename(words[0]) in ("bash", "sh"):
        return run_cell_shell(os.path.basename(words[0]), line.split(words[0], 1)[1], body)
    shell = guest.part("shell")
    finish_script(options, shell.script(words, body, **how), how)


def script_options(line):
    """Returns the options of `%%script`, the other words, and where output goes."""
    words, options = shlex.split(line), {}
    while words and words[0] in ("--no-raise-error", "--raise-error", "--bg", "--out", "--err", "--proc"):
        option = words.pop(0)
        options[option] = words.pop(0) if option in ("--out", "--err", "--proc") and words else True
    how = {"waits": "--bg" not in options}
    for option, name in ("--out", "out"), ("--err", "err"):
        if option in options:
            options[option] = (options[option], [])
            how[name] = options[option][1].append
    return options, words, how


def finish_script(options, status, how):
    for option in "--out", "--err":
        if option in options:
            name, pieces = options[option]
            guest.namespace[name] = b"".join(pieces).decode("utf-8", "replace")
    if not how["waits"]:
        return
    code = guest.part("shell").say_status(status)
    guest.namespace["_exit_code"] = code
    if code and "--no-raise-error" not in options:
        # The result of the cell is that of its script; what it printed says why.
        raise SystemExit(code)


def line_pip(line):
    guest.part("packages").pip(shlex.split(interpolated(line, sys._getframe(2))))


def line_uv(line):
    words = shlex.split(line)
    if words[:1] == ["pip"]:
        return guest.part("packages").pip(words[1:])
    return run_shell("uv " + line)


# The session.


def line_cd(line):
    folder = line.strip().strip("'\"")
    before = os.getcwd()
    if folder == "-":
        folder = guest.part("shell").state.__dict__.get("before") or before
    os.chdir(os.path.expanduser(folder or "~"))
    state = guest.part("shell").state
    state.before = before
    # Shells follow, also when Python was there already.
    state.python = None
    print(os.getcwd())


def line_pwd(line):
    return os.getcwd()


def line_env(line):
    line = line.strip()
    if not line:
        return dict(os.environ)
    name, found, value = line.partition("=") if "=" in line else line.partition(" ")
    name, value = name.strip(), value.strip()
    if not found:
        if name not in os.environ:
            usage("the environment has no variable %s" % name)
        return os.environ[name]
    os.environ[name] = value
    print("env: %s=%s" % (name, value))


line_set_env = line_env


def user_names():
    return sorted(name for name in guest.namespace if name[:1] != "_" and name not in guest.initial_names)


def line_who(line):
    kinds = line.split()
    found = [name for name in user_names() if not kinds or type(guest.namespace[name]).__name__ in kinds]
    print("  ".join(found) if found else "There are no variables.")


def line_who_ls(line):
    return user_names()


def line_whos(line):
    for name in user_names():
        value = guest.namespace[name]
        try:
            text = " ".join(repr(value).split())
        except Exception:
            text = "<repr() failed>"
        print("%-15s %-15s %s" % (name, type(value).__name__, text if len(text) <= 60 else text[:57] + "..."))


def line_reset(line):
    """Removes the variables of the session."""
    for name in [name for name in guest.namespace if name not in guest.initial_names]:
        del guest.namespace[name]
    guest.namespace.update(guest.bridge_names)
    guest.forget_values()


def line_lsmagic(line):
    for escape in "%", "%%":
        print(" ".join(escape + name for name in names(escape)))


def line_run(line):
    import runpy

    words = shlex.split(line)
    shares = words[:1] == ["-i"]
    words = [word for word in words if word != "-i"] if shares else words
    if not words:
        usage("%run needs a file: %run script.py")
    path = words[0] if os.path.exists(words[0]) or words[0].endswith(".py") else words[0] + ".py"
    if not os.path.exists(path):
        raise FileNotFoundError(2, os.strerror(2), path)
    before = sys.argv
    sys.argv = [path, *words[1:]]
    try:
        given = dict(guest.namespace) if shares else None
        found = runpy.run_path(path, given, "__main__")
    finally:
        sys.argv = before
    guest.namespace.update((name, value) for name, value in found.items() if name[:2] != "__")


def line_matplotlib(line):
    """Figures are shown without it."""


def line_config(line):
    """Settings of notebooks have no effect here."""


line_precision = line_colors = line_config


def line_load_ext(line):
    if line.strip() != "autoreload":
        usage("there is no extension %s here; autoreload is the only one" % line.strip())


line_reload_ext = line_load_ext
reloading = {}


def line_autoreload(line):
    mode = line.strip() or "now"
    if mode not in ("0", "1", "2", "3", "off", "explicit", "all", "complete", "now"):
        usage("%autoreload takes 0 (off), 2 (all modules) or nothing (now)")
    if mode in ("0", "off"):
        guest.before_cell = None
        return
    note_times()
    if mode == "now":
        reload_changed()
    else:
        guest.before_cell = reload_changed


def own_modules():
    """Returns the modules that are files of the user, with the times of their last change."""
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if isinstance(path, str) and guest.part("report").is_writable(path):
            try:
                yield module, os.stat(path).st_mtime_ns
            except OSError:
                pass


def note_times():
    for module, time in own_modules():
        reloading.setdefault(module.__name__, time)


def reload_changed():
    import importlib

    for module, time in list(own_modules()):
        if reloading.setdefault(module.__name__, time) == time:
            continue
        reloading[module.__name__] = time
        before = dict(vars(module))
        importlib.invalidate_caches()
        importlib.reload(module)
        for name, value in list(guest.namespace.items()):
            # What was imported from it.
            if name in before and value is before[name] and name[:2] != "__" and name in vars(module):
                guest.namespace[name] = vars(module)[name]


# Time.

timing = guest.part("timing")
start_timer, timed = timing.start_timer, timing.timed


def line_time(line):
    start_timer()
    exec(compile(line, "<%time>", "exec", guest.future_flags, True), guest.namespace)
    timed(None)


def line_timeit(line):
    return timing.time_it(line, "pass", sys._getframe(2))


def cell_timeit(line, body):
    options, setup = timing.split_timeit(line)
    return timing.time_it(options + " " + body, setup or "pass", sys._getframe(2))


# Output.


def show(value):
    """Shows the last value of a cell that something surrounds."""
    guest.display(value)


class Captured:
    """What a cell printed."""

    def __init__(self):
        self.stdout = self.stderr = ""

    def show(self):
        sys.stdout.write(self.stdout)
        sys.stderr.write(self.stderr)

    __call__ = show

    def __str__(self):
        return self.stdout


class capture:
    def __init__(self, line):
        words = shlex.split(line)
        self.kept = {word for word in words if word in ("--no-stdout", "--no-stderr", "--no-display")}
        self.name = next((word for word in words if word[:1] != "-"), None)

    def __enter__(self):
        import io

        self.before = sys.stdout, sys.stderr
        self.out, self.err = io.StringIO(), io.StringIO()
        if "--no-stdout" not in self.kept:
            sys.stdout = self.out
        if "--no-stderr" not in self.kept:
            sys.stderr = self.err
        # Objects are shown as their text, which is captured.
        self.display = guest.part("display")
        self.place = self.display.place
        if "--no-display" not in self.kept:
            self.display.place = lambda: 0

    def __exit__(self, *_):
        try:
            guest.show_figures()
        finally:
            sys.stdout, sys.stderr = self.before
            self.display.place = self.place
        if self.name is not None:
            captured = Captured()
            captured.stdout, captured.stderr = self.out.getvalue(), self.err.getvalue()
            guest.namespace[self.name] = captured


def cell_writefile(line, body):
    words = shlex.split(line)
    appends = "-a" in words or "--append" in words
    files = [word for word in words if word not in ("-a", "--append")]
    if len(files) != 1:
        usage("%%writefile needs one file: %%writefile [-a] FILE")
    path = os.path.expanduser(files[0])
    exists = os.path.exists(path)
    with open(path, "a" if appends else "w", encoding="utf-8") as file:
        file.write(body if body.endswith("\n") or not body else body + "\n")
    print("%s %s" % ("Appending to" if appends and exists else "Overwriting" if exists else "Writing", path))


cell_file = cell_writefile


def shown_as(mime):
    def show_body(line, body):
        guest.part("display").display({mime: body}, raw=True)

    return show_body


cell_html, cell_HTML = shown_as("text/html"), shown_as("text/html")
cell_markdown, cell_latex, cell_svg = shown_as("text/markdown"), shown_as("text/latex"), shown_as("image/svg+xml")


# Help.

show_help = guest.part("inspection").show_help
