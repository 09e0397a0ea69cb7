"""Every notebook under launch/ runs from top to bottom in a fresh kernel, and is stored as it runs."""

import json
import os
import re
import sys
from pathlib import Path

import nbclient
import nbformat
import pytest
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "launch").glob("*.ipynb"))
FOLDERS = "bin|content|data|etc|home|mnt|opt|root|srv|tmp|usr|var|work|Users"
MACHINE_PATH = re.compile(rf"(?<![\w.:/])/(?:{FOLDERS})\b|\b[A-Z]:\\")
LARGEST = 300_000  # bytes

CLAIMS = {
    "methods_tour.ipynb": """
trainable = np.asarray(masks.trainable[0])
assert len(tour) == 5 and judged.keys() == tour.keys(), judged.keys()
for name, (advantages, mask) in judged.items():
    assert advantages.shape == mask.shape == (g, t), (name, advantages.shape)
    assert not (mask & ~trainable).any() and not advantages[~mask].any() and advantages.any(), name
    others = [other for key, (other, _) in judged.items() if key != name]
    assert all(np.abs(advantages - other).max() > 0.1 for other in others), f"{name} is not unlike another"
    gradient = jax.grad(loss)(logprobs, tour[name]).policy[0]
    assert (np.asarray(gradient) * advantages <= 0).all() and gradient.any(), name
good_start, first = list(group).index("good start"), turn[0, list(group).index("good start")] == 0
failed, lost = list(group).index("no call works"), list(group).index("loses the thread")
assert np.unique(judged["GRPO"][0][good_start][trainable[good_start]]).size == 1
blame = judged["GRPO"][0][good_start].min()
assert np.allclose(judged["CalibAdv"][0][good_start][first] / judged["CalibAdv"][0][good_start].min(), 0.1)
for name in ("TAO-RL", "CalibAdv + TAO-RL"):
    assert (~judged[name][1].any(-1)).nonzero()[0].tolist() == [failed, lost], name
assert not judge(mine)[0][good_start][first].any() and judge(mine)[0][good_start].min() == blame
"""
}
"""What a notebook says of its values, checked in a cell after its last."""


def text_of(stored):
    """A cell's source or an output's text, which a stored notebook may hold as lines."""
    return stored if isinstance(stored, str) else "".join(stored)


def complaints(notebook):
    """What is wrong with a notebook (as JSON) for others to open: its paths, its outputs, its metadata."""
    found = []
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    if [cell["execution_count"] for cell in code] != list(range(1, len(code) + 1)):
        found.append("not executed once, from top to bottom")
    for cell in notebook["cells"]:
        texts = [text_of(cell["source"])]
        for output in cell.get("outputs", ()):
            if output["output_type"] == "error" or output.get("name") == "stderr":
                found.append(f"{cell['id']}: an error, or something on stderr, is stored")
            texts += [text_of(output.get("text", "")), text_of(output.get("data", {}).get("text/plain", ""))]
        if any("Traceback (most recent call last)" in text for text in texts):
            found.append(f"{cell['id']}: a traceback is stored")
        paths = [match[0] for text in texts for match in MACHINE_PATH.finditer(text)]
        if paths:
            found.append(f"{cell['id']}: paths of one machine: {paths}")
        if cell["metadata"]:
            found.append(f"{cell['id']}: metadata is stored: {cell['metadata']}")
    return found


def pictures(notebook):
    """How many outputs of a notebook are images."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    return sum("image/png" in output.get("data", {}) for output in outputs)


def printed(notebook):
    """What the cells of a notebook print, numbers and spaces apart: those may differ in their last digit."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    text = "".join(output["text"] for output in outputs if output["output_type"] == "stream")
    return re.sub(r"-?\d[\d.]*", "#", text).split()


def execute(notebook, folder):
    """Run a notebook in ``folder``, in a kernel of the interpreter that runs this test, with one CPU device."""
    spec = folder / "kernels" / "this"
    spec.mkdir(parents=True)
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (spec / "kernel.json").write_text(json.dumps({"argv": command, "display_name": "this", "language": "python"}))
    specs = KernelSpecManager(kernel_dirs=[str(folder / "kernels")])
    manager = AsyncKernelManager(
        kernel_name="this", kernel_spec_manager=specs, connection_file=str(folder / "kernel.json")
    )
    work = folder / "work"
    work.mkdir()
    kept = {key: value for key, value in os.environ.items() if key not in ("XLA_FLAGS", "MPLBACKEND")}
    env = kept | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", "IPYTHONDIR": str(folder / "ipython")}
    client = nbclient.NotebookClient(notebook, km=manager, timeout=300, resources={"metadata": {"path": str(work)}})
    client.execute(env=env)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_it_runs_and_its_claims_hold(path, tmp_path):
    notebook = nbformat.read(path, as_version=4)
    checks = nbformat.v4.new_code_cell(f"import sys\nassert sys.executable == {sys.executable!r}\n" + CLAIMS[path.name])
    stored = pictures(notebook), printed(notebook)
    notebook.cells.append(checks)
    execute(notebook, tmp_path)
    assert pictures(notebook) > 0
    assert (pictures(notebook), printed(notebook)) == stored, "the stored outputs are not what it shows: execute it"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_it_is_stored_executed_small_and_without_traces_of_a_machine(path):
    nbformat.validate(nbformat.read(path, as_version=4))
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert complaints(notebook) == []
    assert path.stat().st_size < LARGEST, "store its pictures smaller, for example as PNG with a palette"


def test_there_is_a_tour():
    assert set(CLAIMS) == {path.name for path in NOTEBOOKS}


def cell(source="x", count=1, metadata=(), **output):
    outputs = [output] if output else []
    return {
        "cell_type": "code",
        "id": "c",
        "source": [source],
        "execution_count": count,
        "metadata": dict(metadata),
        "outputs": outputs,
    }


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (cell(count=None), "not executed"),
        (cell("open('/home/me/x')"), "paths"),
        (cell(output_type="stream", name="stdout", text=["saved ", "/tmp/x.png"]), "paths"),
        (cell(output_type="stream", name="stderr", text=["warning"]), "stderr"),
        (cell(output_type="error", ename="E", evalue="", traceback=[]), "error"),
        (cell(output_type="stream", name="stdout", text="Traceback (most recent call last)"), "traceback"),
        (cell(metadata={"execution": {"iopub.execute_input": "now"}}), "metadata"),
    ],
)
def test_a_bad_notebook_is_complained_of(bad, said):
    assert complaints({"cells": [cell("a / b; 'https://arxiv.org/abs/1'")]}) == []
    assert [text for text in complaints({"cells": [bad]}) if said in text]
