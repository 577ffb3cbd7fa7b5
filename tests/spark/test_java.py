"""Java is found, judged, installed or asked for, without a JVM: the Javas here are small shell scripts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.errors import PenstockError
from penstock.spark import java


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('java version "1.8.0_392"\nJava(TM) SE Runtime Environment (build 1.8.0_392-b08)', 8),
        ('openjdk version "11.0.21" 2023-10-17', 11),
        ('openjdk version "17" 2021-09-14', 17),
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment (build 17.0.15+6-Debian-1deb12u1)', 17),
        ('java version "21.0.2" 2024-01-16 LTS', 21),
        ('openjdk version "21-ea" 2023-09-19', 21),
        ('openjdk version "26-internal" 2026-03-17', 26),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "17.0.9" 2023-10-17', 17),
        ("    java.version = 17.0.9\n    java.vm.version = 17.0.9+9\n", None),
        ("The operation couldn't be completed. Unable to locate a Java Runtime.", None),
        ("", None),
    ],
)
def test_a_version_is_read_from_what_java_prints(text, version):
    assert java.parse_version(text) == version


def test_the_home_is_read_from_the_settings():
    text = 'Property settings:\n    java.home = /opt/some java/17\n    java.version = 17\nopenjdk version "17"\n'
    assert java.parse_home(text) == Path("/opt/some java/17")
    assert java.parse_home('openjdk version "17"') is None


@pytest.mark.parametrize(
    ("versions", "chosen"),
    [([8, 25, 21, 17], 21), ([11, 23, 25], 23), ([8, 11], None), ([], None)],
)
def test_a_preferred_release_comes_before_a_newer_one(versions, chosen):
    best = java.choose([java.Java(Path(f"/{v}/bin/java"), Path(f"/{v}"), v) for v in versions])
    assert (best and best.version) == chosen


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine without Java or package manager; returns what puts a Java of some version somewhere."""
    (tmp_path / "path").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(java, "PLACES", (f"{tmp_path}/jvm/*",))
    monkeypatch.setattr(java, "MAC_CHOOSER", tmp_path / "no-chooser")
    return Machine(tmp_path)


class Machine:
    def __init__(self, root: Path) -> None:
        self.root = root

    def java(self, place: str, version: str, *, says_home: bool = False) -> Path:
        home = self.root / place
        settings = f"echo '    java.home = {home}' >&2\n" if says_home else ""
        self.script(f"{place}/bin/java", f"{settings}echo 'openjdk version \"{version}\" 2025-01-01' >&2\n")
        return home

    def script(self, name: str, body: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{body}")
        path.chmod(0o755)
        return path

    def on_path(self, home: Path) -> None:
        (self.root / "path" / "java").symlink_to(home / "bin" / "java")


def test_nothing_is_found_where_nothing_is(machine):
    assert java.find_java() is None


def test_java_home_comes_before_the_path_and_the_usual_places(machine, monkeypatch):
    asked_for = machine.java("mine", "25")
    machine.on_path(machine.java("other", "17.0.1"))
    machine.java("jvm/17", "17.0.2")
    monkeypatch.setenv("JAVA_HOME", str(asked_for))
    assert java.find_java() == asked_for


def test_the_path_comes_before_the_usual_places_and_its_links_are_followed(machine):
    home = machine.java("other", "21.0.1")
    machine.on_path(home)
    machine.java("jvm/17", "17.0.2")
    assert java.find_java() == home


def test_a_wrapper_on_the_path_leads_to_the_home_it_tells(machine):
    home = machine.java("real", "17", says_home=True)
    machine.script("path/java", f'exec {home}/bin/java "$@"\n')
    assert java.find_java() == home


def test_a_java_too_old_or_too_new_gives_way_to_a_preferred_one(machine, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(machine.java("old", "1.8.0_392")))
    machine.on_path(machine.java("new", "25"))
    machine.java("jvm/java-11", "11.0.2")
    preferred = machine.java("jvm/java-21", "21-ea")
    assert java.find_java() == preferred


def test_a_newer_java_is_taken_where_no_preferred_one_is(machine):
    newer = machine.java("jvm/java-25", "25.0.1")
    assert java.find_java() == newer


@pytest.mark.parametrize("body", ["exit 1\n", "echo hello\n", "echo 'version \"17\"'; exit 3\n"])
def test_a_broken_java_is_passed_over(machine, monkeypatch, body):
    machine.script("broken/bin/java", body)
    monkeypatch.setenv("JAVA_HOME", str(machine.root / "broken"))
    home = machine.java("jvm/17", "17")
    assert java.find_java() == home


def test_a_file_that_cannot_be_executed_is_passed_over(machine):
    machine.script("jvm/17/bin/java", "").chmod(0o644)
    assert java.find_java() is None


def test_the_environment_stays_as_it_is_where_spark_would_find_the_same_java(machine):
    home = machine.java("other", "17")
    machine.on_path(home)
    assert java.ensure_java() == home
    assert "JAVA_HOME" not in os.environ


@pytest.mark.parametrize("asked_for", [None, "nowhere", "old"])
def test_java_home_is_set_where_spark_would_start_a_wrong_one(machine, monkeypatch, asked_for):
    old = machine.java("old", "11.0.1")
    machine.on_path(old)
    if asked_for:
        monkeypatch.setenv("JAVA_HOME", str(machine.root / asked_for))
    else:  # so that what ensure_java sets is undone
        monkeypatch.setenv("JAVA_HOME", "")
    home = machine.java("jvm/17", "17")
    assert java.ensure_java() == home
    assert os.environ["JAVA_HOME"] == str(home)


def test_without_a_package_manager_the_message_tells_what_to_unpack_and_to_export(machine):
    machine.java("jvm/8", "1.8.0_392")
    machine.script("jvm/9/bin/java", "exit 1\n")
    with pytest.raises(PenstockError) as error:
        java.ensure_java(install=True)
    assert str(error.value).splitlines() == [
        "Spark needs Java 17 or newer, and there is none here.",
        f"  not usable: {machine.root}/jvm/8/bin/java (Java 8)",
        f"  not usable: {machine.root}/jvm/9/bin/java (does not run)",
        "Unpack a Java 17 or 21 (https://adoptium.net) anywhere, name it, and run the same command again:",
        "  export JAVA_HOME=/path/to/the/unpacked/folder",
    ]


@pytest.mark.parametrize(
    ("manager", "command"),
    [
        ("apt-get", "  sudo apt-get update && sudo apt-get install -y --no-install-recommends default-jre-headless"),
        ("dnf", "  sudo dnf install -y java-latest-openjdk-headless"),
        ("apk", "  sudo apk add --no-cache openjdk17-jre-headless"),
        ("brew", "  brew install openjdk@17"),
    ],
)
def test_with_a_package_manager_the_message_is_its_command(machine, manager, command):
    machine.script(f"path/{manager}", "exit 1\n")
    with pytest.raises(PenstockError) as error:
        java.ensure_java(install=False)
    assert command in str(error.value).splitlines()


@pytest.fixture
def apt(machine, monkeypatch):
    """A Debian that knows Java 21 only, for root; what apt-get is called with goes to a file."""
    monkeypatch.setattr(java.os, "geteuid", lambda: 0)
    machine.java("package", "21.0.4")
    machine.script("path/apt-cache", 'test "$2" = openjdk-21-jre-headless\n')
    machine.script(
        "path/apt-get",
        f'echo "$@" >>{machine.root}/calls; echo working\n'
        f'test "$1" = update || {{ /bin/mkdir {machine.root}/jvm; /bin/mv {machine.root}/package '
        f"{machine.root}/jvm/21; }}\n",
    )
    return machine


def test_root_installs_the_first_package_that_apt_knows(apt, capfd, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", "")
    assert java.main(["--install"]) == 0
    out, progress = capfd.readouterr()
    assert out == f"{apt.root}/jvm/21\n"
    assert (apt.root / "calls").read_text().splitlines() == [
        "update",
        "install -y --no-install-recommends openjdk-21-jre-headless",
    ]
    assert "installing it with apt-get" in progress
    assert "working" in progress


def test_nothing_is_installed_unless_asked_for(apt, capfd):
    assert java.main([]) == 1
    assert not (apt.root / "calls").exists()
    assert "sudo apt-get install -y --no-install-recommends openjdk-21-jre-headless" in capfd.readouterr().err


@pytest.mark.parametrize(("sudo", "installed"), [("exit 1\n", False), ('shift\nexec "$@"\n', True)])
def test_others_install_only_if_sudo_asks_no_password(apt, monkeypatch, sudo, installed):
    monkeypatch.setattr(java.os, "geteuid", lambda: 1000)
    apt.script("path/sudo", sudo)
    apt.script("path/true", "")
    assert (java.install_java() is not None) == installed
    assert (apt.root / "calls").exists() == installed


def test_brew_is_not_run_as_root(machine, monkeypatch):
    machine.script("path/brew", f"touch {machine.root}/calls\n")
    monkeypatch.setattr(java.os, "geteuid", lambda: 0)
    assert java.install_java() is None
    assert not (machine.root / "calls").exists()
