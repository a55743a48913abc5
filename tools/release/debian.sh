#!/usr/bin/env bash
# Runs a command in another release of Debian, which debootstrap unpacks into build/debian/<release>. It runs as root,
# in its own mount namespace, with the files of the last commit in /turnout.
#
#   debian.sh <release> <command...>     for example: debian.sh trixie ./dev test core
#
# What the command installs and compiles stays there for later commands.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
release=$1
folder=$PWD/build/debian/$release
# The mirror that apt uses here.
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -v -m1 -e -security)

if [ ! -e "$folder/complete" ]; then
  rm -rf "$folder"
  mkdir -p "$folder"
  # This script works for every release, even if debootstrap does not know it yet.
  debootstrap --variant=minbase --include=ca-certificates,git "$release" "$folder" "$mirror" \
    /usr/share/debootstrap/scripts/sid >"$folder.log" 2>&1 || { tail -20 "$folder.log"; exit 1; }
  touch "$folder/complete"
fi
# Copied from this system: name resolution, certificates, pip's settings.
for file in /etc/resolv.conf /etc/hosts /etc/ssl/certs/ca-certificates.crt /etc/pip.conf; do
  if [ -e "$file" ]; then cp -L "$file" "$folder$file"; fi
done

# Removes files that are no longer tracked; build/ and .venv, which are not tracked, stay.
mkdir -p "$folder/turnout"
find "$folder/turnout" -mindepth 1 -maxdepth 1 ! -name build ! -name .venv -exec rm -rf {} +
git clone --quiet --no-hardlinks . "$folder/turnout/clone"
find "$folder/turnout/clone" -mindepth 1 -maxdepth 1 -exec mv -t "$folder/turnout" {} +
rmdir "$folder/turnout/clone"

unshare --mount --pid --fork bash -euc '
  folder=$1
  mount --rbind /dev "$folder/dev"
  mount -t proc proc "$folder/proc"
  mount --rbind /sys "$folder/sys"
  shift
  exec chroot "$folder" env -u CCACHE_DIR -u CCACHE_BASEDIR HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    bash -c "cd /turnout && \"\$@\"" bash "$@"
' bash "$folder" "${@:2}"
