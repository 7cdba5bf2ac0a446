# SPDX-License-Identifier: Apache-2.0
"""Measures of the sources, and their totals in a table."""

import collections
import functools
import os
import pathlib
import re

from structure import glossary, source
from structure.source import Class, Comment, Function, Source

LONGEST_FILE, LONGEST_FUNCTION, MOST_METHODS, MOST_FIELDS = 500, 60, 25, 20
CORE = "arbiter/core"
PARTS = ("arbiter/core", "arbiter/policy", "arbiter/daemon", "arbiter/ledger", "arbiter/cli",
         "interposer", "protocol", "config", "spank", "gres", "accounting", "include")


def unit_of(path: str) -> str:
    return os.path.splitext(path)[0]


def units_of(sources: list[Source]) -> dict[str, set[str]]:
    """Returns, for each unit (a header and the source of the same name), the units whose headers it includes."""
    units: dict[str, set[str]] = {unit_of(file.path): set() for file in sources}
    for file in sources:
        for _, header in file.includes:
            target = unit_of(header if "/" in header else f"{os.path.dirname(file.path)}/{header}")
            if target in units and target != unit_of(file.path):
                units[unit_of(file.path)].add(target)
    return units


def cycles(edges: dict[str, set[str]]) -> list[list[str]]:
    """The include cycles: sets of units in which each unit includes all others, directly or indirectly."""
    reached: dict[str, set[str]] = {}
    for begin in edges:
        found, rest = set(), list(edges[begin])
        while rest:
            if (unit := rest.pop()) not in found:
                found.add(unit)
                rest += edges[unit]
        reached[begin] = found
    together = {unit: frozenset(other for other in reached[unit] if unit in reached[other]) for unit in edges}
    return sorted(sorted(units) for units in set(together.values()) if units)


class Measures:
    def __init__(self, root: pathlib.Path, paths: list[str], sources: list[Source]):
        self.root, self.paths, self.sources = root, paths, sources
        for file in sources:
            file.read_scopes()
        self.functions: list[Function] = [function for file in sources for function in file.functions]
        self.classes: list[Class] = [each for file in sources for each in file.classes]
        self.comments: list[Comment] = [comment for file in sources for comment in file.comments]

    def lines(self, folder: str) -> int:
        return sum(file.lines for file in self.sources if file.path.startswith(folder + "/"))

    def lines_of_others(self, folder: str) -> int:
        names = [name for name in self.paths if name.startswith(folder + "/") and name.endswith(source.CODE)]
        return sum((self.root / name).read_bytes().count(b"\n") for name in names)

    @functools.cached_property
    def headless(self) -> list[Comment]:
        return [comment for comment in self.comments if glossary.HEADLESS.match(comment.text)]

    @functools.cached_property
    def headless_sentences(self) -> int:
        sentences = (re.split(r"(?<=[.?!])\s+", comment.text) for comment in self.comments)
        return sum(bool(glossary.HEADLESS.match(each)) for all_of_one in sentences for each in all_of_one)

    def history(self, kind: str) -> list[Comment]:
        return [comment for comment in self.comments if glossary.HISTORY[kind].search(comment.text)]

    @functools.cached_property
    def words(self) -> list[tuple[int, int, str, str]]:
        """For each word of the glossary: its count, the number of files that have it, the word and its replacement."""
        rows = []
        texts = {file.path: words_of(file) for file in self.sources}
        for written, better, folder in glossary.WORDS:
            pattern = re.compile(rf"(?<![a-z])(?:{written})(?![a-z])")
            found = {path: len(pattern.findall(text)) for path, text in texts.items() if path.startswith(folder)}
            rows.append((sum(found.values()), sum(map(bool, found.values())), written, better))
        return rows

    @functools.cached_property
    def mutual_calls(self) -> list[tuple[str, str, str, list[str], list[str]]]:
        """The rows have a class, two files A and B of its methods, the methods in B that A calls, and the methods in A
        that B calls."""
        pairs = []
        by_class: dict[tuple[str, str], list[Function]] = collections.defaultdict(list)
        for function in self.functions:
            if function.owner:
                by_class[os.path.dirname(function.path), function.owner].append(function)
        for (_, name), functions in sorted(by_class.items()):
            if len({function.path for function in functions if function.path.endswith(".cpp")}) > 1:
                pairs += mutual_calls_of(name, functions)
        return pairs

    @functools.cached_property
    def shared_fields(self) -> dict[str, dict[str, set[str]]]:
        """For each class of CORE, the files that write each of its fields."""
        return FieldWrites(self).found

    def shared_fields_of(self, name: str) -> list[str]:
        return sorted(field for field, units in self.shared_fields[name].items() if len(units) > 1)


def words_of(file: Source) -> str:
    """The words of all comments and identifiers in lower case, with a full stop between two identifiers."""
    comments = " . ".join(comment.text for comment in file.comments)
    identifiers = re.findall(r"[A-Za-z_]\w*", comments + " " + file.code)
    several = [each for each in identifiers if re.search("_|[a-z][A-Z]", each)]
    apart = (re.sub(r"_+|(?<=[a-z0-9])(?=[A-Z])", " ", each).strip() for each in several)
    plain = re.sub(r"\b\w*(?:_|[a-z][A-Z])\w*\b", " . ", comments)
    code = (each for each in re.findall(r"[A-Za-z_]\w*", file.code) if not re.search("_|[a-z][A-Z]", each))
    return re.sub(r"\s+", " ", " . ".join([plain, *apart, *code])).lower()


def mutual_calls_of(name: str, functions: list[Function]) -> list[tuple[str, str, str, list[str], list[str]]]:
    where: dict[str, set[str]] = collections.defaultdict(set)
    for function in functions:
        where[function.name].add(unit_of(function.path))
    # Leaves out a method that several files define, since a call may be a call of any of them.
    home = {method: min(units) for method, units in where.items() if len(units) == 1}
    names = "|".join(map(re.escape, home)) or "(?!)"
    called = re.compile(rf"(?:(?<![\w.>:])|(?<=this->)|(?<={re.escape(name)}::))({names})\s*\(")
    calls: dict[tuple[str, str], set[str]] = collections.defaultdict(set)
    for function in functions:
        for method in called.findall(function.body):
            if home[method] != unit_of(function.path):
                calls[unit_of(function.path), home[method]].add(method)
    both = [(a, b) for a, b in sorted(calls) if a < b and (b, a) in calls]
    return [(name, a, b, sorted(calls[a, b]), sorted(calls[b, a])) for a, b in both]


class FieldWrites:
    """The files of CORE that write each field of its classes.

    The class of an object comes from a declaration in the function or from the type of a field. If there is neither, it
    comes from the object's name (session: Session). A write to a field of an object without a known class counts if
    only one class has a field of this name.
    """

    MUTATORS = r"push_back|pop_back|emplace|emplace_back|insert|insert_or_assign|erase|clear|reset|assign|swap|resize"
    PATH = r"(?<![\w.>])((?:\w+(?:\[[^\]]*\]|\(\))?(?:->|\.))*\w+)(?:\[[^\]]*\])?"
    WRITE = re.compile(PATH + rf"\s*(?:=(?!=)|[-+*/|&^]=|\+\+|--|\.(?:{MUTATORS})\s*\()")
    BEFORE = re.compile(r"(?:\+\+|--|\bstd::exchange\()" + PATH.replace(r"(?<![\w.>])", ""))

    def __init__(self, measures: Measures):
        # The keys are class names without the names of enclosing classes.
        self.classes = {each.name.split("::")[-1]: each for each in measures.classes if in_core(each.path)}
        self.found: dict[str, dict[str, set[str]]] = {each.name: {} for each in self.classes.values()}
        self.owners: dict[str, list[Class]] = collections.defaultdict(list)
        for each in self.classes.values():
            for name in each.fields:
                self.owners[name].append(each)
        names = "|".join(sorted(self.classes, key=len, reverse=True)) or "(?!)"
        # The variable's type is the class, a reference or pointer to the class, or a container of objects of the class.
        behind = r"(?:[^;(){}=]*>)?\s*(?:const\s*)?[&*]*\s*(?:const\s*)?(\w+)\s*(?=[,;:)={(])"
        self.declared = re.compile(rf"\b({names}){behind}")
        self.named = re.compile(rf"\b({names})\b")
        for function in measures.functions:
            if in_core(function.path):
                self._read(function)

    def _read(self, function: Function) -> None:
        variables = {name: type_of for type_of, name in self.declared.findall(function.head + function.body)}
        for pattern in (self.WRITE, self.BEFORE):
            for match in pattern.finditer(function.body):
                before = function.body[max(0, match.start() - 40) : match.start()]
                follows_type = re.search(r"[\w>&*\]]\s*$", before) and not re.search(r"\belse\s+$", before)
                if not (match[1].isidentifier() and follows_type):  # no declaration
                    self._written(match[1], function, variables)

    def _written(self, path: str, function: Function, variables: dict[str, str]) -> None:
        steps = re.findall(r"(\w+)(?:\[[^\]]*\]|\(\))?(->|\.|$)", path)
        first = steps[0][0]
        if len(steps) == 1:  # a field of the function's own class
            owner = self.classes.get(function.owner.split("::")[-1])
            if owner and first in owner.fields and first not in variables:
                self._add(owner, first, function)
            return
        holder = self.classes.get(variables.get(first, "")) or self._class_of_field(function.owner, first)
        holder = holder or self.classes.get("".join(part.title() for part in first.split("_")))
        chain: list[tuple[Class, str]] = []  # the enclosing fields, which a write to the last field changes, too
        for (name, _), (_, link) in zip(steps[1:], steps):
            if link == "->":
                chain = []
            if holder is None and len(self.owners[name]) == 1:
                holder = self.owners[name][0]
            if holder is None or name not in holder.fields:
                holder = None
                continue
            chain.append((holder, name))
            inner = self.named.search(holder.fields[name])
            holder = self.classes[inner[1]] if inner else None
        for owner, name in chain:
            self._add(owner, name, function)

    def _class_of_field(self, owner: str, field: str) -> Class | None:
        holder = self.classes.get(owner.split("::")[-1])
        inner = self.named.search(holder.fields.get(field, "")) if holder else None
        return self.classes[inner[1]] if inner else None

    def _add(self, owner: Class, field: str, function: Function) -> None:
        self.found[owner.name].setdefault(field, set()).add(unit_of(function.path))


def in_core(path: str) -> bool:
    return path.startswith(CORE + "/")


def heading(text: str) -> None:
    print(f"\n== {text}")


def row(name: str, value: object) -> None:
    print(f"{name:<58} {value}")


def print_report(measures: Measures) -> None:
    heading(f"files of more than {LONGEST_FILE} lines that are no tables")
    others = [path for path in measures.paths if path.endswith((".h", ".cpp", ".c")) or path.startswith("scripts/")]
    for path in others:
        if (lines := (measures.root / path).read_bytes().count(b"\n")) > LONGEST_FILE:
            print(f"{lines:5} {path}")
    heading(f"functions of more than {LONGEST_FUNCTION} lines")
    for function in sorted(measures.functions, key=lambda each: -each.length):
        if function.length > LONGEST_FUNCTION:
            print(f"{function.length:5} {function.path}:{function.line}: {function.name}")
    heading(f"classes of more than {MOST_METHODS} methods or {MOST_FIELDS} fields")
    for each in sorted(measures.classes, key=lambda each: -len(each.methods) - len(each.fields)):
        if len(each.methods) > MOST_METHODS or len(each.fields) > MOST_FIELDS:
            print(f"{len(each.methods):5} methods {len(each.fields):3} fields  {each.path}:{each.line}: {each.name}")
    print_words(measures)
    print_writers(measures)


def print_words(measures: Measures) -> None:
    heading("words that others have replaced")
    for count, files, written, better in measures.words:
        if count:
            print(f"{count:5} in {files:3} files  {written}: {better}")
    heading("comments that begin without a noun")
    for comment in measures.headless:
        print(f"{comment.path}:{comment.line}: {comment.text[:80]}")
    for kind in glossary.HISTORY:
        heading(f"comments about the past: {kind}")
        for comment in measures.history(kind):
            said = glossary.HISTORY[kind].search(comment.text)
            print(f"{comment.path}:{comment.line}: {comment.text[max(0, said.start() - 40) : said.end() + 40]}")


def print_writers(measures: Measures) -> None:
    heading(f"fields that several files of {CORE} write")
    for name in measures.shared_fields:
        for field in measures.shared_fields_of(name):
            units = sorted(map(os.path.basename, measures.shared_fields[name][field]))
            print(f"{name}::{field}: {' '.join(units)}")
    heading("files of one class that call each other")
    for name, one, other, there, back in measures.mutual_calls:
        print(f"{name}: {one} -> {os.path.basename(other)} ({', '.join(there)}), <- ({', '.join(back)})")


def print_table(measures: Measures) -> None:
    heading("table (counted by scripts/check-structure itself, without ctags)")
    row("lines of the product's C and C++", sum(file.lines for file in measures.sources))
    for part in PARTS:
        if lines := measures.lines(part):
            row(f"  {part}", lines)
    for part in ("bench", "tests"):
        row(f"lines of {part}", measures.lines_of_others(part))
    largest = sorted(measures.classes, key=lambda each: (-len(each.methods) - len(each.fields), each.path))[:10]
    for each in largest:
        row(f"class {each.name} ({each.path})", f"{len(each.methods)} methods, {len(each.fields)} fields")
    big = [each for each in measures.classes if len(each.methods) > MOST_METHODS or len(each.fields) > MOST_FIELDS]
    row(f"classes of more than {MOST_METHODS} methods or {MOST_FIELDS} fields", len(big))
    found = cycles(units_of(measures.sources))
    row("include cycles", f"{len(found)}, of {sum(map(len, found))} units")
    pairs = measures.mutual_calls
    row(f"pairs of files that call each other, {CORE}", sum(in_core(pair[1]) for pair in pairs))
    row("pairs of files that call each other, elsewhere", sum(not in_core(pair[1]) for pair in pairs))
    shared = {name: measures.shared_fields_of(name) for name in measures.shared_fields}
    row(f"fields written from several files, {CORE}", sum(map(len, shared.values())))
    for each in sorted(measures.classes, key=lambda each: each.name):
        if in_core(each.path) and shared.get(each.name):
            row(f"  {each.name}", f"{len(shared[each.name])} of {len(each.fields)}")
    longest = max(measures.functions, key=lambda each: each.length)
    row("longest function", f"{longest.length} lines: {longest.path} {longest.name}")
    long = sum(each.length > LONGEST_FUNCTION for each in measures.functions)
    row(f"functions of more than {LONGEST_FUNCTION} lines", long)
    row("comments", len(measures.comments))
    row("  that begin without a noun", len(measures.headless))
    row("  sentences that do", measures.headless_sentences)
    for kind in glossary.HISTORY:
        row(f"  about the past: {kind}", len(measures.history(kind)))
    row("words that others have replaced", sum(count for count, *_ in measures.words))
