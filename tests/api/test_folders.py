"""No answer tells a client where files stand on this machine; the log does."""

import dataclasses
from pathlib import Path

import pytest
from wire import chat, claude

from api.folders import without_folders
from engine.errors import EngineFailed, ModelUnavailable

FAULTS = [
    (
        ModelUnavailable("The tokenizer /srv/checkpoints/alpha of alpha cannot be loaded: broken."),
        "The tokenizer alpha of alpha cannot be loaded: broken.",
    ),
    (
        EngineFailed("An expert of alpha could not be read (/srv/my vaults/alpha.smoe: it ends early): look."),
        "An expert of alpha could not be read (alpha.smoe: it ends early): look.",
    ),
    (
        EngineFailed("There is no engine at /opt/s-moe/build/smoe-engine: build it with `make engine`."),
        "There is no engine at smoe-engine: build it with `make engine`.",
    ),
]


@pytest.fixture(autouse=True)
def launch(settings):
    settings.SMOE = dataclasses.replace(settings.SMOE, vault_dir=Path("/srv/my vaults"))


@pytest.mark.parametrize(("error", "told"), FAULTS)
@pytest.mark.parametrize(("path", "body"), [("/v1/chat/completions", chat()), ("/v1/messages", claude())])
def test_errors_name_files_without_folders(http, script, caplog, path, body, error, told):
    script.steps = [error]
    assert http.post(path, json=body).json()["error"]["message"] == told
    assert error.message in caplog.messages


@pytest.mark.parametrize(
    "text",
    [
        "org/model is no vault",
        "see https://models.example.org/v1/models",
        "checkpoints/alpha/ has no tokenizer.json",
        "1/2 of 3 / 4",
    ],
)
def test_what_is_no_folder_of_this_machine_stays(text):
    assert without_folders(text) == text


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("The link a.smoe leads to nothing: /mnt/disk/a.smoe does not exist.", "leads to nothing: a.smoe does not"),
        ("put files into /srv/checkpoints/a/ or", "into a/ or"),
        ("[Errno 13] Permission denied: '/srv/checkpoints/a/tokenizer.json'", "denied: 'tokenizer.json'"),
        ("There is no vault to serve in /srv/my vaults: put", "in my vaults: put"),
    ],
)
def test_paths_from_elsewhere(text, told):
    assert told in without_folders(text)
