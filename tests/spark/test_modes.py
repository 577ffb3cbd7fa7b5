"""File modes of an engine: state is private to its owner, and results in a sink's folder follow the umask."""

import os
import stat

import pytest

from tests.spark.replay import Replay, drain, rows_of, stream

pytestmark = pytest.mark.spark

STREAM = stream("a", "ts bigint, k bigint", delay=0)


def test_all_that_is_made_below_a_state_directory_is_closed_to_others_and_what_is_published_is_not(spark, tmp_path):
    replay = Replay(tmp_path / "source", STREAM)
    state, out = tmp_path / "state", tmp_path / "out"
    before = os.umask(0o022)
    try:
        state.mkdir()  # wide, as somebody's mkdir makes it
        for number in range(2):
            replay.add(a=[{"ts": 10 * number, "k": 1}, {"ts": 10 * number + 1, "k": 1}, {"ts": 0, "k": number}])
            engine = replay.engine(spark, state)
            engine.query("SELECT k, count(*) AS n, window_end FROM a [RANGE 4 SLIDE 4] GROUP BY k", name="n", into=out)
            engine.query("SELECT x.k FROM a [RANGE 5] x, a [RANGE 5] y WHERE x.k = y.k", name="j")
            engine.source("s", using="query", query="j")
            view = engine.view("SELECT k, count(*) AS n FROM s GROUP BY k", name="v")
            drain(engine)
            view.refresh()
            engine.view_catalog.close()
    finally:
        os.umask(before)
    assert rows_of(engine.late("a"))
    made = {path.relative_to(state): path for path in state.rglob("*")}
    tops = {name.parts[0] for name in made}
    assert tops >= {"runs", "results", "sides", "manifest", "registry", "views", "checkpoint", "owner.lock", "id"}
    # What Spark makes in its checkpoint is shut in by the folder.
    own = {
        str(n): stat.S_IMODE(p.stat().st_mode)
        for n, p in made.items()
        if n.parts[0] != "checkpoint" or len(n.parts) == 1
    }
    published = [out, *out.iterdir()]
    assert len(published) > 2
    linked = {p.stat().st_ino for p in published}  # the same files, in a folder that is shut
    opened = {name for name in own if (state / name).stat().st_ino in linked}
    assert opened
    assert {name.partition("/")[0] for name in opened} == {"results"}
    assert own == {n: 0o700 if (state / n).is_dir() else 0o644 if n in opened else 0o600 for n in own}
    assert {stat.S_IMODE(p.stat().st_mode) for p in published} == {0o755, 0o644}
