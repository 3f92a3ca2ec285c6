from datetime import timedelta

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from fleet import keys
from fleet.management import arguments
from fleet.models import Vault


class Command(BaseCommand):
    help = "Makes an API key and prints it, once. While there is any key, every request needs one."

    def add_arguments(self, parser):
        parser.add_argument("name", help="whose key it is, as logs and usage name it")
        parser.add_argument("--days", type=arguments.days, help="how long it is valid; for ever without")
        parser.add_argument("--requests-at-once", type=int, metavar="N", help="running and waiting ones together")
        parser.add_argument("--tokens-a-day", type=int, metavar="N", help="prompt and reply together, by UTC day")
        parser.add_argument("--vault", action="append", default=[], metavar="ID", help="only this one; may be repeated")

    def handle(self, *, name, days, requests_at_once, tokens_a_day, vault, **options):
        vaults = list(Vault.objects.filter(name__in=vault))
        if unknown := set(vault) - {row.name for row in vaults}:
            raise CommandError(f"There is no vault {', '.join(sorted(unknown))} in the fleet; `vaults` lists them.")
        try:
            row, key = keys.create(
                name,
                expires=timezone.now() + timedelta(days=days) if days is not None else None,
                requests_at_once=requests_at_once,
                tokens_a_day=tokens_a_day,
            )
        except ValidationError as error:
            raise CommandError(arguments.faults(error)) from None
        row.vaults.set(vaults)
        self.stdout.write(key)
        self.stderr.write("Keep it: it cannot be shown again.")
