"""What the documentation shows is run: its Python in a process of its own, its SQL through the parser."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.check import check_sql
from penstock.script import load
from penstock.sql import (
    AlterQuery,
    CreateQuery,
    CreateSource,
    CreateStream,
    CreateView,
    DropQuery,
    Explain,
    RefreshView,
    ShowViews,
    parse_query,
    parse_script,
    parse_view,
)  # fmt: skip

ROOT = Path(__file__).parents[1]


def blocks(language: str, page: str = "README.md") -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)


@pytest.mark.spark
def test_python_examples_run_one_after_the_other(tmp_path):
    code = "\n".join(blocks("python"))
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "join humidity(location) x temperature(location): 2 queries in one probe" in done.stdout
    assert "'covered'" in done.stdout


@pytest.mark.parametrize("script", blocks("sql"))
def test_sql_examples_parse(script):
    statements = parse_script(script)
    streams = {s.stream.name: s.stream for s in statements if isinstance(s, CreateStream)}
    sources = {s.source.name: s.source for s in statements if isinstance(s, CreateSource)}
    asked = [s for s in statements if isinstance(s, CreateQuery | CreateView)]
    assert asked
    for one in asked:
        place = {"script": script, "line": one.line, "column": one.column}
        if isinstance(one, CreateView):
            parse_view(one.select, sources, name=one.name, **place)
        else:
            parse_query(one.select, streams, **place)


def test_the_page_about_the_language_is_one_script(tmp_path):
    page = tmp_path / "page.sql"
    page.write_text("\n".join(blocks("sql", "docs/sql.md")))
    script = load(page)
    check_sql(script)
    assert {
        CreateStream,
        CreateQuery,
        AlterQuery,
        DropQuery,
        Explain,
        CreateSource,
        CreateView,
        RefreshView,
        ShowViews,
    } == {type(statement) for statement in script.statements}
