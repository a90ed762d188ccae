"""Jobs in, tokens out, in order, on several processes, with a bounded number under way."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from itertools import chain, islice
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from queue import SimpleQueue

from dpbench.data.jobs import Job, Recipe, Tokenizing, Tokens
from dpbench.data.tokenizers import Vocabulary
from dpbench.errors import SetupError

INLINE_JOBS = 12
"""A process needs half a second to start, in which this one does about as many jobs."""
Answer = list[Tokens] | tuple[str, str]
"""Tokens, one value a key, or message and hint of an error."""


def tokenize_all(
    jobs: Iterable[Job], vocabulary: Vocabulary, recipe: Recipe, workers: int
) -> Generator[list[Tokens]]:
    """Yield the tokens of each job, in the order of the jobs.

    A short input is done here, a long one by `workers` processes. Errors: SetupError.
    """
    waiting = iter(jobs)
    first = list(islice(waiting, INLINE_JOBS + 1))
    if len(first) <= INLINE_JOBS or workers == 1:
        yield from map(Tokenizing(vocabulary, recipe), chain(first, waiting))
        return
    yield from tokenize_parallel(chain(first, waiting), vocabulary, recipe, workers)


def tokenize_parallel(
    jobs: Iterable[Job], vocabulary: Vocabulary, recipe: Recipe, workers: int
) -> Generator[list[Tokens]]:
    """Deal the jobs to processes. Each ends when its pipe does, also when this one is killed."""
    saved = replace(vocabulary, tokenizer=None)
    started = [start_worker(saved, recipe) for _ in range(workers)]
    idle: SimpleQueue[Connection] = SimpleQueue()
    for _, connection in started:
        idle.put(connection)
    pool = ThreadPoolExecutor(workers)
    under_way: deque[Future[list[Tokens]]] = deque()
    try:
        for job in jobs:
            under_way.append(pool.submit(ask, idle, job))
            if len(under_way) > 2 * workers:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for process, _ in started:
            process.kill()  # it holds nothing that could be lost
        pool.shutdown()
        for process, connection in started:
            process.join()
            connection.close()


def start_worker(vocabulary: Vocabulary, recipe: Recipe) -> tuple[BaseProcess, Connection]:
    """Start a process that serves jobs."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs, vocabulary, recipe), daemon=True)
    process.start()
    theirs.close()
    return process, ours


def ask(idle: SimpleQueue[Connection], job: Job) -> list[Tokens]:
    """Have an idle worker do a job. Errors: SetupError, the worker's or for its death."""
    worker = idle.get()
    try:
        worker.send(job)
        answer: Answer = worker.recv()
    except (EOFError, ConnectionError):
        hint = "it may have been killed for memory; use fewer --workers"
        raise SetupError("a worker process died", hint=hint) from None
    finally:
        idle.put(worker)
    if isinstance(answer, tuple):
        message, fix = answer
        raise SetupError(message, hint=fix)
    return answer


def serve(connection: Connection, vocabulary: Vocabulary, recipe: Recipe) -> None:
    """Answer jobs until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole terminal's group
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    tokenizing: Tokenizing | None = None
    while True:
        try:
            job: Job = connection.recv()
        except (EOFError, ConnectionError):
            return
        try:
            tokenizing = tokenizing or Tokenizing(vocabulary, recipe)
            answer: Answer = tokenizing(job)
        except SetupError as error:
            answer = (str(error), error.hint)
        connection.send(answer)
