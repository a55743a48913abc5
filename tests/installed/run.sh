#!/usr/bin/env bash
# Installs the library by the README's own commands, into an empty folder that is then moved. Builds a C++ and a
# C99 program against that copy, through CMake and through pkg-config, shared and static, and runs them, as well as
# the programs of the documentation; then checks the symbols that the libraries export. Argument: the source tree.
set -euo pipefail
source=$1
here=$source/tests/installed
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "$*"; exit 1; }
passed=0
run() { LD_LIBRARY_PATH=${libdir:-} "$1"; passed=$((passed + 1)); }

commands=$(grep -E '^cmake .*--prefix /opt/turnout$' "$source/README.md") || fail "README.md has no cmake command with --prefix /opt/turnout"
(cd "$source" && eval "${commands//\/opt\/turnout/$work/first}") >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
mv "$work/first" "$work/prefix"

cmake -S "$here" -B "$work/client" -G Ninja -DCMAKE_PREFIX_PATH="$work/prefix" >/dev/null
cmake --build "$work/client" -- --quiet
for program in client_cpp client_cpp_static client_c client_c_static client_aclnn client_aclnn_static; do
  run "$work/client/$program"
done

for door in cpp c; do
  cmake -S "$source/examples/$door" -B "$work/examples_$door" -G Ninja -DCMAKE_PREFIX_PATH="$work/prefix" \
    -DCMAKE_C_FLAGS="-Wall -Wextra -Werror -pedantic-errors" -DCMAKE_CXX_FLAGS="-Wall -Wextra -Wconversion -Werror" >/dev/null
  cmake --build "$work/examples_$door" -- --quiet
  for source_file in "$source/examples/$door"/*.c*; do
    program=$(basename "${source_file%.*}")
    run "$work/examples_$door/$program" >/dev/null || fail "examples/$door/$program failed"
  done
done

PKG_CONFIG_PATH=$(dirname "$(find "$work/prefix" -name turnout.pc)")
export PKG_CONFIG_PATH
libdir=$(dirname "$PKG_CONFIG_PATH")
cpp() { g++ -std=c++20 -Wall -Wextra -Werror "$here/client.cc" "$@"; }
c() { gcc -std=c99 -pedantic-errors -Wall -Wextra -Werror "$here/client.c" "$@"; }
cpp $(pkg-config --cflags --libs turnout) -o "$work/cpp"
c $(pkg-config --cflags --libs turnout-mluop) -o "$work/c"
aclnn() { gcc -std=c99 -pedantic-errors -Wall -Wextra -Werror "$source/tests/aclnn_client.c" "$@"; }
aclnn $(pkg-config --cflags --libs turnout-aclnn) -o "$work/aclnn"
aclnn -static $(pkg-config --static --cflags --libs turnout-aclnn) -o "$work/aclnn_static"
cpp -static $(pkg-config --static --cflags --libs turnout) -o "$work/cpp_static"
c -static $(pkg-config --static --cflags --libs turnout-mluop) -o "$work/c_static"
# Only the headers, as users of the static library see them. (CMake makes them system headers, without warnings.)
cpp -DTURNOUT_STATIC -fsyntax-only $(pkg-config --cflags turnout)
passed=$((passed + 1))
for program in cpp c cpp_static c_static aclnn aclnn_static; do
  run "$work/$program"
done

# The programs in the pages of the documentation.
python3 "$source/tools/docs/snippets.py" "$work/snippets"
for file in "$work"/snippets/*.cc; do
  g++ -std=c++20 -Wall -Wextra -Werror "$file" $(pkg-config --cflags --libs turnout) -o "${file%.cc}"
  run "${file%.cc}"
done
for file in "$work"/snippets/*.c; do
  gcc -std=c99 -pedantic-errors -Wall -Wextra -Werror "$file" $(pkg-config --cflags --libs turnout-mluop) -o "${file%.c}"
  run "${file%.c}"
done

# The symbols that a file defines and exports.
exports() { nm -DC --defined-only "$1" | cut -d' ' -f3-; }
expect_none() { [ -z "$2" ] || fail "$1: $2"; passed=$((passed + 1)); }
expect_none "libturnout_mluop.so exports more than the C interface" \
  "$(exports "$libdir/libturnout_mluop.so" | grep -vE '^(mluOp|mluop|turnoutLastError)' || true)"
expect_none "libturnout_aclnn.so exports more than the C interface" \
  "$(exports "$libdir/libturnout_aclnn.so" | grep -vE '^(acl(Create|Destroy)Tensor|aclDestroyAclOpExecutor|aclGetRecentErrMsg|aclnn)' || true)"
expect_none "libturnout.so exports internal symbols" \
  "$(exports "$libdir/libturnout.so" | grep -E '::State\b|turnout::(core|doors|families)::' || true)"
g++ -shared -o "$work/plugin.so" -Wl,--whole-archive "$libdir/libturnout_mluop.a" "$libdir/libturnout_aclnn.a" \
  "$libdir/libturnout.a" \
  -Wl,--no-whole-archive -pthread
expect_none "a shared library that links the static ones re-exports them" \
  "$(exports "$work/plugin.so" | grep -iE 'turnout|mluop|acl' || true)"

# The SONAME has the major version, or, before 1.0, the major and minor version.
version=$(sed -n 's/.*TURNOUT_VERSION "\([0-9]*\)\.\([0-9]*\).*/\1.\2/p' "$source/include/turnout/version.h")
soversion=${version%.*}
[ "$soversion" != 0 ] || soversion=$version
for library in turnout turnout_mluop turnout_aclnn; do
  soname=$(readelf -d "$libdir/lib$library.so" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')
  [ "$soname" = "lib$library.so.$soversion" ] || fail "lib$library.so has the SONAME $soname"
  passed=$((passed + 1))
done
echo "$passed passed, 0 failed"
