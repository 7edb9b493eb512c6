#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Runs one static x86-64 Linux program on an emulated CPU with AVX-512 and VNNI (Bochs), for machines without them.
# Usage: run.sh PROGRAM [SECONDS]     prints what the program prints; exit status 0 only if the program's was 0.
# Needs (Debian): bochs bochs-term bochsbios vgabios isolinux syslinux-common genisoimage
set -euo pipefail
program=$(readlink -f "${1:?static program}")
limit=${2:-600}
here=$(cd "$(dirname "$0")" && pwd)
for tool in bochs genisoimage script; do
    command -v "$tool" >/dev/null || { echo "bochs: '$tool' is missing (Debian: apt-get install bochs bochs-term bochsbios vgabios isolinux syslinux-common genisoimage)" >&2; exit 2; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
strip -o program.elf "$program"
${HOST_CC:-gcc} -c -ffreestanding -fno-pic -mno-red-zone -mcmodel=small -mgeneral-regs-only -mfsgsbase -fno-stack-protector \
    -O1 -Wall -Wextra -Werror "$here/shim.c" -o shim.o
${HOST_CC:-gcc} -c -fno-pic -Wa,-I"$work" "$here/boot.S" -o boot.o
ld -n -z noexecstack --no-warn-rwx-segments -T "$here/link.ld" boot.o shim.o -o kernel64.elf
mkdir -p iso/isolinux
objcopy -O elf32-i386 kernel64.elf iso/isolinux/kernel.elf     # multiboot loaders take 32-bit ELF
cp /usr/lib/ISOLINUX/isolinux.bin /usr/lib/syslinux/modules/bios/{ldlinux,mboot,libcom32,libutil}.c32 iso/isolinux/
printf 'DEFAULT l\nPROMPT 0\nLABEL l\n KERNEL mboot.c32\n APPEND kernel.elf\n' > iso/isolinux/isolinux.cfg
genisoimage -quiet -o boot.iso -b isolinux/isolinux.bin -c isolinux/boot.cat -no-emul-boot -boot-load-size 4 -boot-info-table iso
cat > bochsrc <<'CONFIG'
cpu: model=corei7_icelake_u, count=1, ips=200000000, reset_on_triple_fault=0
memory: guest=1024, host=1024
romimage: file=/usr/share/bochs/BIOS-bochs-latest
vgaromimage: file=/usr/share/vgabios/vgabios.bin
ata0-master: type=cdrom, path=boot.iso, status=inserted
boot: cdrom
port_e9_hack: enabled=1
display_library: term
clock: sync=none
log: bochs.log
panic: action=fatal
speaker: enabled=0
sound: waveoutdrv=dummy
CONFIG
echo c > commands                                              # Debian's Bochs starts in its debugger
BXSHARE=/usr/share/bochs TERM=xterm timeout -k 5 "$limit" \
    script -qec "bochs -q -f bochsrc -rc commands" /dev/null </dev/null > screen.txt 2>&1 &
emulator=$!
# The emulated screen is a terminal of its own. Unread it fills, and the emulator waits for good.
screen=
while [ -z "$screen" ] && kill -0 $emulator 2>/dev/null; do
    sleep 0.2
    screen=$(sed -n 's/.*connected to screen "\([^"]*\)".*/\1/p' screen.txt)
done
[ -z "$screen" ] || timeout "$limit" cat "$screen" >/dev/null 2>&1 &
wait $emulator || true
sed -n '/unk. ctxt/,/BOCHS-EXIT/p' screen.txt | tr -d '\r' | grep -v -a -e 'unk. ctxt' -e BOCHS-EXIT || true
if ! grep -a -q BOCHS-EXIT screen.txt; then
    echo "bochs: the program did not finish within $limit s" >&2
    tail -5 bochs.log >&2 || true
    exit 1
fi
grep -a -q 'BOCHS-EXIT 0' screen.txt
