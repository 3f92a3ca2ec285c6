from pathlib import Path

from django.core.management.base import BaseCommand, CommandError, CommandParser

from fleet.management.progress import ProgressLine
from fleet.management.writing import pair_of
from fleet.vaultfile.verify import verify


class Command(BaseCommand):
    help = "Read whole vaults and tell what is wrong with them: structure, scales, padding, the scout's tensors."
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("vaults", nargs="+", metavar="PATH_OR_ID", help="a .smoe file, or a vault's id")

    def handle(self, *, vaults: list[str], **options: object) -> None:
        pairs = {vault: pair_of(vault) for vault in vaults}
        if failed := [vault for vault, paths in pairs.items() if not self._is_sound(vault, paths)]:
            raise CommandError(f"{len(failed)} of {len(vaults)} not sound: {', '.join(failed)}")

    def _is_sound(self, vault: str, paths: tuple[Path, Path, Path]) -> bool:
        problems = verify(*paths, ProgressLine(vault, "bytes"))
        for problem in problems:
            self.stdout.write(f"{vault}: {problem}")
        if not problems:
            self.stdout.write(f"{vault}: sound")
        return not problems
