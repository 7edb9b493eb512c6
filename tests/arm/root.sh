#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Makes an arm64 Debian 12 root with Python 3.11 and mpnet's packages, for emulation on an x86-64 Debian 12 machine.
# Nothing of it is installed into the host; no chroot, no binfmt. About 300 MB.
# Usage: root.sh FOLDER       MIRROR=<Debian mirror> overrides the mirror of apt's own sources.
# Needs (Debian): mmdebstrap qemu-user-static. PYTHON: one with pip.
set -euo pipefail
root=${1:?folder}
if [ -e "$root/.complete" ]; then exit 0; fi
rm -rf "$root"
mkdir -p "$(dirname "$root")"
mirror=${MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -v -e security -e backports | head -1)}
mmdebstrap --quiet --variant=extract --architectures=arm64 \
    --include=python3.11-minimal,libpython3.11-stdlib,libc6,libstdc++6,libgcc-s1,libffi8,libgomp1,zlib1g,libexpat1,libssl3,libsqlite3-0,libbz2-1.0,liblzma5,libuuid1,libreadline8,libncursesw6,libtinfo6 \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' bookworm "$root" "$mirror"
# The arm64 Python headers alone: the extension is cross-compiled on the host.
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
mkdir -p "$work/lists/partial"
echo "deb [arch=arm64 signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror bookworm main" > "$work/sources"
options=(-qq -o "Dir::Etc::SourceList=$work/sources" -o "Dir::Etc::SourceParts=/dev/null" -o "Dir::State::Lists=$work/lists"
    -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User=root)
apt-get "${options[@]}" update
(cd "$work" && apt-get "${options[@]}" download libpython3.11-dev && dpkg -x libpython3.11-dev_*_arm64.deb headers)
cp -a "$work/headers/usr/include" "$root/usr/"
"${PYTHON:-python3}" -m pip install -q --no-cache-dir --disable-pip-version-check --target "$root/opt/site" --implementation cp --python-version 3.11 \
    --abi cp311 --abi abi3 --abi none --platform manylinux2014_aarch64 --platform manylinux_2_17_aarch64 \
    --platform manylinux_2_28_aarch64 --only-binary=:all: \
    numpy cffi PyYAML opencv-python-headless click rich jinja2 pytest hypothesis setuptools
qemu-aarch64-static -L "$root" -E PYTHONPATH="$root/opt/site" "$root/usr/bin/python3.11" -c \
    'import numpy, cffi, yaml, cv2, click, rich, platform; assert platform.machine() == "aarch64"'
# Compiling modules under emulation would take most of the time of short programs.
python=${PYTHON:-python3}
if "$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))'; then
    "$python" -m compileall -q -j 0 -x 'lib2to3|/tests?/' "$root/usr/lib/python3.11" "$root/opt/site" >/dev/null || true
fi
touch "$root/.complete"
