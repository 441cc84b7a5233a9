"""`compress analyze`: can compression help this model, and with what? No recipe needed."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from compress.cli.output import complain, emit, emit_json
from compress.errors import EXIT_USAGE, InputError

if TYPE_CHECKING:
    from compress.stages.analyze_ref import Question

Ref = Annotated[str, typer.Argument(metavar="REF", help="package.module:function, FILE.onnx, or a config.json.")]
ShapeTexts = Annotated[
    list[str], typer.Option("--input-shape", metavar="SHAPE", help="1,3,224,224 or name=1,3,224,224; batch first.")
]
Device = Annotated[str | None, typer.Option("--device", metavar="NAME", help="A datasheet row, e.g. h100-sxm.")]
Measure = Annotated[bool, typer.Option("--measure/--no-measure", help="Time the model on this machine.")]
Threads = Annotated[int, typer.Option("--threads", metavar="N", min=1)]
Strict = Annotated[bool, typer.Option("--strict", help="Exit 2 if an operator could not be counted.")]
Target = Annotated[float | None, typer.Option("--target-speedup", metavar="X", help="What you want from one method.")]
Roofline = Annotated[Path | None, typer.Option("--roofline", metavar="FILE", help="Draw the roofline: .svg or .png.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print compress.analysis/1.")]


def analyze(
    ref: Ref,
    shapes: ShapeTexts = [],  # noqa: B006  # typer copies it
    device: Device = None,
    measure: Measure = True,
    threads: Threads = 1,
    strict: Strict = False,
    target_speedup: Target = None,
    roofline: Roofline = None,
    as_json: AsJson = False,
) -> None:
    """Say what limits a model, and what each method could give at most, before any work.

    \b
    compress analyze mymodel:build --input-shape 1,3,224,224
    compress analyze model.onnx --roofline roofline.png
    compress analyze model.onnx --device h100-sxm --json
    compress analyze llama/config.json --device h100-sxm

    The module is counted by tracing and timed as the ONNX file that would serve. With --device nothing is timed.
    """
    from compress.stages.analyze_ref import Question, parse_shapes

    question = Question(
        shapes=parse_shapes(shapes), device=device, threads=threads, measure=measure, target_speedup=target_speedup
    )
    if ref.endswith("config.json") or (Path(ref) / "config.json").is_file():
        _language_model(Path(ref), question, as_json=as_json)
        return
    analysis = _analysis(ref, question)
    if roofline is not None:
        _draw(analysis, roofline)
    if as_json:
        emit_json(analysis)
    else:
        _show(analysis)
    if strict and analysis["unknown_ops"]:
        complain("not counted: " + ", ".join(f"{one['op']} x{one['calls']}" for one in analysis["unknown_ops"]))
        raise typer.Exit(EXIT_USAGE)


def _analysis(ref: str, question: "Question") -> dict[str, Any]:
    from compress.stages.analyze_ref import analyze_onnx, analyze_torch

    path = Path(ref.removeprefix("onnx:"))
    if ref.endswith(".onnx"):
        if not path.is_file():
            raise InputError(str(path), "no such file", "Name an ONNX file")
        return analyze_onnx(path, question, complain)
    if not question.shapes:
        raise InputError(ref, "its inputs are not known", "Give them, e.g. --input-shape 1,3,224,224")
    return analyze_torch(_module(ref), question, complain)


def _module(ref: str) -> Any:
    from torch import nn

    from compress.recipe.refs import load_ref

    try:
        model = load_ref(ref, [Path.cwd()])()
    except InputError:
        raise
    except Exception as error:  # the user's own function
        line = next((text.strip() for text in str(error).splitlines() if text.strip()), "")
        raise InputError(ref, f"raised {type(error).__name__}: {line[:200]}", "Call it by hand, or use -v") from error
    if not isinstance(model, nn.Module):
        raise InputError(ref, f"returned {type(model).__name__}, not a torch.nn.Module", "Return the module")
    return model


def _language_model(path: Path, question: "Question", *, as_json: bool) -> None:
    """Prefill and decode from the sizes alone."""
    import json
    from dataclasses import asdict

    from compress.analyze.llm_view import config_of, llm_view
    from compress.device.devices import device_named
    from compress.stages.verdict import ceilings_of_this_machine

    file = path if path.is_file() else path / "config.json"
    try:
        sizes = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(str(file), f"cannot be read as JSON ({error})", "Name the config.json of a model") from error
    if not isinstance(sizes, dict):
        raise InputError(str(file), "holds no sizes", "Name the config.json of a model")
    device = question.device
    ceilings = device_named(device) if device else ceilings_of_this_machine(question.threads, complain)
    view = llm_view(config_of(sizes, str(file)), ceilings)
    if as_json:
        emit_json(asdict(view))
        return
    ridge = f"ridge {view.ridge_flop_per_byte:.3g} FLOP per byte in {view.dtype}"
    emit(f"device: {ceilings.name} ({ceilings.source}), {ridge}")
    emit(f"decode: {view.decode}")
    emit(f"prefill: {view.prefill}")
    rows = [["batch", "context", "FLOP/byte", "KV share", "int8 weights", "int4 weights", "KV int8"]]
    rows += [
        [str(row.batch), str(row.context), f"{row.intensity_flop_per_byte:.3g}", f"{row.kv_share:.0%}"]
        + [f"{x:.2f}x" for x in (row.int8_weights_speedup, row.int4_weights_speedup, row.kv_int8_speedup)]
        for row in view.rows
    ]
    _table(rows)


def _draw(analysis: dict[str, Any], path: Path) -> None:
    from compress.files import write_text
    from compress.report.roofline import roofline_png, roofline_svg

    ceilings = (analysis["device"] or {}).get("ceilings", {})
    if path.suffix == ".png":
        drawn = roofline_png(analysis, ceilings, path) is not None
    elif path.suffix == ".svg":
        svg = roofline_svg(analysis, ceilings)
        drawn = svg is not None
        write_text(path, svg or "") if drawn else None
    else:
        raise InputError(str(path), "is neither .svg nor .png", "Name the picture by its format")
    complain(f"drawn: {path}" if drawn else "nothing to draw: no operator computes anything, or the device has no roof")


def _show(analysis: dict[str, Any]) -> None:
    """Device, verdict, shares, hottest operators, methods, advice, coverage."""
    model, verdict = analysis["model"], analysis["verdict"]
    emit(f"model: {model['params']:,} params, {model['macs']:,} macs, {model['flops']:,} flops")
    if verdict is None:
        emit("verdict: none; " + "; ".join([*analysis["notes"], *filter(None, [analysis["error"]])]))
        return
    device = analysis["device"]
    emit(f"device: {device['name']} ({device['source']}{', contaminated' if device['contaminated'] else ''})")
    emit(f"verdict: {verdict['sentence']} ({verdict['confidence']})")
    for line in (*verdict["evidence"], *(f"error: {one}" for one in verdict["errors"])):
        emit(f"  {line}")
    shares = sorted(analysis["classes"].items(), key=lambda item: -item[1]["share"])
    _table(
        [[name, "#" * round(40 * row["share"]), f"{row['share']:.0%}"] for name, row in shares if row["share"] >= 0.01]
    )
    _table([["operator", "kind", "measured", "FLOP/byte", "macs"], *map(_op_row, _hottest(analysis))])
    _table([["method", "expected", "at most", "probe", "helps"], *map(_method_row, analysis["stages"])])
    for one in verdict["advice"]:
        emit(f"advice: {one['sentence']}")
    emit(f"coverage: {analysis['coverage']:.0%}")
    emit("why each method helps or not is in --json, key stages")
    for note in (*analysis["notes"], *filter(None, [analysis["error"]])):
        emit(f"note: {note}")


def _hottest(analysis: dict[str, Any], count: int = 10) -> list[dict[str, Any]]:
    return sorted(analysis["ops"], key=lambda op: (-(op["time_ms"] or 0.0), -op["macs"]))[:count]


def _op_row(op: dict[str, Any]) -> list[str]:
    time = "not measured" if op["time_ms"] is None else f"{op['time_ms']:.4f} ms"
    intensity = op["intensity_flop_per_byte"]
    return [
        op["module"] or op["op"],
        op["kind"],
        time,
        "-" if intensity is None else f"{intensity:.3g}",
        f"{op['macs']:,}",
    ]


def _method_row(row: dict[str, Any]) -> list[str]:
    hard, probe = row["hard_speedup"], row["probe_speedup"]
    most = "-" if hard is None else f"{hard:.3g}x"
    probed = f"{probe['value']:.2f}x" if probe else "not measured"
    return [row["name"], f"{row['expected_speedup']:.2f}x", most, probed, row["helps"]]


def _table(rows: list[list[str]]) -> None:
    """Columns as wide as they need; the last one wraps."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False, pad_edge=False)
    for number in range(len(rows[0]) if rows else 0):
        table.add_column(no_wrap=number < len(rows[0]) - 1, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    Console().print(table)
