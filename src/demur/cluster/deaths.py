"""Why workers died, in words, and when to give up."""

from __future__ import annotations

from typing import Any

_MOST_DEATHS, _MOST_OUT_OF_MEMORY = 10, 3
"""Workers that may die over one piece of work, and how many of them for want of memory."""

_OUT_OF_MEMORY = "out of memory"


class WorkersDied(RuntimeError):
    """Workers died again and again over the same piece of work."""


def is_of_death(error: Any) -> bool:
    """Tell whether an error of Ray says that a process, a machine or what it held is gone."""
    from ray import exceptions as errors

    if isinstance(error, errors.RayTaskError) and isinstance(error.cause, errors.UserCodeException):
        return False  # a function of a Dataset raised
    if isinstance(error, errors.RayTaskError) and isinstance(error.cause, errors.RayError):
        return True
    gone = errors.RayActorError, errors.ObjectLostError, errors.WorkerCrashedError, errors.NodeDiedError
    # Errors of errors come as text.
    return isinstance(error, gone) or any(
        kind.__name__ in str(error) for kind in (*gone, errors.ActorDiedError)
    )


def describe_death(ray: Any, error: Any) -> str:
    """Return why a worker died, in a line; the first words say if it was for want of memory."""
    text = " ".join(str(error).split())
    lacking = isinstance(error, ray.exceptions.OutOfMemoryError) or "running low on memory" in text
    return f"{_OUT_OF_MEMORY}: {text}" if lacking else text


def refuse_if_hopeless(name: str, deaths: list[str]) -> None:
    """Raise where workers died too often over the same thing, with advice."""
    lacking = [why for why in deaths if why.startswith(_OUT_OF_MEMORY)]
    if len(lacking) >= _MOST_OUT_OF_MEMORY:
        raise WorkersDied(
            f"Ray ended {len(lacking)} workers at {name} for want of memory. Give fewer workers, each with "
            "more (cpus=), smaller batches, or by='members', which holds fewer models in each. "
            f"{lacking[-1][len(_OUT_OF_MEMORY) + 2 :][:400]}"
        )
    if len(deaths) >= _MOST_DEATHS:
        raise WorkersDied(
            f"{len(deaths)} workers died at {name}. If the system ended them for want of memory, which "
            "leaves no other trace than a SIGKILL, give fewer workers or smaller batches; else run that part "
            f"without cluster= to see why. The last one: {deaths[-1][:400]}"
        )
