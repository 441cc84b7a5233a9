"""What a Q/DQ file rounds: its quantized activations, each with its grid, and its weights."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from compress.data import Array
from compress.quantize.grid import Weight, weights_of


@dataclass(frozen=True, kw_only=True)
class Activation:
    """A tensor that the file rounds to q = clamp(round(x / scale) + zero_point, qmin, qmax).

    tensor: its name in the float file; owner: the tensor whose range gave the scale, itself but for operators such as
    MaxPool or Reshape, which hand their input's scale on.
    """

    tensor: str
    owner: str
    scale: float
    zero_point: int
    qmin: int
    qmax: int


@dataclass(frozen=True, kw_only=True)
class Points:
    activations: tuple[Activation, ...]
    weights: tuple[Weight, ...]


def read_points(path: Path) -> Points:
    """The activations and weights that a file made by `quantize_static` rounds, in the order of its nodes."""
    import onnx
    from onnx import numpy_helper

    proto = onnx.load(path)
    values = {item.name: item for item in proto.graph.initializer}
    found = {}
    for node in proto.graph.node:
        if node.op_type != "QuantizeLinear" or node.input[0] in values:
            continue
        zero = numpy_helper.to_array(values[node.input[2]])
        tensor = node.input[0].removesuffix("_QuantizeLinear_Input")
        info = np.iinfo(zero.dtype)
        found[tensor] = Activation(
            tensor=tensor,
            owner=node.input[1].removesuffix("_scale"),
            scale=float(numpy_helper.to_array(values[node.input[1]])),
            zero_point=int(zero),
            qmin=int(info.min),
            qmax=int(info.max),
        )
    return Points(activations=tuple(found.values()), weights=tuple(weights_of(proto)))


def run_exposed(path: Path, feeds: dict[str, Array], tensors: tuple[str, ...]) -> dict[str, Array]:
    """Values of tensors inside a float file on one batch, by name. feeds: by input name, each (n, ...)."""
    import tempfile

    import onnx

    from compress.device.runtime import open_session

    proto = onnx.load(path)
    given = {item.name for item in proto.graph.input}
    known = {item.name for item in proto.graph.output}
    made = {name for node in proto.graph.node for name in node.output}
    asked = [name for name in tensors if name in made - known - given]
    proto.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in asked)
    with tempfile.TemporaryDirectory(prefix="compress-") as folder:
        exposed = Path(folder) / "exposed.onnx"
        onnx.save(proto, str(exposed))
        session = open_session(exposed, optimise=False)
        names = [*known & set(tensors), *asked]
        outputs = dict(zip(names, session.run(names, feeds), strict=True))
    return outputs | {name: feeds[name] for name in tensors if name in feeds}


def float_weights(path: Path) -> dict[str, Array]:
    """Initialisers of a file by name."""
    import onnx
    from onnx import numpy_helper

    return {item.name: numpy_helper.to_array(item) for item in onnx.load(path).graph.initializer}
