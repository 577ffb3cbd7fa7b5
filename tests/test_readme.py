"""What the README shows is run: its Python in a process of its own, its SQL through the parser."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.sql import CreateQuery, CreateSource, CreateStream, CreateView, parse_query, parse_script, parse_view

README = (Path(__file__).parents[1] / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


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
