# Rich display: what objects look like beside their text, for the model and for the person. Follows Jupyter's display protocol
# (https://ipython.readthedocs.io/en/stable/config/integrating.html#rich-display). `guest` is the interpreter.

import os
import sys

# Bytes of one object in all its forms, and objects of a run: what exceeds them is shown as text only.
LARGEST = 16 << 20
MOST = 100
# Cells of a data frame that is also sent whole: its other forms have the first and last rows. Writing them takes 0.1 s.
MOST_CELLS = 100_000
# Asks a pipe how many bytes wait in it: ioctl_list(2).
FIONREAD = 0x541B
RICH = "_repr_mimebundle_", "_repr_html_", "_repr_png_"
TEXT, PNG, JPEG = "text/plain", "image/png", "image/jpeg"
STARTS = (b"\x89PNG\r\n\x1a\n", PNG), (b"\xff\xd8\xff", JPEG)
FORMS = (
    (PNG, "_repr_png_"),
    (JPEG, "_repr_jpeg_"),
    ("image/svg+xml", "_repr_svg_"),
    ("text/html", "_repr_html_"),
    ("text/markdown", "_repr_markdown_"),
    ("text/latex", "_repr_latex_"),
    ("application/json", "_repr_json_"),
)
# Methods that return a data frame as CSV.
WHOLE_TABLE = {"pandas": "to_csv", "polars": "write_csv"}

# The run whose displays are counted.
run, shown = 0, 0


def is_figure(value):
    module = sys.modules.get("matplotlib.figure")
    return module is not None and isinstance(value, module.Figure)


def display(*objects, include=None, exclude=None, metadata=None, raw=False, **_):
    """Shows objects: pictures as pictures, tables and other rich objects also in their rich form."""
    for value in objects:
        if hasattr(type(value), "_ipython_display_") and not any(hasattr(type(value), form) for form in RICH):
            value._ipython_display_()
            continue
        show(value, dict(value) if raw else forms(value), raw, include, exclude)


def show(value, bundle, raw=False, include=None, exclude=None):
    if include is not None:
        bundle = {mime: data for mime, data in bundle.items() if mime in include or mime == TEXT}
    if exclude is not None:
        bundle = {mime: data for mime, data in bundle.items() if mime not in exclude}
    text = bundle.pop(TEXT, None)
    if text is None:
        # It says more than the name of a class.
        text = bundle.get("text/markdown")
    parts = encoded(value, bundle)
    number = place() if parts else 0
    if not number or (PNG not in parts and JPEG not in parts):
        print(repr(value) if text is None and not raw else str(text or ", ".join(parts)))
    if number:
        send(number, parts)


def forms(value):
    """Returns what an object offers, by MIME type. A form that fails costs a notice, not the others."""
    if is_figure(value):
        return {PNG: picture(value)}
    bundle = {}
    kind = type(value)
    if hasattr(kind, "_repr_mimebundle_"):
        offered = attempt(value, "_repr_mimebundle_", include=None, exclude=None)
        if isinstance(offered, tuple) and offered:
            offered = offered[0]
        if isinstance(offered, dict):
            bundle.update(offered)
    for mime, method in FORMS:
        # One picture is enough.
        if mime not in bundle and not (mime == JPEG and PNG in bundle) and hasattr(kind, method):
            data = attempt(value, method)
            if isinstance(data, tuple) and data:
                # Data and metadata.
                data = data[0]
            bundle[mime] = data
    package = kind.__module__.partition(".")[0]
    if package == "altair" and hasattr(kind, "to_dict"):
        # Its HTML needs scripts from elsewhere, so clients get the chart itself as well.
        chart = attempt(value, "to_dict")
        if isinstance(chart, dict):
            version = str(chart.get("$schema", "")).rpartition("/v")[2].partition(".")[0]
            bundle["application/vnd.vegalite.v%s+json" % version] = chart
    write = WHOLE_TABLE.get(package)
    if write and hasattr(kind, write) and hasattr(kind, "shape"):
        rows, columns = (*value.shape, 1)[:2]
        if rows * columns <= MOST_CELLS:
            try:
                text = getattr(value, write)()
            except Exception:
                # Values that CSV has no form for, such as lists of polars.
                text = ""
            if 0 < len(text) < LARGEST // 4:
                bundle["text/csv"] = text
    return bundle


def attempt(value, method, **arguments):
    try:
        return getattr(value, method)(**arguments)
    except Exception as error:
        notice("%s.%s failed: %s" % (type(value).__name__, method, guest.part("report").describe(error)))


def encoded(value, bundle):
    """Returns the forms as bytes, those that can be sent."""
    parts, size = {}, 0
    for mime, data in bundle.items():
        if not isinstance(mime, str) or data is None:
            continue
        try:
            data = as_bytes(mime, data)
        except Exception as error:
            notice("%s cannot be shown as %.100s: %s" % (type(value).__name__, mime, guest.part("report").describe(error)))
            continue
        if size + len(data) > LARGEST:
            notice(
                "%s is too large to be shown as %.100s: %d bytes, the limit is %d; write it to a file"
                % (type(value).__name__, mime, len(data), LARGEST)
            )
            continue
        if mime in (PNG, JPEG):
            # Clients and models refuse a picture that is not what it says.
            mime = picture_type(data)
            if mime is None:
                notice("%s is shown as text: its picture is neither PNG nor JPEG" % type(value).__name__)
                continue
        size += len(data)
        parts[mime] = data
    return parts


def picture_type(data):
    """Returns what a picture really is: by its first bytes."""
    for start, mime in STARTS:
        if data[: len(start)] == start:
            return mime


def as_bytes(mime, data):
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data)
    if isinstance(data, str):
        if mime in (PNG, JPEG):
            import base64

            return base64.b64decode("".join(data.split()), validate=True)
        return data.encode("utf-8", "replace")
    if mime == "application/json" or mime.endswith("+json"):
        import json

        return json.dumps(data, default=str).encode("utf-8", "replace")
    raise TypeError("expected text or bytes, not %s" % type(data).__name__)


def place():
    """Returns the run whose result gets one more object; 0 if none does."""
    global run, shown
    # A forked child has no channel, and between runs there is no result.
    number = guest.current if os.getpid() == guest.pid else 0
    if number and run != number:
        run, shown = number, 0
    shown += 1
    if number and shown > MOST:
        notice("more than %d objects were displayed: the later ones are shown as text only" % MOST)
        return 0
    return number


def send(number, parts):
    import json

    if sys.stdout is not None:
        sys.stdout.flush()
    guest.outputs[1].flush()
    # What was printed before has to come before, and what is printed next after. The supervisor sends all output when it
    # handles the empty frame, and takes the other one when it has done so.
    table = json.dumps([[mime, len(data)] for mime, data in parts.items()]).encode()
    for payload in b"", b"\n".join((table, b"".join(parts.values()))):
        with guest.interrupts:
            # Half a frame would be the end of the session.
            guest.channel.send((b"V", number, payload))
        wait_until_taken()


def wait_until_taken():
    """Waits until the supervisor has read what was sent."""
    import fcntl
    import time

    waiting = bytearray(4)
    tries = 0
    while fcntl.ioctl(guest.channel.up, FIONREAD, waiting) == 0 and any(waiting):
        tries += 1
        # It takes microseconds, unless the host is slow to read.
        os.sched_yield() if tries < 1000 else time.sleep(0.001)


def notice(text):
    guest.notices.append(text)


# matplotlib: figures are shown by plt.show(), or at the end of the cell that made or changed them. They stay open.


def adjust_agg(backend):
    """Makes plt.show() of the backend that draws pictures show them here."""
    canvas = backend.FigureCanvasAgg
    plain = canvas.manager_class

    class Manager(plain):
        @classmethod
        def pyplot_show(cls, *, block=None):
            for figure in open_figures():
                if figure.stale or figure in saved:
                    display(figure)

    canvas.manager_class = Manager
    print_figure = canvas.print_figure

    def print_and_note(self, *arguments, **options):
        result = print_figure(self, *arguments, **options)
        # The cell saved it: it is not shown again at the end.
        self.figure.stale = False
        saved.add(self.figure)
        return result

    canvas.print_figure = print_and_note
    import weakref

    saved = weakref.WeakSet()
    guest.saved_figures = saved


def open_figures():
    helpers = sys.modules.get("matplotlib._pylab_helpers")
    return [manager.canvas.figure for manager in helpers.Gcf.get_all_fig_managers()] if helpers else []


def show_figures():
    """Shows the figures that the cell made or changed, and did not save or show itself."""
    for figure in open_figures():
        if figure.stale and figure.axes:
            try:
                display(figure)
            except Exception as error:
                # Not again at the end of each later cell.
                figure.stale = False
                notice("a figure cannot be drawn: %s" % guest.part("report").describe(error))
    # A later plt.show() is about what its own cell saved.
    getattr(guest, "saved_figures", set()).clear()


def picture(figure):
    import io

    file = io.BytesIO()
    figure.canvas.print_figure(file, format="png")
    figure.stale = False
    saved = getattr(guest, "saved_figures", ())
    if figure in saved:
        saved.discard(figure)
    return file.getvalue()


def adjust_plotly(module):
    """Makes show() of a figure show it here, in place of a browser."""
    module.BaseFigure.show = lambda self, *_, **__: display(self)


# IPython.display, where IPython is not installed: notebooks import it.


class Shown:
    """An object made of data in one form."""

    mime = TEXT

    def __init__(self, data=None, url=None, filename=None, **_):
        if filename is None and isinstance(data, (str, os.PathLike)) and is_file(data, self.mime):
            data, filename = None, data
        if filename is not None:
            with open(filename, "rb") as file:
                data = file.read()
            if self.mime not in (PNG, JPEG):
                data = data.decode("utf-8", "replace")
        if data is None and url is not None:
            raise ValueError("the sandbox has no network: %s cannot be fetched" % url)
        self.data = data

    def _repr_mimebundle_(self, include=None, exclude=None):
        return {self.mime: self.data, TEXT: str(self)}

    def __str__(self):
        return "<%s, %d bytes>" % (type(self).__name__, len(self.data or ""))


def is_file(data, mime):
    return mime in (PNG, JPEG) and os.path.isfile(data)


class HTML(Shown):
    mime = "text/html"


class SVG(Shown):
    mime = "image/svg+xml"


class Readable(Shown):
    """Its source is its text: a model reads it as it is."""

    def __str__(self):
        return str(self.data)


class Markdown(Readable):
    mime = "text/markdown"


class Latex(Readable):
    mime = "text/latex"


class Math(Latex):
    pass


class JSON(Readable):
    mime = "application/json"

    def __str__(self):
        import json

        return json.dumps(self.data, default=str)


class Image(Shown):
    mime = PNG

    def __init__(self, data=None, url=None, filename=None, format=None, embed=None, **more):
        super().__init__(data, url, filename)
        if isinstance(self.data, str):
            raise ValueError("no such image file: %.200s" % self.data)
        start = bytes(self.data or b"")[:12]
        if start[:3] == b"GIF":
            self.mime = "image/gif"
        elif start[:4] == b"RIFF" and start[8:] == b"WEBP":
            self.mime = "image/webp"


def clear_output(wait=False):
    """Does nothing: what was shown is part of the result."""


class ShimLoader:
    def create_module(self, spec):
        return None

    def exec_module(self, module):
        if module.__name__ == "IPython":
            module.get_ipython = lambda: None
            module.version_info, module.__version__ = (9, 0, 0, ""), "9.0.0"
        elif module.__name__ != "IPython.core":
            names = HTML, SVG, Markdown, Latex, Math, JSON, Image
            module.__dict__.update({kind.__name__: kind for kind in names}, display=display, clear_output=clear_output)


def find_shim(name):
    """Returns IPython and the modules of it that notebooks import, if IPython is not installed."""
    from importlib.machinery import ModuleSpec

    if name in ("IPython", "IPython.core"):
        return ModuleSpec(name, ShimLoader(), is_package=True)
    if name in ("IPython.display", "IPython.core.display", "IPython.core.display_functions"):
        return ModuleSpec(name, ShimLoader())


def adjust_ipython(module):
    """Has IPython's own display() show here: it knows no notebook in the sandbox."""
    module.display, module.clear_output = display, clear_output


for kind in Shown, HTML, SVG, Readable, Markdown, Latex, Math, JSON, Image:
    kind.__module__ = "IPython.display"
