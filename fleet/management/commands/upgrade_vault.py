from pathlib import Path

from django.core.management.base import BaseCommand, CommandError, CommandParser

from fleet.management.writing import pair_of, writing
from fleet.vaultfile.errors import VaultError
from fleet.vaultfile.upgrade import upgrade


class Command(BaseCommand):
    help = "Write the architecture into a version-1 vault, in place: it becomes version 2 and needs no config.json."
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("vault", metavar="PATH_OR_ID", help="a .smoe file, or a vault's id")
        parser.add_argument("--config", type=Path, help="config.json (default: checkpoints/<id>/, or the scout's)")

    def handle(self, *, vault: str, config: Path | None, **options: object) -> None:
        smoe, scout, default_config = pair_of(vault)
        if config is not None and not config.is_file():
            raise CommandError(f"--config {config} is not there.")
        try:
            with writing(smoe):
                source = upgrade(smoe, scout, config or default_config)
        except VaultError as error:
            raise CommandError(error.message) from None
        self.stdout.write(f"{smoe} is of version 2 now ({source}).")
