import re
import shutil
from pathlib import Path

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.template.defaultfilters import filesizeformat

from fleet.management.progress import ProgressLine
from fleet.management.writing import writing
from fleet.shatter import ShatterError, tokenizer
from fleet.shatter.checkpoint import Checkpoint
from fleet.shatter.convert import ErrorMeter, convert
from fleet.shatter.keys import Mxfp4Experts
from fleet.shatter.plan import Conversion, plan

STEM = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class Command(BaseCommand):
    help = "Turn a Hugging Face checkpoint into a vault: OUT_DIR/<name>.smoe and its scout."
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("checkpoint", type=Path, metavar="CHECKPOINT_DIR", help="with config.json and safetensors")
        parser.add_argument("out", type=Path, metavar="OUT_DIR", help="the fleet directory, or another")
        parser.add_argument("--bits", type=int, choices=(2, 4, 8), default=4, help="a weight (default 4)")
        parser.add_argument("--name", metavar="STEM", help="the vault's id (default: the checkpoint's directory)")
        parser.add_argument("--dry-run", action="store_true", help="tell what would be written, write nothing")
        parser.add_argument("--validate", action="store_true", help="read back and compare before the vault appears")
        parser.add_argument("--measure-error", action="store_true", help="tell each layer's relative RMS error")
        parser.add_argument("--force", action="store_true", help="replace a vault of this name")

    def handle(self, *, checkpoint: Path, out: Path, name: str | None, bits: int, **options: bool) -> None:
        try:
            source = Checkpoint(checkpoint)
            conversion = plan(source, bits)
            smoe = out / f"{_stem(name or source.name)}.smoe"
            self._describe(conversion, smoe)
            if not options["dry_run"]:
                _check_target(smoe, conversion.disk_need, options["force"])
                self._convert(source, conversion, smoe, options["measure_error"], options["validate"])
        except ShatterError as error:
            raise CommandError(str(error)) from None

    def _describe(self, conversion: Conversion, smoe: Path) -> None:
        vault, a = conversion.vault, conversion.vault.architecture
        self.stdout.write(
            f"{smoe}: {a.model_type}, {a.layers} layers ({len(vault.moe_layers)} with experts), "
            f"{vault.experts} experts of {a.moe_ffn} x {vault.d_model} a layer, {a.top_k} used\n"
            f"{vault.bits} bits a weight: experts {_size(vault.file_size)} ({_size(vault.padded_size)} each), "
            f"trunk {_size(conversion.scout_size)}; needs {_size(conversion.disk_need)} of disk"
        )
        if isinstance(conversion.keys, Mxfp4Experts) and vault.bits < 8:
            self.stdout.write(
                f"These experts are MXFP4, whose values lie between those of {vault.bits} bits: "
                "--bits 8 keeps them nearly exactly."
            )

    def _convert(self, source: Checkpoint, conversion: Conversion, smoe: Path, measure: bool, validate: bool) -> None:
        meter = ErrorMeter(conversion) if measure else None
        validating = ProgressLine("Validating", "experts") if validate else None
        kept = settings.SMOE.checkpoints_dir / smoe.stem
        with writing(smoe):
            tokenizer.copy(source.folder, kept)
            convert(source, conversion, smoe, ProgressLine("Experts", "written"), meter=meter, validating=validating)
        for layer, error in meter.by_layer().items() if meter else ():
            self.stdout.write(f"layer {layer}: relative RMS error {error:.5f}")
        self.stdout.write(f"{smoe} is ready.")
        if not (kept / "tokenizer.json").is_file():
            self.stderr.write(f"The checkpoint has no tokenizer.json: put one into {kept} before the vault is served.")


def _size(count: int) -> str:
    return filesizeformat(count).replace("\xa0", " ")


def _stem(name: str) -> str:
    if not STEM.fullmatch(name):
        raise CommandError(f"{name!r} is no usable id: give one with --name (letters, digits, '.', '_', '-').")
    return name


def _check_target(smoe: Path, need: int, force: bool) -> None:
    if smoe.exists() and not force:
        raise CommandError(f"{smoe} is there already: --force replaces it, --name gives another name.")
    try:
        smoe.parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(smoe.parent).free
    except OSError as error:
        raise CommandError(f"{smoe.parent} cannot be used: {error}.") from None
    if free < need:
        raise CommandError(f"{smoe.parent} has {_size(free)} free, {_size(need)} are needed: make room.")
