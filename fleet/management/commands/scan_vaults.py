from django.core.management.base import BaseCommand

from fleet import catalog, reports, server_client
from fleet.events import record
from fleet.models import Vault


class Command(BaseCommand):
    help = "Looks at the fleet directory, records what is there and prints it."

    def add_arguments(self, parser):
        parser.add_argument("--json", action="store_true", help="print JSON")

    def handle(self, *, json: bool, **options):
        told = server_client.rescan() or _look()
        vaults = list(Vault.objects.all())
        self.stdout.write(reports.as_json(vaults) if json else reports.as_table(vaults))
        if not json:
            self.stderr.write(told)


def _look() -> str:
    scan = catalog.rescan()
    record("rescan", f"Rescan: {scan}")
    return f"{scan}, in {scan.seconds:.2f} s."
