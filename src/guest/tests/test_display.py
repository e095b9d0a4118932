"""What objects look like beside their text. The real packages are tested in a sandbox of the data image."""

import unittest

from guest_client import PYTHON, Guest

PNG = b"\x89PNG\r\n\x1a\n..."


class Display(unittest.TestCase):
    def run_code(self, code, python=None):
        with Guest(python=python) as guest:
            result = guest.run(code)
        self.assertEqual(result.status, "ok", result)
        return result

    def test_a_rich_object_is_shown_as_text_and_in_its_forms(self):
        result = self.run_code(
            """
class Table:
    def _repr_html_(self): return "<b>1</b>"
    def __repr__(self): return "one"
print("before")
display(Table())
print("after")
Table()
"""
        )
        self.assertEqual(result.out, "before\none\nafter\none\n")
        self.assertEqual(result.displays, [(11, {"text/html": b"<b>1</b>"}), (21, {"text/html": b"<b>1</b>"})])

    def test_a_picture_takes_the_place_of_its_text(self):
        result = self.run_code(
            """
class Picture:
    def _repr_png_(self): return %r
print("before", end="")
Picture()
"""
            % PNG
        )
        self.assertEqual((result.out, result.displays), ("before", [(6, {"image/png": PNG})]))

    def test_plain_objects_are_only_printed(self):
        result = self.run_code("display(1, 'x', [None])\n{'a': 1}")
        self.assertEqual((result.out, result.displays), ("1\n'x'\n[None]\n{'a': 1}\n", []))

    def test_an_object_that_has_every_attribute_has_no_form(self):
        result = self.run_code("from unittest.mock import Mock\nMock(name='m')")
        self.assertEqual(result.displays, [])
        self.assertIn("<Mock name='m'", result.out)

    def test_a_form_that_fails_costs_a_notice(self):
        result = self.run_code(
            """
class Bad:
    def _repr_mimebundle_(self, include=None, exclude=None): raise ValueError("no")
    def _repr_html_(self): return 5
    def _repr_markdown_(self): return "*x*"
    def __repr__(self): return "bad"
Bad()
"""
        )
        self.assertEqual((result.out, result.displays), ("*x*\n", [(4, {"text/markdown": b"*x*"})]))
        self.assertEqual(
            result.notices,
            [
                "Bad._repr_mimebundle_ failed: ValueError: no",
                "Bad cannot be shown as text/html: TypeError: expected text or bytes, not int",
            ],
        )

    def test_nonsense_in_a_bundle_is_left_out(self):
        result = self.run_code(
            """
class Odd:
    def __init__(self, bundle): self.bundle = bundle
    def _repr_mimebundle_(self, include=None, exclude=None): return self.bundle
    def __repr__(self): return "odd"
for bundle in None, [], "x", (), ({"text/html": "y"}, {}), {"image/png": "not base64!"}, {5: "x", "a": object()}:
    display(Odd(bundle))
"""
        )
        self.assertEqual(result.out, "odd\n" * 7)
        self.assertEqual([forms for _, forms in result.displays], [{"text/html": b"y"}])
        self.assertEqual(len(result.notices), 2)

    def test_a_picture_is_named_by_what_it_is(self):
        result = self.run_code(
            """
class Odd:
    def __init__(self, data): self.data = data
    def _repr_png_(self): return self.data
    def __repr__(self): return "odd"
display(Odd(b"\\xff\\xd8\\xff..."), Odd(b"GIF89a"))
from IPython.display import Image
Image(b"GIF89a")
""",
            [*PYTHON, "-S"],
        )
        self.assertEqual(result.out, "odd\n<Image, 6 bytes>\n")
        forms = [forms for _, forms in result.displays]
        self.assertEqual(forms, [{"image/jpeg": b"\xff\xd8\xff..."}, {"image/gif": b"GIF89a"}])
        self.assertEqual(result.notices, ["Odd is shown as text: its picture is neither PNG nor JPEG"])

    def test_an_interrupt_while_a_picture_is_sent_costs_nothing(self):
        with Guest() as guest:
            guest.run("class P:\n    def _repr_png_(self): return b'\\x89PNG\\r\\n\\x1a\\n' + bytes(8 << 20)\nx = 1")
            number = guest.start("while True: display(P())")
            guest.until(lambda: guest.results[number].displays)
            guest.interrupt(number)
            self.assertEqual(guest.finish(number).status, "interrupted")
            self.assertEqual(guest.run("x").out, "1\n")

    def test_what_is_too_large_is_named(self):
        result = self.run_code(
            """
class Huge:
    def _repr_png_(self): return bytes(100 << 20)
    def __repr__(self): return "huge"
Huge()
"""
        )
        self.assertEqual((result.out, result.displays), ("huge\n", []))
        self.assertEqual(
            result.notices,
            ["Huge is too large to be shown as image/png: 104857600 bytes, the limit is 16777216; write it to a file"],
        )

    def test_ten_thousand_objects_are_text_in_the_end(self):
        result = self.run_code(
            """
class Table:
    def _repr_html_(self): return "<b>1</b>"
    def __repr__(self): return "one"
for _ in range(10_000): display(Table())
class Picture(Table):
    def _repr_png_(self): return b"\\x89PNG\\r\\n\\x1a\\n"
    def __repr__(self): return "picture"
Picture()
"""
        )
        self.assertEqual((result.out, len(result.displays)), ("one\n" * 10_000 + "picture\n", 100))
        self.assertEqual(
            result.notices,
            ["more than 100 objects were displayed: the later ones are shown as text only"],
        )

    def test_the_count_begins_again_with_each_run(self):
        with Guest() as guest:
            code = "class T:\n    def _repr_html_(self): return 'x'\nfor _ in range(60): display(T())"
            results = [guest.run(code) for _ in range(3)]
        self.assertEqual([len(result.displays) for result in results], [60, 60, 60])

    def test_what_is_displayed_between_runs_breaks_nothing(self):
        with Guest() as guest:
            guest.run(
                """
import threading, time
class T:
    def _repr_html_(self): return "x"
    def __repr__(self): return ""
go = True
def work():
    while go: display(T())
thread = threading.Thread(target=work); thread.start()
"""
            )
            for _ in range(20):
                self.assertEqual(guest.run("1 + 1").status, "ok")
            self.assertEqual(guest.run("go = False; thread.join()").status, "ok")

    def test_a_forked_child_prints(self):
        result = self.run_code(
            """
import os
class T:
    def _repr_html_(self): return "x"
    def __repr__(self): return "child"
if not os.fork():
    display(T()); os._exit(0)
os.wait()
"""
        )
        self.assertIn("child", result.out)
        self.assertEqual(result.displays, [])

    def test_the_names_of_notebooks_work_without_ipython(self):
        result = self.run_code(
            """
from IPython.display import display, HTML, Image, Markdown, SVG, JSON, Latex, clear_output
import IPython
from IPython.core.display import HTML as again
assert HTML is again and IPython.get_ipython() is None
clear_output(wait=True)
display(HTML("<b>x</b>"), Markdown("# y"), SVG("<svg/>"), JSON({"a": [1]}), Latex("$z$"))
open("/tmp/x.jpg", "wb").write(b"\\xff\\xd8\\xffrest")
display(Image(data=%r), Image("/tmp/x.jpg"), Image(filename="/tmp/x.jpg"))
"""
            % PNG,
            # Without packages of the machine.
            [*PYTHON, "-S"],
        )
        self.assertEqual(result.out, "<HTML, 8 bytes>\n# y\n<SVG, 6 bytes>\n{\"a\": [1]}\n$z$\n")
        self.assertEqual(
            [forms for _, forms in result.displays],
            [
                {"text/html": b"<b>x</b>"},
                {"text/markdown": b"# y"},
                {"image/svg+xml": b"<svg/>"},
                {"application/json": b'{"a": [1]}'},
                {"text/latex": b"$z$"},
                {"image/png": PNG},
                {"image/jpeg": b"\xff\xd8\xffrest"},
                {"image/jpeg": b"\xff\xd8\xffrest"},
            ],
        )

    def test_an_object_can_show_itself(self):
        result = self.run_code(
            """
class Both:
    def _ipython_display_(self): print("itself")
display(Both())
Both()
"""
        )
        self.assertEqual((result.out, result.displays), ("itself\nitself\n", []))

    def test_a_bundle_can_be_given(self):
        result = self.run_code("display({'text/plain': 'p', 'text/html': 'h'}, raw=True)")
        self.assertEqual((result.out, result.displays), ("p\n", [(2, {"text/html": b"h"})]))

    def test_another_displayhook_of_the_user_is_used(self):
        with Guest() as guest:
            guest.run("import sys\nsys.displayhook = lambda value: print('mine')")
            result = guest.run("class T:\n    def _repr_html_(self): return 'x'\nT()")
        self.assertEqual((result.out, result.displays), ("mine\n", []))
