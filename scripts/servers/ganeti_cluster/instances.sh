# Run on the master: instances of every status, networks, tags, a filter of jobs, an export.
set -x
new() { # NAME OPTION...
  local name=$1
  shift
  gnt-instance add --no-name-check --no-ip-check --ignore-ipolicy -o noop+default "$@" "$name.gnt.example"
}
gnt-network add --network=192.0.2.0/28 --gateway=192.0.2.1 --tags=net:a net-a
gnt-network add --network=198.51.100.0/29 net-b
gnt-network connect --nic-parameters mode=bridged,link=br0 net-a

for i in 1 2 10; do new "web$i" -t diskless -n node1 -B "maxmem=$((i * 128)),minmem=128,vcpus=$i"; done
new web3 -t diskless -n node2 -B memory=256 --no-start
new web20 -t diskless -n node2 -o plainos -B memory=384,vcpus=2 --tags=role:web,prod
new db1 -t file -n node1 --disk 0:size=16 -B memory=128
new db2 -t file -n node2 --disk 0:size=8,name=root --disk 1:size=24,mode=ro -B memory=192
new db10 -t file -n node1 --disk 0:size=8 --no-start
new mob1 -t sharedfile -n node1 --disk 0:size=8 -B memory=128
new mob2 -t sharedfile -n node2 --disk 0:size=8 --disk 1:size=8 --disk 2:size=8 -B memory=128
new mob3 -t sharedfile -n node2 --disk 0:size=8 --no-start
new nics3 -t diskless -n node1 \
  --net 0:ip=203.0.113.5,name=front --net 1:mode=routed,ip=203.0.113.6,link=tab1 --net 2:network=net-a,ip=pool
new nonic -t diskless -n node1 --no-nics
new knobs -t diskless -n node1 -B auto_balance=false,always_failover=true,spindle_use=3
new osparm -t diskless -n node1 -O flavour=sweet,size=3
new soon1 -t diskless --forthcoming -n node1 -B memory=512,vcpus=4
new soon2 -t file --forthcoming -n node2 --disk 0:size=64 -B memory=1024
new off1 -t diskless -n node2 --no-start

gnt-instance modify --offline off1.gnt.example
gnt-instance add-tags web1.gnt.example role:web prod rack:1
gnt-instance add-tags db1.gnt.example role:db
gnt-node add-tags node1.gnt.example rack:1
gnt-cluster add-tags site:test
gnt-filter add --predicates='[["jobid", [">", "id", 100000]]]' --action=PAUSE --priority=5
mkdir -p /var/lib/ganeti/export/old.gnt.example

# The hypervisor `fake` keeps a file for each guest: db10 runs although it should not, knobs has died, mob3 runs here and
# belongs to node2.
guests=/run/ganeti/fake-hypervisor
printf '0\n256\n1\n' >$guests/db10.gnt.example
rm -f $guests/knobs.gnt.example
printf '0\n128\n1\n' >$guests/mob3.gnt.example
gnt-cluster modify --user-shutdown=yes
true
