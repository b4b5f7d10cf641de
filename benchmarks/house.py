"""The shape of the source tree in numbers: modules, those that a row passes, the cost of help.

    python benchmarks/house.py

Importers are counted by static imports, wherever in a file they are; an ``__init__`` file that
re-exports a module counts as an importer of it.
"""

import ast
import io
import os
import resource
import subprocess
import sys
import tempfile
import token
import tokenize
from collections import defaultdict
from pathlib import Path

from machine import command_line

SOURCE = Path(__file__).parents[1] / "src" / "imae"
_ROW_PROGRAM = """
import sys
source = sys.argv[1]
seen = set()
def watch(frame, event, argument):
    name = frame.f_code.co_filename
    if name.startswith(source) and frame.f_code.co_name != "<module>":
        seen.add(name)
from imae.train import build_config, train
from imae.train import loop
config = build_config({"data": {"name": sys.argv[2]}, "out": sys.argv[3],
                       "model": {"name": "small_cnn"}, "train": {"steps": 1, "batch_size": 8}})
class Done(BaseException):
    pass
step = loop.train_step
def once(*arguments, **options):
    step(*arguments, **options)
    raise Done
loop.train_step = once
sys.setprofile(watch)
try:
    train(config)
except Done:
    pass
sys.setprofile(None)
print(*sorted(seen))
"""


def modules() -> dict[str, Path]:
    """Paths by dotted name."""
    names = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = ("imae", *path.relative_to(SOURCE).with_suffix("").parts)
        names[".".join(parts).removesuffix(".__init__")] = path
    return names


def code_lines(path: Path) -> int:
    """Lines that hold code: no blank lines, comments or docstrings."""
    text = path.read_text()
    tree = ast.parse(text)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        line
        for node in ast.walk(tree)
        if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None
        for line in range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)
    }
    skipped = (token.NEWLINE, token.NL, tokenize.COMMENT, token.INDENT, token.DEDENT)
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    lines = {
        line
        for each in tokens
        if each.type not in (*skipped, token.ENDMARKER)
        for line in range(each.start[0], each.end[0] + 1)
    }
    return len(lines - docstrings)


def importers(names: dict[str, Path]) -> dict[str, set[str]]:
    """For each module, the modules that import from it."""
    found: dict[str, set[str]] = defaultdict(set)
    for name, path in names.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                wanted = [f"{node.module}.{alias.name}" for alias in node.names]
                wanted = [each if each in names else node.module for each in wanted]
            elif isinstance(node, ast.Import):
                wanted = [alias.name for alias in node.names]
            else:
                continue
            for each in wanted:
                found[each].add(name)
    return found


def modules_for_a_row() -> list[str]:
    """Modules whose code runs until a row of a folder of photos has been trained on."""
    from PIL import Image

    with tempfile.TemporaryDirectory() as folder:
        for label in ("cat", "dog"):
            place = Path(folder, "photos", label)
            place.mkdir(parents=True)
            for number in range(8):
                Image.new("RGB", (32, 32), (number * 9, 0, 0)).save(place / f"{number}.png")
        arguments = [str(SOURCE), f"{folder}/photos", f"{folder}/run"]
        done = subprocess.run(
            [sys.executable, "-c", _ROW_PROGRAM, *arguments],
            capture_output=True,
            text=True,
            check=True,
        )
    return [str(Path(line).relative_to(SOURCE)) for line in done.stdout.split()]


def help_cost() -> tuple[float, bool, int]:
    """Processor seconds of ``imae --help``, whether torch was loaded, and our modules loaded."""
    program = (
        "import sys, atexit\nfrom imae.cli.app import main\nmain(['--help'])\n"
        "ours = sum(name.startswith('imae') for name in sys.modules)\n"
        "print('torch' in sys.modules, ours)"
    )
    command = [sys.executable, "-c", program]
    seconds = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, env={**os.environ, "COLUMNS": "90"}
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    torch, ours = done.stdout.splitlines()[-1].split()
    return min(seconds), torch == "True", int(ours)


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--list", action="store_true", help="name the modules")
    arguments = parser.parse_args()
    names = modules()
    found = importers(names)
    plain = {name: path for name, path in names.items() if path.name != "__init__.py"}
    lines = [len(path.read_text().splitlines()) for path in names.values()]
    single = sorted(name for name in plain if len(found[name]) == 1)
    small = sorted(name for name, path in plain.items() if code_lines(path) < 40)
    longest = max(zip(lines, names, strict=True))
    row = modules_for_a_row()
    seconds, torch, ours = help_cost()
    print(f"modules                                    {len(names)} (at most 150)")
    print(f"lines per module                           {sum(lines) / len(names):.0f}")
    print(f"longest module                             {longest[0]} lines, {longest[1]}")
    print(f"modules with exactly one importer          {len(single)} (under 30)")
    print(f"modules under 40 lines of code             {len(small)} (under 15)")
    print(f"modules a row of photos passes             {len(row)} (under 35)")
    print(f"imae --help, processor seconds             {seconds:.2f} (under 0.4)")
    print(f"imae --help loads torch, modules of ours   {'yes' if torch else 'no'}, {ours}")
    if arguments.list:
        print("one importer:", *single, sep="\n  ")
        print("small:", *small, sep="\n  ")
        print("the way of a row:", *row, sep="\n  ")


if __name__ == "__main__":
    main()
