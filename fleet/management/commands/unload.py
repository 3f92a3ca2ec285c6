from django.core.management.base import BaseCommand

from fleet import server_client


class Command(BaseCommand):
    help = "Ends the running server's engine and frees its memory; the next request boots it again."

    def handle(self, **options):
        self.stdout.write(server_client.ask("unload"))
