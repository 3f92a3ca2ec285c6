from django.core.management.base import BaseCommand, CommandError

from fleet import keys
from fleet.models import ApiKey


class Command(BaseCommand):
    help = "Revokes an API key: a running server refuses it within two seconds."

    def add_arguments(self, parser):
        parser.add_argument("name")

    def handle(self, *, name, **options):
        row = ApiKey.objects.filter(name=name).first()
        if row is None:
            known = ", ".join(ApiKey.objects.values_list("name", flat=True)) or "none"
            raise CommandError(f"There is no key {name}; the keys are: {known}.")
        keys.revoke(row)
        self.stdout.write(f"The key {name} is revoked.")
