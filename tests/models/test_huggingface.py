"""transformers is the judge: the same logits, whichever of the two wrote the weights."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers
from jax.sharding import NamedSharding, PartitionSpec

from rlagents.models.huggingface import load_config, load_pretrained, save_pretrained
from tests.models.tiny import CONFIGS, full_logits, random_params, relative_error

_TEXT = {
    "vocab_size": 61,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
_LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
_LLAMA3 |= {"original_max_position_embeddings": 16, "rope_theta": 500.0}
_FULL_AND_SLIDING = ["sliding_attention", "full_attention", "sliding_attention"]
_GEMMA_ROPE = {
    "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e6},
    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
}

THEIRS = {
    "llama multi-head tied": transformers.LlamaConfig(**{**_TEXT, "num_key_value_heads": 4}, tie_word_embeddings=True),
    "llama scaled grouped untied": transformers.LlamaConfig(**_TEXT, head_dim=8, rope_parameters=_LLAMA3),
    "qwen2 multi-query tied": transformers.Qwen2Config(**{**_TEXT, "num_key_value_heads": 1}, tie_word_embeddings=True),
    "qwen2 sliding untied": transformers.Qwen2Config(
        **_TEXT, use_sliding_window=True, sliding_window=5, max_window_layers=1
    ),
    "qwen3 grouped": transformers.Qwen3Config(**_TEXT, head_dim=8, rms_norm_eps=1e-5),
    "gemma3 window shorter than the sequence": transformers.Gemma3TextConfig(
        **_TEXT,
        head_dim=8,
        query_pre_attn_scalar=16,
        sliding_window=4,
        layer_types=_FULL_AND_SLIDING,
        rope_parameters=_GEMMA_ROPE,
    ),
    "gemma3 by pattern, multi-query": transformers.Gemma3TextConfig(
        **{**_TEXT, "num_key_value_heads": 1}, head_dim=8, query_pre_attn_scalar=8, sliding_window=3
    ),
}


def random_model(config) -> transformers.PreTrainedModel:
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


def their_logits(model, tokens, mask=None) -> np.ndarray:
    with torch.no_grad():
        mask = None if mask is None else torch.as_tensor(mask)
        return model(input_ids=torch.as_tensor(tokens), attention_mask=mask).logits.numpy()


TOKENS = np.random.default_rng(0).integers(0, 61, (2, 13))


@pytest.mark.parametrize("name", THEIRS)
def test_their_weights_give_their_logits(name, tmp_path):
    model = random_model(THEIRS[name])
    model.save_pretrained(tmp_path)
    config, params = load_pretrained(tmp_path, dtype=jnp.float32)
    assert relative_error(full_logits(config, params, TOKENS), their_logits(model, TOKENS)) < 1e-5


@pytest.mark.parametrize("name", CONFIGS)
def test_our_weights_give_our_logits_there(name, tmp_path):
    config, params = CONFIGS[name], random_params(CONFIGS[name])
    save_pretrained(tmp_path, config, params)
    model, report = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    assert model.config.model_type == name
    assert not any(report.values()), report
    assert relative_error(full_logits(config, params, TOKENS), their_logits(model, TOKENS)) < 1e-5


@pytest.mark.parametrize("name", CONFIGS)
def test_saving_and_loading_changes_nothing(name, tmp_path):
    config, params = CONFIGS[name], random_params(CONFIGS[name])
    save_pretrained(tmp_path, config, params, max_shard_bytes=20_000)
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 2
    loaded_config, loaded = load_pretrained(tmp_path, dtype=jnp.float32)
    assert loaded_config == config
    jax.tree.map(np.testing.assert_array_equal, loaded, params)


def test_bfloat16_shards_of_theirs_load_sharded(tmp_path):
    model = random_model(THEIRS["qwen3 grouped"]).to(torch.bfloat16)
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    assert (tmp_path / "model.safetensors.index.json").exists()
    config = load_config(tmp_path, dtype=jnp.bfloat16)
    _, whole = load_pretrained(tmp_path, dtype=jnp.bfloat16)
    mesh = jax.make_mesh((2, 2), ("a", "b"), devices=jax.devices()[:4])

    def two_axes(leaf):
        last = zip(leaf.shape[-2:], ("a", "b")[-leaf.ndim :])
        split = [name if size % 2 == 0 else None for size, name in last]
        return NamedSharding(mesh, PartitionSpec(*[None] * (leaf.ndim - len(split)), *split))

    shardings = jax.tree.map(two_axes, whole)
    loaded_config, loaded = load_pretrained(tmp_path, dtype=jnp.bfloat16, shardings=shardings)
    assert loaded_config == config
    assert jax.tree.map(lambda x: x.sharding, loaded) == shardings
    jax.tree.map(np.testing.assert_array_equal, loaded, whole)


class _Broken:
    """A saved model whose files a test breaks."""

    def __init__(self, folder):
        self.folder = folder
        save_pretrained(folder, CONFIGS["qwen2"], random_params(CONFIGS["qwen2"]), max_shard_bytes=20_000)

    def edit_config(self, **changes):
        file = self.folder / "config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | changes))

    def load(self):
        return load_pretrained(self.folder, dtype=jnp.float32)


@pytest.fixture
def broken(tmp_path):
    return _Broken(tmp_path)


def test_missing_config_lists_what_is_there(broken):
    (broken.folder / "config.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"config.json is not there; found: .*safetensors"):
        broken.load()


def test_missing_shard_is_named(broken):
    next(broken.folder.glob("model-00002-*")).unlink()
    with pytest.raises(FileNotFoundError, match="names files that are not there: model-00002"):
        broken.load()


def test_missing_weights_are_said(broken):
    for file in broken.folder.glob("model*"):
        file.unlink()
    with pytest.raises(FileNotFoundError, match=r"neither model\.safetensors nor"):
        broken.load()


def test_truncated_shard_is_named(broken):
    shard = next(broken.folder.glob("model-00002-*"))
    shard.write_bytes(shard.read_bytes()[:-10])
    with pytest.raises(ValueError, match=r"model-00002.*not a whole safetensors file"):
        broken.load()


def test_missing_tensor_is_named(broken):
    broken.edit_config(num_hidden_layers=3, layer_types=["full_attention"] * 3)
    with pytest.raises(ValueError, match=r"lacks 12 tensors.*model\.layers\.2\.input_layernorm"):
        broken.load()


def test_tensor_without_a_place_is_named(broken):
    broken.edit_config(num_hidden_layers=1, layer_types=["full_attention"])
    with pytest.raises(ValueError, match=r"12 tensors that its config has no use for.*model\.layers\.1"):
        broken.load()


def test_wrong_shape_names_tensor_and_shapes(broken):
    broken.edit_config(intermediate_size=41)
    with pytest.raises(ValueError, match=r"mlp.gate_proj.weight has shape \(40, 24\); the config asks for \(41, 24\)"):
        broken.load()


def test_unsupported_model_type_lists_supported_ones(broken):
    broken.edit_config(model_type="mamba")
    with pytest.raises(ValueError, match="'mamba' is not supported; supported are llama, qwen2, qwen3, gemma3_text"):
        broken.load()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rope_type 'yarn' is not supported"),
        ({"hidden_act": "relu"}, "hidden_act='relu' is not supported"),
        ({"quantization_config": {}}, "quantized weights"),
    ],
)
def test_unsupported_features_are_refused(broken, changes, message):
    broken.edit_config(**changes)
    with pytest.raises(ValueError, match=message):
        broken.load()


def test_a_config_that_is_no_json_object_is_named(broken):
    no_json = r"is not JSON in UTF-8 \(.*\): copy or download it again"
    for contents, message in {b'{"a": ': no_json, b"\xff\x80": no_json, b"[]": "holds a list; expected a JSON"}.items():
        (broken.folder / "config.json").write_bytes(contents)
        with pytest.raises(ValueError, match=rf"config\.json {message}"):
            broken.load()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_attention_heads": 0}, "num_attention_heads=0; expected a positive integer"),
        ({"hidden_size": "8"}, "hidden_size='8'; expected a positive integer"),
        ({"num_hidden_layers": 2.0}, "num_hidden_layers=2.0; expected a positive integer"),
        ({"vocab_size": None}, "vocab_size=None; expected a positive integer"),
        ({"head_dim": -8}, "head_dim=-8; expected a positive integer"),
        ({"rope_theta": 0}, "rope_theta=0; expected a positive number"),
        ({"rope_theta": float("nan")}, "rope_theta=nan; expected a positive number"),
        ({"rms_norm_eps": "x"}, "rms_norm_eps='x'; expected a positive number"),
        ({"rms_norm_eps": True}, "rms_norm_eps=True; expected a positive number"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 0}}, "rope parameters: factor=0; expected a positive"),
        ({"rope_scaling": {"rope_type": "linear"}}, "rope parameters has no 'factor'"),
        ({"rope_scaling": "linear"}, "rope parameters holds a str; expected a JSON object"),
    ],
)
def test_values_that_are_no_sizes_or_numbers_are_named(broken, changes, message):
    broken.edit_config(**changes)
    with pytest.raises(ValueError, match=rf"config\.json: {message}"):
        broken.load()


@pytest.mark.parametrize("changes", [{"num_kv_heads": 0}, {"embed_dim": -8}, {"num_layers": 2.0}, {"max_positions": 0}])
def test_a_decoder_of_no_size_is_refused(changes):
    with pytest.raises(ValueError, match=f"{next(iter(changes))}=.*expected a positive integer"):
        CONFIGS["llama"].replace(**changes)


def test_absent_key_is_named(broken):
    file = broken.folder / "config.json"
    contents = json.loads(file.read_text())
    del contents["hidden_size"]
    file.write_text(json.dumps(contents))
    with pytest.raises(ValueError, match=r"config\.json has no 'hidden_size'"):
        broken.load()


def test_combination_of_no_family_is_not_saved(tmp_path):
    config = CONFIGS["llama"].replace(qkv_bias=True, qk_norm=True)
    with pytest.raises(ValueError, match="no supported family"):
        save_pretrained(tmp_path, config, random_params(config))
