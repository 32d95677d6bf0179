"""The keys of items in bulk lists, and of single items (contracts/ganeti-rapi, 5)."""

from collections.abc import Mapping, Sequence


def _words(text: str) -> Sequence[str]:
    return tuple(text.split())


_OF_OBJECTS = "ctime mtime uuid serial_no tags"

BULK_FIELDS: Mapping[str, Sequence[str]] = {
    "instance": _words(
        "name admin_state os pnode snodes disk_template nic.ips nic.macs nic.modes nic.uuids nic.names nic.links "
        "nic.networks nic.networks.names nic.bridges network_port disk.sizes disk.spindles disk_usage disk.uuids "
        "disk.names beparams hvparams oper_state oper_ram oper_vcpus status custom_hvparams custom_beparams "
        f"custom_nicparams custom_osparams forthcoming {_OF_OBJECTS}"
    ),
    "node": _words(
        "name offline master_candidate drained dtotal dfree sptotal spfree mtotal mnode mfree pinst_cnt sinst_cnt "
        "ctotal cnos cnodes csockets pip sip role pinst_list sinst_list master_capable vm_capable ndparams group.uuid "
        f"{_OF_OBJECTS}"
    ),
    "group": _words(
        "alloc_policy name node_cnt node_list ipolicy custom_ipolicy diskparams custom_diskparams ndparams "
        f"custom_ndparams {_OF_OBJECTS}"
    ),
    "network": _words(
        "name network gateway network6 gateway6 mac_prefix free_count reserved_count map group_list inst_list "
        f"external_reservations {_OF_OBJECTS}"
    ),
    "job": _words("id ops status summary opstatus received_ts start_ts end_ts"),
    "filter": _words("watermark priority predicates action reason_trail uuid"),
    "os": _words("name valid variants parameters api_versions blacklisted hidden trusted"),
}
"""The keys of each object, by item type."""

MORE_OF_ONE: Mapping[str, Sequence[str]] = {"job": ("oplog", "opresult")}
"""Further keys of a single item."""
