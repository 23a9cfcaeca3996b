"""The driver of GPUs as a table of function addresses, which native code calls, and so does Python.

    driver = current()                          # raises DeviceError: what is missing
    driver.call("cuStreamCreate", place, 1)     # raises DeviceError for a code other than 0
    driver.addresses["cuLaunchKernel"]          # for the executor

`install` puts another table in its place: tests have a driver that computes on the CPU.

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
"""The functions used of the driver, with the names of their versions in the library."""

OLDEST = 12000
"""The oldest version of CUDA that a driver must support: kernels are PTX 7.8 and later."""

OUT_OF_MEMORY = 2
ERRORS = {
    2: "the device has no memory left",
    100: "there is no device",
    700: "a kernel used an address that is not its memory",
    999: "unknown",
}
"""Messages for error codes that have a remedy; the driver names all others."""


class DriverError(DeviceError):
    """A function of the driver returned `code`."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class Driver:
    """A table of functions. `addresses`: by the names above."""

    def __init__(self, addresses: Mapping[str, int], keep: object = None, image: Any = None) -> None:
        self.addresses, self._keep = addresses, keep
        self.image = image
        """A function that makes the image of a module from a draft, in the place of PTX; None: PTX."""

    @functools.cache  # noqa: B019  a process has one driver
    def _function(self, name: str, arity: int) -> Any:
        return ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_int64] * arity)(self.addresses[name])

    def code(self, name: str, *arguments: int) -> int:
        """The code that a function returns; all arguments are integers or addresses."""
        return int(self._function(name, len(arguments))(*arguments))

    def call(self, name: str, *arguments: int) -> None:
        """Call a function; raises DriverError unless it returns 0."""
        code = self.code(name, *arguments)
        if code:
            raise self.error(code, name)

    def get(self, name: str, *arguments: int) -> int:
        """Call a function whose first argument is where its result goes; the result."""
        place = ctypes.c_int64(0)
        self.call(name, ctypes.addressof(place), *arguments)
        return place.value

    def error(self, code: int, what: str) -> DriverError:
        """The exception for a code."""
        known = ERRORS.get(code)
        text = f"{what}: {self.name_of(code)}" + (f", {known}" if known else "")
        return DriverError(text, code)

    def name_of(self, code: int) -> str:
        """The driver's name of a code."""
        place = ctypes.c_char_p()
        self.code("cuGetErrorName", code, ctypes.addressof(place))
        return place.value.decode() if place.value else f"error {code} of the driver"


_lock = make_lock()
_current: Driver | None = None


def install(driver: Driver | None) -> None:
    """Use this driver from now on; None: look for the system's again."""
    global _current
    _current = driver


def current() -> Driver:
    """The driver; raises DeviceError if there is none that can be used."""
    global _current
    with _lock:
        if _current is None:
            _current = _opened()
        return _current


def _opened() -> Driver:
    """The system's driver, ready."""
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
    if version < OLDEST:
        raise DeviceError(
            f"the driver supports CUDA {version // 1000}.{version % 1000 // 10}, expected "
            f"{OLDEST // 1000}.{OLDEST % 1000 // 10} at least; update the driver"
        )
    return driver
