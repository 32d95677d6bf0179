#!/usr/bin/env bash
# The first process of a node, in namespaces of its own: makes its root, and then waits.   node.sh TREE N
set -euo pipefail
tree=$1 n=$2
root=$tree/root$n
mkdir -p "$tree/upper$n" "$tree/work$n" "$root"
mount -t overlay overlay -o "lowerdir=$tree/base:/,upperdir=$tree/upper$n,workdir=$tree/work$n" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/run"
mount -t tmpfs tmpfs "$root/tmp"
storage=$root/srv/ganeti
mkdir -p "$root/run/lock" "$root/var/lib/ganeti/export" "$storage/file-storage" "$storage/shared-file-storage"
mount --bind "$tree/shared" "$storage/shared-file-storage"
# To power-cycle a node of the hypervisor `fake` is to do it to this machine.
if [ -e "$root/proc/sysrq-trigger" ]; then mount --bind /dev/null "$root/proc/sysrq-trigger"; fi

# Each node has a size and a boot of its own.
gib=1048576
{
  echo "MemTotal: $(((48 + 16 * n) * gib)) kB"
  echo "MemFree: $(((45 + 15 * n) * gib)) kB"
  echo "MemAvailable: $(((46 + 15 * n) * gib)) kB"
  echo "Buffers: 0 kB"
  echo "Cached: 0 kB"
  echo "Active: $(((1 + n) * gib)) kB"
} >"$tree/meminfo$n"
mount --bind "$tree/meminfo$n" "$root/proc/meminfo"
for ((i = 0; i < 16 * n; i++)); do printf 'processor\t: %d\n' "$i"; done >"$tree/cpuinfo$n"
mount --bind "$tree/cpuinfo$n" "$root/proc/cpuinfo"
cat /proc/sys/kernel/random/uuid >"$tree/bootid$n"
mount --bind "$tree/bootid$n" "$root/proc/sys/kernel/random/boot_id"
hostname "node$n.gnt.example"
ip link set lo up
touch "$tree/ready$n"
trap 'exit 0' TERM
while :; do
  sleep 3600 &
  wait $!
done
