import errno
import json
import os
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
from django.core.management import CommandError, call_command
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from transformers import AutoTokenizer

from fleet.shatter import convert
from fleet.vaultfile import reader
from fleet.vaultfile.records import decode_expert
from fleet.vaultfile.structure import read_structure
from fleet.vaultfile.writer import scout_path_of
from smoe_site.options import BASE_DIR


@pytest.fixture
def source(tmp_path, interop_dir):
    """A checkpoint that a test may change."""
    return shutil.copytree(interop_dir / "tiny-qwen3moe-checkpoint", tmp_path / "tiny")


@pytest.fixture
def shatter(source, fleet_dir):
    """Converts the checkpoint into the fleet directory; returns the pair."""

    def run(**options):
        call_command("shatter", source, fleet_dir, **options)
        smoe = fleet_dir / f"{options.get('name') or 'tiny'}.smoe"
        return smoe, scout_path_of(smoe)

    return run


def change_config(folder, remove=(), **changes):
    path = folder / "config.json"
    config = {k: v for k, v in json.loads(path.read_text()).items() if k not in remove}
    path.write_text(json.dumps(config | changes))


def as_mixtral(folder, random):
    """A Mixtral of the same sizes, in float32, with its own names."""
    shutil.rmtree(folder)
    folder.mkdir()
    config = {"model_type": "mixtral", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1}
    config |= {"num_attention_heads": 4, "num_key_value_heads": 2, "num_experts_per_tok": 2, "eos_token_id": 2}
    (folder / "config.json").write_text(json.dumps(config | {"num_local_experts": 3}))
    p = "model.layers.0."
    shapes = {"model.embed_tokens": (50, 64), "lm_head": (50, 64), "model.norm": (64,)}
    shapes |= {f"{p}input_layernorm": (64,), f"{p}post_attention_layernorm": (64,)}
    shapes |= {f"{p}self_attn.{n}_proj": (r, 64) for n, r in (("q", 64), ("k", 32), ("v", 32), ("o", 64))}
    shapes[f"{p}block_sparse_moe.gate"] = (3, 64)
    for expert in range(3):
        names = {"w1": (96, 64), "w2": (64, 96), "w3": (96, 64)}
        shapes |= {f"{p}block_sparse_moe.experts.{expert}.{name}": shape for name, shape in names.items()}
    tensors = {f"{name}.weight": random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    save_file(tensors, folder / "model.safetensors")
    return tensors


@pytest.mark.parametrize("bits", [2, 4])
def test_the_records_equal_another_tools_byte_for_byte(shatter, interop_dir, bits):
    smoe, _ = shatter(bits=bits)
    theirs = (interop_dir / f"tiny-qwen3moe-q{bits}" / "tiny-qwen3moe.smoe").read_bytes()
    ours = smoe.read_bytes()
    assert ours[64:] == theirs[64:]  # table, descriptors, arch block and every record
    assert ours[:56] + ours[60:64] == theirs[:56] + theirs[60:64]  # theirs has another ffn_dim, at 56


def test_the_scout_keeps_names_dtypes_and_bytes(shatter, source, interop_dir):
    _, scout_path = shatter()
    with (
        safe_open(interop_dir / "tiny-qwen3moe-q4" / "tiny-qwen3moe.scout.safetensors", "np") as theirs,
        safe_open(scout_path, "np") as ours,
    ):
        assert set(ours.keys()) == set(theirs.keys())
    identity = reader.identify(scout_path.with_name("tiny.smoe"), scout_path)
    assert (identity.eos_ids, identity.trained_context, identity.lineage) == ((511,), 4096, "tiny")
    assert identity.metadata["config"] == json.loads((source / "config.json").read_text())


def test_the_tokenizer_is_kept_for_the_vault(shatter, source, settings):
    shatter(name="other")
    kept = settings.SMOE.checkpoints_dir / "other"
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "config.json"):
        assert (kept / name).read_bytes() == (source / name).read_bytes()
    assert not (kept / "model.safetensors").exists()


def test_all_of_several_chat_templates_are_kept(shatter, source, settings):
    """As transformers writes a tokenizer that has a template for conversations and one for tools."""
    tokenizer = AutoTokenizer.from_pretrained(source)
    tokenizer.chat_template = {"default": "plain", "tool_use": "with tools"}
    tokenizer.save_pretrained(source)
    shatter()
    kept = AutoTokenizer.from_pretrained(settings.SMOE.checkpoints_dir / "tiny")
    assert kept.chat_template == {"default": "plain", "tool_use": "with tools"}


def test_old_spellings_give_the_same_vault(shatter, source):
    new = shatter(name="new")[0].read_bytes()
    change_config(source, ("rope_parameters", "num_local_experts"), rope_theta=1e6, num_experts=8)
    assert shatter(name="old")[0].read_bytes() == new


def test_the_new_theta_is_not_lost(shatter, source):
    change_config(source, rope_parameters={"rope_theta": 5e6, "rope_type": "default"})
    assert reader.identify(*shatter()).architecture.rope_theta == 5e6


def test_shards_give_the_same_vault(shatter, source):
    whole = shatter(name="whole")
    with safe_open(source / "model.safetensors", "np") as file:
        names = sorted(file.keys())
    raw = (source / "model.safetensors").read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:start])
    index = {}
    for number in range(3):
        part, data, places = names[number::3], b"", {}
        for name in part:
            begin, end = header[name]["data_offsets"]
            places[name] = header[name] | {"data_offsets": [len(data), len(data) + end - begin]}
            data += raw[start + begin : start + end]
        text = json.dumps(places).encode()
        (source / f"model-{number}.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)
        index |= dict.fromkeys(part, f"model-{number}.safetensors")
    (source / "model.safetensors").unlink()
    (source / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    sharded = shatter(name="sharded")
    assert sharded[0].read_bytes() == whole[0].read_bytes()
    (source / "model-1.safetensors").unlink()
    with pytest.raises(CommandError, match=r"model-1\.safetensors: missing; download it again"):
        shatter(name="lost")


def test_a_mixtral(shatter, source):
    tensors = as_mixtral(source, np.random.default_rng(5))
    smoe, scout_path = shatter(bits=8)
    a = reader.identify(smoe, scout_path).architecture
    assert (a.model_type, a.renormalize_top_k, a.qk_norm) == ("mixtral", True, False)
    assert (a.rope_theta, a.head_dim, a.moe_ffn) == (1e6, 16, 96)
    assert a.rms_epsilon == pytest.approx(1e-5)
    table = read_structure(smoe).table
    record = smoe.read_bytes()[table["offset"][1] :][: table["raw_size"][1]]
    restored = decode_expert(record, ((96, 64), (96, 64), (64, 96)), 8)
    for found, name in zip(restored, ("w1", "w3", "w2"), strict=True):
        expected = tensors[f"model.layers.0.block_sparse_moe.experts.1.{name}.weight"]
        np.testing.assert_allclose(found, expected, atol=np.abs(expected).max() / 200)
    kept = load_file(scout_path)
    assert {name for name in tensors if "experts" not in name} == set(kept)
    assert all((kept[name] == tensors[name]).all() for name in kept)


def test_ends_are_the_union_of_all_sources(shatter, source):
    (source / "generation_config.json").write_text('{"eos_token_id": [3, 511]}')
    change_config(source, eos_token_id=4)
    assert reader.identify(*shatter()).eos_ids == (3, 4, 511)  # 511: the tokenizer's <|im_end|> too


REFUSED = [
    ({"model_type": "deepseek_v32"}, "model_type 'deepseek_v32' is not supported"),
    ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
    ({"use_sliding_window": True, "sliding_window": 128}, "sliding_window is 128"),
    ({"layer_types": ["full_attention", "sliding_attention"]}, "layer_types holds sliding_attention"),
    ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6}}, "rope_parameters.rope_type is 'yarn'"),
    ({"rope_scaling": {"type": "linear", "factor": 2}}, "rope_scaling.rope_type is 'linear'"),
    ({"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5"),
    ({"mlp_only_layers": [1]}, "mlp_only_layers is [1]"),
    ({"decoder_sparse_step": 2}, "decoder_sparse_step is 2"),
    ({"num_experts_per_tok": 9}, "num_experts_per_tok is 9"),
    ({"num_experts_per_tok": "2"}, "num_experts_per_tok is '2'"),
    ({"num_local_experts": 7}, "config.json says that there are 7 experts"),
    ({"num_local_experts": 9}, "experts.8.gate_proj.weight is missing"),
    ({"num_attention_heads": 8, "head_dim": 16, "num_key_value_heads": 4}, "q_norm.weight is [32]"),
    ({"moe_intermediate_size": 32}, "is [64, 128], the config asks for [32, 128]"),
    ({"num_hidden_layers": 4}, "model.layers.3."),
]


@pytest.mark.parametrize(("change", "reason"), REFUSED, ids=[reason for _, reason in REFUSED])
def test_what_cannot_be_run_is_refused_by_name(shatter, source, fleet_dir, change, reason):
    change_config(source, **change)
    with pytest.raises(CommandError) as caught:
        shatter()
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not list(fleet_dir.iterdir())


def test_an_unknown_model_is_told_so_whatever_its_files_are(shatter, source):
    """Another architecture often comes in files of another form, which would otherwise be blamed."""
    change_config(source, model_type="deepseek_v32")
    (source / "model.safetensors").rename(source / "pytorch_model.bin")
    with pytest.raises(CommandError, match="model_type 'deepseek_v32' is not supported"):
        shatter()


def test_a_vault_is_called_after_the_model_whose_snapshot_it_is_made_of(source, fleet_dir, tmp_path):
    """As the model hub's cache lays it out: a folder for the model, in it one for each revision, links to the files."""
    snapshot = tmp_path / "models--Qwen--Qwen3-30B-A3B" / "snapshots" / "ad44e777bcd18fa416d9da3bd8f70d33ebb85d39"
    snapshot.mkdir(parents=True)
    for file in source.iterdir():
        (snapshot / file.name).symlink_to(file)
    call_command("shatter", snapshot, fleet_dir)
    assert (fleet_dir / "Qwen3-30B-A3B.smoe").is_file()


def test_a_multimodal_config_is_refused(shatter, source):
    change_config(source, ("hidden_size",), model_type="qwen3_vl_moe", text_config={})
    with pytest.raises(CommandError, match="text_config"):
        shatter()


def test_a_tensor_that_nothing_would_use_is_refused(shatter, source):
    tensors = as_mixtral(source, np.random.default_rng(5))
    tensors["model.layers.0.self_attn.sinks"] = np.zeros(4, np.float32)
    save_file(tensors, source / "model.safetensors")
    with pytest.raises(CommandError, match=r"tensor model\.layers\.0\.self_attn\.sinks"):
        shatter()


def test_weights_that_are_not_finite_are_refused(shatter, source, fleet_dir):
    tensors = as_mixtral(source, np.random.default_rng(5))
    tensors["model.layers.0.block_sparse_moe.experts.2.w2.weight"][3, 4] = np.nan
    save_file(tensors, source / "model.safetensors")
    with pytest.raises(CommandError, match="layer 0 expert 2: largest weight nan"):
        shatter()
    assert not list(fleet_dir.iterdir())


def test_a_dry_run_tells_the_plan_and_writes_nothing(shatter, fleet_dir, capsys, settings):
    shatter(dry_run=True)
    told = capsys.readouterr().out
    assert "qwen3_moe, 3 layers (3 with experts), 8 experts of 64 x 128 a layer, 2 used" in told
    assert "experts 400.0 KB (16.0 KB each)" in told
    assert not list(fleet_dir.iterdir())
    assert not settings.SMOE.checkpoints_dir.exists()


def test_nothing_of_an_earlier_conversion_speaks_for_the_new_vault(shatter, source, settings):
    (source / "additional_chat_templates").mkdir()
    for name in ("generation_config.json", "added_tokens.json", "additional_chat_templates/tool_use.jinja"):
        (source / name).write_text("{}")
    shatter()
    kept = settings.SMOE.checkpoints_dir / "tiny"
    (kept / "notes.txt").write_text("the operator's own")
    shutil.rmtree(source / "additional_chat_templates")
    for name in ("chat_template.jinja", "generation_config.json", "added_tokens.json"):
        (source / name).unlink()
    shatter(force=True)
    there = {str(path.relative_to(kept)) for path in kept.rglob("*") if path.is_file()}
    assert there == {"config.json", "tokenizer.json", "tokenizer_config.json", "notes.txt"}


def test_a_tokenizer_that_the_checkpoint_lacks_stays(shatter, source, settings):
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        (source / name).rename(source.parent / name)
    shatter()
    kept = settings.SMOE.checkpoints_dir / "tiny"
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        (source.parent / name).rename(kept / name)
    shatter(force=True)
    assert {path.name for path in kept.iterdir()} >= {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}


def test_an_existing_vault_is_replaced_only_by_force(shatter):
    smoe, _ = shatter(bits=4)
    with pytest.raises(CommandError, match="--force replaces it"):
        shatter(bits=2)
    assert reader.identify(smoe, scout_path_of(smoe)).bits == 4
    shatter(bits=2, force=True)
    assert reader.identify(smoe, scout_path_of(smoe)).bits == 2


def test_the_measured_error_is_the_restored_weights_own(shatter, source, capsys):
    tensors = as_mixtral(source, np.random.default_rng(5))
    smoe, _ = shatter(measure_error=True, validate=True)
    told = float(capsys.readouterr().out.split("relative RMS error ")[1].split()[0])
    error = energy = 0.0
    for number, entry in enumerate(read_structure(smoe).table):
        record = smoe.read_bytes()[entry["offset"] :][: entry["raw_size"]]
        restored = decode_expert(record, ((96, 64), (96, 64), (64, 96)), 4)
        for found, name in zip(restored, ("w1", "w3", "w2"), strict=True):
            original = tensors[f"model.layers.0.block_sparse_moe.experts.{number}.{name}.weight"]
            error += np.square(found - original, dtype=float).sum()
            energy += np.square(original, dtype=float).sum()
    assert told == pytest.approx((error / energy) ** 0.5, abs=1e-5)


def test_validation_finds_what_the_disk_lost(shatter, fleet_dir, monkeypatch):
    encode = convert.encode_expert
    monkeypatch.setattr(convert, "encode_expert", lambda expert, bits: encode(expert, bits)[:-1] + b"?")
    with pytest.raises(CommandError, match="expert record 0 reads back otherwise"):
        shatter(validate=True)
    assert not list(fleet_dir.iterdir())


@pytest.mark.parametrize(
    ("raised", "told"), [(KeyboardInterrupt(), "Interrupted"), (OSError(errno.ENOSPC, "full"), "The disk is full")]
)
def test_an_interruption_or_a_full_disk_leaves_nothing(shatter, fleet_dir, monkeypatch, raised, told):
    def fail(*_):
        raise raised

    monkeypatch.setattr("fleet.vaultfile.writer.encode_expert", fail)
    with pytest.raises(CommandError, match=told):
        shatter()
    assert not list(fleet_dir.iterdir())


def test_too_little_room_is_seen_before_anything_is_written(shatter, fleet_dir, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(9, 8, 1000))
    with pytest.raises(CommandError, match=r"1000 bytes free, 956\.\d KB are needed"):
        shatter()
    assert not list(fleet_dir.iterdir())


def test_sigterm_leaves_nothing(source, tmp_path):
    """A real process, held and ended where it would write its first record."""
    out = tmp_path / "out"
    script = (
        "import os, signal, django; django.setup()\n"
        "from fleet.vaultfile import writer\n"
        "writer.encode_expert = lambda *_: (print('writing', flush=True), signal.pause())\n"
        "from django.core.management import call_command\n"
        f"call_command('shatter', {str(source)!r}, {str(out)!r})\n"
    )
    environment = os.environ | {"DJANGO_SETTINGS_MODULE": "smoe_site.settings", "PYTHONPATH": str(BASE_DIR)}
    environment |= {"SMOE_DATA_DIR": str(tmp_path / "data"), "SMOE_CHECKPOINTS_DIR": str(tmp_path / "kept")}
    process = subprocess.Popen([sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE, text=True)
    while "writing" not in process.stdout.readline():
        assert process.poll() is None
    assert sorted(path.name for path in out.iterdir()) == [".tiny.scout.safetensors.partial", ".tiny.smoe.partial"]
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 128 + signal.SIGTERM
    assert not list(out.iterdir())


@pytest.mark.parametrize("package", ["shatter", "vaultfile"])
def test_formats_are_read_without_django(package):
    """Reading and writing vaults is a library: what imports it needs no settings and no database."""
    modules = [f"fleet.{package}.{path.stem}" for path in sorted((BASE_DIR / "fleet" / package).glob("*.py"))]
    script = f"import sys, {', '.join(modules)}\nprint(*(name for name in sys.modules if name.startswith('django')))"
    environment = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    done = subprocess.run([sys.executable, "-c", script], cwd=BASE_DIR, env=environment, capture_output=True, text=True)
    assert done.stdout == "\n", done.stderr


def test_verify_and_upgrade_take_ids(shatter, fleet_dir, capsys):
    smoe, _ = shatter()
    with open(smoe, "r+b") as file:
        file.seek(8)
        file.write(b"\x01")
    call_command("upgrade_vault", "tiny")
    call_command("verify_vault", "tiny", str(smoe))
    assert "tiny: sound" in capsys.readouterr().out
    os.truncate(smoe, 20_000)
    with pytest.raises(CommandError, match="1 of 1 not sound: tiny"):
        call_command("verify_vault", "tiny")
    with pytest.raises(CommandError, match=r"nowhere\.smoe is not there"):
        call_command("verify_vault", "nowhere")
