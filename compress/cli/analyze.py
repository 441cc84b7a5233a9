"""`compress analyze`: can compression help this model, and with what? No recipe needed."""

from pathlib import Path
from typing import Annotated, Any

import typer

from compress.cli.output import complain, emit_json
from compress.errors import EXIT_USAGE, InputError

Ref = Annotated[
    str,
    typer.Argument(
        metavar="REF",
        help="package.module:function, FILE.onnx, RECIPE.yaml, torchvision:NAME, timm:NAME, hf:NAME, or a folder or "
        "config.json of a transformers model.",
    ),
]
ShapeTexts = Annotated[
    list[str],
    typer.Option(
        "--input-shape",
        metavar="SHAPE",
        help="1,3,224,224 or name=1,128:int64, batch first; once for each input, in order or by name.",
    ),
]
Batch = Annotated[int | None, typer.Option("--batch", metavar="N", min=1, help="Samples in one pass.")]
Seq = Annotated[
    int | None,
    typer.Option("--seq", metavar="N", min=1, help="Tokens of integer inputs; context of a language model."),
]
Device = Annotated[str | None, typer.Option("--device", metavar="NAME", help="A datasheet row, e.g. h100-sxm.")]
Measure = Annotated[bool, typer.Option("--measure/--no-measure", help="Time the model on this machine.")]
Probe = Annotated[
    bool, typer.Option("--probe/--no-probe", help="Time the kernels of each method on the model's shapes: a minute.")
]
Threads = Annotated[int, typer.Option("--threads", metavar="N", min=1, help="Of the timed model.")]
Strict = Annotated[bool, typer.Option("--strict", help="Exit 2 if anything could not be counted.")]
Target = Annotated[float | None, typer.Option("--target-speedup", metavar="X", help="What you want from one method.")]
Roofline = Annotated[Path | None, typer.Option("--roofline", metavar="FILE", help="Draw the roofline: .svg or .png.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print compress.analysis/1.")]


def analyze(
    ref: Ref,
    shapes: ShapeTexts = [],  # noqa: B006  # typer copies it
    batch: Batch = None,
    seq: Seq = None,
    device: Device = None,
    measure: Measure = True,
    probe: Probe = False,
    threads: Threads = 1,
    strict: Strict = False,
    target_speedup: Target = None,
    roofline: Roofline = None,
    as_json: AsJson = False,
) -> None:
    """Say what limits a model, and what each method could give at most, before any work.

    \b
    compress analyze mymodel:build --input-shape 1,3,224,224
    compress analyze model.onnx --probe --roofline roofline.png
    compress analyze recipe.yaml
    compress analyze torchvision:resnet18 --device t4 --batch 8
    compress analyze hf:bert-base-uncased --device h100-sxm --seq 256
    compress analyze llama/config.json --device h100-sxm --json

    A module is counted by tracing and timed as the ONNX file that would serve; with --device nothing is timed. Nothing
    is ever downloaded.
    """
    from compress.stages.analyze_ref import analyze_ref
    from compress.stages.question import Question
    from compress.stages.sample_inputs import parse_shapes

    if probe and (device is not None or not measure):
        raise InputError("--probe", "times kernels on this machine", "Leave out --device and --no-measure")
    if roofline is not None and roofline.suffix not in (".svg", ".png"):
        raise InputError(str(roofline), "is neither .svg nor .png", "Name the picture by its format")
    question = Question(
        shapes=parse_shapes(shapes), batch=batch, seq=seq, device=device, threads=threads, measure=measure,
        probe=probe, target_speedup=target_speedup,
    )  # fmt: skip
    analysis = analyze_ref(ref, question, complain)
    if roofline is not None:
        _draw(analysis, roofline)
    if as_json:
        emit_json(analysis)
    else:
        from compress.cli.analysis_view import show

        show(analysis)
    if strict:
        _refuse_gaps(analysis)


def _refuse_gaps(analysis: dict[str, Any]) -> None:
    """Exit 2 with a list of what could not be counted."""
    gaps = [f"{one['op']} x{one['calls']}" for one in analysis["unknown_ops"]]
    gaps += [f"all after: {analysis['error']}"] if analysis["error"] else []
    if gaps:
        complain(f"not counted: {', '.join(gaps)}")
        raise typer.Exit(EXIT_USAGE)


def _draw(analysis: dict[str, Any], path: Path) -> None:
    from compress.files import write_text
    from compress.report.roofline import roofline_png, roofline_svg

    ceilings = (analysis["device"] or {}).get("ceilings", {})
    if path.suffix == ".png":
        drawn = roofline_png(analysis, ceilings, path) is not None
    else:
        svg = roofline_svg(analysis, ceilings)
        drawn = svg is not None
        write_text(path, svg or "") if drawn else None
    complain(f"drawn: {path}" if drawn else "nothing to draw: no operator computes anything, or the device has no roof")
