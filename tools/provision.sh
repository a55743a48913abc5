# Installs what the commands of ./dev need: Debian packages, and the Python environment .venv with its packages. ./dev
# sources this file in the root of the repository and defines say, run and $python.

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

debian_packages() {  # packages...
  local missing=()
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return
  say "Debian packages: ${missing[*]}"
  as_root apt-get update -qq
  # Prints the sizes of the download and of the installed packages.
  as_root apt-get install --assume-no --no-install-recommends "${missing[@]}" 2>/dev/null |
    grep -E '^(Need to get|After this operation)|newly installed' || true
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
}

# Installs the Python packages of a group, again only if pyproject.toml or the pinned versions change. The versions are
# pinned for one version of Python, that of CI; with another one the newest packages are installed.
stamp_of() { echo ".venv/.installed-$1-$(cat pyproject.toml "requirements/$1.txt" | sha256sum | cut -c1-16)"; }
python_packages() {  # group
  local group=$1 stamp version
  stamp=$(stamp_of "$group")
  [ -e "$stamp" ] && return
  say "Python packages: $group"
  [ -x "$python" ] || python3 -m venv .venv
  version=$("$python" -c 'import sys; print("Python %d.%d" % sys.version_info[:2])')
  # Only the requirements: build_python installs the package itself. --no-compile, because Python compiles modules when
  # they are imported, and only a few of PyTorch's thousands are.
  if head -1 "requirements/$group.txt" | grep -q "for $version," &&
    "$python" tools/release/requirements.py "$group" "requirements/$group.txt"; then
    run "$python" -m pip install --quiet --progress-bar off --no-compile --require-hashes -r "requirements/$group.txt"
  else
    echo "requirements/$group.txt does not match $version: installing the newest packages, without checking hashes"
    "$python" tools/release/requirements.py "$group" >.venv/requirements.txt
    run "$python" -m pip install --quiet --progress-bar off --no-compile -r .venv/requirements.txt
  fi
  touch "$stamp"
}

setup_core() {
  debian_packages g++ make cmake ninja-build ccache libhwy-dev libgtest-dev pkg-config \
    python3-dev python3-venv
  python_packages core
}

setup_test() { setup_sanitizers; python_packages test; }
setup_sanitizers() {
  if [ ! -e "$(stamp_of test)" ]; then
    echo "The tests need PyTorch from PyPI, which takes about 5.5 GB of disk space;" \
      "$(df -h --output=avail . | tail -1 | tr -d ' ') is free here."
  fi
  setup_core
  # The name of the package with the sanitizers' libraries contains clang's version.
  local version
  version=$(apt-cache depends clang | sed -n 's/^ *Depends: clang-\([0-9]*\)$/\1/p')
  debian_packages clang "libclang-rt-$version-dev" clang-format clang-tidy
}

# Packages that only the benchmarks use, in a separate folder; the benchmarks also run without them.
bench_peers() {
  local stamp
  stamp=.venv/peers/.installed-$(sha256sum bench/peers.txt | cut -c1-16)
  [ -e "$stamp" ] && return
  say "Python packages: peers of the benchmarks"
  rm -rf .venv/peers
  if run "$python" -m pip install --quiet --progress-bar off --no-deps --target .venv/peers -r bench/peers.txt; then
    touch "$stamp"
  else
    echo "installing the peers failed; the benchmarks run without them"
  fi
}
