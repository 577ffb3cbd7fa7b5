"""Result files by query, step and time: equal to a scan over all, in every manifest, at the cost of what is found."""

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.time import NEVER
from penstock.state.result_files import ResultFile, ResultFiles
from tests.effort import examples


def file_of(name, step, time=0, queries=(1,), until=NEVER):
    counts = tuple((query, 1) for query in queries)
    return ResultFile(name, "j", step, 1, 1, 1, time, time, counts, panes_until=until)


QUERIES, TIMES = range(3), st.integers(-3, 9)
FACTS = st.tuples(TIMES, st.sets(st.sampled_from(QUERIES)), st.just(NEVER) | TIMES)
STEPS = st.lists(st.tuples(st.lists(FACTS, max_size=3), st.integers(0, 3)), max_size=12)


@settings(max_examples=examples(200), deadline=None)
@given(STEPS, st.integers(-1, 12), st.just(NEVER) | TIMES, st.data())
def test_what_is_found_is_what_a_walk_over_all_files_finds_also_in_older_manifests(steps, since, after, data):
    known, made = [({}, ResultFiles())], 0
    for step, (facts, kind) in enumerate(steps):
        plain, files = data.draw(st.sampled_from(known)) if kind == 3 else known[-1]  # 3: a step that is done again
        added = [file_of(f"{step}-{n}-{kind}", step, *fact) for n, fact in enumerate(facts)]
        removed = list(plain)[:2] if kind == 2 else []  # 2: upkeep, which also adds files with older rows
        if removed:
            added.append(file_of(f"merged-{step}", max(plain[name].step for name in removed), 0, QUERIES))
        made += len(added)
        plain = {name: file for name, file in plain.items() if name not in removed} | {f.name: f for f in added}
        known.append((plain, files.changed(added, removed)))
    for plain, files in known:
        assert dict(files) == plain
        assert list(files.values()) == list(plain.values())
        assert files.since(since) == [f for f in plain.values() if f.step > since]
        assert "of another manifest" not in files
        for query in QUERIES:
            own = [f for f in plain.values() if f.count(query)]
            assert files.of(query, since=since) == [f for f in own if f.step > since]
            wanted = [f for f in own if f.step > since and (after == NEVER or f.max_time > after)]
            assert files.of(query, since=since, after=after) == wanted
            assert files.panes_until(query) == max((f.panes_until for f in own), default=NEVER)


class Counted(list):
    """Counts the files that are looked at."""

    looked = 0

    def __getitem__(self, place):
        found = super().__getitem__(place)
        self.looked += len(found) if isinstance(place, slice) else 1
        return found


def test_what_a_step_asks_does_not_look_at_the_files_of_older_steps():
    files = ResultFiles()
    for step in range(1000):
        files = files.changed([file_of(f"f{step}", step, step, (step % 2,))])
    shared = files._files
    shared.all = counted = Counted(shared.all)
    later = files.changed([file_of("f1000", 1000, 1000, (0,))])
    assert later._files is shared
    assert [f.step for f in later.since(998)] == [999, 1000]
    assert [f.step for f in later.of(0, since=998)] == [1000]
    assert [f.step for f in later.of(1, after=996)] == [997, 999]
    assert later.panes_until(1) == NEVER
    assert counted.looked <= 5
    assert len(files) == 1000
    assert len(later) == 1001
