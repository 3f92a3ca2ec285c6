import json as json_format
from datetime import UTC, datetime, timedelta

from django.core.management.base import BaseCommand
from django.db.models import Sum

from fleet.management import arguments
from fleet.models import Usage
from fleet.tables import table
from fleet.usage import with_user

SUMS = ("requests", "errors", "prompt_tokens", "cached_tokens", "generated_tokens", "seconds")


class Command(BaseCommand):
    help = "Prints what each key (or, without keys, each address), or each user, has used, by UTC day."

    def add_arguments(self, parser):
        parser.add_argument("--days", type=arguments.days, default=30, help="how far back (default 30)")
        parser.add_argument("--client", help="only this key or address")
        parser.add_argument("--by", choices=("client", "user"), default="client", help="user: who owns the keys now")
        parser.add_argument("--json", action="store_true", help="print JSON")

    def handle(self, *, days, client, by, json, **options):
        rows = Usage.objects.filter(day__gt=datetime.now(UTC).date() - timedelta(days=days))
        rows = rows.filter(client=client) if client else rows
        found = with_user(rows).values("day", by).annotate(**{f"sum_{n}": Sum(n) for n in SUMS}).order_by("-day", by)
        lines = [{"day": str(r["day"]), by: r[by], **{n: r[f"sum_{n}"] for n in SUMS}} for r in found]
        if json:
            self.stdout.write(json_format.dumps(lines, indent=2))
            return
        head = ("DAY", by.upper(), "REQUESTS", "ERRORS", "PROMPT", "CACHED", "GENERATED", "ENGINE SECONDS")
        cells = [[*list(line.values())[:-1], f"{line['seconds']:.1f}"] for line in lines]
        self.stdout.write(table(head, cells) if lines else "Nothing has been used.")
