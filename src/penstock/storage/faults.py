"""Messages about unusable files of a state directory: which one, why, and the remedy."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.errors import StateError

RESTORE = "restore it from a backup, or remove the state directory and replay the sources"
_WRITABLE = "let the state directory be writable for this program"
_REMEDIES = {
    errno.ENOSPC: "make room there",
    errno.EDQUOT: "make room there",
    errno.EROFS: _WRITABLE,
    errno.EACCES: _WRITABLE,
    errno.EPERM: _WRITABLE,
    errno.ENOTDIR: "a state directory and all that it is made of are folders: choose another one, or move the file "
    "away",
    errno.EEXIST: "a state directory and all that it is made of are folders: choose another one, or move the file away",
    errno.EISDIR: "there has to be a file: move the folder away, and restore the file from a backup if it was there",
    errno.ENOENT: RESTORE,
    errno.EIO: "the disk is damaged: restore the state directory on another one from a backup",
    errno.EMFILE: "allow more open files (ulimit -n)",
    errno.ENFILE: "allow more open files (ulimit -n)",
}


def damaged(path: str, why: str, *, kind: str = "") -> StateError:
    """The error for a file whose content is not what was written."""
    return StateError(f"{kind}{' ' if kind else ''}{path} is damaged ({why}); {RESTORE}")


def file_fault(error: OSError) -> str:
    """The system's error about a file of the state directory, with the remedy."""
    remedy = _REMEDIES.get(error.errno or 0, "see to that place, which belongs to the state directory")
    if error.filename and error.errno:
        return f"{error.filename!s} cannot be used: {os.strerror(error.errno).lower()}; {remedy}"
    return f"a file of the state directory cannot be used: {' '.join(str(error).split())}; {remedy}"


def plainly(error: BaseException) -> BaseException:
    """An error of the file system in words; others unchanged, including those of a connection."""
    if isinstance(error, OSError) and error.errno is not None and not isinstance(error, ConnectionError | TimeoutError):
        return StateError(file_fault(error))
    return error


@contextmanager
def told_plainly() -> Iterator[None]:
    """All files used inside belong to a state directory: the system's errors are reported with the remedy."""
    try:
        yield
    except OSError as error:
        told = plainly(error)
        if told is error:
            raise
        raise told from None
