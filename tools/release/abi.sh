#!/usr/bin/env bash
# Compares the binary interfaces of the shared libraries with those of another revision, using abidiff. Argument: the
# revision; default: the last release tag. Revisions with the same SONAME are compatible: those of one minor version
# before 1.0, of one major version after it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
revision=${1:-$(git describe --tags --abbrev=0 --match 'v[0-9]*' 2>/dev/null || true)}
if [ -z "$revision" ]; then
  echo "there is no release tag (v<version>) to compare with; pass a revision: ./dev abi <revision>"
  exit 2
fi
work=$(mktemp -d)
cleanup() { git worktree remove --force "$work/before" 2>/dev/null || true; rm -rf "$work"; }
trap cleanup EXIT
git worktree add --quiet --detach "$work/before" "$revision"

build() {  # source, prefix: the shared libraries with debug information, from which abidiff reads the types
  cmake -S "$1" -B "$2.build" -DCMAKE_BUILD_TYPE=None -DCMAKE_CXX_FLAGS="-g -gdwarf-4 -O0" -DTURNOUT_MOST_ISA=sse4 \
    -DTURNOUT_BUILD_TESTS=OFF -DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DTURNOUT_WERROR=OFF \
    -DTURNOUT_BUILD_BENCH=OFF --no-warn-unused-cli >/dev/null  # older revisions have it
  cmake --build "$2.build" -j"$(nproc)" --target turnout mluop aclnn >"$2.log" || { cat "$2.log"; exit 1; }
}
build "$work/before" "$work/old"
build . "$work/new"

status=0
for library in turnout turnout_mluop turnout_aclnn; do
  old=$(readlink -f "$work/old.build/lib$library.so") new=$(readlink -f "$work/new.build/lib$library.so")
  echo "== lib$library.so: $revision and this tree"
  # Bits of abidiff's status: 4, the interfaces differ; 8, in a way that breaks programs.
  result=0
  abidiff --headers-dir1 "$work/before/include" --headers-dir2 include --drop-private-types "$old" "$new" || result=$?
  if [ $((result & 3)) -ne 0 ]; then exit 1; fi
  if [ "$result" = 0 ]; then echo "the same"; fi
  if [ $((result & 8)) -ne 0 ] &&
    [ "$(readelf -d "$old" | grep SONAME)" = "$(readelf -d "$new" | grep SONAME)" ]; then
    echo "lib$library.so breaks programs that were linked with $revision, but has the same SONAME"
    status=1
  fi
done
exit $status
