"""Folders as sinks: whose they are."""

import pytest

from penstock.errors import StateError
from penstock.results.folder import claim


def test_a_folder_with_results_of_another_state_directory_is_left_alone(tmp_path):
    claim(str(tmp_path / "new" / "folder"), "one")
    claim(str(tmp_path / "new" / "folder"), "one")
    with pytest.raises(StateError, match="another state directory"):
        claim(str(tmp_path / "new" / "folder"), "two")
