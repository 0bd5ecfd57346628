"""Tests that the pages are true: paths, commands, options, variables, routes, codes."""

import ast
import inspect
import re
from pathlib import Path

import pytest
import typer

from tests.documentation.snippets import programs

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def _commands(page):
    """(verb, the words after it) of every line of the page that calls `farrier`."""
    text = page.read_text().replace("\\\n", " ")
    for line in re.findall(
        r"(?:^    (?:\$ )?|`)farrier ([a-z].*?)(?:\s+#.*|`|$)", text, re.MULTILINE
    ):
        verb, *words = line.split()
        yield verb, words


@pytest.mark.parametrize(
    "module",
    [
        "compiler/farrier/ir/types",
        "compiler/farrier/ir/expr",
        "compiler/farrier/ir/graph",
        "compiler/farrier/ir/control",
        "compiler/farrier/ir/tensor",
        "compiler/farrier/ir/loop",
        "compiler/farrier/ir/instr",
        "compiler/farrier/partition/program",
        "rpc_device/farrier_device/program",
    ],
)
def test_the_page_on_the_grammars_shows_each_grammar_as_its_module_does(module):
    source = (ROOT / f"{module}.py").read_text()
    docstring = ast.get_docstring(ast.parse(source))
    grammar = re.search(r"(?:^    .*\n)+", docstring, re.MULTILINE)[0].strip("\n")
    assert grammar in (ROOT / "docs/develop/ir.md").read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_path_that_a_page_names_exists(page):
    roots = [ROOT, ROOT / "compiler/farrier", ROOT / "compiler", page.parent]
    # Units such as `GB/s` begin with a capital letter, paths do not.
    names = re.findall(r"`((?![A-Z])(?:[\w.]+/)+[\w.]*)`", page.read_text())
    for name in names:
        assert any((root / name).exists() for root in roots), name


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_link_of_a_page_leads_to_a_file(page):
    for name in re.findall(r"\]\(([\w./-]+)(?:#[\w-]+)?\)", page.read_text()):
        assert (page.parent / name).exists(), name


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_command_that_a_page_shows_exists_with_its_options(page):
    from farrier.cli.app import build
    from farrier_device.agent_options import parser

    commands = typer.main.get_command(build()).commands
    for verb, words in _commands(page):
        assert verb in commands, verb
        command = commands[verb]
        if words and words[0] in getattr(command, "commands", {}):
            command = command.commands[words[0]]
        options = {
            option
            for parameter in command.params
            for option in (*parameter.opts, *parameter.secondary_opts)
        }
        if verb == "device":
            options = set(parser()._option_string_actions)
        shown = {word for word in words if re.fullmatch(r"--?[a-z][\w-]*", word)}
        assert shown <= options | {"--help"}, f"farrier {verb}: {shown - options}"


def test_the_page_on_commands_lists_every_command():
    from farrier.cli.app import build

    shown = {verb for verb, _ in _commands(ROOT / "docs/reference/cli.md")}
    assert shown == set(typer.main.get_command(build()).commands)


def test_the_readme_fits_a_few_screens_and_shows_what_farrier_is_for():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 120
    assert {verb for verb, _ in _commands(ROOT / "README.md")} >= {
        "compile",
        "bench",
        "up",
        "submit",
        "export",
        "run",
    }
    assert "pip install" in text


def test_the_agent_s_options_on_the_page_on_farms_exist():
    from farrier_device.agent_options import parser

    text = (ROOT / "docs/operate/setup.md").read_text().replace("\\\n", " ")
    (line,) = re.findall(r"^    (?:\w+=\S+ )?farrier-device (.*)$", text, re.MULTILINE)
    parser().parse_args(line.split())


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_make_verb_that_a_page_names_exists(page):
    makefile = (ROOT / "Makefile").read_text()
    for verb in re.findall(r"(?:`|^    )make ([a-z]+)", page.read_text(), re.MULTILINE):
        assert re.search(rf"^{verb}:", makefile, re.MULTILINE), verb


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_variable_that_a_page_names_is_read_somewhere(page):
    sources = [
        p.read_text() for d in ("compiler", "farm", "rpc_device") for p in (ROOT / d).rglob("*.py")
    ]
    for name in set(re.findall(r"\bFARRIER_[A-Z_]+\b", page.read_text())):
        assert any(f'"{name}"' in source for source in sources), name


def test_the_python_on_the_pages_calls_the_library_as_it_is():
    import farrier

    calls = {
        "farrier.compile": farrier.compile,
        "client.submit": farrier.Client.submit,
        "client.wait": farrier.Client.wait,
        "client.fetch": farrier.Client.fetch,
    }
    seen = set()
    for page in PAGES:
        for program in programs(page):
            for node in ast.walk(ast.parse(program)):
                if isinstance(node, ast.Call) and (name := ast.unparse(node.func)) in calls:
                    seen.add((page.name, name))
                    accepted = set(inspect.signature(calls[name]).parameters)
                    assert {keyword.arg for keyword in node.keywords} <= accepted, (page, name)
    assert seen >= {("README.md", name) for name in calls}


def test_the_page_on_errors_lists_every_class_with_its_exit_code():
    from farrier.errors import FarrierError

    text = (ROOT / "docs/reference/errors.md").read_text()
    listed = re.findall(r"^\| (\d+) \| `(\w+)` \|", text, re.MULTILINE)
    classes = FarrierError.__subclasses__()
    assert listed == [
        (str(kind.exit_code), kind.__name__) for kind in sorted(classes, key=lambda k: k.exit_code)
    ]


def test_the_page_on_protocols_lists_every_route(service):
    text = (ROOT / "docs/reference/protocol.md").read_text()
    shown = set()
    for cell in re.findall(r"^\| (`(?:GET|POST|PUT|PATCH|HEAD|DELETE).*?) \|", text, re.MULTILINE):
        methods = re.findall(r"\b(GET|POST|PUT|PATCH|HEAD|DELETE)\b", cell)
        paths = re.findall(r"(/[\w/{}-]+)", cell)
        shown |= {(method, path) for method in methods for path in paths}
    paths = service.http().get("/openapi.json").json()["paths"]
    served = {
        (method.upper(), re.sub(r"\{\w+\}", "{id}", path))
        for path, methods in paths.items()
        for method in methods
    }
    assert shown == served


def test_the_page_on_protocols_lists_every_call_of_the_broker():
    proto = (ROOT / "rpc_device/farrier_device/protocol/device.proto").read_text()
    page = (ROOT / "docs/reference/protocol.md").read_text()
    for call in re.findall(r"^  rpc (\w+)", proto, re.MULTILINE):
        assert f"| `{call}` |" in page, call


def test_the_page_on_protocols_lists_every_kind_of_event():
    from farrier.progress import events as progress

    text = (ROOT / "docs/reference/protocol.md").read_text()
    events = text[text.index("**Events.**") : text.index("## Broker")]
    listed = re.search(r"events\.py` \((.*?)\)", events, re.DOTALL)[1]
    assert set(re.findall(r"`([a-z-]+)`", listed)) == set(progress._KINDS)


def test_the_page_on_targets_lists_every_machine_and_its_figures():
    from farrier.targets import known_machines, parse_target

    text = (ROOT / "docs/develop/targets.md").read_text()
    row = r"^\| `([\w:-]+)` \| ([\w .()-]+) \| (\d+) \| ([\d, ]+) \|"
    rows = re.findall(row, text, re.MULTILINE)
    listed = {name: (cpu, int(cores), caches) for name, cpu, cores, caches in rows}
    expected = {}
    for name, machine in known_machines().items():
        of = machine.description
        sizes = ", ".join(str(n >> 10) for n in (of.l1_bytes, of.l2_bytes, of.l3_bytes))
        expected[name] = parse_target(name).cpu, of.cores, sizes
    assert listed == expected


def test_the_page_on_targets_tells_every_field_and_its_example_is_a_machine():
    from farrier.targets import parse_target
    from farrier_device.describe import MachineDescription

    text = (ROOT / "docs/develop/targets.md").read_text()
    own = text[text.index("## A machine") : text.index("## Adding")]
    assert set(re.findall(r"^\| `(\w+)` \|", own, re.MULTILINE)) == set(
        MachineDescription.__dataclass_fields__
    )
    target = parse_target(re.search(r"^    \{.*?^    \}", own, re.MULTILINE | re.DOTALL)[0])
    assert (target.tune, target.cores) == ("cortex-a55", 2)


def test_the_page_on_targets_tells_every_part_of_the_protocol():
    from farrier.targets import Backend

    text = (ROOT / "docs/develop/targets.md").read_text()
    cells = re.findall(r"^\| (`.*?) \|", text[text.index("## Adding") :], re.MULTILINE)
    roles = Backend.__bases__[:-1]
    assert {f"{role.__module__.rpartition('.')[2]}.py" for role in roles} <= set(
        re.findall(r"`(\w+\.py)`", text)
    )
    parts = {name for role in roles for name in vars(role) if not name.startswith("_")}
    assert set(re.findall(r"`(\w+)`", " ".join(cells))) == parts


def test_every_file_that_ci_names_exists():
    paths = re.findall(r"\btests/[\w/]+\.py\b", (ROOT / ".ci/run").read_text())
    assert paths
    for path in paths:
        assert (ROOT / path).exists(), path
