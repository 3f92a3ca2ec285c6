"""`manage.py serve`: the server in the foreground, with the engine booting behind it."""

from __future__ import annotations

import logging
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from daphne.management.commands.runserver import get_default_application
from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DEFAULT_DB_ALIAS, DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor

from engine.server import ForegroundServer
from fleet import journal, keys, outages, signin
from smoe_site import logs, options
from smoe_site.words import counted

log = logging.getLogger("smoe.server")


class Command(BaseCommand):
    help = "Serves the fleet: the chat console, the OpenAI and Anthropic protocols and the admin, until Ctrl-C."

    requires_system_checks = []  # `handle` asks for them with the database's

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--prepare",
            action="store_true",
            help="first migrate the database, and make the demo vault of an empty fleet",
        )
        options.add_flags(parser.add_argument_group("server", "each also as the environment variable named behind it"))

    def handle(self, *args: Any, **given: Any) -> None:
        launch = settings.SMOE
        _check_directory(launch.vault_dir)
        application = get_default_application()  # which sets up Django's logging again, so it comes before ours
        level = logging.INFO if given["verbosity"] else logging.WARNING
        logs.to_stderr(level, as_json=os.environ.get("SMOE_LOG") == "json")
        with _database():
            if given["prepare"]:
                _prepare()
            self.check(databases=[DEFAULT_DB_ALIAS])
            _check_migrations()
            _check_keys(launch.host)
            self.welcome = _welcome(launch.host)
        server = ForegroundServer(
            application, launch.host, launch.port, launch.data_dir / "server.json", self._say_ready
        )
        journal.begin()
        try:
            server.run()
        finally:
            journal.end()
        if server.failure:
            raise CommandError(server.failure)

    def _say_ready(self, url: str) -> None:
        try:
            self.stdout.write(self._ready(url))
            self.stdout.flush()
        except OSError as error:  # a pipe that nobody reads any more, a full disk: no reason to serve nothing
            log.warning("serving on %s; that could not be written to stdout: %s", url, error.strerror)

    def _ready(self, url: str) -> str:
        place, url = url, _public(url)
        return (
            f"S-MoE is serving on {place}\n"
            f"  chat console        {url}/\n"
            f"  OpenAI base URL     {url}/v1\n"
            f"  Anthropic base URL  {url}\n"
            f"  admin               {url}/admin/\n"
            f"{self._say_welcome(url)}"
            "Ctrl-C stops it."
        )

    def _say_welcome(self, url: str) -> str:
        return f"  first sign-in       {url}{self.welcome}  (works once)\n" if self.welcome else ""


@contextmanager
def _database() -> Iterator[None]:
    """Its errors in a sentence; no connection is kept."""
    try:
        yield
    except DatabaseError as error:
        raise CommandError(outages.sentence_with_place(error)) from error
    finally:
        connection.close()


def _check_directory(named: Path) -> None:
    """The default one is made with the demo vault; another that is not there is a slip of the pen."""
    if named.absolute() != options.Options().vault_dir and not os.path.isdir(named):
        raise CommandError(
            f"The fleet directory {named} does not exist: name one that does with --vault-dir (SMOE_VAULT_DIR), "
            f"or make it first with `mkdir -p {shlex.quote(str(named))}`."
        )


def _prepare() -> None:
    """Here, so that it happens where the launch flags say."""
    call_command("migrate", verbosity=0)
    if settings.SMOE.vault is None:
        call_command("make_demo_vault", if_empty=True)


def _check_migrations() -> None:
    executor = MigrationExecutor(connection)
    if missing := executor.migration_plan(executor.loader.graph.leaf_nodes()):
        raise CommandError(
            f"The database lacks {counted(len(missing), 'migration')}: add --prepare, or run "
            "`python manage.py migrate` first (with SMOE_DATA_DIR in place of a --data-dir)."
        )


def _check_keys(host: str) -> None:
    if refusal := keys.refusal_to_listen(host):
        raise CommandError(refusal)


def _public(url: str) -> str:
    """Behind a proxy that ends TLS, pages work at its address only: cookies are for https."""
    origins = (origin for origin in settings.SMOE.allow_origin if origin.startswith("https://"))
    return next(origins, url) if settings.BEHIND_PROXY else url


def _welcome(host: str) -> str | None:
    """The path of the one-time sign-in link, only where strangers cannot come first."""
    return signin.offer() if keys.is_loopback(host) else None
