"""Prints the text literals of the Python files in a folder, without docstrings, as lists in a JSON object."""

import ast
import json
import pathlib
import sys


class Texts(ast.NodeVisitor):
    def __init__(self):
        self.found = []

    def visit_Expr(self, node):
        if not isinstance(node.value, ast.Constant):
            self.generic_visit(node)

    def visit_Constant(self, node):
        if isinstance(node.value, str):
            self.found.append(node.value)

    def visit_JoinedStr(self, node):
        parts = [
            part.value if isinstance(part, ast.Constant) else "{" + ast.unparse(part.value) + "}"
            for part in node.values
        ]
        self.found.append("".join(parts))


def texts_of(path):
    texts = Texts()
    texts.visit(ast.parse(path.read_text(encoding="utf-8")))
    return texts.found


json.dump({path.name: texts_of(path) for path in pathlib.Path(sys.argv[1]).glob("*.py")}, sys.stdout)
