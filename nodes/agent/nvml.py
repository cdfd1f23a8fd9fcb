"""`python -m nodes.agent.nvml`: one look at the GPUs through NVML, printed as JSON.

A process of its own, because a driver can block for minutes or take the process with it.
"""

import json
import os
import pwd
import sys
import time
from collections.abc import Callable
from typing import Any

from nodes.agent import proctree

TICKS = os.sysconf("SC_CLK_TCK")


def main() -> None:
    proctree.die_with_parent()
    json.dump(look(), sys.stdout)


def look() -> dict[str, Any]:
    """{"gpus": [...], "reason": why there are none, or ""}."""
    try:
        import pynvml
    except ImportError:
        return {"gpus": [], "reason": "The package nvidia-ml-py is not installed."}
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return {"gpus": [], "reason": _why_none(pynvml, error)}
    try:
        count = pynvml.nvmlDeviceGetCount()
        return {"gpus": [_gpu(pynvml, index) for index in range(count)], "reason": ""}
    except pynvml.NVMLError as error:
        return {"gpus": [], "reason": f"NVML: {error}"}
    finally:
        pynvml.nvmlShutdown()


def _why_none(pynvml: Any, error: Exception) -> str:
    value = getattr(error, "value", None)
    if value in (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED):
        return "No NVIDIA driver was found on this machine."
    if value == pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH:
        return "Driver/library version mismatch: the driver was changed and not loaded again."
    return f"NVML: {error}"


def _gpu(pynvml: Any, index: int) -> dict[str, Any]:
    gpu: dict[str, Any] = {"uuid": "", "index": index, "model": "", "memory_bytes": 0}
    gpu |= {"minor": None, "simulated": False, "usable": True, "reason": "", "processes": []}
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        gpu["uuid"] = _text(pynvml.nvmlDeviceGetUUID(handle))
        gpu["model"] = _text(pynvml.nvmlDeviceGetName(handle))
        gpu["memory_bytes"] = int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
        gpu["minor"] = _told(pynvml, lambda: pynvml.nvmlDeviceGetMinorNumber(handle), None)
        gpu["processes"] = _processes(pynvml, handle)
        gpu["reason"] = _fault(pynvml, handle)
    except pynvml.NVMLError as error:
        gpu["reason"] = f"NVML: {error}"
    gpu["usable"] = not gpu["reason"]
    return gpu


def _told(pynvml: Any, ask: Callable[[], Any], otherwise: Any) -> Any:
    """What the driver says, or `otherwise` where this model has no answer."""
    try:
        return ask()
    except pynvml.NVMLError as error:
        silent = (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        if getattr(error, "value", None) in silent or isinstance(
            error, pynvml.NVMLError_FunctionNotFound
        ):
            return otherwise
        raise


def _fault(pynvml: Any, handle: Any) -> str:
    """Why this GPU must not be used, or "". Volatile counts begin again with the driver."""
    errors = _told(
        pynvml,
        lambda: pynvml.nvmlDeviceGetTotalEccErrors(
            handle, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC
        ),
        0,
    )
    if errors:
        return f"{errors} uncorrectable memory (ECC) errors since the driver was loaded."
    return ""


def _processes(pynvml: Any, handle: Any) -> list[dict[str, Any]]:
    pids = set()
    for ask in (
        pynvml.nvmlDeviceGetComputeRunningProcesses,
        pynvml.nvmlDeviceGetGraphicsRunningProcesses,
    ):
        found = _told(pynvml, lambda ask=ask: ask(handle), [])  # type: ignore[misc]
        pids |= {int(process.pid) for process in found}
    return [_process(pid) for pid in sorted(pids)]


def _process(pid: int) -> dict[str, Any]:
    """Whose a process is and how long it has run; blanks where it is gone or hidden."""
    since = None
    if one := proctree.identity(pid):
        uptime = time.clock_gettime(time.CLOCK_BOOTTIME)
        since = max(0, round((uptime - one.since / TICKS) * 1000))
    ancestors = proctree.ancestors(pid)
    return {"pid": pid, "user": _user(pid), "since_ms": since, "ancestors": ancestors}


def _user(pid: int) -> str:
    """The name of a process's user, its number where it has no name here, "" when it has ended."""
    try:
        uid = os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return ""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


if __name__ == "__main__":
    main()
