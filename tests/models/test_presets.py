import jax
import pytest

from rlagents.models import init_params, logical_axes
from rlagents.models.families import read_config, write_config
from rlagents.models.presets import PRESETS, preset

# As the hub counts the tensors of the published checkpoints.
PARAMETERS = {
    "Qwen/Qwen2.5-1.5B": 1_543_714_304,
    "Qwen/Qwen2.5-3B": 3_085_938_688,
    "Qwen/Qwen2.5-7B": 7_615_616_512,
    "Qwen/Qwen3-4B": 4_022_468_096,
    "meta-llama/Llama-3.1-8B": 8_030_261_248,
    "meta-llama/Llama-3.2-3B": 3_212_749_824,
}


@pytest.mark.parametrize("name", PRESETS)
def test_has_as_many_parameters_as_published(name):
    shapes = jax.eval_shape(lambda: init_params(preset(name), jax.random.key(0)))
    base = name.removesuffix("-Instruct").removesuffix("-Base")
    assert sum(leaf.size for leaf in jax.tree.leaves(shapes)) == PARAMETERS[base]


MODEL_TYPES = {"Qwen2.5": "qwen2", "Qwen3": "qwen3", "Llama": "llama"}


@pytest.mark.parametrize("name", PRESETS)
def test_survives_its_config_file(name):
    config = preset(name)
    contents = write_config(config)
    assert contents["model_type"] == next(kind for part, kind in MODEL_TYPES.items() if part in name)
    assert read_config(contents, name, config.param_dtype) == config


def test_unknown_name_gives_near_ones():
    with pytest.raises(KeyError, match=r"no preset 'Qwen/Qwen3-4b-Bse'; the nearest are Qwen/Qwen3-4B-Base"):
        preset("Qwen/Qwen3-4b-Bse")


@pytest.mark.parametrize("name", ["Qwen/Qwen2.5-7B", "Qwen/Qwen3-4B"])
def test_logical_axes_name_every_axis(name):
    config = preset(name)
    sizes = {
        "layers": config.num_layers,
        "vocab": config.vocab_size,
        "embed": config.embed_dim,
        "heads": config.num_heads,
        "kv_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "mlp": config.mlp_dim,
    }

    def check(leaf, names):
        assert tuple(sizes[name] for name in names) == leaf.shape

    shapes = jax.eval_shape(lambda: init_params(config, jax.random.key(0)))
    jax.tree.map(check, shapes, logical_axes(config))
