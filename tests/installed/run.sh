#!/usr/bin/env bash
# Installs the library into an empty folder, then builds a C++ and a C99 program against that copy, through CMake
# and through pkg-config, shared and static, and runs them. Argument: the source tree.
set -euo pipefail
source=$1
here=$source/tests/installed
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
build=$source/build/installed  # beside the others, so that ccache finds what they compiled
cmake -S "$source" --preset release -B "$build" -DCMAKE_INSTALL_PREFIX="$work/prefix" >/dev/null
cmake --build "$build" -- --quiet
cmake --install "$build" >/dev/null

cmake -S "$here" -B "$work/client" -G Ninja -DCMAKE_PREFIX_PATH="$work/prefix" >/dev/null
cmake --build "$work/client" -- --quiet
for program in client_cpp client_cpp_static client_c client_c_static; do
  "$work/client/$program"
done

PKG_CONFIG_PATH=$(dirname "$(find "$work/prefix" -name turnout.pc)")
export PKG_CONFIG_PATH
libdir=$(dirname "$PKG_CONFIG_PATH")
g++ -std=c++20 "$here/client.cc" $(pkg-config --cflags --libs turnout) -o "$work/pkg_cpp"
gcc -std=c99 -pedantic-errors -Wall -Wextra -Werror "$here/client.c" $(pkg-config --cflags --libs turnout-mluop) \
  -o "$work/pkg_c"
g++ -std=c++20 "$here/client.cc" $(pkg-config --cflags turnout) "$libdir/libturnout.a" -pthread -o "$work/pkg_cpp_static"
for program in pkg_cpp pkg_c pkg_cpp_static; do
  LD_LIBRARY_PATH=$libdir "$work/$program"
done

# The C library exports the C names alone, and both libraries carry their version in the SONAME.
extra=$(nm -D --defined-only "$libdir/libturnout_mluop.so" | awk '{print $3}' | grep -vE '^(mluOp|mluop|turnoutLastError)' || true)
[ -z "$extra" ] || { echo "libturnout_mluop.so exports more than the C interface: $extra"; exit 1; }
for library in turnout turnout_mluop; do
  readelf -d "$libdir/lib$library.so" | grep -q "SONAME.*lib$library\.so\.0" ||
    { echo "lib$library.so has no versioned SONAME"; exit 1; }
done
echo "7 passed, 0 failed"
