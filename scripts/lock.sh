#!/bin/sh
# Writes requirements.lock: the exact versions that a fresh virtual environment gets for the package
# and its dev and bench groups. Run it with the oldest supported Python, so that the versions suit the newer ones too.
# Usage: scripts/lock.sh PYTHON
set -eu

cd "$(dirname "$0")/.."
folder=$(mktemp -d "${TMPDIR:-/tmp}/penstock-lock.XXXXXX")
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' HUP INT TERM

sh scripts/venv.sh "$1" "$folder/venv"
pip="$folder/venv/bin/python -m pip --disable-pip-version-check"
$pip install --quiet --upgrade 'pip>=25.1' # the first that knows --group
$pip install --quiet . --group dev --group bench
$pip freeze --exclude penstock >"$folder/frozen"

# Anything but name==version is bound to this machine.
if grep -v '^[A-Za-z0-9._-]*==[A-Za-z0-9._+!-]*$' "$folder/frozen" >&2; then
    echo "lock: the lines above are not name==version; requirements.lock is left as it was" >&2
    exit 1
fi
{
    echo "# Written by \`make lock\` from pyproject.toml; do not edit."
    LC_ALL=C sort -f "$folder/frozen"
} >requirements.lock.new
mv requirements.lock.new requirements.lock
echo "requirements.lock: $(grep -c == requirements.lock) packages"
