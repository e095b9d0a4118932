# Cells as notebooks have them: fences, indentation, `!command`, `%magic`, `%%magic`, `object?`. Only a cell that is not Python
# as it stands gets here. Each line is replaced by one line, so that line numbers stay right. What runs in its place is in
# magics.py; the rules are those of https://ipython.readthedocs.io/en/stable/interactive/reference.html. `guest` is the
# interpreter.

import builtins
import re

ONLY_AST = 0x400
FENCE = re.compile(r"\s*(?P<fence>`{3,})[ \t]*(?P<language>[\w+.-]*)[^\n`]*\n(?P<body>.*?)(?:\n?[ \t]*(?P=fence)\s*)?\Z", re.S)
SHELL_FENCES = "bash", "sh", "shell", "console", "zsh"
CELL = re.compile(r"(?P<before>(?:[ \t]*(?:#[^\n]*)?\n)*)[ \t]*%%(?P<name>[A-Za-z]\w*)(?P<line>[^\n]*)(?:\n(?P<body>.*))?\Z", re.S)
LINE = re.compile(
    r"(?P<indent>[ \t]*)(?:(?P<target>[^\W\d](?:[^=!%?#])*?)[ \t]*=[ \t]*)?(?P<escape>!!?|%(?=[A-Za-z]))(?P<rest>.*)\Z", re.S
)
HELP = re.compile(r"(?P<indent>[ \t]*)(?:(?P<first>\?\??)[ \t]*(?P<before>[\w.*%\[\]'\"]+)|(?P<after>[\w.*%\[\]'\"]+)(?P<last>\?\??))[ \t;]*\Z")
PIP = re.compile(r"(?P<indent>[ \t]*)(?P<rest>(?:pip3?|uv[ \t]+pip)[ \t]+(?:install|uninstall|list|show|freeze|download)\b.*)\Z", re.S)
# What can begin, end or continue a statement. A string that is not closed ends with its line.
TOKEN = re.compile(r"#[^\n]*|\\\n|(?P<quote>'''|\"\"\"|'|\")|(?P<open>[(\[{])|(?P<close>[)\]}])|(?P<end>\n)")
CLOSED = {
    "'": re.compile(r"(?:\\.|[^'\\\n])*'?", re.S),
    '"': re.compile(r'(?:\\.|[^"\\\n])*"?', re.S),
    "'''": re.compile(r"(?:\\.|[^\\])*?'''", re.S),
    '"""': re.compile(r'(?:\\.|[^\\])*?"""', re.S),
}
# Cells whose body stays a part of the cell.
WRAPPING = "time", "capture"


def parse(name, source, flags, error):
    """Returns the tree of a cell; raises `error`, of Python's own parser, if nothing in it is a notebook's."""
    text = unwrapped(source.replace("\r\n", "\n"))
    shown = text
    wrappers = []
    while True:
        cell = CELL.match(text)
        if cell is None or cell["name"] not in WRAPPING:
            break
        wrappers.append((cell["name"], cell["line"].strip()))
        text = "\n" * (cell["before"].count("\n") + 1) + (cell["body"] or "")
    translation = Translation(name, flags)
    text = translation.of_cell(text)
    if text == source and not wrappers:
        raise error
    builtins.__notebook__ = guest.part("magics")
    if shown != source:
        guest.add_source(name, shown)
    try:
        tree = compile(text, name, "exec", flags | ONLY_AST, True)
    except SyntaxError as again:
        lines = shown.split("\n")
        if again.lineno in translation.lines and again.lineno <= len(lines):
            again.text, again.offset, again.end_offset = lines[again.lineno - 1], None, None
        raise again from None
    mark_whole_lines(tree, translation.lines, shown.split("\n"))
    for wrapper in reversed(wrappers):
        wrap(tree, *wrapper)
    return tree


def unwrapped(text):
    """Removes a fence around the cell, and indentation that all of it has."""
    fence = FENCE.match(text)
    if fence:
        first = text[: fence.start("body")].count("\n")
        shell = fence["language"].lower() in SHELL_FENCES
        text = "\n" * (first - 1) + ("%%bash\n" if shell else "\n") + fence["body"]
    indent = re.match(r"(?:[ \t]*(?:#[^\n]*)?\n)*([ \t]+)(?=[^\s#])", text)
    if indent:
        text = re.sub(r"(?m)^" + indent[1], "", text)
    return text


class Translation:
    def __init__(self, name, flags):
        self.name, self.flags = name, flags
        # Numbers of the lines that were replaced.
        self.lines = set()

    def of_cell(self, text):
        cell = CELL.match(text)
        if cell is None:
            return self.of_lines(text)
        number = cell["before"].count("\n") + 1
        self.check("%%", cell["name"], number, "%%" + cell["name"] + cell["line"])
        self.lines.add(number)
        words = cell["name"], cell["line"].strip(), cell["body"] or ""
        return "\n" * (number - 1) + "__notebook__.cell_magic(%r, %r, %r)" % words

    def of_lines(self, text):
        pieces, start = [], 0
        while start < len(text):
            end = text.find("\n", start)
            end = len(text) if end < 0 else end
            replaced = self.of_help(text[start:end])
            if replaced is None and (LINE.match(text[start:end]) or PIP.match(text[start:end])):
                while text[start:end].endswith("\\") and end < len(text):
                    following = text.find("\n", end + 1)
                    end = len(text) if following < 0 else following
                number = text.count("\n", 0, start) + 1
                replaced = self.of_line(text[start:end], number)
            if replaced is None:
                end = end_of_statement(text, start)
                pieces.append(text[start:end])
                start = end
                continue
            number = text.count("\n", 0, start) + 1
            self.lines.update(range(number, number + text.count("\n", start, end) + 1))
            pieces.append(replaced + "\n" * text.count("\n", start, end + 1))
            start = end + 1
        return "".join(pieces)

    def of_help(self, line):
        match = HELP.match(line)
        if match is None:
            return None
        about = match["before"] or match["after"]
        return "%s__notebook__.show_help(%r, %d)" % (match["indent"], about, len(match["first"] or match["last"]))

    def of_line(self, line, number):
        match = LINE.match(line) or PIP.match(line)
        rest = re.sub(r"\\\n[ \t]*", "", match["rest"])
        if match.re is PIP:
            return match["indent"] + "__notebook__.system(%r)" % rest.strip()
        target = match["target"]
        start = match["indent"] + (target + " = " if target else "")
        if match["escape"][0] == "!":
            takes_lines = target or match["escape"] == "!!"
            return start + "__notebook__.%s(%r)" % ("lines" if takes_lines else "system", match["rest"].strip())
        name, _, argument = re.sub(r"\A(\w+)", r"\1 ", rest).partition(" ")
        argument = argument.strip()
        self.check("%", name, number, line.strip())
        if name == "time" and argument:
            return start + self.timed(argument, target)
        return start + "__notebook__.magic(%r, %r)" % (name, argument)

    def timed(self, statement, target):
        """Returns code that runs a statement in its place, so that it can await and assign."""
        inner = LINE.match(statement)
        if inner and not inner["target"]:
            statement = self.of_line(statement, 0)
        for code, mode in ("__notebook__.timed(__notebook__.start_timer() or (%s))", "eval"), (
            "__notebook__.start_timer(); %s; __notebook__.timed(None)",
            "exec",
        ):
            try:
                compile(code % statement, self.name, mode, self.flags | ONLY_AST, True)
            except SyntaxError:
                continue
            if mode == "eval" or not target:
                return code % statement
        return "__notebook__.magic('time', %r)" % statement

    def check(self, escape, name, number, line):
        kinds = guest.part("magics").names(escape)
        if name in kinds:
            return
        import difflib

        other = "%" if escape == "%%" else "%%"
        others = guest.part("magics").names(other)
        hint = ""
        # The same name with the other escape first, then what is written alike.
        for found, names in (other, others if name in others else ()), (escape, kinds), (other, others):
            close = difflib.get_close_matches(name, names, 1)
            if close:
                hint = "did you mean %s%s? " % (found, close[0])
                break
        known = [escape + kind for kind in kinds] + ([] if hint else [other + kind for kind in others])
        text = "unknown magic %s%s: %sthere are %s" % (escape, name, hint, " ".join(known))
        raise SyntaxError(text, (self.name, number, 1, line)) from None


def end_of_statement(text, start):
    """Returns where the next line begins that is not inside of a string or brackets."""
    depth = 0
    while True:
        token = TOKEN.search(text, start)
        if token is None:
            return len(text)
        start = token.end()
        if token["quote"]:
            closed = CLOSED[token["quote"]].match(text, start)
            start = closed.end() if closed else len(text)
        elif token["open"]:
            depth += 1
        elif token["close"]:
            depth = max(0, depth - 1)
        elif token["end"] and not depth:
            return start


def mark_whole_lines(tree, numbers, lines):
    """Has tracebacks point at all of a line that was replaced: its columns are those of other text."""
    import ast

    for node in ast.walk(tree) if numbers else ():
        number = getattr(node, "lineno", None)
        if number in numbers:
            node.col_offset, node.end_lineno = 0, number
            node.end_col_offset = len(lines[number - 1].encode()) if number <= len(lines) else 0


def wrap(tree, name, line):
    """Puts the statements of a cell into what surrounds them, in place: they await and assign as before."""
    import ast

    last = tree.body[-1].value if tree.body and type(tree.body[-1]) is ast.Expr else None
    if name == "time":
        begin, end = ast.parse("__notebook__.start_timer()\n__notebook__.timed(None)").body
        if last is not None:
            end.value.args = [last]
            tree.body.pop()
        tree.body[:] = [begin, *tree.body, end]
    else:
        around = ast.parse("with __notebook__.capture(%r): pass" % line).body[0]
        if last is not None:
            shown = ast.parse("__notebook__.show(None)").body[0]
            shown.value.args = [last]
            tree.body[-1] = shown
        if tree.body:
            around.body = tree.body[:]
        tree.body[:] = [around]
    ast.fix_missing_locations(tree)
