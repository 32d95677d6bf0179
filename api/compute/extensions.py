"""`GET /extensions`: the list that Nova returns under any configuration (contracts/nova-rest, 4.8).

All extensions are part of the API today, but old clients take the list of requests from here: with an empty list
jclouds finds no key pairs, zones, quotas, aggregates, hosts and usage.
"""

from starlette.responses import Response

from fleetlight.api.compute.protocol.route_table import ApiRoute
from fleetlight.api.http.answers import json_answer
from fleetlight.api.http.errors import NotFoundError
from fleetlight.api.http.shapes import LINKS, TEXT, Shape, page
from fleetlight.api.shared.endpoint import ApiRequest

_NAMES = """
    NMN=Multinic OS-DCF=DiskConfig OS-EXT-AZ=ExtendedAvailabilityZone OS-EXT-IMG-SIZE=ImageSize OS-EXT-IPS=ExtendedIps
    OS-EXT-IPS-MAC=ExtendedIpsMac OS-EXT-SRV-ATTR=ExtendedServerAttributes OS-EXT-STS=ExtendedStatus
    OS-FLV-DISABLED=FlavorDisabled OS-FLV-EXT-DATA=FlavorExtraData OS-SCH-HNT=SchedulerHints OS-SRV-USG=ServerUsage
    os-access-ips=AccessIPs os-admin-actions=AdminActions os-admin-password=AdminPassword os-agents=Agents
    os-aggregates=Aggregates os-assisted-volume-snapshots=AssistedVolumeSnapshots
    os-attach-interfaces=AttachInterfaces os-availability-zone=AvailabilityZone
    os-baremetal-ext-status=BareMetalExtStatus os-baremetal-nodes=BareMetalNodes
    os-block-device-mapping=BlockDeviceMapping os-block-device-mapping-v2-boot=BlockDeviceMappingV2Boot
    os-cell-capacities=CellCapacities os-cells=Cells os-certificates=Certificates os-cloudpipe=Cloudpipe
    os-cloudpipe-update=CloudpipeUpdate os-config-drive=ConfigDrive os-console-auth-tokens=ConsoleAuthTokens
    os-console-output=ConsoleOutput os-consoles=Consoles os-create-backup=CreateBackup
    os-create-server-ext=Createserverext os-deferred-delete=DeferredDelete os-evacuate=Evacuate
    os-extended-evacuate-find-host=ExtendedEvacuateFindHost os-extended-floating-ips=ExtendedFloatingIps
    os-extended-hypervisors=ExtendedHypervisors os-extended-networks=ExtendedNetworks
    os-extended-quotas=ExtendedQuotas os-extended-rescue-with-image=ExtendedRescueWithImage
    os-extended-services=ExtendedServices os-extended-services-delete=ExtendedServicesDelete
    os-extended-status=ExtendedStatus os-extended-volumes=ExtendedVolumes os-fixed-ips=FixedIPs
    os-flavor-access=FlavorAccess os-flavor-extra-specs=FlavorExtraSpecs os-flavor-manage=FlavorManage
    os-flavor-rxtx=FlavorRxtx os-flavor-swap=FlavorSwap os-floating-ip-dns=FloatingIpDns
    os-floating-ip-pools=FloatingIpPools os-floating-ips=FloatingIps os-floating-ips-bulk=FloatingIpsBulk
    os-fping=Fping os-hide-server-addresses=HideServerAddresses os-hosts=Hosts os-hypervisor-status=HypervisorStatus
    os-hypervisors=Hypervisors os-instance-actions=InstanceActions os-instance_usage_audit_log=OSInstanceUsageAuditLog
    os-keypairs=Keypairs os-lock-server=LockServer os-migrate-server=MigrateServer os-migrations=Migrations
    os-multiple-create=MultipleCreate os-networks=Networks os-networks-associate=NetworkAssociationSupport
    os-pause-server=PauseServer os-personality=Personality os-preserve-ephemeral-rebuild=PreserveEphemeralOnRebuild
    os-quota-class-sets=QuotaClasses os-quota-sets=Quotas os-rescue=Rescue
    os-security-group-default-rules=SecurityGroupDefaultRules os-security-groups=SecurityGroups
    os-server-diagnostics=ServerDiagnostics os-server-external-events=ServerExternalEvents
    os-server-group-quotas=ServerGroupQuotas os-server-groups=ServerGroups
    os-server-list-multi-status=ServerListMultiStatus os-server-password=ServerPassword
    os-server-sort-keys=ServerSortKeys os-server-start-stop=ServerStartStop os-services=Services os-shelve=Shelve
    os-simple-tenant-usage=SimpleTenantUsage os-suspend-server=SuspendServer os-tenant-networks=OSTenantNetworks
    os-used-limits=UsedLimits os-used-limits-for-admin=UsedLimitsForAdmin os-user-data=UserData
    os-user-quotas=UserQuotas os-virtual-interfaces=VirtualInterfaces
    os-volume-attachment-update=VolumeAttachmentUpdate os-volumes=Volumes
"""
_OF_ALL = {"description": "", "links": [], "updated": "2014-12-03T00:00:00Z"}
_NAMESPACE = "http://docs.openstack.org/compute/ext/fake_xml"
_EXTENSIONS = {
    alias: {"alias": alias, "name": name, "namespace": _NAMESPACE, **_OF_ALL}
    for alias, _, name in (pair.partition("=") for pair in _NAMES.split())
}

_EXTENSION = Shape({**dict.fromkeys(("alias", "name", "namespace", "description", "updated"), TEXT), "links": LINKS})


def extension_routes() -> list[ApiRoute]:
    return [
        ApiRoute("GET", "/extensions", _index, answer=page("extensions", _EXTENSION)),
        ApiRoute("GET", "/extensions/{alias}", _show, answer=Shape({"extension": _EXTENSION}), errors=(404,)),
    ]


async def _index(_request: ApiRequest) -> Response:
    return json_answer({"extensions": list(_EXTENSIONS.values())})


async def _show(request: ApiRequest) -> Response:
    """Show one extension. Raises NotFoundError for an unknown alias."""
    alias = request.http.path_params["alias"]
    if alias not in _EXTENSIONS:
        raise NotFoundError(f"No extension {alias} is there.")
    return json_answer({"extension": _EXTENSIONS[alias]})
