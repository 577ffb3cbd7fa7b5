"""The documentation is executed: its Python in a process of its own, its SQL as scripts; and its links have targets."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli.check import check_sql
from penstock.cli.script import load
from penstock.sql import (
    AlterQuery,
    AlterStream,
    CreateQuery,
    CreateSource,
    CreateStream,
    CreateView,
    DropQuery,
    Explain,
    RefreshView,
    ResumeQuery,
    ShowViews,
)  # fmt: skip
from tools import layers

ROOT = Path(__file__).parents[1]
PAGES = sorted(str(path.relative_to(ROOT)) for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")))
DECISIONS = {path.name[:4]: path for path in sorted(ROOT.glob("docs/decisions/[0-9]*.md"))}
# Pages whose SQL is one script.
SCRIPTS = [
    ["docs/sql.md", "docs/running.md", "docs/views.md"],
    ["docs/coming-from-flink-and-spark.md"],
]


def blocks(language: str, page: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)


def script_of(pages: list[str], path: Path):
    path.write_text("\n".join(block for page in pages for block in blocks("sql", page)))
    return load(path)


@pytest.mark.spark
def test_python_examples_run_one_after_the_other(tmp_path):
    code = "\n".join(block for page in ("README.md", "docs/python.md") for block in blocks("python", page))
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("join humidity(location) x temperature(location): 2 queries in one probe") == 2
    assert "|   attic|   35.5|    55.0|" in done.stdout
    assert "'covered'" in done.stdout


@pytest.mark.parametrize("pages", SCRIPTS, ids=lambda pages: pages[0])
def test_the_sql_of_a_page_is_one_script(pages, tmp_path):
    check_sql(script_of(pages, tmp_path / "page.sql"))


def test_the_page_about_the_language_shows_all_kinds_of_statements(tmp_path):
    assert {type(statement) for statement in script_of(SCRIPTS[0], tmp_path / "page.sql").statements} == {
        CreateStream,
        AlterStream,
        CreateQuery,
        AlterQuery,
        DropQuery,
        Explain,
        CreateSource,
        CreateView,
        RefreshView,
        ResumeQuery,
        ShowViews,
    }


def test_no_example_is_on_a_page_that_nobody_runs():
    tested = {page for pages in SCRIPTS for page in pages}
    assert {page for page in PAGES if blocks("sql", page)} == tested
    assert {page for page in PAGES if blocks("python", page)} == {"README.md", "docs/python.md"}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files_and_headings_that_are_there(page):
    text = re.sub(r"```.*?```", "", (ROOT / page).read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        name, _, anchor = target.partition("#")
        if "://" in target:
            continue
        file = ((ROOT / page).parent / name).resolve() if name else ROOT / page
        assert file.exists(), target
        assert not anchor or anchor in {
            _anchor(title) for title in re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE)
        }, target


def test_decisions_are_numbered_listed_under_their_titles_and_have_all_parts():
    assert list(DECISIONS) == [f"{number:04d}" for number in range(1, len(DECISIONS) + 1)]
    index = (ROOT / "docs/decisions/README.md").read_text()
    listed = re.findall(r"^\* \[(\d{4})\]\((.+?)\) (.*)$", index, re.MULTILINE)
    titles = {number: path.read_text().splitlines()[0] for number, path in DECISIONS.items()}
    assert {number: (name, f"# {number} {title}") for number, name, title in listed} == {
        number: (path.name, titles[number]) for number, path in DECISIONS.items()
    }
    parts = ["Problem", "Decision", "Why", "Measured", "What would change it"]
    for path in DECISIONS.values():
        assert re.findall(r"^\*\*(.+?)\.?\*\*", path.read_text(), re.MULTILINE) == parts, path.name
        assert re.match(r"\d{4}-\d\d-\d\d, ", path.read_text().splitlines()[2]), path.name


ABOUT_CODE = [
    "CONTRIBUTING.md",
    "docs/architecture.md",
    "docs/internals.md",
    *(f"docs/decisions/{p.name}" for p in DECISIONS.values()),
]


@pytest.mark.parametrize("page", ABOUT_CODE)
def test_modules_and_folders_that_pages_name_are_there(page):
    named = re.findall(r"`([\w<>-]+(?:/[\w<>.-]+)+/?|\w+\.py)`", (ROOT / page).read_text())
    package = ROOT / "src" / "penstock"
    inside = {path.name for path in package.iterdir()} | {path.name for path in ROOT.iterdir()}
    gone = [
        name for name in named
        if (
            (name.endswith(".py") or name.split("/")[0] in inside)
            and "<" not in name
            and not (package / name).exists()
            and not (ROOT / name).exists()
        )
    ]  # fmt: skip
    assert gone == []


def test_pages_name_the_packages_in_their_order():
    for page in ("CONTRIBUTING.md", "docs/architecture.md"):
        text = re.search(r"errors,? +model.*?façade,? +cli", (ROOT / page).read_text(), re.DOTALL)
        assert text is not None, page
        assert tuple(re.findall(r"\w+", text[0])) == layers.ORDER, page


def test_the_page_about_the_code_is_short_and_names_each_package_in_bold_once():
    lines = (ROOT / "docs/architecture.md").read_text().splitlines()
    assert len(lines) < 200
    assert [line for line in lines if len(line) > 120 and not line.startswith("|")] == []
    bold = re.findall(r"\*\*`(\w+)`\*\*", "\n".join(lines))
    assert sorted(bold) == sorted(set(layers.ORDER) - {layers.FACADE})


def test_code_refers_to_decisions_that_are_there():
    for path in [*ROOT.glob("src/**/*.py"), *ROOT.glob("tests/**/*.py"), *ROOT.glob("tools/*.py")]:
        referred = re.findall(r"\b[Dd]ecisions? (\d{4})", path.read_text(encoding="utf-8"))
        assert set(referred) <= DECISIONS.keys(), path


def _anchor(title: str) -> str:
    """As pages are shown: lower case, hyphens for blanks, no other signs."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
