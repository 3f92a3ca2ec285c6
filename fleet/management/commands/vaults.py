from django.core.management.base import BaseCommand

from fleet import catalog, reports, server_client
from fleet.models import Vault

PATIENCE = 5.0  # seconds; what is listed stands in the database, looked at or not


class Command(BaseCommand):
    help = "Lists the fleet: every vault, its state and what it is made of."

    def add_arguments(self, parser):
        parser.add_argument("--json", action="store_true", help="print JSON")
        parser.add_argument("--state", choices=Vault.State.values, help="only vaults of this state")

    def handle(self, *, json: bool, state: str | None, **options):
        self._look()
        vaults = list(Vault.objects.filter(state=state) if state else Vault.objects.all())
        if state and not vaults and not json and Vault.objects.exists():
            self.stdout.write(f"No vault is {state}.")
        else:
            self.stdout.write(reports.as_json(vaults) if json else reports.as_table(vaults))

    def _look(self) -> None:
        try:
            if server_client.rescan(PATIENCE) is None:
                catalog.servable()  # looks at the disk first
        except server_client.NoAnswer as error:
            self.stderr.write(f"{error} What follows is what it found when it looked last.")
