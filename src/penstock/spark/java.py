"""Finds a Java that Spark runs on, installs one with the system's package manager, or says exactly what to do.

`python -m penstock.spark.java [--install]` prints the home of that Java. It does not start or import Spark, and
downloads nothing itself.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import PenstockError

OLDEST = 17
PREFERRED = (17, 21)  # the releases with which Spark itself is tested most

_PROJECT = Path(__file__).resolve().parents[3]

# Where systems and tools put Java homes; `*` is one folder.
PLACES = (
    *([f"{_PROJECT}/.java", f"{_PROJECT}/.java/*"] if (_PROJECT / "pyproject.toml").exists() else []),
    "/usr/lib/jvm/*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "~/.sdkman/candidates/java/*",
    "/opt/homebrew/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
    "/usr/local/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
    "/home/linuxbrew/.linuxbrew/opt/openjdk*/libexec",
)
MAC_CHOOSER = Path("/usr/libexec/java_home")


@dataclass(frozen=True)
class Java:
    executable: Path
    home: Path
    version: int  # the feature release: 8, 11, 17, 21


@dataclass(frozen=True)
class Manager:
    """A system's package manager; the packages in the order of preference."""

    name: str
    packages: tuple[str, ...]
    install: tuple[str, ...]
    update: tuple[str, ...] = ()
    knows: tuple[str, ...] = ()  # a command that fails for a package that the system does not have
    as_root: bool = True


MANAGERS = (
    Manager(
        "apt-get",
        ("openjdk-17-jre-headless", "openjdk-21-jre-headless", "default-jre-headless"),
        install=("apt-get", "install", "-y", "--no-install-recommends"),
        update=("apt-get", "update"),
        knows=("apt-cache", "show"),
    ),
    Manager(
        "dnf",
        ("java-17-openjdk-headless", "java-21-openjdk-headless", "java-latest-openjdk-headless"),
        install=("dnf", "install", "-y"),
        knows=("dnf", "-q", "info"),
    ),
    Manager("apk", ("openjdk17-jre-headless", "openjdk21-jre-headless"), install=("apk", "add", "--no-cache")),
    Manager("brew", ("openjdk@17", "openjdk@21"), install=("brew", "install"), as_root=False),
)


def parse_version(text: str) -> int | None:
    """The feature release in what `java -version` prints: 8 for "1.8.0_392", 21 for "21-ea"; None if there is none."""
    found = re.search(r'\bversion "(\d+)(?:\.(\d+))?', text)
    if found is None:
        return None
    major = int(found[1])
    return int(found[2]) if major == 1 and found[2] else major


def parse_home(text: str) -> Path | None:
    """The java.home in what `java -XshowSettings:properties` prints, which a link or a wrapper cannot hide."""
    found = re.search(r"^\s*java\.home = (.+?)\s*$", text, re.MULTILINE)
    return Path(found[1]) if found else None


def choose(javas: Sequence[Java]) -> Java | None:
    """The first of a preferred release, else the first that is new enough."""
    able = [java for java in javas if java.version >= OLDEST]
    return next((java for java in able if java.version in PREFERRED), able[0] if able else None)


def find_java() -> Path | None:
    """The home of a Java that Spark runs on: the user's JAVA_HOME if suitable, else the best in the usual places."""
    java = _find()
    return java.home if java else None


def install_java() -> Path | None:
    """Installs Java if no password is needed, reporting on stderr; returns the new home, or None."""
    manager = _manager()
    if manager is None:
        return None
    prefix = _rights(manager)
    if prefix is None:
        _say(f"Java is missing, and {manager.name} may not be used without a password.")
        return None
    _say(f"Java is missing; installing it with {manager.name} ...")
    if manager.update:
        _show((*prefix, *manager.update))  # its failure does not matter: the lists may exist already
    for package in _known(manager):
        if _show((*prefix, *manager.install, package)) and (home := find_java()):
            _say(f"Java is installed in {home}")
            return home
    return None


def ensure_java(install: bool = False) -> Path:
    """The home of a suitable Java; sets JAVA_HOME if Spark would otherwise start another one, or none."""
    java = _find()
    if java is None and install and install_java():
        java = _find()
    if java is None:
        raise PenstockError(_missing())
    if _in_use() != java.executable:
        os.environ["JAVA_HOME"] = str(java.home)
    return java.home


def advice(manager: Manager | None, package: str, unfit: Sequence[str]) -> str:
    """The message without a Java: what was found, and the commands to install one."""
    lines = [f"Spark needs Java {OLDEST} or newer, and there is none here."]
    lines += [f"  not usable: {line}" for line in unfit]
    if manager is not None:
        sudo = "sudo " if manager.as_root else ""
        commands = [manager.update] if manager.update else []
        commands.append((*manager.install, package))
        lines += ["Install it, and run the same command again:"]
        lines += ["  " + " && ".join(sudo + " ".join(command) for command in commands)]
        lines += ["Or, without such rights, unpack a Java 17 or 21 (https://adoptium.net) anywhere, and name it:"]
    else:
        lines += ["Unpack a Java 17 or 21 (https://adoptium.net) anywhere, name it, and run the same command again:"]
    lines += ["  export JAVA_HOME=/path/to/the/unpacked/folder"]
    return "\n".join(lines)


def _find() -> Java | None:
    seen: list[Java] = []
    asked_for = os.environ.get("JAVA_HOME")
    for executable in _candidates():
        java = _probe(executable)
        if java is None:
            continue
        # The user's own choice precedes our preference.
        if java.version >= OLDEST and asked_for and executable == _executable(Path(asked_for)):
            return java
        if java.version in PREFERRED:
            return java  # no need to start the others
        seen.append(java)
    return choose(seen)


def _candidates() -> Iterator[Path]:
    """Executables to try, each once, in the order of preference."""
    tried: set[Path] = set()
    for executable in _sources():
        if executable.is_file() and executable.resolve() not in tried:
            tried.add(executable.resolve())
            yield executable


def _sources() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield _executable(Path(home))
    if on_path := shutil.which("java"):
        yield Path(on_path)
    if MAC_CHOOSER.exists():
        done = _output((str(MAC_CHOOSER), "-v", f"{OLDEST}+"))
        if done:
            yield _executable(Path(done.strip().splitlines()[-1]))
    for place in PLACES:
        root = Path(place).expanduser()
        yield from sorted(_executable(home) for home in Path(root.anchor).glob(str(root.relative_to(root.anchor))))


def _in_use() -> Path | None:
    """The executable that Spark's launcher would start now."""
    if home := os.environ.get("JAVA_HOME"):
        return _executable(Path(home))
    on_path = shutil.which("java")
    return Path(on_path) if on_path else None


def _executable(home: Path) -> Path:
    return home / "bin" / "java"


def _probe(executable: Path) -> Java | None:
    text = _output((str(executable), "-XshowSettings:properties", "-version"))
    version = parse_version(text or "")
    if text is None or version is None:
        return None
    told = parse_home(text)
    home = told if told and _executable(told).is_file() else executable.resolve().parent.parent
    return Java(executable, home, version)


def _manager() -> Manager | None:
    return next((manager for manager in MANAGERS if shutil.which(manager.name)), None)


def _known(manager: Manager) -> list[str]:
    """The packages that this system has, as far as it can tell."""
    if not manager.knows:
        return list(manager.packages)
    return [package for package in manager.packages if _output((*manager.knows, package)) is not None]


def _rights(manager: Manager) -> tuple[str, ...] | None:
    """What to put before the manager's commands: nothing, or sudo; None where neither is allowed."""
    root = os.geteuid() == 0
    if not manager.as_root:
        return None if root else ()
    if root:
        return ()
    return ("sudo", "-n") if _output(("sudo", "-n", "true")) is not None else None


def _missing() -> str:
    manager = _manager()
    known = _known(manager) if manager else []
    package = known[0] if known else manager.packages[-1] if manager else ""
    unfit = []
    for executable in _candidates():
        java = _probe(executable)
        unfit.append(f"{executable} ({f'Java {java.version}' if java else 'does not run'})")
    return advice(manager, package, unfit)


def _output(command: Sequence[str]) -> str | None:
    """The output of a command; None if it fails, hangs or does not exist."""
    try:
        done = subprocess.run(  # noqa: S603  (the commands are this module's own)
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=60,
            check=False,
            text=True,
            errors="replace",
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _show(command: Sequence[str]) -> bool:
    """Run a command visibly; stdout stays free for the answer."""
    _say("+ " + " ".join(command))
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(  # noqa: S603  (the commands are this module's own)
            command, stdin=subprocess.DEVNULL, stdout=sys.stderr, env=environment, check=False
        )
    except OSError as error:
        _say(str(error))
        return False
    return done.returncode == 0


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m penstock.spark.java", description="Find a Java for Spark.")
    parser.add_argument("--install", action="store_true", help="install one if there is none")
    try:
        home = ensure_java(install=parser.parse_args(arguments).install)
    except PenstockError as error:
        _say(str(error))
        return 1
    sys.stdout.write(f"{home}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
