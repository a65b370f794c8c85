#!/bin/sh
# Installs what Python packages cannot bring, where it is missing and we may: Debian and Ubuntu, as root or with sudo.
#
#   tools/system_packages.sh make venv cc vulkan node npm chromium firefox vulkan-headers
#
#   make            make
#   venv            `python3 -m venv` with pip in it (set PYTHON for another interpreter)
#   cc              a C compiler that finds its headers (the C backend)
#   vulkan          the Vulkan loader and a driver; Mesa's lavapipe runs WebGPU on the CPU
#   node            Node.js, to build the package for browsers
#   npm             its package manager; also for the models that npm packages ship (other Node.js than Debian's brings its own)
#   chromium        a browser for the tests of pages (set CHROMIUM for another one)
#   firefox         another browser for some of them
#   vulkan-headers  vulkan/vk_layer.h, to build the layer that the WebGPU peer needs on old Mesa
#
# On other systems, or where nothing may be installed, it says what is missing and goes on: the step that needs it
# then says so itself, and tests of a missing device skip visibly. On macOS it does nothing (Metal is there).
set -eu

python=${PYTHON:-python3}
icds="/usr/share/vulkan/icd.d /etc/vulkan/icd.d /usr/local/share/vulkan/icd.d"

has() {
    case $1 in
    make | node | npm) command -v "$1" >/dev/null 2>&1 ;;
    chromium)
        [ -n "${CHROMIUM:-}" ] && return 0
        command -v chromium >/dev/null 2>&1 || command -v chromium-browser >/dev/null 2>&1 ||
            command -v google-chrome >/dev/null 2>&1 ;;
    firefox) command -v firefox-esr >/dev/null 2>&1 || command -v firefox >/dev/null 2>&1 ;;
    venv) "$python" -c 'import ensurepip, venv' >/dev/null 2>&1 ;;
    cc) echo '#include <stdint.h>
              #include <pthread.h>' | "${CC:-cc}" -x c -fsyntax-only - >/dev/null 2>&1 ;;
    vulkan)
        "$python" -c 'import ctypes; ctypes.CDLL("libvulkan.so.1")' >/dev/null 2>&1 || return 1
        [ -n "${VK_ICD_FILENAMES:-}${VK_DRIVER_FILES:-}" ] && return 0
        # shellcheck disable=SC2086  # a list of folders
        find $icds -name '*.json' 2>/dev/null | grep -q . ;;
    vulkan-headers) [ -e /usr/include/vulkan/vk_layer.h ] || [ -e /usr/local/include/vulkan/vk_layer.h ] ;;
    *) echo "system_packages: unknown need '$1'" >&2; exit 2 ;;
    esac
}

debian_packages() {
    case $1 in
    make | npm | chromium) echo "$1" ;;
    node) echo "nodejs" ;;
    firefox) echo "firefox-esr" ;;
    venv) echo "python3-venv" ;;
    cc) echo "gcc libc6-dev" ;;
    vulkan) echo "libvulkan1 mesa-vulkan-drivers" ;;
    vulkan-headers) echo "libvulkan-dev" ;;
    esac
}

[ "$(uname -s)" = Linux ] || exit 0

missing= packages=
for need in "$@"; do
    if ! has "$need"; then
        missing="$missing $need"
        packages="$packages $(debian_packages "$need")"
    fi
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" = 0 ]; then
    as_root=env
elif command -v sudo >/dev/null 2>&1 && { [ -t 0 ] || sudo -n true 2>/dev/null; }; then
    as_root="sudo env"
else
    as_root=
fi
if [ -z "$as_root" ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "system_packages: missing:$missing; on Debian: apt-get install$packages" >&2
    exit 0
fi
$as_root DEBIAN_FRONTEND=noninteractive apt-get update -qq
known=
for package in $packages; do # a release may lack one of them (Ubuntu has no firefox-esr)
    if apt-cache show "$package" >/dev/null 2>&1; then
        known="$known $package"
    else
        echo "system_packages: this system has no package $package" >&2
    fi
done
packages=$known
[ -n "$packages" ] || exit 0
known=
for package in $packages; do
    if apt-cache show "$package" >/dev/null 2>&1; then
        known="$known $package"
    else # Ubuntu, for one, has Chromium as a snap only
        echo "system_packages: this system has no package $package" >&2
    fi
done
packages=$known
[ -n "$packages" ] || exit 0
echo "system_packages: installing$packages" >&2
# shellcheck disable=SC2086  # a list of words
$as_root DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages >/dev/null
