"""What happened: events and the request log. Read only, and fast with 100,000 rows."""

from __future__ import annotations

import csv

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.urls import path

from ..models import Event, Generation, Usage
from . import cells


class RecordAdmin(admin.ModelAdmin):
    change_list_template = "admin/fleet/records.html"
    list_per_page = 50
    show_full_result_count = False

    def get_urls(self):
        export = self.admin_site.admin_view(self.export_view)
        return [path("export.csv", export, name=f"fleet_{self.opts.model_name}_export"), *super().get_urls()]

    def export_view(self, request: HttpRequest) -> HttpResponse:
        """The rows that the list's filters and search leave, every column."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        response = HttpResponse(content_type="text/csv; charset=utf-8")
        response["Content-Disposition"] = f'attachment; filename="{self.opts.model_name}.csv"'
        names = [field.attname for field in self.opts.concrete_fields]
        writer = csv.writer(response)
        writer.writerow(names)
        rows = self.get_changelist_instance(request).get_queryset(request).values_list(*names)
        writer.writerows([_harmless(value) for value in row] for row in rows.iterator(chunk_size=2000))
        return response

    def has_add_permission(self, request):
        return False

    def has_change_permission(self, request, obj=None):
        return False


@admin.register(Event)
class EventAdmin(RecordAdmin):
    list_display = ("time", "kind", "vault", "message")
    list_filter = ("kind", "time")
    search_fields = ("message", "vault")


@admin.register(Generation)
class GenerationAdmin(RecordAdmin):
    list_display = (
        *("time", "protocol", "vault", "client", "prompt_tokens", "cached_tokens", "generated_tokens"),
        *("queue", "prefill", "decode", "speed", "outcome"),
    )
    list_filter = ("protocol", "finish_reason", "vault", "time")
    search_fields = ("request_id", "client", "client_name", "vault", "error")

    @admin.display(description="queue", ordering="queue_ms")
    def queue(self, row: Generation):
        return _seconds(row.queue_ms + row.boot_ms)

    @admin.display(description="prefill", ordering="prefill_ms")
    def prefill(self, row: Generation):
        return _seconds(row.prefill_ms)

    @admin.display(description="decode", ordering="decode_ms")
    def decode(self, row: Generation):
        return _seconds(row.decode_ms)

    @admin.display(description="speed")
    def speed(self, row: Generation):
        return cells.speed(row.tokens_per_second)

    @admin.display(description="ended", ordering="finish_reason")
    def outcome(self, row: Generation):
        return cells.badge("error", "bad", row.error) if row.error else row.finish_reason


@admin.register(Usage)
class UsageAdmin(RecordAdmin):
    list_display = (
        *("day", "client", "vault", "requests", "errors"),
        *("prompt_tokens", "cached_tokens", "generated_tokens", "time"),
    )
    list_filter = ("day", "vault")
    search_fields = ("client", "vault")

    @admin.display(description="engine time", ordering="seconds")
    def time(self, row: Usage):
        return _seconds(row.seconds * 1000)


def _harmless(value):
    """Spreadsheets run what begins like a formula, and clients name themselves as they like."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value


def _seconds(milliseconds: float) -> str:
    return f"{milliseconds / 1000:.2f} s"
