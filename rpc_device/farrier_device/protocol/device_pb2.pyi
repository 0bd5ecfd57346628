from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DeviceState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DEVICE_STATE_UNSPECIFIED: _ClassVar[DeviceState]
    DEVICE_STATE_READY: _ClassVar[DeviceState]
    DEVICE_STATE_UNHEALTHY: _ClassVar[DeviceState]
    DEVICE_STATE_DRAINING: _ClassVar[DeviceState]

class Acceptance(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACCEPTANCE_UNSPECIFIED: _ClassVar[Acceptance]
    ACCEPTANCE_ACCEPTED: _ClassVar[Acceptance]
    ACCEPTANCE_STALE: _ClassVar[Acceptance]
DEVICE_STATE_UNSPECIFIED: DeviceState
DEVICE_STATE_READY: DeviceState
DEVICE_STATE_UNHEALTHY: DeviceState
DEVICE_STATE_DRAINING: DeviceState
ACCEPTANCE_UNSPECIFIED: Acceptance
ACCEPTANCE_ACCEPTED: Acceptance
ACCEPTANCE_STALE: Acceptance

class Description(_message.Message):
    __slots__ = ("arch", "cpu", "features", "cores", "l1_bytes", "l2_bytes", "l3_bytes", "memory_bytes", "runner", "sandbox", "agent_version", "emulated", "machine", "engines", "host", "kinds", "adapters")
    class EnginesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ARCH_FIELD_NUMBER: _ClassVar[int]
    CPU_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    CORES_FIELD_NUMBER: _ClassVar[int]
    L1_BYTES_FIELD_NUMBER: _ClassVar[int]
    L2_BYTES_FIELD_NUMBER: _ClassVar[int]
    L3_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    RUNNER_FIELD_NUMBER: _ClassVar[int]
    SANDBOX_FIELD_NUMBER: _ClassVar[int]
    AGENT_VERSION_FIELD_NUMBER: _ClassVar[int]
    EMULATED_FIELD_NUMBER: _ClassVar[int]
    MACHINE_FIELD_NUMBER: _ClassVar[int]
    ENGINES_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    KINDS_FIELD_NUMBER: _ClassVar[int]
    ADAPTERS_FIELD_NUMBER: _ClassVar[int]
    arch: str
    cpu: str
    features: _containers.RepeatedScalarFieldContainer[str]
    cores: int
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    memory_bytes: int
    runner: str
    sandbox: str
    agent_version: str
    emulated: bool
    machine: str
    engines: _containers.ScalarMap[str, str]
    host: str
    kinds: _containers.RepeatedScalarFieldContainer[str]
    adapters: _containers.RepeatedCompositeFieldContainer[Adapter]
    def __init__(self, arch: _Optional[str] = ..., cpu: _Optional[str] = ..., features: _Optional[_Iterable[str]] = ..., cores: _Optional[int] = ..., l1_bytes: _Optional[int] = ..., l2_bytes: _Optional[int] = ..., l3_bytes: _Optional[int] = ..., memory_bytes: _Optional[int] = ..., runner: _Optional[str] = ..., sandbox: _Optional[str] = ..., agent_version: _Optional[str] = ..., emulated: _Optional[bool] = ..., machine: _Optional[str] = ..., engines: _Optional[_Mapping[str, str]] = ..., host: _Optional[str] = ..., kinds: _Optional[_Iterable[str]] = ..., adapters: _Optional[_Iterable[_Union[Adapter, _Mapping]]] = ...) -> None: ...

class Adapter(_message.Message):
    __slots__ = ("name", "driver", "emulated", "features", "limits")
    class LimitsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    DRIVER_FIELD_NUMBER: _ClassVar[int]
    EMULATED_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    name: str
    driver: str
    emulated: bool
    features: _containers.RepeatedScalarFieldContainer[str]
    limits: _containers.ScalarMap[str, int]
    def __init__(self, name: _Optional[str] = ..., driver: _Optional[str] = ..., emulated: _Optional[bool] = ..., features: _Optional[_Iterable[str]] = ..., limits: _Optional[_Mapping[str, int]] = ...) -> None: ...

class EnrolRequest(_message.Message):
    __slots__ = ("device_id", "nonce")
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    device_id: str
    nonce: bytes
    def __init__(self, device_id: _Optional[str] = ..., nonce: _Optional[bytes] = ...) -> None: ...

class EnrolReply(_message.Message):
    __slots__ = ("device_id", "generation", "secret")
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    device_id: str
    generation: str
    secret: str
    def __init__(self, device_id: _Optional[str] = ..., generation: _Optional[str] = ..., secret: _Optional[str] = ...) -> None: ...

class RegisterRequest(_message.Message):
    __slots__ = ("device_id", "instance", "description", "protocol", "oldest_protocol")
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    OLDEST_PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    device_id: str
    instance: str
    description: Description
    protocol: int
    oldest_protocol: int
    def __init__(self, device_id: _Optional[str] = ..., instance: _Optional[str] = ..., description: _Optional[_Union[Description, _Mapping]] = ..., protocol: _Optional[int] = ..., oldest_protocol: _Optional[int] = ...) -> None: ...

class RegisterReply(_message.Message):
    __slots__ = ("session", "heartbeat_interval_ms", "protocol")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    session: str
    heartbeat_interval_ms: int
    protocol: int
    def __init__(self, session: _Optional[str] = ..., heartbeat_interval_ms: _Optional[int] = ..., protocol: _Optional[int] = ...) -> None: ...

class Session(_message.Message):
    __slots__ = ("device_id", "id")
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    device_id: str
    id: str
    def __init__(self, device_id: _Optional[str] = ..., id: _Optional[str] = ...) -> None: ...

class HeartbeatRequest(_message.Message):
    __slots__ = ("session", "state", "message", "leases", "health")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    LEASES_FIELD_NUMBER: _ClassVar[int]
    HEALTH_FIELD_NUMBER: _ClassVar[int]
    session: Session
    state: DeviceState
    message: str
    leases: _containers.RepeatedScalarFieldContainer[str]
    health: Health
    def __init__(self, session: _Optional[_Union[Session, _Mapping]] = ..., state: _Optional[_Union[DeviceState, str]] = ..., message: _Optional[str] = ..., leases: _Optional[_Iterable[str]] = ..., health: _Optional[_Union[Health, _Mapping]] = ...) -> None: ...

class Health(_message.Message):
    __slots__ = ("celsius", "limit_celsius", "clock_mhz", "max_clock_mhz", "throttled", "throttles", "waits")
    CELSIUS_FIELD_NUMBER: _ClassVar[int]
    LIMIT_CELSIUS_FIELD_NUMBER: _ClassVar[int]
    CLOCK_MHZ_FIELD_NUMBER: _ClassVar[int]
    MAX_CLOCK_MHZ_FIELD_NUMBER: _ClassVar[int]
    THROTTLED_FIELD_NUMBER: _ClassVar[int]
    THROTTLES_FIELD_NUMBER: _ClassVar[int]
    WAITS_FIELD_NUMBER: _ClassVar[int]
    celsius: float
    limit_celsius: float
    clock_mhz: int
    max_clock_mhz: int
    throttled: str
    throttles: int
    waits: str
    def __init__(self, celsius: _Optional[float] = ..., limit_celsius: _Optional[float] = ..., clock_mhz: _Optional[int] = ..., max_clock_mhz: _Optional[int] = ..., throttled: _Optional[str] = ..., throttles: _Optional[int] = ..., waits: _Optional[str] = ...) -> None: ...

class HeartbeatReply(_message.Message):
    __slots__ = ("revoked",)
    REVOKED_FIELD_NUMBER: _ClassVar[int]
    revoked: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, revoked: _Optional[_Iterable[str]] = ...) -> None: ...

class LeaseRequest(_message.Message):
    __slots__ = ("session", "wait_ms")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    session: Session
    wait_ms: int
    def __init__(self, session: _Optional[_Union[Session, _Mapping]] = ..., wait_ms: _Optional[int] = ...) -> None: ...

class LeaseReply(_message.Message):
    __slots__ = ("batch",)
    BATCH_FIELD_NUMBER: _ClassVar[int]
    batch: Batch
    def __init__(self, batch: _Optional[_Union[Batch, _Mapping]] = ...) -> None: ...

class Batch(_message.Message):
    __slots__ = ("lease", "fence", "manifest", "signature", "deadline_ms")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    lease: str
    fence: int
    manifest: bytes
    signature: bytes
    deadline_ms: int
    def __init__(self, lease: _Optional[str] = ..., fence: _Optional[int] = ..., manifest: _Optional[bytes] = ..., signature: _Optional[bytes] = ..., deadline_ms: _Optional[int] = ...) -> None: ...

class ReportRequest(_message.Message):
    __slots__ = ("session", "lease", "fence", "result", "signature")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    session: Session
    lease: str
    fence: int
    result: bytes
    signature: bytes
    def __init__(self, session: _Optional[_Union[Session, _Mapping]] = ..., lease: _Optional[str] = ..., fence: _Optional[int] = ..., result: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class ReportReply(_message.Message):
    __slots__ = ("acceptance",)
    ACCEPTANCE_FIELD_NUMBER: _ClassVar[int]
    acceptance: Acceptance
    def __init__(self, acceptance: _Optional[_Union[Acceptance, str]] = ...) -> None: ...

class GetBlobRequest(_message.Message):
    __slots__ = ("session", "sha256", "offset")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    session: Session
    sha256: str
    offset: int
    def __init__(self, session: _Optional[_Union[Session, _Mapping]] = ..., sha256: _Optional[str] = ..., offset: _Optional[int] = ...) -> None: ...

class BlobChunk(_message.Message):
    __slots__ = ("data",)
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    def __init__(self, data: _Optional[bytes] = ...) -> None: ...
