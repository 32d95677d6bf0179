# Run in a node: names, where Ganeti may keep files, and two operating systems that do nothing.   prepare_node.sh NET
set -euo pipefail
rm -f /etc/resolv.conf
: >/etc/resolv.conf
{
  echo 127.0.0.1 localhost
  for i in 1 2 3 4; do echo "$1.$((i + 1)) node$i.gnt.example node$i"; done
  echo "$1.10 cluster.gnt.example cluster"
} >/etc/hosts
printf '/srv/ganeti/file-storage\n/srv/ganeti/shared-file-storage\n' >/etc/ganeti/file-storage-paths
sed -i -e 's/^RAPI_ARGS=.*/RAPI_ARGS="-b 0.0.0.0"/' \
  -e 's/^\(WCONFD\|LUXID\)_ARGS=.*/\1_ARGS="--no-voting --yes-do-it"/' /etc/default/ganeti

systems=/usr/share/ganeti/os
mkdir -p "$systems"/{noop,plainos,broken}
for script in create import export rename verify; do
  printf '#!/bin/sh\nexit 0\n' >"$systems/noop/$script"
  chmod 755 "$systems/noop/$script"
  [ "$script" = verify ] || cp "$systems/noop/$script" "$systems/plainos/$script"
done
printf '20\n15\n' >"$systems/noop/ganeti_api_version"
printf 'default\nsmall\n' >"$systems/noop/variants.list"
printf 'flavour a word\nsize a number\n' >"$systems/noop/parameters.list"
printf '10\n' >"$systems/plainos/ganeti_api_version"
