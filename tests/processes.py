"""Runs a function in several processes of torch.distributed, which talk over loopback."""

import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any


def _run(rank: int, count: int, folder: str, function: Callable[..., Any], arguments: tuple) -> None:
    import torch

    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=count
    )
    try:
        found = function(rank, *arguments)
    except Exception as error:  # which the parent reads, as it does a result
        found = f"{type(error).__name__}: {error}"
        Path(folder, f"{rank}.traceback").write_text(traceback.format_exc())
    torch.save(found, Path(folder, f"{rank}.pt"))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def run_processes(count: int, folder: Path, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """Return what ``function(rank, *arguments)`` returns in each process; an error as a text."""
    import torch

    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.multiprocessing.spawn(_run, (count, str(folder), function, arguments), nprocs=count)
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(count)]
