from django.core.management.base import BaseCommand

from fleet import server_client


class Command(BaseCommand):
    help = "Lets the running server's engine run another vault, after the running reply."

    def add_arguments(self, parser):
        parser.add_argument("name", help="the vault's id, as `vaults` prints it")

    def handle(self, *, name: str, **options):
        self.stdout.write(server_client.ask("switch", name=name))
