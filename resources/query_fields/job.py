"""The fields of jobs, and of the locks that they hold and wait for."""

from fleetlight.resources.fields import Kind
from fleetlight.resources.query_fields.definitions import FieldFlag, QueryField, QueryFields


def _other(name: str, title: str, doc: str, flags: FieldFlag = FieldFlag.NONE) -> QueryField:
    return QueryField(name, title, Kind.OTHER, doc, flags=flags)


JOB = QueryFields(
    "job",
    (
        QueryField("id", "ID", Kind.NUMBER, "Number of the job", flags=FieldFlag.JOB_ID, is_constant=True),
        QueryField(
            "status",
            "Status",
            Kind.TEXT,
            "State of the job: queued, waiting, canceling, running, canceled, success or error",
        ),
        QueryField(
            "priority", "Priority", Kind.NUMBER, "Lowest priority of the operations that have not ended, -20 to 19"
        ),
        QueryField("archived", "Archived", Kind.BOOL, "Whether the job is in the archive"),
        _other("ops", "OpCodes", "Operations of the job"),
        _other("opresult", "OpCode_result", "Result of each operation"),
        _other("opstatus", "OpCode_status", "State of each operation"),
        _other("oplog", "OpCode_log", "What each operation has logged"),
        _other("opstart", "OpCode_start", "When each operation was taken up"),
        _other("opexec", "OpCode_exec", "When each operation had its locks"),
        _other("opend", "OpCode_end", "When each operation ended"),
        _other("oppriority", "OpCode_prio", "Priority of each operation"),
        _other("summary", "Summary", "Each operation with its main argument"),
        _other("received_ts", "Received", "When the job was accepted", FieldFlag.SPLIT_TIMESTAMP),
        _other("start_ts", "Start", "When the job began", FieldFlag.SPLIT_TIMESTAMP),
        _other("end_ts", "End", "When the job ended", FieldFlag.SPLIT_TIMESTAMP),
        QueryField("instance", "Instance", Kind.TEXT, "Uuid of the instance that it is about, the first one"),
        QueryField("cell", "Cell", Kind.TEXT, "Cell that the job is carried out in"),
    ),
    {},
    unique="id",
    name_field="id",
)

LOCK = QueryFields(
    "lock",
    (
        QueryField("name", "Name", Kind.TEXT, "Level and name of the lock"),
        _other("mode", "Mode", "How it is held, exclusive or shared, null while it is free"),
        _other("owner", "Owner", "Jobs that hold it"),
        _other("pending", "Pending", "Jobs that wait for it, by mode"),
        QueryField("cell", "Cell", Kind.TEXT, "Cell that the lock is of"),
    ),
    {},
    unique="name",
)
