"""Checkpoint -> vault: the only place that knows checkpoints."""


class ShatterError(Exception):
    """Why a checkpoint cannot become a vault: one line that names the file, field or tensor."""
