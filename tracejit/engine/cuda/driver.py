"""The driver of GPUs as a table of function addresses, for calls from native code and Python.

    driver = current()                          # raises DeviceError if there is none
    driver.call("cuStreamCreate", address, 1)   # raises DriverError for a code other than 0
    driver.addresses["cuLaunchKernel"]          # for the executor

`install` replaces the table: tests use a driver that computes on the CPU.

>>> try:
...     driver = current()
... except DeviceError as error:
...     print("libcuda" in str(error))
... else:
...     print(True)
True
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping
from typing import Any

from tracejit.errors import DeviceError
from tracejit.forking import make_lock

LIBRARY = "libcuda.so.1"

NAMES = {
    "cuInit": "cuInit",
    "cuDriverGetVersion": "cuDriverGetVersion",
    "cuGetErrorName": "cuGetErrorName",
    "cuGetErrorString": "cuGetErrorString",
    "cuDeviceGetCount": "cuDeviceGetCount",
    "cuDeviceGet": "cuDeviceGet",
    "cuDeviceGetAttribute": "cuDeviceGetAttribute",
    "cuDevicePrimaryCtxRetain": "cuDevicePrimaryCtxRetain",
    "cuCtxSetCurrent": "cuCtxSetCurrent",
    "cuCtxSynchronize": "cuCtxSynchronize",
    "cuStreamCreate": "cuStreamCreate",
    "cuEventCreate": "cuEventCreate",
    "cuEventRecord": "cuEventRecord",
    "cuEventSynchronize": "cuEventSynchronize",
    "cuMemAlloc": "cuMemAlloc_v2",
    "cuMemFree": "cuMemFree_v2",
    "cuMemHostAlloc": "cuMemHostAlloc",
    "cuMemFreeHost": "cuMemFreeHost",
    "cuMemcpyHtoDAsync": "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync": "cuMemcpyDtoHAsync_v2",
    "cuMemcpyDtoDAsync": "cuMemcpyDtoDAsync_v2",
    "cuModuleLoadData": "cuModuleLoadData",
    "cuModuleGetFunction": "cuModuleGetFunction",
    "cuModuleUnload": "cuModuleUnload",
    "cuLaunchKernel": "cuLaunchKernel",
    "cuMemcpyHtoD": "cuMemcpyHtoD_v2",
    "cuGraphCreate": "cuGraphCreate",
    "cuGraphAddKernelNode": "cuGraphAddKernelNode_v2",
    "cuGraphInstantiate": "cuGraphInstantiateWithFlags",
    "cuGraphExecKernelNodeSetParams": "cuGraphExecKernelNodeSetParams_v2",
    "cuGraphLaunch": "cuGraphLaunch",
    "cuGraphExecDestroy": "cuGraphExecDestroy",
    "cuGraphDestroy": "cuGraphDestroy",
}
"""The driver functions in use, with their versioned symbols in the library."""

MIN_VERSION = 12000
"""The minimum version of CUDA that the driver must support: kernels are PTX 7.8 or later."""

OUT_OF_MEMORY = 2
ERRORS = {
    2: "the device has no memory left",
    100: "there is no device",
    700: "a kernel used an address that is not its memory",
    999: "unknown",
}
"""Explanations of error codes; for all others the driver's name suffices."""


class DriverError(DeviceError):
    """A driver function has returned the error `code`."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class Driver:
    """A driver: a table of function addresses by the names in `NAMES`.

    image: creates the image of a module from a draft, instead of PTX; None: modules are PTX.
    """

    def __init__(self, addresses: Mapping[str, int], keep: object = None, image: Any = None) -> None:
        self.addresses, self._keep = addresses, keep
        self.image = image

    @functools.cache  # noqa: B019  a process has one driver
    def _function(self, name: str, arity: int) -> Any:
        return ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_int64] * arity)(self.addresses[name])

    def code(self, name: str, *arguments: int) -> int:
        """Call a function with integers or addresses as arguments; return its code."""
        return int(self._function(name, len(arguments))(*arguments))

    def call(self, name: str, *arguments: int) -> None:
        """Call a function; raise DriverError unless it returns 0."""
        code = self.code(name, *arguments)
        if code:
            raise self.error(code, name)

    def get(self, name: str, *arguments: int) -> int:
        """Call a function whose first argument is the address of an output; return the output."""
        result = ctypes.c_int64(0)
        self.call(name, ctypes.addressof(result), *arguments)
        return result.value

    def error(self, code: int, subject: str) -> DriverError:
        """Return the exception for a code. subject: the function or device that the message names."""
        hint = ERRORS.get(code)
        text = f"{subject}: {self.name_of(code)}" + (f", {hint}" if hint else "")
        return DriverError(text, code)

    def name_of(self, code: int) -> str:
        """Return the driver's name of a code."""
        name = ctypes.c_char_p()
        self.code("cuGetErrorName", code, ctypes.addressof(name))
        return name.value.decode() if name.value else f"error {code} of the driver"


_lock = make_lock()
_current: Driver | None = None


def install(driver: Driver | None) -> None:
    """Use this driver from now on; None: load the system's driver again at the next use."""
    global _current
    _current = driver


def current() -> Driver:
    """Return the driver in use; raise DeviceError if there is no usable one."""
    global _current
    with _lock:
        if _current is None:
            _current = _open_library()
        return _current


def _open_library() -> Driver:
    """Load and initialise the system's driver; raise DeviceError if that is impossible."""
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise DeviceError(
            f"there is no driver for NVIDIA's GPUs: {LIBRARY} cannot be loaded ({error}); install the driver "
            'of the system, or use arrays on "cpu:0"'
        ) from None
    addresses = {}
    for name, symbol in NAMES.items():
        try:
            addresses[name] = ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value or 0
        except AttributeError:
            raise DeviceError(f"the driver {LIBRARY} is too old: it has no {symbol}; update it") from None
    driver = Driver(addresses, keep=library)
    driver.call("cuInit", 0)
    version = driver.get("cuDriverGetVersion")
    if version < MIN_VERSION:
        raise DeviceError(
            f"the driver supports CUDA {version // 1000}.{version % 1000 // 10}, expected "
            f"{MIN_VERSION // 1000}.{MIN_VERSION % 1000 // 10} at least; update the driver"
        )
    return driver
