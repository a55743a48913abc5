#!/usr/bin/env bash
# Writes requirements/<group>.txt: the newest versions of a group's packages that work together, each with the hashes
# of its files on PyPI. Arguments: a Python that has pip-tools, and groups of pyproject.toml.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
python=$1
mkdir -p requirements
for group in "${@:2}"; do
  file=requirements/$group.txt
  input=$(mktemp --suffix=.in)
  "$python" tools/release/requirements.py "$group" >"$input"
  "$python" -m piptools compile --quiet --generate-hashes --allow-unsafe --strip-extras --no-annotate --no-header \
    --no-emit-find-links --no-emit-index-url --output-file "$file.new" "$input"
  {
    echo "# The group $group of pyproject.toml for $("$python" -c 'import sys; print("Python %d.%d" % sys.version_info[:2])'), written by ./dev lock."
    cat "$file.new"
  } >"$file"
  rm "$input" "$file.new"
done
