"""What the operator keeps: vaults seen, what happened, and one row a generation. Knows no file format, no process."""

from __future__ import annotations

from ipaddress import ip_address

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import MinValueValidator
from django.db import models
from django.utils.translation import gettext_lazy as _


class Vault(models.Model):
    """One `<name>.smoe` as it was last seen. `catalog` turns the servable ones into cards."""

    class State(models.TextChoices):
        SERVABLE = "servable", _("servable")
        INCOMPLETE = "incomplete", _("incomplete")
        INVALID = "invalid", _("invalid")
        MISSING = "missing", _("missing")

    class TokenizerSource(models.TextChoices):
        OWN = "own", _("its own")
        FALLBACK = "fallback", _("fallback")
        NONE = "none", _("none")

    class TokenizerFit(models.TextChoices):
        FITS = "fits", _("fits")
        MISFIT = "misfit", _("does not fit")
        UNKNOWN = "unknown", _("unknown")

    name = models.CharField(_("id"), max_length=255, unique=True)
    state = models.CharField(max_length=16, choices=State, db_index=True)
    reason = models.TextField(blank=True, help_text=_("Why it cannot be served, and what to do."))

    vault_path = models.TextField(_("vault file"))
    scout_path = models.TextField(_("scout file"))
    vault_bytes = models.BigIntegerField(_("vault size"), default=0)
    scout_bytes = models.BigIntegerField(_("scout size"), default=0)
    modified = models.DateTimeField(null=True, help_text=_("When the newer of the two files last changed."))
    signature = models.TextField(editable=False, blank=True, help_text="The files' stat figures; empty: read again.")
    fingerprint = models.CharField(max_length=64, blank=True, help_text=_("SHA-256 over sizes and sampled blocks."))

    format_version = models.PositiveSmallIntegerField(null=True)
    quant = models.CharField(max_length=8, blank=True)
    bits = models.PositiveSmallIntegerField(null=True)
    model_type = models.CharField(max_length=64, blank=True)
    moe_layers = models.BigIntegerField(_("MoE layers"), null=True)
    hidden_layers = models.BigIntegerField(_("layers"), null=True)
    experts_per_layer = models.BigIntegerField(null=True)
    top_k = models.BigIntegerField(_("experts a token"), null=True)
    heads = models.BigIntegerField(null=True)
    kv_heads = models.BigIntegerField(_("key/value heads"), null=True)
    head_dim = models.BigIntegerField(null=True)
    kept_width = models.BigIntegerField(null=True, help_text=_("Elements that a layer keeps of a position."))
    d_model = models.BigIntegerField(_("width"), null=True)
    ffn_dim = models.BigIntegerField(_("expert width"), null=True)
    record_bytes = models.BigIntegerField(_("expert record"), null=True)
    matrix_bytes = models.BigIntegerField(null=True, help_text=_("Of the scout, what --trunk may quantize."))
    matrix_weights = models.BigIntegerField(null=True)
    unloaded_bytes = models.BigIntegerField(null=True, help_text=_("Of the scout, what stays in the file."))
    vocab_size = models.BigIntegerField(_("vocabulary"), null=True)
    trained_context = models.BigIntegerField(null=True)
    eos_ids = models.JSONField(_("end-of-sequence ids"), default=list, blank=True)
    metadata = models.JSONField(default=dict, blank=True)
    assumed = models.TextField(blank=True, help_text=_("What a version-1 vault does not say itself."))

    tokenizer = models.TextField(blank=True)
    tokenizer_source = models.CharField(max_length=8, choices=TokenizerSource, default=TokenizerSource.NONE)
    tokenizer_fit = models.CharField(max_length=8, choices=TokenizerFit, default=TokenizerFit.UNKNOWN)
    tokenizer_note = models.TextField(blank=True)

    lineage = models.TextField(blank=True)
    description = models.TextField(blank=True)
    first_seen = models.DateTimeField(auto_now_add=True)
    last_seen = models.DateTimeField()
    last_used = models.DateTimeField(null=True, blank=True)
    tokens_per_second = models.FloatField(null=True, blank=True, help_text=_("Decoding, as last measured."))

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    @property
    def total_bytes(self) -> int:
        return self.vault_bytes + self.scout_bytes


class Event(models.Model):
    """Something that an operator would ask about afterwards."""

    class Kind(models.TextChoices):
        FOUND = "found", _("vault found")
        CHANGED = "changed", _("vault changed")
        MISSING = "missing", _("vault missing")
        RESCAN = "rescan", _("rescan")
        BOOT = "boot", _("engine booted")
        SWITCH = "switch", _("engine switched")
        UNLOAD = "unload", _("engine unloaded")
        CRASH = "crash", _("engine crashed")
        RESPAWN = "respawn", _("engine respawned")
        FAILED = "failed", _("engine did not start")
        VERIFY = "verify", _("vault verified")
        KEY = "key", _("key changed")
        SERVER = "server", _("server")

    time = models.DateTimeField(db_index=True)
    kind = models.CharField(max_length=16, choices=Kind, db_index=True)
    vault = models.CharField(max_length=255, blank=True, db_index=True)
    message = models.TextField()
    details = models.JSONField(default=dict, blank=True)

    class Meta:
        ordering = ["-time", "-id"]

    def __str__(self) -> str:
        return f"{self.get_kind_display()}: {self.message}"


class Generation(models.Model):
    """The request log: one row a generation. `prompt` and `reply` are empty unless `--log-text` asks for them."""

    time = models.DateTimeField(db_index=True, help_text=_("When it ended."))
    request_id = models.CharField(max_length=64, blank=True, db_index=True)
    client = models.CharField(max_length=128, blank=True, help_text=_("Key or address."))
    client_name = models.CharField(max_length=200, blank=True, help_text=_("As its User-Agent says."))
    protocol = models.CharField(max_length=16, blank=True, db_index=True)
    endpoint = models.CharField(max_length=64, blank=True)
    vault = models.CharField(max_length=255, blank=True, db_index=True)
    prompt_tokens = models.PositiveIntegerField(default=0)
    cached_tokens = models.PositiveIntegerField(default=0)
    generated_tokens = models.PositiveIntegerField(default=0)
    queue_ms = models.FloatField(default=0)
    boot_ms = models.FloatField(default=0)
    prefill_ms = models.FloatField(default=0)
    decode_ms = models.FloatField(default=0)
    stall_ms = models.FloatField(null=True)
    expert_hits = models.BigIntegerField(null=True)
    expert_misses = models.BigIntegerField(null=True)
    bytes_read = models.BigIntegerField(null=True)
    finish_reason = models.CharField(max_length=16, blank=True, db_index=True)
    error = models.TextField(blank=True)
    prompt = models.TextField(blank=True)
    reply = models.TextField(blank=True)

    class Meta:
        ordering = ["-time", "-id"]
        verbose_name = _("request")
        verbose_name_plural = _("requests")

    def __str__(self) -> str:
        return f"{self.request_id or self.pk} on {self.vault or 'no vault'}"

    @property
    def tokens_per_second(self) -> float | None:
        """Decoding speed, as the API's `predicted_per_second` has it; one token alone is none to judge by."""
        if self.decode_ms <= 0 or self.generated_tokens < 2:
            return None
        return self.generated_tokens * 1000 / self.decode_ms


class ExpertUse(models.Model):
    """How often each expert of a vault was used, over every boot. Apart from the vault's row, which is read often."""

    vault = models.CharField(max_length=255, unique=True)
    first = models.PositiveIntegerField(help_text=_("The layer that counts begins with."))
    counts = models.JSONField(help_text=_("One list a MoE layer."))
    since = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.vault


# Elsewhere 0 lifts a limit: who means that, and who means to shut a key out, must not get the other.
AT_LEAST_ONE = MinValueValidator(1, _("A limit is at least 1: leave it out for none, revoke the key to shut it out."))

WARM_UP = "warm-up"  # the client of an operator's own requests


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


class ApiKey(models.Model):
    """A client's key. Only its digest is kept: the key has 256 random bits, which no table of guesses reaches."""

    name = models.CharField(max_length=100, unique=True)
    hint = models.CharField(max_length=20, editable=False, help_text=_("How the key begins."))
    digest = models.CharField(max_length=64, unique=True, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True)
    created = models.DateTimeField(auto_now_add=True)
    expires = models.DateTimeField(null=True, blank=True)
    revoked = models.DateTimeField(null=True, blank=True, editable=False)
    last_used = models.DateTimeField(null=True, blank=True, editable=False)
    requests_at_once = models.PositiveIntegerField(
        null=True,
        blank=True,
        validators=[AT_LEAST_ONE],
        help_text=_("Running and waiting ones together; empty: no limit."),
    )
    tokens_a_day = models.PositiveBigIntegerField(
        null=True,
        blank=True,
        validators=[AT_LEAST_ONE],
        help_text=_("Prompt and reply together, by UTC day; empty: no limit."),
    )
    vaults = models.ManyToManyField(Vault, blank=True, help_text=_("None chosen: every vault."))

    class Meta:
        ordering = ["name"]
        verbose_name = _("API key")

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        """Lists and logs are lines; and what runs without a key, under such a name, would be this key's."""
        if not self._state.adding:
            return
        if self.name != self.name.strip() or not self.name.isprintable():
            raise ValidationError({"name": _("It begins or ends with a space, or has a character that nobody sees.")})
        if self.name == WARM_UP or _is_address(self.name):
            raise ValidationError({"name": _("Requests without a key are counted under this name: choose another.")})


class Usage(models.Model):
    """One key's (or, without keys, one address's) sums of a UTC day on a vault. Outlives the request log."""

    day = models.DateField(db_index=True)
    client = models.CharField(max_length=128)
    vault = models.CharField(max_length=255, blank=True)
    requests = models.PositiveBigIntegerField(default=0)
    errors = models.PositiveBigIntegerField(default=0)
    prompt_tokens = models.PositiveBigIntegerField(default=0)
    cached_tokens = models.PositiveBigIntegerField(default=0)
    generated_tokens = models.PositiveBigIntegerField(default=0)
    seconds = models.FloatField(default=0, help_text=_("Of prefill and decoding."))

    class Meta:
        ordering = ["-day", "client", "vault"]
        verbose_name = _("usage record")
        constraints = [models.UniqueConstraint(fields=["day", "client", "vault"], name="one_row_a_day")]

    def __str__(self) -> str:
        return f"{self.client} on {self.day}"
