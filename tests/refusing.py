"""Changed configs, and what is said of them."""

import pytest

from rlagents import config_sections, machinery
from tests.test_train import small_config


def refusal(config, experiment, **options):
    with pytest.raises(ValueError) as caught:  # noqa: PT011  the text is what the tests look at
        machinery.assemble(config, experiment, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def changed(values):
    """As a config file gives them: set anew, since a key that is there already would convert True to 1.0."""
    config = small_config()
    with config.unlocked():
        for name, value in values.items():
            section, _, key = name.rpartition(".")
            whole = config_sections.value_of(config, section) if section else config
            if key in whole:
                del whole[key]
            whole[key] = value
    return config
