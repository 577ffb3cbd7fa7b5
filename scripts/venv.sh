#!/bin/sh
# Creates a virtual environment with a Python that is new enough, or says what to do about it.
# A usable environment is left as it is. Usage: scripts/venv.sh PYTHON FOLDER
set -eu

python=$1
folder=$2

fail() {
    printf '%s\n' "$@" >&2
    exit 1
}

if [ -x "$folder/bin/python" ] && "$folder/bin/python" -m pip --version >/dev/null 2>&1; then
    python="$folder/bin/python"
fi

command -v "$python" >/dev/null 2>&1 || fail \
    "No '$python' here. Penstock needs Python 3.11 or newer: install it," \
    "or name the one you have: make setup PYTHON=/path/to/python3.12"

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || fail \
    "Penstock needs Python 3.11 or newer; '$python' is $("$python" --version 2>&1)." \
    "Name a newer one: make setup PYTHON=python3.12 (and VENV=another-folder if $folder exists already)"

[ "$python" = "$folder/bin/python" ] && exit 0

# Debian and Ubuntu keep the module that puts pip into a virtual environment in a package of its own.
if ! "$python" -c 'import ensurepip' 2>/dev/null; then
    package="python$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-venv"
    if [ "$(id -u)" = 0 ]; then
        root=''
    else
        root='sudo -n'
    fi
    if command -v apt-get >/dev/null 2>&1 && { [ -z "$root" ] || sudo -n true 2>/dev/null; }; then
        echo "Installing $package (Python's venv module lacks pip here) ..." >&2
        { $root apt-get update -qq && $root apt-get install -y -qq "$package"; } >&2 || true
    fi
    "$python" -c 'import ensurepip' 2>/dev/null || fail \
        "'$python' cannot create virtual environments: its module ensurepip is missing." \
        "On Debian or Ubuntu: sudo apt-get update && sudo apt-get install -y $package" \
        "Elsewhere install a complete Python and name it: make setup PYTHON=/path/to/python3"
fi

echo "Creating $folder with $("$python" --version) ..." >&2
if [ -f "$folder/pyvenv.cfg" ] && ! "$folder/bin/python" -c '' 2>/dev/null; then
    "$python" -m venv --clear "$folder" # its Python is gone: nothing in it can run
else
    "$python" -m venv "$folder"
fi
