"""The pool against a Ray of three lines whose workers die when they are told to; no process starts."""

import itertools
import pickle
from types import SimpleNamespace

import pytest

from demur.cluster.deaths import WorkersDied
from demur.cluster.pool import LOST, Piece, Pool, _Worker, pack


class RayError(Exception): ...


class RayTaskError(RayError):
    def __init__(self, cause):
        super().__init__(str(cause))
        self.cause = cause


class ActorDied(RayError): ...


class ObjectLost(RayError): ...


class OutOfMemory(RayError): ...


class SmallRay:
    """As much of Ray as the pool uses: references are numbers, and work is done when it is waited for."""

    exceptions = SimpleNamespace(
        RayError=RayError, RayTaskError=RayTaskError, ObjectLostError=ObjectLost, OutOfMemoryError=OutOfMemory
    )

    def __init__(self):
        self.stored, self.calls, self.actors, self.killed = {}, {}, [], []
        self.numbers = itertools.count()
        self.cloudpickle = SimpleNamespace(dumps=self.pack)

    def pack(self, job):
        """Stand for the job, which all workers share here: they note in it what they do."""
        SmallRay.job = job
        return pickle.dumps(_Shared())

    def put(self, thing):
        self.stored[ref := f"ref {next(self.numbers)}"] = thing
        return ref

    def remote(self, cls):
        outer = self

        class Handle:
            def __init__(self, job, references):
                self.object, self.dead = cls(outer.stored[job], references), None
                outer.actors.append(self)

            def __getattr__(self, name):
                def call(*arguments):
                    refs = [f"ref {next(outer.numbers)}" for _ in range(2)]
                    outer.calls[refs[0]] = (self, name, arguments, refs[1])
                    return refs if name == "run" else refs[0]

                method = SimpleNamespace(remote=call)
                method.options = lambda **_: method
                return method

        return SimpleNamespace(options=lambda **_: SimpleNamespace(remote=Handle))

    def wait(self, refs, num_returns, timeout):
        refs = sorted(refs, key=lambda ref: self.calls[ref][1] != "start")  # the others are not slower
        return refs[:1], refs[1:]

    def get(self, ref):
        actor, name, arguments, result = self.calls[ref]
        if actor.dead is not None:
            raise actor.dead
        try:
            found = getattr(actor.object, name)(*[self.stored.get(a, a) for a in map(_hashable, arguments)])
        except RayError as death:
            if isinstance(death, ActorDied | OutOfMemory):
                actor.dead = death
            raise
        except Exception as error:
            raise RayTaskError(error) from None
        if name == "run":
            self.stored[result] = found[1]
            return found[0]
        return found

    def kill(self, actor):
        self.killed.append(actor)


class _Shared:
    def __reduce__(self):
        return _find_job, ()


def _find_job():
    return SmallRay.job


def _hashable(argument):
    return tuple(argument) if isinstance(argument, list) else argument


class Job:
    """Doubles numbers; dies, or fails, as the deaths it was given say, one after the other."""

    def __init__(self, deaths=()):
        self.deaths, self.done, self.starts = list(deaths), [], 0

    def start(self):
        self.starts += 1

    def run(self, task, *arguments):
        for each in self.deaths:
            if each[0] == task:
                self.deaths.remove(each)
                raise each[1]
        self.done.append(task)
        return 2 * task, ("large", task)


def run(job, pieces, workers=2):
    ray, found = SmallRay(), {}
    with Pool(ray, job, workers, {}) as pool:
        for piece in pieces:
            pool.add(piece)
        while not pool.idle:
            piece, receipt, result = pool.wait()
            assert piece.task not in found
            found[piece.task] = receipt
            if receipt != LOST:
                assert ray.stored[result] == ("large", piece.task)
    return found, ray


def pieces_of(count, parts=1):
    return [Piece(f"inputs {k}", k, part=k % parts) for k in range(count)]


def test_everything_is_done_once_however_often_workers_die() -> None:
    job = Job([(task, ActorDied("killed")) for task in (0, 0, 3, 7, 7, 7, 9)])
    found, ray = run(job, pieces_of(10))
    assert found == {task: 2 * task for task in range(10)}
    assert sorted(job.done) == list(range(10))
    assert len(ray.actors) == 2 + 7  # the job is shared here, so that each death was one worker's
    assert set(ray.actors) == set(ray.killed)  # nobody is left behind


def test_an_error_of_the_work_itself_ends_the_job_as_it_was_raised() -> None:
    with pytest.raises(ValueError, match=r"^bad input$") as caught:
        run(Job([(2, ValueError("bad input"))]), pieces_of(4))
    assert type(caught.value) is ValueError


def test_work_that_kills_every_worker_is_named() -> None:
    with pytest.raises(WorkersDied, match=r"10 workers died at inputs 3\. .* SIGKILL"):
        run(Job([(3, ActorDied("signal 11"))] * 10), pieces_of(5))
    assert run(Job([(3, ActorDied("signal 11"))] * 9), pieces_of(5))[0][3] == 6


def test_want_of_memory_is_named_with_advice_and_soon() -> None:
    for death in (OutOfMemory("Task was killed"), ActorDied("the node was running low on memory")):
        with pytest.raises(WorkersDied, match=r"ended 3 workers at inputs 1 for want of memory\. Give fewer"):
            run(Job([(1, death)] * 3), pieces_of(2))


def test_workers_that_cannot_load_the_models_are_not_hired_for_ever() -> None:
    class Never(Job):
        def start(self):
            raise ActorDied("killed")

    with pytest.raises(WorkersDied, match="10 workers died at loading the models"):
        run(Never(), pieces_of(2))


def test_lost_data_are_asked_for_again_and_lost_sums_go_back_to_who_can_make_them() -> None:
    lost = [(0, ObjectLost("lost")), (1, RayTaskError(ObjectLost("lost")))]
    found, ray = run(Job(lost), pieces_of(3))
    assert found == {0: 0, 1: 2, 2: 4} and len(ray.actors) == 2
    again = [Piece("inputs 0", 0, renewable=True), Piece("inputs 1", 1)]
    assert run(Job(lost), again)[0] == {0: LOST, 1: 2}


@pytest.mark.parametrize(("workers", "parts", "most"), [(3, 3, 3), (4, 2, 4), (2, 4, 8), (1, 3, 6)])
def test_workers_stay_with_the_members_they_have_loaded(workers, parts, most) -> None:
    """Each change of part is a load. A window of 8 blocks is open, as for sums by members."""
    ray, loads, held = SmallRay(), 0, {}
    job = Job()
    with Pool(ray, job, workers, {}) as pool:
        todo = [[Piece("", 100 * block + part, part=part) for part in range(parts)] for block in range(16)]
        done = 0
        for block in todo[:8]:
            for piece in block:
                pool.add(piece)
        while not pool.idle:
            pool.wait()
            done += 1
            if done == 8 * parts:
                for block in todo[8:]:
                    for piece in block:
                        pool.add(piece)
        for actor, name, arguments, _ in ray.calls.values():
            if name == "run":
                part = arguments[0] % 100
                loads += held.get(id(actor)) != part
                held[id(actor)] = part
    assert sorted(job.done) == sorted(piece.task for block in todo for piece in block)
    assert parts <= loads <= most


def test_nothing_is_lost_or_done_twice_where_death_comes_at_any_moment() -> None:
    """Every schedule of up to two deaths among six pieces, with one to three workers."""
    for workers in (1, 2, 3):
        for first, second in itertools.product(range(6), repeat=2):
            job = Job([(first, ActorDied("killed")), (second, ActorDied("killed"))])
            assert run(job, pieces_of(6), workers)[0] == {task: 2 * task for task in range(6)}


class Refusing:
    def __reduce__(self):
        raise RuntimeError("locks stay where they are.")


def _not_there():
    raise ModuleNotFoundError("No module named 'networks'")


class Elsewhere:
    def __reduce__(self):
        return _not_there, ()


def test_what_cannot_travel_is_named() -> None:
    ray = SimpleNamespace(cloudpickle=pickle)
    with pytest.raises(TypeError, match=r"cannot be sent: locks stay where they are. Give functions"):
        pack(ray, Refusing())
    with pytest.raises(TypeError, match=r"cannot open one: No module named 'networks'. Modules of your own"):
        _Worker(pickle.dumps(Elsewhere()), ()).start()


def test_errors_that_nobody_waits_for_are_asked_for_at_the_end() -> None:
    asked, ray = [], SmallRay()
    get, ray.get = ray.get, lambda ref: (asked.append(ref), get(ref))[1]
    pool = Pool(ray, Job(deaths=[(1, ValueError("wrong")), (2, ValueError("wrong"))]), 1, {})
    for number in (1, 2):
        pool.add(Piece(f"{number}", number, part=0))
    with pytest.raises(ValueError, match="wrong"), pool:
        pool.wait()
    assert asked[-2:] == ["ref 5", "ref 6"]  # receipt and result of the second piece
