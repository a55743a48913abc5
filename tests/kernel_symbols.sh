#!/bin/bash
# kernel_symbols.sh NM KERNEL_OBJECT... -- OBJECT...: fails if a kernel object defines an inline function that other
# objects may use. The linker keeps one copy of such a function; that of a kernel object needs a newer CPU.
set -euo pipefail
nm=$1
shift
kernels=()
while [[ $1 != -- ]]; do
  kernels+=("$1")
  shift
done
shift

weak_functions() { "$nm" -P "$@" | awk '$2 == "W" {print $1}' | sort -u; }
in_kernels=$(weak_functions "${kernels[@]}")
elsewhere=$(weak_functions "$@")
shared=$(comm -12 <(echo "$in_kernels") <(echo "$elsewhere"))
foreign=$(grep -v 7turnout <<<"$in_kernels" || true)  # programs that link the static library may define these too
echo "${#kernels[@]} kernel objects, $(wc -l <<<"$in_kernels") inline functions"
if [[ -n $shared$foreign ]]; then
  echo "Kernel objects define functions that others may use; define them in a .cc file that is not a kernel:"
  printf '%s\n' "$shared" "$foreign" | sort -u | c++filt
  exit 1
fi
