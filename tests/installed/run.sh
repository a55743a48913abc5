#!/usr/bin/env bash
# Installs the library with the README's own commands into an empty folder, which is then moved. Builds a C++ and a
# C99 program against that copy, through CMake and pkg-config, shared and static, and runs them and the programs of
# the documentation. Builds the library as a subdirectory. Checks the symbols that the libraries export, and which
# configurations the build rejects. Argument: the source tree.
set -euo pipefail
source=$1
here=$source/tests/installed
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "$*"; exit 1; }
passed=0
run() { LD_LIBRARY_PATH=${libdir:-} "$1"; passed=$((passed + 1)); }

commands=$(grep -E '^cmake --' "$source/README.md" | sed 's/$/ \&\&/') || fail "README.md has no cmake command"
commands+=" :"
# These options let the build reuse what the tests have compiled (ccache); users need none of them.
cached=(-G Ninja -DTURNOUT_WERROR=ON -DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
commands=${commands/--preset release/--preset release ${cached[*]}}
(cd "$source" && eval "${commands//\/opt\/turnout/$work/first}") >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
mv "$work/first" "$work/prefix"

cmake -S "$here" -B "$work/client" -G Ninja -DCMAKE_PREFIX_PATH="$work/prefix" >/dev/null
cmake --build "$work/client" -- --quiet
for program in client_cpp client_cpp_static client_c client_c_static client_aclnn client_aclnn_static \
  client_aclnn_runtime client_aclnn_runtime_static client_mluop_runtime client_mluop_runtime_static; do
  run "$work/client/$program"
done

sed 's/COMPONENTS [^)]*)/COMPONENTS mlu)/' "$here/CMakeLists.txt" >"$work/CMakeLists.txt"
if said=$(cmake -S "$work" -B "$work/wrong" -G Ninja -DCMAKE_PREFIX_PATH="$work/prefix" 2>&1); then fail "CMake finds a component mlu"; fi
grep -q "turnout has no component mlu;" <<<"$(tr -s ' \n' ' ' <<<"$said")" || fail "CMake does not name the component: $said"
passed=$((passed + 1))

for binding in cpp c; do
  cmake -S "$source/examples/$binding" -B "$work/examples_$binding" -G Ninja -DCMAKE_PREFIX_PATH="$work/prefix" \
    -DCMAKE_C_FLAGS="-Wall -Wextra -Werror -pedantic-errors" -DCMAKE_CXX_FLAGS="-Wall -Wextra -Wconversion -Werror" >/dev/null
  cmake --build "$work/examples_$binding" -- --quiet
  for source_file in "$source/examples/$binding"/*.c*; do
    program=$(basename "${source_file%.*}")
    run "$work/examples_$binding/$program" >/dev/null || fail "examples/$binding/$program failed"
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
aclnn_runtime() { gcc -std=c99 -pedantic-errors -Wall -Wextra -Werror "$source/tests/aclnn_runtime_client.c" "$@"; }
aclnn_runtime $(pkg-config --cflags --libs turnout-aclnn-runtime) -o "$work/aclnn_runtime"
aclnn_runtime -static $(pkg-config --static --cflags --libs turnout-aclnn-runtime) -o "$work/aclnn_runtime_static"
# Only programs that ask for the runtime get it.
if aclnn_runtime -fsyntax-only $(pkg-config --cflags turnout-aclnn) 2>/dev/null; then fail "turnout-aclnn has acl/acl.h"; fi
mluop_runtime() { "$@" -pedantic-errors -Wall -Wextra -Werror "$source/tests/mluop_runtime_client.c" $(pkg-config --cflags --libs turnout-mluop-runtime); }
mluop_runtime gcc -std=c99 -o "$work/mluop_runtime"
mluop_runtime g++ -std=c++20 -x c++ -o "$work/mluop_runtime_cpp"
cpp -static $(pkg-config --static --cflags --libs turnout) -o "$work/cpp_static"
c -static $(pkg-config --static --cflags --libs turnout-mluop) -o "$work/c_static"
# Only the headers, as users of the static library see them. (CMake includes them as system headers, without warnings.)
cpp -DTURNOUT_STATIC -fsyntax-only $(pkg-config --cflags turnout)
passed=$((passed + 1))
for program in cpp c cpp_static c_static aclnn aclnn_static aclnn_runtime aclnn_runtime_static mluop_runtime mluop_runtime_cpp; do
  run "$work/$program"
done

# The programs in the documentation must print what the pages show.
run_snippet() {
  run "$1" >"$1.output"
  [ ! -e "$1.expected" ] || diff "$1.expected" "$1.output" || fail "$(basename "$1") prints different output"
}
python3 "$source/tools/docs/snippets.py" "$work/snippets"
for file in "$work"/snippets/*.cc; do
  g++ -std=c++20 -Wall -Wextra -Werror "$file" $(pkg-config --cflags --libs turnout) -o "${file%.cc}"
  run_snippet "${file%.cc}"
done
for file in "$work"/snippets/*.c; do
  gcc -std=c99 -pedantic-errors -Wall -Wextra -Werror "$file" $(pkg-config --cflags --libs turnout-mluop) -o "${file%.c}"
  run_snippet "${file%.c}"
done

# The symbols that a file defines and exports.
exports() { nm -DC --defined-only "$1" | grep -v ' A ' | cut -d' ' -f3-; }  # A is a version name
expect_none() { [ -z "$2" ] || fail "$1: $2"; passed=$((passed + 1)); }
expect_none "libturnout_mluop.so exports more than the C interface" \
  "$(exports "$libdir/libturnout_mluop.so" | grep -vE '^(mluOp|mluop|turnoutLastError)' || true)"
expect_none "libturnout_aclnn.so exports more than the C interface" \
  "$(exports "$libdir/libturnout_aclnn.so" | grep -vE '^(acl(Create|Destroy)Tensor|aclDestroyAclOpExecutor|aclGetRecentErrMsg|aclnn)' || true)"
expect_none "libturnout.so exports internal symbols" \
  "$(exports "$libdir/libturnout.so" | grep -E '::State\b|turnout::(core|bindings|families)::' || true)"
g++ -shared -o "$work/plugin.so" -Wl,--whole-archive "$libdir/libturnout_mluop.a" "$libdir/libturnout_aclnn.a" \
  "$libdir/libturnout.a" \
  -Wl,--no-whole-archive -pthread
expect_none "a shared library that links the static ones re-exports them" \
  "$(exports "$work/plugin.so" | grep -iE 'turnout|mluop|acl' || true)"

# The SONAME has the major version or, before 1.0, the major and minor version.
version=$(sed -n 's/.*TURNOUT_VERSION "\([0-9]*\)\.\([0-9]*\).*/\1.\2/p' "$source/include/turnout/version.h")
soversion=${version%.*}
[ "$soversion" != 0 ] || soversion=$version
for library in turnout turnout_mluop turnout_aclnn; do
  soname=$(readelf -d "$libdir/lib$library.so" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')
  [ "$soname" = "lib$library.so.$soversion" ] || fail "lib$library.so has the SONAME $soname"
  passed=$((passed + 1))
done

# Every exported symbol of a library has the version of the SONAME.
for library in turnout turnout_mluop turnout_aclnn; do
  expect_none "lib$library.so has symbols without the version TURNOUT_$soversion" \
    "$(exports "$libdir/lib$library.so" | grep -vF "@@TURNOUT_$soversion" || true)"
done

# The components of the installation: only the shared libraries, and the rest.
(cd "$source" && cmake --install build/release --prefix "$work/runtime" --component runtime &&
  cmake --install build/release --prefix "$work/development" --component development) >"$work/log"
expect_none "the component runtime has more than shared libraries" \
  "$(find "$work/runtime" ! -type d ! -name 'libturnout*.so.*' || true)"
expect_none "the component development has a shared library" \
  "$(find "$work/development" -type f -name '*.so*' || true)"
expect_none "the two components differ from the whole installation" \
  "$(diff <(cd "$work/prefix" && find . ! -type d | sort) \
    <(cd "$work" && (cd runtime && find . ! -type d; cd ../development && find . ! -type d) | sort) || true)"

# The library as a subdirectory of another project, which must not install it. In build/, for ccache.
subdirectory=$source/build/subdirectory
rm -rf "$subdirectory"
cmake -S "$here" -B "$subdirectory" "${cached[@]}" -DCMAKE_BUILD_TYPE=Release -DTURNOUT_SOURCE="$source" >"$work/log"
cmake --build "$subdirectory" -- --quiet
run "$subdirectory/client_cpp" && run "$subdirectory/client_c_static"
expect_none "a project installs the libraries of its subdirectory" \
  "$(cmake --install "$subdirectory" --prefix "$work/none" >/dev/null; find "$work/none" -type f 2>/dev/null || true)"

# The release preset as a user has it.
cmake --preset release -S "$source" -B "$work/plain" >"$work/log"
expect_none "the preset release uses ccache or -Werror" "$(grep -rlE --include='*.make' --include='*.ninja' -- 'ccache|-Werror' "$work/plain" || true)"

# Without Highway, or with one that is too old, CMake's error says what to do.
refused() {  # options of CMake; then --, and words that its output must have
  local options=() said
  while [ "$1" != -- ]; do options+=("$1"); shift; done
  if said=$(cmake -S "$source" -B "$work/refused" "${options[@]}" 2>&1); then fail "CMake accepted ${options[*]}"; fi
  for words in "${@:2}"; do
    grep -q -- "$words" <<<"$(tr -s ' \n' ' ' <<<"$said")" || fail "expected '$words' in CMake's output: $said"
    passed=$((passed + 1))
  done
  rm -rf "$work/refused"
}
refused "-DCMAKE_IGNORE_PATH=/usr/include;/usr/local/include;/include" -- \
  "apt install libhwy-dev" "dnf install highway-devel" "conda-forge libhwy" "vcpkg install highway" "brew install highway"
mkdir -p "$work/old/hwy"
printf '#define HWY_MAJOR 1\n#define HWY_MINOR 0\n#define HWY_PATCH 2\n' >"$work/old/hwy/highway.h"
refused -DHWY_INCLUDE_DIR="$work/old" -- "is version 1.0.2, expected 1.0.3 or later"
echo "$passed passed, 0 failed"
