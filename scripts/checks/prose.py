#!/usr/bin/env python3
"""scripts/checks/prose.py [--update | --list] [TREE]: counts long lines and breaches of rules.

Counts, for each top-level folder, lines over 100 characters, uses of `who` and its kin, sentences
that open with a pronoun, and names of test cases. It reads comments, Markdown, and the string
literals of C++ and of the web page outside of test/. The numbers in prose.counts may only fall:
more is a failure that names the new lines, and fewer is a failure until --update has lowered the
number. --list names each line.
"""
import collections
import os
import re
import subprocess
import sys

WIDTH = 100
KINDS = ("long", "who", "opening", "text", "case")
TITLES = {
    "long": "lines over 100 characters",
    "who": "uses of `who`, `whom`, `somebody` or `nobody`",
    "opening": "sentences that open with What, That, Those, Such, Of, Nor or Where",
    "text": "string literals with `who` or its kin, or with such an opening",
    "case": "names of test cases with such an opening, or over 60 characters",
}
COUNTS = "scripts/checks/prose.counts"
HEAD = """\
# Lines left to repair in each top-level folder ("." is the tree's root). The numbers may only
# fall: scripts/checks/hygiene.sh --update lowers them, prose.py --list names the lines.
#   long     lines over 100 characters
#   who      `who`, `whoever`, `whom`, `somebody`, `nobody`, `anybody` in comments and Markdown
#   opening  sentences there that open with What, That, Those, Such, Of, Nor, Where or The same
#   text     string literals of the product (C++, the web page) with either
#   case     names of Boost test cases with such an opening, or over 60 characters
"""

SKIPPED_FOLDERS = {".git", "build", ".peers", ".cache", "__pycache__"}
SKIPPED_ENDINGS = (".golden", ".csv", ".json", ".svg", ".counts", "LICENSE")
C_LIKE = (".cpp", ".hpp", ".h", ".cu", ".js", ".mjs", ".css", ".pml", ".in.hpp")
TABLES = ("CASES.md", "WIRE.md")

WHO = re.compile(r"\b(?:who|whoever|whom|somebody|nobody|anybody)\b", re.I)
OPENERS = r"(?:what|that|those|such|of|nor|where|the same)\b(?!-)"
FIRST = re.compile(r"[\"'(*_]*(" + OPENERS + ")", re.I)  # of a comment, a paragraph or an item
LATER = re.compile(r"[.!?][\"')*_]*\s+[\"'(*_]*(What|That|Those|Such|Of|Nor|Where|The same)\b(?!-)")
CELL = re.compile(r"(What|That|Those|Such|Of|Nor|Where|The same)\b(?!-)")
ITEM = re.compile(r"\s*(?:[-*+]|\d+\.)\s+")
LINK = re.compile(
    r"\s*(?:(?://+|#|[-*])\s*)?(?:\[[^\]]+\](?::\s*|\())?<?(?:https?:|[\w./#-]+\))\S*\s*$"
)
TOKEN = re.compile(
    r'R"([^()\\ ]{0,16})\(.*?\)\1"'
    r'|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])*'"
    r"|`(?:\\.|[^`\\])*`"
    r"|(?P<line>//[^\n]*)"
    r"|(?P<block>/\*.*?\*/)",
    re.S,
)
# A string literal, or a comment, which is skipped. Literals with white space between are one.
LITERAL = re.compile(
    r'R"([^()\\ ]{0,16})\((?P<raw>.*?)\)\1"'
    r'|"(?P<double>(?:\\.|[^"\\\n])*)"'
    r"|(?<![0-9a-fA-F])'(?P<single>(?:\\.|[^'\\\n])*)'"
    r"|`(?P<back>(?:\\.|[^`\\])*)`"
    r"|//[^\n]*|/\*.*?\*/",
    re.S,
)
HOLE = re.compile(r"\$?\{[^{}]*\}")
TEXT_FIRST = re.compile(r"(" + OPENERS + r")\s+\S", re.I)
TEXT_LATER = re.compile(r"[.!?]\s+(What|That|Those|Such|Of|Nor|Where|The same)\b(?!-)")
CASE = re.compile(r"\bBOOST_\w*TEST_CASE\w*\(\s*(\w+)")
CASE_OPENING = re.compile(r"(what|that|those|such|of|nor|where|who|the_same)_")
LONGEST_CASE = 60
HASH = re.compile(r"(?:^|(?<=\s))#(?!!)(.*)$")
SPAN = re.compile(r"`[^`]*`")


def files(tree):
    for folder, folders, names in os.walk(tree):
        folders[:] = sorted(f for f in folders if f not in SKIPPED_FOLDERS)
        for name in sorted(names):
            path = os.path.join(folder, name)
            if not name.endswith(SKIPPED_ENDINGS) and os.path.isfile(path):
                yield os.path.relpath(path, tree), path


def comments_c(text):
    """Yields (line, column, text) of each line of a comment; the column is negative behind code,
    and None on further lines of one comment."""
    at, number = 0, 1
    for token in TOKEN.finditer(text):
        if token.group("line") is None and token.group("block") is None:
            continue
        number += text.count("\n", at, token.start())
        at = token.start()
        begin = text.rfind("\n", 0, at) + 1
        column = -(at - begin) if text[begin:at].strip() else at - begin
        for k, line in enumerate(token.group().split("\n")):
            line = re.sub(r"^\s*(?://[/!]?<?|/\*+|\*+(?!/))", "", line)
            yield number + k, column if k == 0 else None, re.sub(r"\*/$", "", line)


def literals(text, script):
    """Yields (line, text) of each string literal of C++, or of a script of the page."""
    number, at, run, end = 1, 0, None, 0
    for token in LITERAL.finditer(text):
        value = next((v for v in token.groupdict().values() if v is not None), None)
        if value is None or (token.group("single") is not None and not script):
            continue
        number += text.count("\n", at, token.start())
        at = token.start()
        if run and not text[end:at].strip():
            run = (run[0], run[1] + value)
        else:
            if run:
                yield run
            run = (number, value)
        end = token.end()
    if run:
        yield run


def judge_literals(found):
    for number, text in found:
        text = HOLE.sub("x", text)
        if " " not in text.strip():
            continue
        word = WHO.search(text)
        first = TEXT_FIRST.match(text)
        later = TEXT_LATER.search(text)
        if word:
            yield number, "text", f"`{word.group()}` is a word for people only, in a string literal"
        elif first or later:
            word = (first or later).group(1)
            yield number, "text", f"a string literal has a sentence that opens with `{word}`"


def judge_cases(text):
    for found in CASE.finditer(text):
        name, number = found.group(1), text.count("\n", 0, found.start(1)) + 1
        opening = CASE_OPENING.match(name)
        if opening:
            yield number, "case", f"the name of a test case opens with `{opening.group(1)}`"
        elif len(name) > LONGEST_CASE:
            yield number, "case", f"a test case's name has {len(name)} characters of {LONGEST_CASE}"


def comments_hash(lines, python):
    inside, counts = False, False
    for number, line in enumerate(lines, 1):
        if python and (inside or '"""' in line):
            counts = counts if inside else line.lstrip().startswith('"""')
            inside ^= line.count('"""') == 1
            if counts:
                yield number, None, line.replace('"""', "")
            continue
        found = HASH.search(line)
        before = line[: found.start()] if found else ""
        if found and before.count('"') % 2 == 0 and before.count("'") % 2 == 0:
            yield number, found.start() * (-1 if before.strip() else 1), found.group(1)


def comments_markup(text):
    for found in re.finditer(r"<!--(.*?)-->", text, re.S):
        number = text.count("\n", 0, found.start()) + 1
        for k, line in enumerate(found.group(1).split("\n")):
            yield number + k, None if k > 0 else -1, line


def judge(paragraph):
    """Yields (line, kind, word) of a list of (line, text)."""
    starts, text = [], ""
    for number, line in paragraph:
        starts.append((len(text), number))
        text += SPAN.sub(lambda span: "x" * len(span.group()), line.strip()) + " "

    def line_at(position):
        return [number for start, number in starts if start <= position][-1]

    for found in WHO.finditer(text):
        yield line_at(found.start()), "who", found.group()
    first = FIRST.match(text)
    if first:
        yield line_at(first.start(1)), "opening", first.group(1)
    for found in LATER.finditer(text):
        yield line_at(found.start(1)), "opening", found.group(1)


def judge_comments(comments):
    paragraph, last, beside = [], 0, 0
    for number, column, text in comments:
        goes_on = number == last + 1 and (column is None or 0 <= column == beside)
        if paragraph and (not goes_on or not text.strip() or ITEM.match(text)):
            yield from judge(paragraph)
            paragraph = []
        last, beside = number, beside if column is None else abs(column)
        if text.strip():
            paragraph.append((number, ITEM.sub("", text, 1) if ITEM.match(text) else text))
    if paragraph:
        yield from judge(paragraph)


def judge_markdown(lines):
    paragraph, fenced = [], False
    for number, line in enumerate(lines, 1):
        row = line.lstrip().startswith("|")
        fence = line.lstrip().startswith("```")
        starts = fence or row or not line.strip() or ITEM.match(line) or re.match(r"#+ ", line)
        if paragraph and (starts or fenced):
            yield from judge(paragraph)
            paragraph = []
        if fence:
            fenced = not fenced
        elif fenced or not line.strip():
            pass
        elif row:
            for cell in SPAN.sub("x", line).split("|"):
                for found in WHO.finditer(cell):
                    yield number, "who", found.group()
                for found in [CELL.match(cell.strip()), *LATER.finditer(cell)]:
                    if found:
                        yield number, "opening", found.group(1)
        elif re.match(r"#+ ", line):
            yield from judge([(number, line.lstrip("# "))])
        else:
            paragraph.append((number, ITEM.sub("", line, 1)))
    if paragraph:
        yield from judge(paragraph)


def violations(name, path):
    """Yields (line, kind, sentence) of a file."""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            text = file.read()
    except UnicodeDecodeError:
        return  # no text
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        if len(line) > WIDTH and not LINK.fullmatch(line):
            if not (os.path.basename(name) in TABLES and line.startswith("|")):
                yield number, "long", f"the line has {len(line)} characters of {WIDTH}"
    ending = os.path.splitext(name)[1]
    if ending == ".md":
        found = judge_markdown(lines)
    elif ending in C_LIKE:
        found = judge_comments(comments_c(text))
    elif ending == ".html":
        found = judge_comments(comments_markup(text))
    else:
        found = judge_comments(comments_hash(lines, ending == ".py"))
    sentences = {"who": "`{}` is a word for people only", "opening": "a sentence opens with `{}`"}
    for number, kind, word in found:
        yield number, kind, sentences[kind].format(word)
    if name.startswith("test/"):
        if ending in C_LIKE:
            yield from judge_cases(text)
    elif ending in (".cpp", ".hpp", ".cu", ".js"):
        yield from judge_literals(literals(text, ending == ".js"))


def read_counts(path):
    counts = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            if line.strip() and not line.startswith("#"):
                folder, *numbers = line.split()
                counts[folder] = dict.fromkeys(KINDS, 0) | dict(zip(KINDS, map(int, numbers)))
    return counts


def write_counts(path, counts):
    with open(path, "w", encoding="utf-8") as file:
        file.write(HEAD)
        file.write("%-12s%8s%8s%8s%8s%8s\n" % ("# folder", *KINDS))
        for folder in sorted(counts):
            numbers = (counts[folder][kind] for kind in KINDS)
            file.write("%-12s%8d%8d%8d%8d%8d\n" % (folder, *numbers))


def added_lines(tree):
    """Returns the lines, by file, that are newer than the counts; None outside of a repository."""

    def git(*arguments):
        command = ["git", "-c", "core.quotePath=false", "-C", tree, *arguments]
        return subprocess.run(command, capture_output=True, text=True, errors="replace").stdout

    if not os.path.exists(os.path.join(tree, ".git")):
        return None
    base = git("log", "-1", "--format=%H", "--", COUNTS).strip() or "HEAD"
    added, name = collections.defaultdict(set), ""
    for line in git("diff", "-U0", "--no-color", "--no-ext-diff", "--no-prefix", base).split("\n"):
        if line.startswith("+++ "):
            name = line[4:].rstrip("\t")
        elif line.startswith("@@ "):
            start, count = (re.search(r" \+(\d+)(?:,(\d+))? ", line).groups(default="1"))
            added[name].update(range(int(start), int(start) + int(count)))
    for name in git("ls-files", "--others", "--exclude-standard").split("\n"):
        added[name] = range(1, 1 << 30)
    return added


def main():
    options = [a for a in sys.argv[1:] if a.startswith("--")]
    trees = [a for a in sys.argv[1:] if not a.startswith("--")]
    if set(options) - {"--update", "--list"}:
        sys.exit(f"prose.py: there is no '{options[0]}'; use --update or --list")
    tree = os.path.abspath(trees[0] if trees else os.path.join(os.path.dirname(__file__), "../.."))

    found = collections.defaultdict(list)
    folders = set()
    for name, path in files(tree):
        folder = name.split("/")[0] if "/" in name else "."
        folders.add(folder)
        for number, kind, sentence in violations(name, path):
            found[folder, kind].append((name, number, sentence))
    counts = {folder: {kind: len(found[folder, kind]) for kind in KINDS} for folder in folders}

    if "--list" in options:
        for folder, kind in sorted(found):
            for name, number, sentence in found[folder, kind]:
                print(f"{name}:{number}: {sentence}")
        return
    path = os.path.join(tree, COUNTS)
    if not os.path.exists(path):
        if "--update" not in options:
            sys.exit(f"{COUNTS}:1: the file is missing; run scripts/checks/hygiene.sh --update")
        write_counts(path, counts)
    permitted = read_counts(path)
    none = dict.fromkeys(KINDS, 0)
    if "--update" in options:
        write_counts(
            path,
            {f: {k: min(counts[f][k], permitted.get(f, none)[k]) for k in KINDS} for f in folders},
        )
        permitted = read_counts(path)

    status, added = 0, None
    for folder, kind in sorted((f, k) for f in folders | set(permitted) for k in KINDS):
        have, may = counts.get(folder, none)[kind], permitted.get(folder, none)[kind]
        if have == may:
            continue
        status = 1
        if have < may:
            remedy = "run scripts/checks/hygiene.sh --update"
            print(f"{COUNTS}:1: {folder} has {have} {TITLES[kind]}, fewer than {may}; {remedy}")
            continue
        added = added_lines(tree) if added is None else added
        print(f"{COUNTS}:1: {folder} has {have} {TITLES[kind]}, more than {may}; remove new ones")
        for name, number, sentence in found[folder, kind]:
            if added is None or number in added.get(name, ()):
                print(f"{name}:{number}: {sentence}")
    sys.exit(status)


main()
