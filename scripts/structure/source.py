# SPDX-License-Identifier: Apache-2.0
"""Reads the sources: files, comments, string literals, classes and functions.

Finds the parts of C++ by braces and semicolons, and relies on the layout of clang-format: a brace that follows a word
without a space begins an initializer. So no compiler is needed, and the counts are the same on every machine.
"""

import bisect
import dataclasses
import os
import pathlib
import re
import subprocess

CODE = (".h", ".cpp", ".c", ".def")
LEFT_OUT = re.compile(r"(^|/)(\.(?!ci$)[^/.]+|__pycache__|build[^/]*)$")

TOKEN = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)
      | (?P<directive>^[ \t]*\#(?:\\\n|[^\n])*)
      | (?P<raw>R"(?P<mark>\w*)\(.*?\)(?P=mark)")
      | (?P<string>"(?:\\.|[^"\\\n])*")
      | (?P<char>(?<!\w)'(?:\\.|[^'\\\n])+')""",
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)


def list_files(root: pathlib.Path) -> list[str]:
    """The paths of the files under version control and of new files. If there is no repository, the paths of all
    files."""
    command = ["git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard"]
    if (root / ".git").exists():
        listed = subprocess.run(command, capture_output=True, text=True, check=False)
        if listed.returncode == 0:
            return sorted({name for name in listed.stdout.splitlines() if (root / name).is_file()})
    names = []
    for folder, folders, files in os.walk(root):
        inside = os.path.relpath(folder, root)
        folders[:] = [name for name in folders if not LEFT_OUT.search(name)]
        names += [os.path.normpath(os.path.join(inside, name)) for name in files]
    return sorted(names)


@dataclasses.dataclass
class Comment:
    path: str
    line: int
    last_line: int
    column: int
    text: str  # the text, joined to one line


@dataclasses.dataclass
class Function:
    path: str
    line: int
    length: int
    name: str
    owner: str  # the class of the function, or empty
    head: str  # the text from the return type to the body
    body: str


@dataclasses.dataclass
class Class:
    path: str
    line: int
    name: str  # with the names of enclosing classes: Outer::Inner
    methods: list[str] = dataclasses.field(default_factory=list)
    fields: dict[str, str] = dataclasses.field(default_factory=dict)  # name to type


class Source:
    """One file. `code` is its text with blanks in place of comments, directives and literals."""

    def __init__(self, root: pathlib.Path, path: str):
        self.path = path
        self.text = (root / path).read_text(encoding="utf-8", errors="replace")
        self.is_code = path.endswith(CODE)
        self.comments: list[Comment] = []
        self.strings: list[tuple[int, str]] = []  # line and text
        self.includes: list[tuple[int, str]] = []  # the headers that are included with quotes, with their lines
        self.functions: list[Function] = []
        self.classes: list[Class] = []
        self._line_starts = [0] + [match.end() for match in re.finditer("\n", self.text)]
        self.lines = self.text.count("\n")
        self.code = TOKEN.sub(self._blank, self.text) if self.is_code else ""

    def line_of(self, position: int) -> int:
        return bisect.bisect_right(self._line_starts, position)

    def read_scopes(self) -> None:
        Reader(self).read()

    def _blank(self, match: re.Match) -> str:
        text, line = match.group(), self.line_of(match.start())
        if match["comment"]:
            self._add_comment(text, line, match.start())
        elif match["directive"]:
            if include := re.match(r'\s*#\s*include\s+"([^"]+)"', text):
                self.includes.append((line, include[1]))
            elif re.match(r"\s*#\s*define", text):
                self.strings += [(line, string) for string in re.findall(r'"[^"]*"', text)]
        elif match["string"] or match["raw"]:
            self.strings.append((line, text))
        quote = '"' if match["string"] or match["raw"] else " "
        blank = re.sub(r"[^\n]", " ", text)
        return quote + blank[1:-1] + quote if quote == '"' else blank

    def _add_comment(self, text: str, line: int, position: int) -> None:
        words = " ".join(text.strip("/* \n").split())
        if words.startswith("SPDX-License-Identifier"):
            return
        column = position - self._line_starts[line - 1]
        starts_line = not self.text[position - column : position].strip()
        last = self.comments[-1] if self.comments else None
        if starts_line and last and (last.last_line, last.column) == (line - 1, column):
            last.text += " " + words
            last.last_line = line
        else:
            self.comments.append(Comment(self.path, line, line + text.count("\n"), column, words))


@dataclasses.dataclass
class Scope:
    kind: str  # namespace, class, function, enum, block or initializer
    begin: int = 0
    head: str = ""
    name: str = ""
    owner: Class | None = None
    name_at: int = 0


TEMPLATE = re.compile(r"\btemplate\s*<(?:[^<>]|<[^<>]*>)*>")
CLASS = re.compile(
    r"\b(?:class|struct|union)\s+(?:alignas\([^)]*\)\s*)?(?:\[\[\w+\]\]\s*)?(\w+)(?:\s+final)?\s*(?::[^:].*)?$",
    re.DOTALL,
)
LABEL = re.compile(r"^\s*(?:public|private|protected)\s*:")
OPERATOR = re.compile(r"\boperator\s*(?:\(\)|\[\]|[^\s\w(]+|\w+)")
NO_MEMBER = re.compile(r"^\s*(?:using|friend|typedef|static_assert|enum|(?:class|struct|union)\s+\w+\s*$)")
ALIGNAS = re.compile(r"\b(?:alignas|decltype|__attribute__)\s*\((?:[^()]|\([^()]*\))*\)")
# A function's name, with the names of its classes: Class::function.
CALLED = re.compile(r"((?:~?\w+\s*::\s*)*~?\w+)\s*\(")
FUNCTION_POINTER = re.compile(r"\(\s*(?:\w+\s*::\s*)*\*\s*(\w+)[\s\[\]]*\)\s*\(")


def flatten(text: str) -> str:
    """Returns a text of the same length, with blanks in place of template arguments and alignment, and with names of
    operators as one word."""
    def blank(match: re.Match) -> str:
        return " " * len(match.group())

    text = OPERATOR.sub(lambda match: "operator".ljust(len(match.group()), "_"), text)
    text = ALIGNAS.sub(blank, TEMPLATE.sub(blank, text))
    before = None
    while before != text:
        before = text
        text = re.sub(r"(?<=\w)<[^<>;=]*>", blank, text)
    return text


class Reader:
    """Finds classes and functions in one file."""

    def __init__(self, source: Source):
        self.source = source
        self.code = source.code
        self.scopes = [Scope("namespace")]
        self.head_from = 0
        self.after_class = False  # true between the end of a class and the next semicolon, where variables of this
                                  # class may be declared

    def read(self) -> None:
        for match in re.finditer("[{};]", self.code):
            position, inside = match.start(), self.scopes[-1]
            if match.group() == "{":
                self._open(position, inside)
            elif match.group() == "}":
                self._close(position)
            elif inside.kind not in ("initializer", "block", "function"):
                self._declare(position, inside)
                self.head_from = position + 1

    def _open(self, position: int, inside: Scope) -> None:
        if inside.kind in ("function", "block"):
            # A local class, or a block.
            head = re.split(r"[{};]", self.code[max(inside.begin, position - 300) : position])[-1]
            scope = self._class_scope(head, position) if CLASS.search(head) else Scope("block")
        else:
            scope = self._outer_scope(self.code[self.head_from : position], position, inside)
        scope.begin = position
        self.scopes.append(scope)
        if scope.kind != "initializer":
            self.head_from = position + 1

    def _outer_scope(self, head: str, position: int, inside: Scope) -> Scope:
        if inside.kind in ("initializer", "enum") or head.count("(") > head.count(")"):
            return Scope("initializer")
        if position and re.match(r"[\w>\])]", self.code[position - 1]) or re.search(r"=\s*$", head):
            return Scope("initializer")
        flat = flatten(LABEL.sub(lambda match: " " * len(match.group()), head))
        if re.search(r'\bnamespace\b[\w:\s]*$|\bextern\s+"\s*"\s*$', flat):
            return Scope("namespace")
        if re.search(r"\benum\b", flat):
            return Scope("enum")
        call = CALLED.search(flat)
        if "=" in flat[: call.start() if call else None]:
            return Scope("initializer")
        if call and call[1] == "catch":  # the handler of a function whose body is a try block
            return Scope("block")
        if not call:
            return self._class_scope(flat, position) if CLASS.search(flat) else Scope("initializer")
        return Scope("function", head=head, name=call[1], owner=inside.owner, name_at=self.head_from + call.end() - 1)

    def _class_scope(self, head: str, position: int) -> Scope:
        outer = self.scopes[-1].owner
        name = CLASS.search(head)[1]
        made = Class(self.source.path, self.source.line_of(position), f"{outer.name}::{name}" if outer else name)
        self.source.classes.append(made)
        return Scope("class", owner=made)

    def _close(self, position: int) -> None:
        if len(self.scopes) == 1:
            return
        scope = self.scopes.pop()
        self.after_class = scope.kind == "class"
        if scope.kind == "initializer":
            return
        self.head_from = position + 1
        if scope.kind == "function":
            self._add_function(scope, position)

    def _add_function(self, scope: Scope, end: int) -> None:
        owner, _, name = re.sub(r"\s", "", scope.name).rpartition("::")
        if scope.owner:
            owner = scope.owner.name
            scope.owner.methods.append(name)
        line = self.source.line_of(scope.name_at)
        length = self.source.line_of(end) - line + 1
        body = self.code[scope.begin : end]
        self.source.functions.append(Function(self.source.path, line, length, name, owner, scope.head, body))

    def _declare(self, position: int, inside: Scope) -> None:
        after_class, self.after_class = self.after_class, False
        if inside.kind != "class":
            return
        text = LABEL.sub("", self.code[self.head_from : position]).strip()
        if not text or (NO_MEMBER.match(text) and not after_class):
            return
        declared = re.split(r"[={]", flatten(text))[0]
        type_of = text.split("=")[0]
        call, pointer = CALLED.search(declared), FUNCTION_POINTER.search(declared)
        if pointer and pointer.start() <= call.end():
            inside.owner.fields[pointer[1]] = type_of
            return
        if call:
            inside.owner.methods.append(call[1])
            return
        for part in re.sub(r"\[[^\]]*\]", "", declared).split(","):
            if name := re.search(r"(\w+)\s*$", part):
                inside.owner.fields[name[1]] = type_of
