"""Applies one verb to several jobs: one line for each job, and one exit code for all."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from recovery.cli.arguments import ServerOptions
from recovery.cli.connection import CommandError, Connection, chosen_namespace, connect, error_words
from recovery.cli.exit_codes import EXIT_FAILURE, print_error
from recovery.core.model.facts import GroupKey
from recovery.ports import ApiError, NoSuchResourceError, TryLaterError, UnauthorizedError, UntrustedServerError

T = TypeVar("T")


async def for_each_job(
    server: ServerOptions,
    namespace: str | None,
    jobs: Sequence[str],
    one: Callable[[Connection, GroupKey], Awaitable[str]],
) -> int:
    """Print the result of `one` for each job, once, or its error on stderr. Returns 1 if any job failed."""
    code = 0
    async with connect(server) as connection:
        where = await chosen_namespace(server, namespace)
        for name in dict.fromkeys(jobs):
            key = GroupKey(where, name)
            said = await attempted(key, one(connection, key))
            if said is None:
                code = EXIT_FAILURE
            else:
                print(said, flush=True)
    return code


async def attempted(key: GroupKey, work: Awaitable[T]) -> T | None:
    """The result of the work. None: it failed, and the error was printed. An error that all jobs share is raised."""
    try:
        return await work
    except CommandError as error:
        print_error(str(error))
    except (TryLaterError, UnauthorizedError, UntrustedServerError, NoSuchResourceError):
        raise
    except ApiError as error:
        print_error(f"{key}: {error_words(error)}")
    return None
