#!/usr/bin/env bash
# Run a Ganeti cluster of Debian's packages until it is killed. As root.
#
#   cluster.sh FOLDER PORT      FOLDER gets logs, rapi.pem and node1.pid; its remote API is at PORT of 127.0.0.1
#
# Nothing of the machine changes: the packages go into an overlay in memory, each node has namespaces of its own, and
# so has the switch between them. All of it ends with this process group. Nodes: node1 is the master, node2 a candidate;
# node3 is marked offline; node4 is drained, and nothing listens there.
set -euo pipefail

if [ "${3:-}" != inside ]; then
  # No other process sees the mounts, and they are gone with the last process.
  exec unshare --mount --propagation private bash "${BASH_SOURCE[0]}" "$1" "$2" inside
fi
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=$1 port=$2
tree=$folder/tree
net=10.99.77
clean=(/usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive)

step() { echo "$(date +%T) $*"; }
node_pid() { cat "$folder/node$1.pid"; }
in_switch() { nsenter -t "$(node_pid 0)" -n "$@"; }
in_node() { # N COMMAND...
  local n=$1
  shift
  nsenter -t "$(node_pid "$n")" -m -n -u -p -- chroot "$tree/root$n" "${clean[@]}" "$@"
}
until_there() { # COMMAND...
  for _ in $(seq 300); do
    if "$@" >/dev/null 2>&1; then return; fi
    sleep 0.1
  done
  echo "in vain: $*" >&2
  return 1
}
child_of() { ps -o pid= --ppid "$1" | tr -d ' ' | grep .; }

mkdir -p "$tree"
mount -t tmpfs -o size=4g,mode=755 tmpfs "$tree"
mkdir -p "$tree"/{base,work,root,shared}

step "installing the packages into an overlay"
mount -t overlay overlay -o "lowerdir=/,upperdir=$tree/base,workdir=$tree/work" "$tree/root"
mount -t proc proc "$tree/root/proc"
mount --rbind /dev "$tree/root/dev"
printf '#!/bin/sh\nexit 101\n' >"$tree/root/usr/sbin/policy-rc.d"
chmod 755 "$tree/root/usr/sbin/policy-rc.d"
install=(chroot "$tree/root" "${clean[@]}" apt-get install -y -qq --no-install-recommends ganeti)
"${install[@]}" >"$folder/packages.log" 2>&1 || {
  chroot "$tree/root" "${clean[@]}" apt-get update -qq >>"$folder/packages.log" 2>&1
  "${install[@]}" >>"$folder/packages.log" 2>&1
} || { tail -20 "$folder/packages.log"; exit 1; }
umount -R "$tree/root"

step "starting the switch and the nodes"
unshare --net --fork --kill-child sleep infinity &
until_there child_of $!
child_of $! >"$folder/node0.pid"
in_switch bash -e -c "
  ip link set lo up
  ip link add switch type bridge
  ip addr add $net.1/24 dev switch
  ip addr add $net.5/24 dev switch
  ip link set switch up"

start_node() {
  local n=$1
  unshare --mount --net --uts --pid --fork --kill-child --propagation private \
    bash "$here/node.sh" "$tree" "$n" >"$folder/node$n.log" 2>&1 &
  local first=$!
  until_there test -e "$tree/ready$n"
  child_of "$first" >"$folder/node$n.pid"
  in_switch ip link add "node$n" type veth peer name gnt0 netns "$(node_pid "$n")"
  in_switch ip link set "node$n" master switch up
  in_node "$n" ip addr add "$net.$((n + 1))/24" dev gnt0
  in_node "$n" ip link set gnt0 up
  in_node "$n" ip link add br0 type bridge
  in_node "$n" ip link set br0 up
  in_node "$n" bash -s "$net" <"$here/prepare_node.sh"
}
start_node 1
start_node 2

step "making the cluster"
in_node 1 gnt-cluster init --enabled-hypervisors=fake --enabled-disk-templates=diskless,file,sharedfile \
  --master-netdev=gnt0 --no-etc-hosts --no-ssh-init --default-iallocator=hail \
  --nic-parameters mode=bridged,link=br0 cluster.gnt.example
in_node 1 /usr/lib/ganeti/daemon-util stop-all

step "adding the other nodes, and a second group, to its configuration"
in_node 1 python3 - "$net" <"$here/extend_configuration.py"
in_node 1 bash -c '
  printf "admin secret write\nreader secret read\nnobody secret\n" > /var/lib/ganeti/rapi/users
  chown gnt-rapi:gnt-masterd /var/lib/ganeti/rapi/users
  chmod 640 /var/lib/ganeti/rapi/users'
# What `gnt-node add` would bring there over ssh, which does not run.
in_node 1 bash -c 'cd / && tar -cf - var/lib/ganeti/{*.pem,hmac.key,cluster-domain-secret,known_hosts,ssconf_*}' |
  in_node 2 tar -C / -xpf -
in_node 2 /usr/lib/ganeti/daemon-util start ganeti-noded
in_node 1 /usr/lib/ganeti/daemon-util start-all >"$folder/daemons.log" 2>&1
until_there in_node 1 gnt-cluster getmaster
in_node 1 gnt-cluster redist-conf || true # node4 does not answer

step "making instances"
in_node 1 bash -s <"$here/instances.sh" >"$folder/instances.log" 2>&1 || { tail -20 "$folder/instances.log"; exit 1; }
in_node 1 sed -n '/BEGIN CERTIFICATE/,/END CERTIFICATE/p' /var/lib/ganeti/rapi.pem >"$folder/rapi.pem"

step "ready at port $port"
exec python3 "$here/forward.py" "$port" "$(node_pid 1)" "$net.2" 5080
