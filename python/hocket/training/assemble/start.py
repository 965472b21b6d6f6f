"""Steps from a framework's model to a session: `prepare`, then `session_of`, `elastic_session_of` or `compiled_session_of`."""

from __future__ import annotations

from hocket.refusals import ABLE, ELASTIC, SECOND, check, check_able, refused
from hocket.settings import Settings
from hocket.training.assemble.asked import Given
from hocket.training.assemble.choice import source_of
from hocket.training.beside.spans import Spans
from hocket.training.checkpoint.replicate import replicate
from hocket.training.elastic.commit import Members, warn_of_unwatched
from hocket.training.elastic.giving import Giving
from hocket.training.features import check_inside, check_members_libraries, of_source
from hocket.training.loop.loop import Loop
from hocket.training.memory.framework import Framework, Model
from hocket.training.memory.gradients import agree, gradients_of
from hocket.training.memory.replicas import agree_on_options
from hocket.training.memory.state_parts import StateParts
from hocket.training.process import Process
from hocket.training.programs.run_file import RunFile
from hocket.training.programs.source import ProgramSource
from hocket.training.step.apart import Apart, AsPlanned, Laid
from hocket.training.step.commit import Commit
from hocket.training.step.companion import Companion, MembersCompanion
from hocket.training.step.compiled import CompiledSession
from hocket.training.step.place import Place
from hocket.training.step.reducing import ReducingSession


def prepare(
    framework: Model,
    given: Given,
    *,
    process: Process,
    settings: Settings,
    compiled: bool = False,
) -> ProgramSource:
    """Meet all ranks, give them rank 0's state, and return the source of programs; every rank must call it.

    Args:
        framework: the model and its optimizer.
        given: what the script asks for.
        process: joined.
        settings: of this rank.
        compiled: gradients come out of compiled functions, and the job keeps the plan with which it begins.

    Raises:
        RendezvousError: the models differ. ReplicaError: options of their optimizers do.
        ArtefactError: the plan is not sound, or for another model.
        UsageError: the plan is for another job, promises less than requested, or needs what sessions do not support.
        PolicyError: the policy is refused.
    """
    parameters = framework.parameters()
    agree(parameters, process.job)
    source = source_of(
        gradients_of(parameters),
        given,
        process=process,
        settings=settings,
        remote=framework.remote,
        keeps_plan=compiled,
    )
    replicate(framework, process.job, process.engine)
    if not compiled and source.served is None:
        # Newcomers get theirs at their first forward. Servers apply a push at its worker's own rate, and refuse what cannot differ.
        agree_on_options(framework, process.job)
    return source


def session_of(
    framework: Framework,
    source: ProgramSource,
    *,
    process: Process,
    companion: Companion,
    spans: Spans | None,
) -> ReducingSession:
    """Return a session with loaded programs and hooks. Call its `start` before the script trains."""
    if framework.device is not None:
        check_able("a model on a device", ABLE - {"host"}, of_source(source))
    check_inside(source)
    place = _place(source, process, spans)
    plan = source.plan(source.epochs.current)
    merges = bool(plan.schedule.turns) or (source.autopilot is not None and source.autopilot.delays)
    return ReducingSession(
        framework,
        place,
        companion=companion,
        memory=AsPlanned(merges=merges),
        commit=Commit(),
        merges=merges,
    )


def elastic_session_of(
    framework: Framework,
    source: ProgramSource,
    *,
    process: Process,
    companion: MembersCompanion,
    spans: Spans | None,
    loop: Loop,
    parts: StateParts | None = None,
    ahead: Laid | None = None,
    steps: int = 0,
) -> tuple[ReducingSession, Members]:
    """Return a session in a job whose ranks may be lost, which tells the script's `loop`, and its commit. `parts`: the state, for
    ranks that join; None: they get it when they meet. `ahead`: memory that was made for its first buckets, if any; `steps`: number
    that the job has made until now.

    The process begins to take part in the job afterwards. UsageError: the plan has parts that cannot go on with other members.
    """
    if process.is_member:
        raise refused(ELASTIC, SECOND)
    check(ELASTIC, of_source(source))
    if spans is not None:
        spans.go_on_from(steps)
    memory = Apart(check_members_libraries, ahead)
    giving = None if parts is None else Giving(process.membership, process.job.secret, parts)
    commit = Members(process.membership, loop, memory, companion, giving)
    session = ReducingSession(
        framework,
        _place(source, process, spans),
        companion=companion,
        memory=memory,
        commit=commit,
        merges=bool(source.plan(source.epochs.current).schedule.turns),
        steps=steps,
    )
    warn_of_unwatched(session)
    return session, commit


def go_on_in(
    session: ReducingSession,
    commit: Members,
    source: ProgramSource,
    *,
    process: Process,
    companion: MembersCompanion,
    ahead: Laid | None,
) -> None:
    """Let an existing session go on among the ranks that have just met. `ahead`: see `elastic_session_of`."""
    if session.spans is not None:
        session.spans.go_on_in(process.engine)
    commit.companion, commit.standing.memory.ahead = companion, ahead
    session.go_on_in(_place(source, process, session.spans), companion)
    commit.standing.put_back()


def compiled_session_of(
    model: Model, source: ProgramSource, *, process: Process, spans: Spans | None
) -> CompiledSession:
    """Return a session for a model whose gradients come out of compiled functions."""
    return CompiledSession(gradients_of(model.parameters()), _place(source, process, spans))


def _place(source: ProgramSource, process: Process, spans: Spans | None) -> Place:
    return Place(
        source,
        process.job,
        process.engine,
        process.libraries,
        process.lanes,
        spans,
        RunFile(spans, process.everyone, source, process.measurements.cluster).loaded,
    )
