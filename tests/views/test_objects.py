"""Views whose rows are in an object store."""

import pytest

from penstock.errors import RegistrationError
from penstock.storage.cache import Cache
from penstock.storage.object import ObjectStore
from penstock.storage.objects import Objects
from tests.views.test_catalog import ALL, PAIRS, catalog, rows
from tests.views.test_parquet import write

memory = pytest.importorskip("obstore.store", reason="pip install 'penstock[object]'").MemoryStore


@pytest.mark.parametrize("cached", [False, True])
def test_a_view_is_computed_updated_reopened_and_dropped(tmp_path, cached):
    store = ObjectStore(Objects("memory:", client=memory()), Cache(str(tmp_path / "cache")) if cached else None)
    made = catalog(tmp_path, store)
    write(tmp_path / "lines" / "a.parquet", [(1, "a"), (1, "b"), (2, "c")])
    made.add_view(PAIRS, "pairs").refresh()
    made.add_view(ALL, "all").refresh()
    assert len(rows(made.view("pairs"))) == 5
    for number in range(6):  # so many that files are merged, and old ones deleted
        write(tmp_path / "lines" / f"b{number}.parquet", [(number, "d")])
        made.view("pairs").refresh()
    wanted = [rows(made.view("pairs"))]
    made.close()
    again = catalog(tmp_path, store)
    again.add_view(PAIRS, "pairs").refresh()
    assert [rows(again.view("pairs"))] == wanted
    again.view("pairs").refresh(full=True)
    assert [rows(again.view("pairs"))] == wanted
    for name in ("pairs", "all"):
        again.drop_view(name, missing=True)
    assert store.names("views") == []
    again.close()


def test_what_only_spark_could_do_there_is_refused(tmp_path):
    made = catalog(tmp_path, ObjectStore(Objects("memory:", client=memory())))
    with pytest.raises(RegistrationError, match=r"view 'v' .* memory: is no folder; leave out computed='spark'"):
        made.add_view(ALL, "v", computed="spark")
    made.close()
