"""The engine's command line: engines of version 1 get no flag that they do not know, unless it is asked for."""

import dataclasses
from itertools import pairwise

import pytest

from engine import launch
from smoe_site.options import OptionError, Options, parse_value


def test_flags_of_newer_engines_are_passed_where_they_say_something(card):
    plain = launch.command(Options(), card)
    assert not {"--ctx", "--memory", "--trunk"} & set(plain)
    asked = launch.command(Options(ctx=512, memory="6G", trunk="q8"), card)
    assert {("--ctx", "512"), ("--memory", "6G"), ("--trunk", "q8")} <= set(pairwise(asked))


@pytest.mark.parametrize(("version", "there", "is_told"), [(1, True, True), (1, False, False), (2, True, False)])
def test_the_config_of_a_vault_that_holds_no_architecture(card, tmp_path, version, there, is_told):
    """By the environment: an engine of version 1 would end at the flag."""
    config = tmp_path / "checkpoints" / card.id / "config.json"
    if there:
        config.parent.mkdir(parents=True)
        config.write_text("{}")
    options = Options(checkpoints_dir=tmp_path / "checkpoints")
    told = launch.environment(options, dataclasses.replace(card, format_version=version))
    assert told == ({"SMOE_ENGINE_CONFIG": str(config)} if is_told else {})
    assert "--config" not in launch.command(options, card)


@pytest.mark.parametrize(
    "text", ["--trunk,q8", "--exact,--trunk=stored", "--ctx,4096", "--memory,6G", "--vault,x.smoe"]
)
def test_what_the_server_decides_is_not_also_said_to_the_engine(text):
    with pytest.raises(OptionError, match="is the server's own flag"):
        parse_value("engine_args", text, "--engine-args")


def test_the_engines_own_flags_are_passed_on(card):
    words = parse_value("engine_args", "--exact,--kv,f32", "--engine-args")
    assert launch.command(Options(engine_args=words), card)[-3:] == ["--exact", "--kv", "f32"]


@pytest.mark.parametrize(
    ("trunk", "words", "form"),
    [("auto", (), "auto"), ("auto", ("--exact",), "stored"), ("q8", ("--exact",), "q8"), ("q4", (), "q4")],
)
def test_the_form_of_the_trunk_that_estimates_go_by(trunk, words, form):
    assert Options(trunk=trunk, engine_args=words).trunk_form == form


def test_origins_are_read_as_browsers_spell_them():
    text = "https://Chat.example/, http://10.0.0.2:3000,chrome-extension://abc,null,*"
    origins = parse_value("allow_origin", text, "--allow-origin")
    assert origins == ("https://chat.example", "http://10.0.0.2:3000", "chrome-extension://abc", "null", "*")


@pytest.mark.parametrize(
    "text", ["chat.example", "https://", "https://chat.example/page", "*.example", "localhost:3000"]
)
def test_what_no_browser_would_send_as_its_origin_is_refused(text):
    with pytest.raises(OptionError, match="is no origin such as"):
        parse_value("allow_origin", text, "--allow-origin")
