"""The architecture, held by reading the source: layers, forbidden calls."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "imae"
MODULES = sorted(SOURCE.rglob("*.py"))

LAYERS = {
    "errors": 0,
    "_registry": 0,
    "_draws": 0,
    "records": 0,
    "curves": 1,
    "noise": 1,
    "losses": 2,
    "models": 2,
    "data": 2,
    "metrics": 3,
    "methods": 4,
    "train": 5,
    "report": 6,
    "audit": 7,  # its page is built with the report's parts
    "tune": 7,
    "recipes": 7,
    "integrations": 8,  # they end in an audit
    "cli": 8,
}
# Words that would run code from data, or draw from a generator nobody seeded.
FORBIDDEN = {
    r"\bpickle\.loads?\(": "unpickles anything",
    r"weights_only=False": "unpickles anything",
    r"allow_pickle=True": "unpickles anything",
    r"\byaml\.load\(": "runs constructors",
    r"(?<![\w.])eval\(": "runs code",
    r"(?<![\w.])exec\(": "runs code",
    r"\.extractall\(": "writes outside its folder",
    r"shell=True": "runs a shell",
    r"\bos\.system\(": "runs a shell",
    r"\bnp\.random\.(seed|rand|randn|randint|choice|shuffle|permutation)\(": "global generator",
    r"\brandom\.(seed|random|randint|choice|shuffle)\(": "global generator",
}


def part_of(module: Path) -> str:
    return module.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_parts(source: str) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name.split(".")[1] for name in names if name.startswith("imae.")}


def breaches(part: str, source: str) -> list[str]:
    allowed = {name for name, layer in LAYERS.items() if layer < LAYERS[part]} | {part}
    return sorted(imported_parts(source) - allowed)


def forbidden_calls(source: str) -> list[str]:
    return [why for pattern, why in FORBIDDEN.items() if re.search(pattern, source)]


def test_a_module_imports_lower_layers_only():
    for module in MODULES:
        if module == SOURCE / "__init__.py":
            assert imported_parts(module.read_text()) <= {
                name for name, layer in LAYERS.items() if layer <= 3
            }
        elif LAYERS[part_of(module)] > 0:
            assert breaches(part_of(module), module.read_text()) == [], module


def test_the_layer_check_can_fail():
    assert breaches("curves", "from imae.losses.margin import margin") == ["losses"]
    assert breaches("noise", "from imae import curves") == ["curves"]
    assert breaches("losses", "from imae.curves import CCE") == []


def test_no_module_runs_code_from_data_or_draws_unseeded():
    for module in MODULES:
        assert forbidden_calls(module.read_text()) == [], module


def test_the_search_for_forbidden_calls_can_fail():
    assert forbidden_calls("x = pickle.load(file)") == ["unpickles anything"]
    assert forbidden_calls("model.eval()") == []


def test_init_files_hold_nothing_but_re_exports():
    for module in MODULES:
        if module.name == "__init__.py" and module.parent.name != "cli":  # it loads the rest
            for node in ast.parse(module.read_text()).body:
                if isinstance(node, ast.If):
                    assert ast.unparse(node.test) == "TYPE_CHECKING", module
                    assert {type(each) for each in node.body} == {ast.ImportFrom}, module
                    lazy = "(__getattr__, __dir__) = lazy_exports(__name__)"
                    assert [ast.unparse(each) for each in node.orelse] in (
                        [lazy],
                        [lazy.replace("(__getattr__, __dir__)", "__getattr__, __dir__")],
                    ), module
                else:
                    assert isinstance(node, ast.Expr | ast.ImportFrom | ast.Import), module


def named_paths(text: str) -> list[str]:
    return re.findall(r"`((?:src|tests|docs|benchmarks)/[\w/.]+?)/?`", text)


def test_what_contributing_names_is_there():
    paths = named_paths((ROOT / "CONTRIBUTING.md").read_text())
    assert len(paths) > 10
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_search_for_named_paths_can_fail():
    assert named_paths("see `src/imae/no/such.py` and `tests/cli`") == [
        "src/imae/no/such.py",
        "tests/cli",
    ]


def test_the_tree_stays_small():
    assert len(MODULES) <= 150  # benchmarks/house.py prints the other numbers


def test_no_file_is_called_utils():
    assert not [path for path in MODULES if path.stem in {"utils", "common", "helpers", "misc"}]


def test_every_benchmark_reads_its_command_line():
    """So that ``--help`` and a mistyped option do not start an hour of work."""
    scripts = [path for path in (ROOT / "benchmarks").glob("*.py") if path.stem != "machine"]
    assert len(scripts) > 10
    assert [path.name for path in scripts if "parse_args()" not in path.read_text()] == []
