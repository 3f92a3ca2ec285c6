from django.core.management.base import BaseCommand

from fleet import server_client


class Command(BaseCommand):
    help = "Lets the running server's engine load a vault and write a little, so that the first reply finds it warm."

    def add_arguments(self, parser):
        parser.add_argument("name", help="the vault's id, as `vaults` prints it")

    def handle(self, *, name: str, **options):
        self.stdout.write(server_client.ask("warm_up", name=name))
