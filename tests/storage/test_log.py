from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import StateError
from penstock.storage.log import Log
from penstock.storage.memory import MemoryStore


@dataclass(frozen=True)
class Record:
    number: int
    text: str


def opened(store, prefix=""):
    return Log(store, "log", "number", lambda record: dict(record.__dict__), lambda body: Record(**body), 4, prefix)


@given(st.lists(st.tuples(st.integers(0, 12), st.text(max_size=5), st.booleans()), max_size=30))
def test_it_is_a_map_from_numbers_to_what_was_put_first(acts):
    store, model = MemoryStore(), {}
    log, beside = opened(store), opened(store, "snapshot-")
    beside.put(Record(99, "of another log"))
    for number, text, deletes in acts:
        if deletes:
            log.delete(number)
            model.pop(number, None)
        else:
            size = log.put(Record(number, text))
            assert size == (store.size(log.name(number)) if number not in model else 0)
            model.setdefault(number, Record(number, text))
        assert log.numbers() == sorted(model)
        assert log.newest() == (model[max(model)] if model else None)
    assert {n: opened(store).read(n) for n in model} == model
    assert beside.numbers() == [99]


def test_names_say_the_number_and_whatever_else_lies_there_is_passed_over():
    log = opened(MemoryStore())
    log.put(Record(7, "x"))
    log.put(Record(123456, "y"))
    for name in ("notes.txt", "8.json", "0009.json.tmp", "0009 copy.json"):
        log.store.write(f"log/{name}", b"")
    assert log.numbers() == [7, 123456]
    assert (log.name(7), log.label(7)) == ("log/0007.json", "memory:/log/0007.json")


def test_a_record_that_is_given_up_while_it_is_looked_for_has_a_later_one():
    class Moving(MemoryStore):
        def names(self, folder):
            found = super().names(folder)
            if not self.exists("log/0002.json"):
                log.put(Record(2, "later"))
                log.delete(1)
            return found

    log = opened(Moving())
    log.put(Record(1, "first"))
    assert log.newest() == Record(2, "later")


def test_what_is_damaged_copied_or_missing_is_told_apart():
    log = opened(MemoryStore())
    log.put(Record(1, "one"))
    log.store.write("log/0002.json", log.store.read("log/0001.json"))
    log.store.write("log/0003.json", log.store.read("log/0001.json").replace(b"one", b"two"))
    with pytest.raises(StateError, match=r"0002\.json is not what its name says \(it holds number 1\)"):
        log.read(2)
    with pytest.raises(StateError, match=r"0003\.json is damaged"):
        log.newest()
    with pytest.raises(FileNotFoundError):
        log.read(4)
