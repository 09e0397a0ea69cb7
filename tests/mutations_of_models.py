"""Small wrong edits of models and their vocabularies, each with the tests that have to notice it."""

from tests.mutations import _in

_PADDING = "tests/models/test_vocab_padding.py"
_GROWN = "tests/models/test_vocabulary.py"
_TOKENS = "tests/models/test_special_tokens.py"
_SAVED = "tests/models/test_grown_checkpoints.py"

MUTATIONS_OF_MODELS = [
    # rows past the vocabulary
    *_in("models/head", _PADDING,
        ("return without_padding(head_logits(hidden, head) / temperature, vocab_size)",
         "return head_logits(hidden, head) / temperature", "cut_head"),
        ("jnp.where(row < vocab_size, logits", "jnp.where(row <= vocab_size, logits", "cut_head"),
        ("_BELOW_ALL = -1e30", "_BELOW_ALL = -jnp.inf", "cut_head"),
    ),
    *_in("models/decoder", _PADDING,
        ("without_padding(head_logits(hidden, head_weight(config, params)), config.vocab_size)",
         "head_logits(hidden, head_weight(config, params))", "padding_are_below_all"),
    ),
    *_in("models/modules", _PADDING,
        ("jnp.where(tokens < self.config.vocab_size, tokens, self.config.vocab_rows)", "tokens",
         "padding_are_below_all"),
    ),
    *_in("model_passes", _PADDING,
        ("vocab_size=decoder.vocab_size", "vocab_size=decoder.vocab_rows", "step_of_training and supervised"),
    ),
    *_in("models/huggingface", _SAVED,
        ("[: _rows(config, weight)]", "", "shards_of_a_padded_model"),
        ("leaf.size // config.vocab_rows * config.vocab_size", "leaf.size", "shards_of_a_padded_model"),
    ),
    # rows of added tokens
    *_in("models/vocabulary", _GROWN,
        ("jnp.where(kept < known, here, 0.0), axis=0)", "here, axis=0)", "oracle"),
        ("jnp.where(kept < known, here - mean, 0.0)", "here - mean", "oracle"),
        ("jnp.sqrt(covariance_scale / known)", "jnp.sqrt(covariance_scale)", "mean_of_the_known"),
        ("jnp.where(kept < before, table, 0)[:rows]", "table[:rows]", "oracle"),
        ("jax.random.fold_in(key, token), (table", "key, (table", "key_and_id_alone"),
        ("jax.random.fold_in(jax.random.fold_in(key, _ADDED_TOKENS), index)", "jax.random.fold_in(key, _ADDED_TOKENS)",
         "noise"),
        ("COVARIANCE_SCALE = 1e-4", "COVARIANCE_SCALE = 1e-9", "bfloat16"),
        ("known = min(vocabulary_end(tokenizer), decoder.vocab_size)", "known = decoder.vocab_size", "spare_rows"),
        (" | set(range(decoder.vocab_size, end))", "", "without_a_row"),
        ("return NamedSharding(sharding.mesh, PartitionSpec(None, *sharding.spec[1:]))", "return sharding",
         "where_they_live"),
    ),
    *_in("models/special_tokens", _TOKENS,
        ("grown = copy.deepcopy(tokenizer)", "grown = tokenizer", "is_not_changed"),
        ("AddedToken(text, special=True, normalized=False) for text in literals], special_tokens=True",
         "AddedToken(text, normalized=False) for text in literals]", "does_not_see"),
        ("if literal in vocabulary and literal not in special:", "if False:", "go_wrong"),
        ("if literal in other or other in literal:", "if literal in other:", "go_wrong"),
        ("{*special, *literals}", "{*literals}", "go_wrong"),
    ),
]  # fmt: skip
