"""``effkit compress``: apply a recipe and save the checkpoint, without measuring."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from effkit.cli.common import MEASURING, AsJson, Model, Trust, err_console, out_console, print_json, size_text

NAME = "compress"
PANEL = MEASURING
HELP = """Compress a model and save it as an effkit checkpoint; effkit.load() opens it.

Example: effkit compress sample:smollm2-135m --recipe int8 --out smollm2-int8
"""


def run(
    model: Model,
    recipe: Annotated[str, typer.Option("--recipe", "-r", help="Ready recipe or .yaml file.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", "-o", help="Directory for the checkpoint.", show_default=False)],
    dtype: Annotated[
        str, typer.Option(help="Dtype of what stays dense: stored, float32, bfloat16 or float16.")
    ] = "float32",
    trust_remote_code: Trust = False,
    as_json: AsJson = False,
) -> int:
    """Plan, check the output, load, compress, save."""
    from effkit.errors import UsageError, did_you_mean
    from effkit.models import check_writable, resolve
    from effkit.recipe import load_recipe

    allowed = ("stored", "float32", "bfloat16", "float16")
    if dtype not in allowed:
        hint = did_you_mean(dtype, allowed)
        raise UsageError(f"--dtype {dtype!r} is not allowed; allowed: {', '.join(allowed)} {hint}".rstrip())
    chosen = load_recipe(recipe)
    check_writable(out)
    import torch

    from effkit import api
    from effkit.cli.plan import summary_line

    kept = None if dtype == "stored" else getattr(torch, dtype)
    skeleton = resolve(model, trust_remote_code=trust_remote_code).meta_model()
    plan = api.plan(skeleton if kept is None else skeleton.to(kept), chosen)
    if not as_json:
        err_console().print(f"planned: {summary_line(plan)}", markup=False, soft_wrap=True)
    api.compress(model, chosen, out=out, dtype=kept, trust_remote_code=trust_remote_code)
    files = sum(file.stat().st_size for file in out.glob("*.safetensors"))
    if as_json:
        print_json({"out": str(out), "weight_file_bytes": files, "plan": plan.to_dict()})
    else:
        out_console().print(f"saved {out}: {size_text(files)} of weight files", markup=False, soft_wrap=True)
    return 0
