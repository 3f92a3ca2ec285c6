"""System checks: what keeps this installation from serving, each with an id and what to do."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Tags, Warning, register
from django.db import DatabaseError

from smoe_site.words import counted

from . import catalog
from .models import Vault


@register()
def installation(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    return list(_engine()) + list(_directory()) + list(_proxy())


@register(Tags.security, deploy=True)
def deployment(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    if settings.BEHIND_PROXY:
        return []
    return [
        Warning(
            "Passwords, keys and prompts are not encrypted on their way.",
            hint="For other machines put a proxy that ends TLS before the server (deploy/nginx.conf) "
            "and set SMOE_HTTPS=1. On this machine alone nothing is missing.",
            id="smoe.W012",
        )
    ]


@register(Tags.database)
def fleet(app_configs: Any, databases: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """Only where databases are checked: `manage.py check --database default`, and when `serve` starts."""
    if not databases:
        return []
    try:
        catalog.servable()
        return list(_vaults())
    except DatabaseError:
        return []  # not migrated yet: Django says so itself


def _engine() -> Iterator[CheckMessage]:
    engine = settings.SMOE.engine
    if not os.path.isfile(engine):
        yield Warning(f"The engine {engine} is missing.", hint="Build it with `make engine`.", id="smoe.W001")
    elif not os.access(engine, os.X_OK):
        yield Warning(f"The engine {engine} cannot be executed.", hint=f"chmod +x {engine}", id="smoe.W002")


def _directory() -> Iterator[CheckMessage]:
    directory = settings.SMOE.vault_dir
    if not os.path.isdir(directory):
        yield Warning(
            f"The fleet directory {directory} does not exist.",
            hint="Create it, or name another with --vault-dir (SMOE_VAULT_DIR).",
            id="smoe.W003",
        )
    elif not os.access(directory, os.R_OK | os.X_OK):
        yield Warning(
            f"The fleet directory {directory} may not be read.",
            hint="Give the server's user read and execute permission on it.",
            id="smoe.W004",
        )
    vault = settings.SMOE.vault
    if vault is None and settings.SMOE.scout is not None:
        yield Warning("--scout without --vault is not used.", hint="Name its vault with --vault.", id="smoe.W011")
    if vault is not None and not os.path.isfile(vault):
        yield Warning(f"--vault {vault} does not exist.", hint="Name an existing .smoe file.", id="smoe.W005")
    elif vault is not None and _shadows(vault):
        yield Warning(
            f"--vault {vault} has the name of a file in the fleet directory, which is not served.",
            hint="Rename one of them.",
            id="smoe.W006",
        )


def _proxy() -> Iterator[CheckMessage]:
    if settings.BEHIND_PROXY and not any(origin.startswith("https://") for origin in settings.SMOE.allow_origin):
        yield Warning(
            "SMOE_HTTPS=1, but the proxy's address is not known: what comes by it may be refused.",
            hint="Name it with --allow-origin https://NAME (SMOE_ALLOW_ORIGIN).",
            id="smoe.W013",
        )


def _shadows(vault: Any) -> bool:
    other = settings.SMOE.vault_dir / vault.name
    return os.path.exists(other) and not os.path.samefile(other, vault)


def _vaults() -> Iterator[CheckMessage]:
    rows = list(Vault.objects.exclude(state=Vault.State.MISSING))
    servable = [row for row in rows if row.state == Vault.State.SERVABLE]
    if not servable:
        yield Warning(
            "There is no vault that can be served.",
            hint="`manage.py make_demo_vault` makes one; `manage.py vaults` tells what is wrong with others.",
            id="smoe.W007",
        )
    refused = [row.name for row in rows if row.state != Vault.State.SERVABLE]
    if refused:
        yield Warning(
            f"{len(refused)} of {counted(len(rows), 'vault')} cannot be served: {_some(refused)}.",
            hint="`manage.py vaults` tells why.",
            id="smoe.W008",
        )
    for row in servable:
        if row.tokenizer_source == Vault.TokenizerSource.NONE:
            yield Warning(
                f"{row.name} has no tokenizer.",
                hint=f"Put it into {settings.SMOE.checkpoints_dir / row.name}/ or start with --tokenizer.",
                id="smoe.W009",
            )
        elif row.tokenizer_fit == Vault.TokenizerFit.MISFIT:
            yield Warning(f"{row.name}: {row.tokenizer_note}", id="smoe.W010")


def _some(names: list[str]) -> str:
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
