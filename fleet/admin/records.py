"""What happened: events and the request log. Read only, and fast with 100,000 rows."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import islice
from typing import Any

from asgiref.sync import sync_to_async
from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ERROR_FLAG
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponseRedirect, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.urls import path, reverse
from django.utils.html import format_html

from ..models import ApiKey, Event, Generation, Usage
from ..tables import human_bytes
from ..usage import with_user
from . import cells

EXPORTED_AT_ONCE = 500  # rows


class RecordAdmin(admin.ModelAdmin):
    change_list_template = "admin/fleet/records.html"
    change_form_template = "admin/fleet/record.html"
    delete_selected_confirmation_template = "admin/fleet/records_deletion.html"
    list_per_page = 50
    show_full_result_count = False

    def get_urls(self):
        export = self.admin_site.admin_view(self.export_view)
        return [path("export.csv", export, name=f"fleet_{self.opts.model_name}_export"), *super().get_urls()]

    def export_view(self, request: HttpRequest) -> HttpResponseBase:
        """The rows that the list's filters and search leave, every column; what is no filter leads to the list."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        try:
            left = self.get_changelist_instance(request).get_queryset(request)
        except IncorrectLookupParameters:
            return HttpResponseRedirect(reverse(f"admin:fleet_{self.opts.model_name}_changelist") + f"?{ERROR_FLAG}=1")
        names = [field.attname for field in self.opts.concrete_fields]
        rows = left.values_list(*names).iterator(chunk_size=EXPORTED_AT_ONCE)
        response = StreamingHttpResponse(_exported(names, rows), content_type="text/csv; charset=utf-8")
        response["Content-Disposition"] = f'attachment; filename="{self.opts.model_name}.csv"'
        return response

    def changelist_view(self, request, extra_context=None):
        title = str(self.opts.verbose_name_plural).capitalize()
        return super().changelist_view(request, {"title": title, **(extra_context or {})})

    @admin.display(description="time", ordering="time")
    def when(self, row: Event | Generation):
        return cells.moment(row.time)

    def has_add_permission(self, request):
        return False

    def has_change_permission(self, request, obj=None):
        return False


@admin.register(Event)
class EventAdmin(RecordAdmin):
    list_display = ("when", "kind", "vault", "message")
    list_filter = ("kind", "time")
    search_fields = ("message", "vault")
    fields = ("when", "kind", "vault", "message", "details")


@admin.register(Generation)
class GenerationAdmin(RecordAdmin):
    list_display = ("when", "vault", "who", "tokens", "times", "speed", "outcome")
    list_filter = ("protocol", "finish_reason", "vault", "time")
    search_fields = ("request_id", "client", "client_name", "vault", "error")
    search_help_text = "Request id, key or address, client program, vault or error"

    def get_fieldsets(self, request, obj=None):
        told = ("Outcome", {"fields": ("outcome", *(["error"] if obj and obj.error else []))})
        texts = [name for name in ("prompt", "reply") if obj and getattr(obj, name)]
        text = [("Text", {"fields": [f"text_of_{name}" for name in texts]})] if texts else []
        return [*_REQUEST, told, *text]

    @admin.display(description="client", ordering="client")
    def who(self, row: Generation):
        return cells.noted(row.client or "-", " ".join(filter(None, [row.protocol, _program(row.client_name)])))

    @admin.display(description="tokens", ordering="generated_tokens")
    def tokens(self, row: Generation):
        return _tokens(row)

    @admin.display(description="time", ordering="decode_ms")
    def times(self, row: Generation):
        waits = {"queue": row.queue_ms, "boot": row.boot_ms, "prefill": row.prefill_ms}
        before = ", ".join(f"{name} {_seconds(took)}" for name, took in waits.items() if took or name != "boot")
        return cells.noted(f"decode {_seconds(row.decode_ms)}", before)

    @admin.display(description="speed")
    def speed(self, row: Generation):
        return cells.speed(row.tokens_per_second)

    @admin.display(description="ended", ordering="finish_reason")
    def outcome(self, row: Generation):
        return cells.badge("error", "bad", row.error) if row.error else row.finish_reason

    @admin.display(description="queue")
    def queue(self, row: Generation):
        return _seconds(row.queue_ms)

    @admin.display(description="boot")
    def boot(self, row: Generation):
        return _seconds(row.boot_ms)

    @admin.display(description="prefill")
    def prefill(self, row: Generation):
        return _seconds(row.prefill_ms)

    @admin.display(description="decode")
    def decode(self, row: Generation):
        return _seconds(row.decode_ms)

    @admin.display(description="waiting for disk")
    def stall(self, row: Generation):
        return "-" if row.stall_ms is None else _seconds(row.stall_ms)

    @admin.display(description="expert hits")
    def hits(self, row: Generation):
        return "-" if row.expert_hits is None else f"{row.expert_hits:,}"

    @admin.display(description="expert misses")
    def misses(self, row: Generation):
        return "-" if row.expert_misses is None else f"{row.expert_misses:,}"

    @admin.display(description="read from disk")
    def read(self, row: Generation):
        return "-" if row.bytes_read is None else human_bytes(row.bytes_read)

    @admin.display(description="prompt")
    def text_of_prompt(self, row: Generation):
        return format_html("<pre>{}</pre>", row.prompt)

    @admin.display(description="reply")
    def text_of_reply(self, row: Generation):
        return format_html("<pre>{}</pre>", row.reply)


# Behind white space and marks that nobody sees, which importers drop, and in full width.
_FORMULA = re.compile(r"[\s\u200b-\u200f\ufeff]*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n]")

_REQUEST = (
    (None, {"fields": (("when", "vault", "endpoint"), ("client", "client_name", "request_id"))}),
    ("Tokens", {"fields": (("prompt_tokens", "cached_tokens", "generated_tokens"),)}),
    ("Time", {"fields": (("queue", "boot", "prefill"), ("decode", "stall", "speed"))}),
    ("Experts", {"fields": (("hits", "misses", "read"),)}),
)


class UserFilter(admin.SimpleListFilter):
    """By who owns the keys now."""

    title = parameter_name = "user"

    def lookups(self, request, model_admin):
        owners = ApiKey.objects.exclude(owner=None).values_list("owner__username", flat=True)
        return [(name, name) for name in owners.distinct().order_by("owner__username")]

    def queryset(self, request, queryset):
        return queryset.filter(user=self.value()) if self.value() else queryset


@admin.register(Usage)
class UsageAdmin(RecordAdmin):
    list_display = ("day", "client", "user", "vault", "requests", "errors", "tokens", "time")
    list_filter = ("day", "vault", UserFilter)
    search_fields = ("client", "vault")

    def get_queryset(self, request):
        return with_user(super().get_queryset(request))

    @admin.display(description="user", ordering="user")
    def user(self, row: Usage):
        return row.user or "-"

    @admin.display(description="tokens", ordering="generated_tokens")
    def tokens(self, row: Usage):
        return _tokens(row)

    @admin.display(description="engine time", ordering="seconds")
    def time(self, row: Usage):
        return _seconds(row.seconds * 1000)


def _tokens(row: Generation | Usage):
    cached = f"{row.cached_tokens:,} cached" if row.cached_tokens else "none cached"
    return cells.lines(f"{row.prompt_tokens:,} in, {row.generated_tokens:,} out", cached)


def _program(user_agent: str) -> str:
    """The first word tells programs apart, but for browsers, which all begin with the same."""
    return "browser" if user_agent.startswith("Mozilla/") else user_agent.partition(" ")[0]


async def _exported(names: list[str], rows: Iterator[tuple[Any, ...]]) -> AsyncIterator[str]:
    """In parts, read in the request's own thread: what is no async iterator, ASGI gathers whole before it is sent."""
    part = _csv([names])
    while part:
        yield part
        part = await sync_to_async(_next_part)(rows)


def _next_part(rows: Iterator[tuple[Any, ...]]) -> str:
    return _csv([_harmless(value) for value in row] for row in islice(rows, EXPORTED_AT_ONCE))


def _csv(rows: Iterable[Iterable[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue()


def _harmless(value):
    """Spreadsheets run what begins like a formula, and clients name themselves as they like."""
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value


def _seconds(milliseconds: float) -> str:
    return f"{milliseconds / 1000:.2f} s"
