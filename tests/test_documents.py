"""The pages for whoever works on Sublet say what is true of the code: citations, modules, threads, terms and links."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "sublet"
DOCS = ROOT / "docs"

HEADING = re.compile(r"^#{2,4} (\d+(?:\.\d+)?)\.? ", re.MULTILINE)
NUMBERED_ROW = re.compile(r"^\| (\d+\.\d+) \|", re.MULTILINE)
CITATION = re.compile(r"\bDESIGN\b(?P<sections>(?:,? \d+(?:\.\d+)?(?![\d.]*\d))*)")
MODULE = re.compile(r"`([a-z0-9_]+(?:/[a-z0-9_]+)*\.py)`")
BOUND = re.compile(r"`(_?[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)`")

STARTERS = {
    "OwnTasks",
    "Popen",
    "Process",
    "ProcessPoolExecutor",
    "Service",
    "Thread",
    "ThreadPoolExecutor",
    "Timer",
    "create_subprocess_exec",
    "create_subprocess_shell",
    "in_background",
    "run_in_executor",
    "start_alone",
    "subprocess_exec",
    "subprocess_shell",
}
STARTING_CALLS = {"os.fork", "os.forkpty", "os.posix_spawn", "os.posix_spawnp", "os.spawnv", "os.system"} | {
    f"subprocess.{name}" for name in ("run", "call", "check_call", "check_output")
}
LAST = frozenset(call.rpartition(".")[2] for call in STARTING_CALLS)
NAMED = re.compile(rf"\b(?:{'|'.join(sorted({*STARTERS, *LAST}))})\b")
MECHANISM = {"tasks.py", "daemon/tasks/own_tasks.py"}
"""How tasks are started; the map names them in its text."""


def cited(text: str) -> list[str]:
    """Return each section that a text cites, and an empty one for a citation that names none."""
    return [
        section for found in CITATION.finditer(text) for section in (found["sections"].replace(",", "").split() or [""])
    ]


def starts(tree: ast.AST) -> bool:
    """Tell whether a module starts a thread, a pool, a program, a service, or a task of one caller."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            last = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if last in STARTERS or (last in LAST and ast.unparse(node.func) in STARTING_CALLS):
                return True
    return False


def modules(page: Path) -> set[str]:
    """Return the modules that a page names."""
    return set(MODULE.findall(page.read_text(encoding="utf-8")))


def anchors(page: Path) -> Iterator[str]:
    """Yield the anchors of a page's headings, as GitHub makes them."""
    for heading in re.findall(r"^#{1,6} (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        yield re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")


def test_each_cited_section_of_the_design_exists() -> None:
    design = (DOCS / "design.md").read_text(encoding="utf-8")
    sections = {*HEADING.findall(design), *NUMBERED_ROW.findall(design)}
    assert {"4.6", "7", "9.13"} <= sections
    pages = [file for folder in ("src", "tests", "benchmarks", "examples") for file in (ROOT / folder).rglob("*.py")]
    pages += [file for file in DOCS.glob("*.md") if file.name != "design.md"]
    wrong = [
        f"{file.relative_to(ROOT)}: DESIGN {section}"
        for file in pages
        if file != Path(__file__)
        for section in cited(file.read_text(encoding="utf-8"))
        if section not in sections and file.name != "test_schema.py"
    ]
    assert wrong == [], "cite a section of docs/design.md as DESIGN 4.6"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("(AWCP 6.2, DESIGN 4.1, 4.4)", ["4.1", "4.4"]),
        ("DESIGN 99", ["99"]),
        ("DESIGN 4.66.", ["4.66"]),
        ("DESIGN says so", [""]),
        ("Threats of DESIGN 9 at a door", ["9"]),
    ],
)
def test_a_citation_is_read_with_all_of_its_sections(text: str, found: list[str]) -> None:
    assert cited(text) == found


@pytest.mark.parametrize("name", ["design.md", "glossary.md", "threads.md"])
def test_each_module_that_a_page_names_is_there(name: str) -> None:
    files = [
        f"/{file.relative_to(ROOT).as_posix()}" for file in (*SOURCE.rglob("*.py"), *(ROOT / "tests").rglob("*.py"))
    ]
    gone = [module for module in modules(DOCS / name) if not any(file.endswith(f"/{module}") for file in files)]
    assert gone == []


def test_each_file_that_contributing_names_is_there() -> None:
    named = re.findall(
        r"`((?:src|tests|docs|scripts|benchmarks)/[\w/.-]+)`", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    )
    unnamed = {"src/sublet/messaging/extensions/NAME.py", "src/sublet/supervisor/NAME.py", "docs/invariants.md"}
    unnamed.add("tests/messaging/extensions/test_NAME.py")
    assert [name for name in named if name not in unnamed and not (ROOT / name).exists()] == []


def test_each_term_of_the_glossary_is_told_once_with_its_origin_and_its_module() -> None:
    text = (DOCS / "glossary.md").read_text(encoding="utf-8")
    rows = [
        [cell.strip() for cell in row.strip("|").split(" | ")]
        for part in text.split("\n## ")
        if "| term |" in part
        for row in part.split("|---|---|---|---|\n")[1].splitlines()
        if row.startswith("|")
    ]
    terms = [(row[0], row[-1]) for row in rows]
    assert len(rows) > 60
    assert all(
        len(row) == 4
        and (row[2] == "ours" or re.fullmatch(r"(AWCP|SuperAgent|ezagent|A2C-SMCP|CIS)( [\d.]+)?", row[2]))
        for row in rows
    )
    assert len(set(terms)) == len(terms)
    gone = [term for term, module in terms if not (SOURCE / module.strip("`")).is_file()]
    assert gone == []


def test_pages_call_the_pair_of_roles_by_its_names() -> None:
    of_super_agents = {"agents.md", "approvals.md", "glossary.md", "policy.md"}
    otherwise = [
        f"{page.name}: {word}"
        for page in DOCS.glob("*.md")
        for word in re.findall(r"\b(?:worker|borrower)s?\b", page.read_text(encoding="utf-8"))
        if page.name not in of_super_agents
    ]
    assert otherwise == [], "docs/glossary.md says what to call whom"


@pytest.mark.parametrize("package", ["sublet", "sublet.daemon", "sublet.supervisor", "sublet.workspace"])
def test_the_table_of_a_package_has_each_of_its_packages(package: str) -> None:
    """Those in its directory, and the modules beside them that a contract of layers names."""
    root = SOURCE.parent.joinpath(*package.split("."))
    there = {path.parent.name for path in root.glob("*/__init__.py")} | in_contract(package)
    rows = table_rows((DOCS / "design.md").read_text(encoding="utf-8"), package)
    assert there - rows == set(), "say in docs/design.md what it holds"
    assert rows - there - {path.stem for path in root.glob("*.py")} == set(), "it is gone"


def in_contract(package: str) -> set[str]:
    """Return what the contracts of layers name in a package."""
    found = set[str]()
    for contract in tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]:
        names = {name for layer in contract.get("layers", ()) for name in re.findall(r"[\w.]+(?![\w.)])", layer)}
        inside = contract.get("containers", [])
        found |= {name.removeprefix(f"{package}.") for name in names if name.startswith(f"{package}.")}
        found |= names if inside == [package] else set()
    return {name for name in found if "." not in name}


def table_rows(page: str, package: str) -> set[str]:
    """Return the names in the first column of a package's table; of the whole, the table names ``sublet.NAME``."""
    head = "| package | holds |" if package == "sublet" else f"| `{package}.` | holds |"
    rows = page.partition(head)[2].partition("\n\n")[0].splitlines()
    names = [name for row in rows for name in re.findall(r"`([\w.]+)`", row.split("|")[1] if "|" in row else "")]
    return {name.removeprefix("sublet.") for name in names}


def test_the_map_names_every_module_that_starts_something() -> None:
    starting = {
        name
        for file in SOURCE.rglob("*.py")
        if not (name := file.relative_to(SOURCE).as_posix()).startswith("cli/")
        if NAMED.search(text := file.read_text(encoding="utf-8"))  # to parse all of them takes seconds
        if starts(ast.parse(text))
    }
    assert starting - modules(DOCS / "threads.md") - MECHANISM == set(), "say in docs/threads.md what it starts"


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("threading.Thread(target=run).start()", True),
        ("futures.ThreadPoolExecutor(2)", True),
        ("subprocess.run(['git'])", True),
        ("await loop.run_in_executor(None, work)", True),
        ("Thread", False),
        ("self.run(Thread)", False),
    ],
)
def test_what_starts_something_is_found(code: str, found: bool) -> None:
    assert starts(ast.parse(f"async def f(): {code}")) is found


def test_each_bound_that_the_map_names_is_a_constant_of_a_module_of_its_row() -> None:
    rows = [row for row in (DOCS / "threads.md").read_text(encoding="utf-8").splitlines() if row.startswith("|")]
    named = {(bound, tuple(re.findall(r"`([\w/]+\.py)`", row))) for row in rows for bound in BOUND.findall(row)}
    assert len(named) > 10
    assert [
        (bound, files) for bound, files in named if not any(bound in constants(SOURCE / file) for file in files)
    ] == []


def constants(file: Path) -> set[str]:
    """Return what a module assigns outside of functions and classes."""
    return {
        target.id
        for node in ast.parse(file.read_text(encoding="utf-8")).body
        for target in ([node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", ()))
        if isinstance(target, ast.Name)
    }


def test_the_map_names_every_service() -> None:
    page = (DOCS / "threads.md").read_text(encoding="utf-8")
    services = {
        name.partition("{")[0].strip()
        for file in SOURCE.rglob("*.py")
        for name in re.findall(r'\bService\(\s*f?"([^"]+)"', file.read_text(encoding="utf-8"))
    }
    assert len(services) > 10
    assert [name for name in sorted(services) if name not in page] == [], "say in docs/threads.md how it stops"


def test_each_class_that_the_glossary_tells_apart_is_there() -> None:
    table = (DOCS / "glossary.md").read_text(encoding="utf-8").partition("## Words with more than one meaning")[2]
    named = set(re.findall(r"`([A-Z][a-z]\w+)`", table))
    defines = re.compile(rf"\bclass (?:{'|'.join(sorted(named))})\b")
    classes = {
        node.name
        for file in SOURCE.rglob("*.py")
        if defines.search(text := file.read_text(encoding="utf-8"))  # to parse all of them takes seconds
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ClassDef)
    }
    assert len(named) > 10
    assert named - classes == set()


def test_links_between_pages_lead_somewhere() -> None:
    broken: list[str] = []
    for page in (*ROOT.glob("*.md"), *DOCS.glob("*.md")):
        for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
            path, _, anchor = link.partition("#")
            if re.match(r"[a-z]+:", link) or (page.name == "CHANGELOG.md" and not path):
                continue
            target = (page.parent / path).resolve() if path else page
            if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
                broken.append(f"{page.name}: {link}")
    assert broken == []
