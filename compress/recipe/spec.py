"""The recipe: what a user writes, checked before anything runs. Pure pydantic, no torch."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator

SPEED_METRICS = ("speedup", "latency_p50_ms", "latency_p95_ms", "latency_p99_ms", "throughput_per_s")
COST_METRICS = ("size_bytes", "size_ratio", "peak_memory_bytes")
FIDELITY_METRICS = ("agreement", "cosine", "sqnr_db")
STABILITY_METRICS = ("batch_variance",)
BUILTIN_METRICS = ("top1",)

Ref = Annotated[str, Field(min_length=1)]
Positive = Annotated[int, Field(ge=1)]


class Spec(BaseModel):
    """A frozen section of the recipe that refuses unknown keys and silent conversions."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, populate_by_name=True)


class Model(Spec):
    """`ref` names a callable that returns a torch module; `weights` is a safetensors file beside the recipe."""

    ref: Ref = Field(description="package.module:function that returns a torch.nn.Module")
    kwargs: dict[str, Any] = Field(default_factory=dict, description="keyword arguments for the function")
    weights: str | None = Field(None, description="safetensors state dict, relative to the recipe")


class Data(Spec):
    """`ref` names a callable that returns the splits: see docs/your-data.md."""

    ref: Ref = Field(description="package.module:function that returns the splits")
    kwargs: dict[str, Any] = Field(default_factory=dict, description="keyword arguments for the function")
    calibration_samples: Positive = Field(512, description="samples of the calibration split to use")
    leaks: Literal["refuse", "report"] = Field("refuse", description="what to do with samples that stand in two splits")


class MetricSpec(Spec):
    """A metric of the user's own: `ref` is called with (outputs, labels) and returns one score per sample."""

    ref: Ref
    direction: Literal["higher", "lower"]
    chance: float | None = Field(
        None, description="score of a model that knows nothing; baselines at or below it are refused"
    )


class Target(Spec):
    """Where the artefact will serve, and how."""

    runtime: Literal["onnxruntime"] = "onnxruntime"
    provider: Literal["cpu", "cuda", "tensorrt"] = "cpu"
    threads: Positive = 1
    batch_sizes: list[Positive] = Field(default_factory=lambda: [1], min_length=1, max_length=8)


class Gate(Spec):
    """One promise. Exactly one of the four limits is given."""

    metric: str
    max_drop: Annotated[float, Field(ge=0)] | None = Field(None, description="absolute, in points of the metric")
    max_relative_drop: Annotated[float, Field(ge=0, lt=1)] | None = Field(
        None, description="share of the baseline's score"
    )
    min: float | None = None
    max: float | None = None
    undecided: Literal["fail", "accept"] = "fail"

    @model_validator(mode="after")
    def _one_limit(self) -> Self:
        given = [name for name in ("max_drop", "max_relative_drop", "min", "max") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(
                f"a gate takes one of max_drop, max_relative_drop, min, max; got {', '.join(given) or 'none'}"
            )
        return self


class Budget(Spec):
    minutes: Annotated[float, Field(gt=0)] = 60.0


class Stage(Spec):
    """What every stage may say. `from` names the stage it starts from; the default is the float model."""

    # Written as the stage's key (`- ptq: {...}`), never inside its mapping, so it is no field.
    kind: ClassVar[str]

    name: str | None = Field(None, pattern=r"^[a-z][a-z0-9_-]*$", description="defaults to the stage's kind")
    from_: str | None = Field(None, alias="from")
    run: Literal["if_needed", "always"] = "if_needed"

    @property
    def label(self) -> str:
        """The name that `from` and `--set` know the stage by."""
        return self.name or self.kind


# Schemes of quantize/schemes.py and quantize/weight_only.py, steps of quantize/ways.py; a test keeps them alike.
Method = Literal[
    "auto",
    "u8s8-channel-reduced",
    "u8s8-channel",
    "u8s8-tensor-reduced",
    "u8s8-tensor",
    "u8u8-tensor",
    "dynamic-s8-channel-reduced",
    "dynamic-s8-channel",
    "dynamic-u8-tensor",
    "clip-entropy",
    "clip-percentile",
    "clip-mse",
    "equalize",
    "smooth",
    "round",
    "mixed",
    "weights-int8",
    "weights-int4",
    "weights-int4-clip",
    "weights-int4-gptq",
]


# The static ones: what is rounded on the fly has no range to train with.
TrainedMethod = Literal[
    "auto", "u8s8-channel-reduced", "u8s8-channel", "u8s8-tensor-reduced", "u8s8-tensor", "u8u8-tensor"
]
# Bits of the grid that weights lie on. Activations keep 8.
WeightBits = Literal[8, 4, 3]


class Ptq(Stage):
    """Post-training quantization: cheap steps before dear ones, tried on the target; the first that passes is kept."""

    kind: ClassVar[str] = "ptq"

    method: Method = Field("auto", description="auto: climb from schemes to mixed precision; or one scheme or step")
    exclude: list[str] = Field(default_factory=list, description="ONNX node names to leave in float")
    weight_bits: WeightBits = Field(8, description="bits of the weights' grid; 4 and 3 are stored two to a byte")


class Qat(Stage):
    """Quantization-aware training: the float model learns to live with the target's rounding, and is then rounded."""

    kind: ClassVar[str] = "qat"

    epochs: Positive = Field(3, description="passes over the train split; the float control gets as many")
    learning_rate: Annotated[float, Field(gt=0, lt=10)] = Field(
        0.001, description="peak rate, after a warm-up and before a cosine; about a tenth of what trained the model"
    )
    batch_size: Annotated[int, Field(ge=2)] = Field(64, description="samples of one step")
    optimizer: Literal["adamw", "sgd"] = Field("adamw", description="what trained the model is a good choice")
    temperature: Annotated[float, Field(gt=0)] = Field(
        4.0, description="softens the float model's answers that are learned from, where outputs are classes"
    )
    label_weight: Annotated[float, Field(ge=0, le=1)] = Field(
        0.0, description="share of the loss that the labels of the train split get; top1 only"
    )
    method: TrainedMethod = Field(
        "auto", description="auto: the scheme of the best ptq candidate before; or the name of one"
    )
    weight_bits: WeightBits = Field(8, description="bits of the weights' grid; 4 and 3 are stored two to a byte")
    exclude: list[str] = Field(default_factory=list, description="ONNX node names to leave in float")


class Finetune(Spec):
    """How a net with fewer channels is trained to follow the float model."""

    epochs: Positive = Field(5, description="passes over the train split, in each step")
    learning_rate: Annotated[float, Field(gt=0, lt=10)] = Field(
        0.001, description="peak rate, after a warm-up and before a cosine; about a tenth of what trained the model"
    )
    batch_size: Annotated[int, Field(ge=2)] = Field(64, description="samples of one step")
    optimizer: Literal["adamw", "sgd"] = Field("adamw", description="what trained the model is a good choice")
    temperature: Annotated[float, Field(gt=0)] = Field(
        4.0, description="softens the float model's answers that are learned from, where outputs are classes"
    )
    label_weight: Annotated[float, Field(ge=0, le=1)] = Field(
        0.0, description="share of the loss that the labels of the train split get; top1 only"
    )


class Prune(Stage):
    """Structured pruning: fewer channels and heads, fine-tuned, then finished by the recipe's quantization."""

    kind: ClassVar[str] = "prune"

    by: Literal["latency", "macs", "params"] = Field(
        "latency", description="what is kept a share of; latency: kernels timed on the target at several widths"
    )
    keep: Annotated[float, Field(gt=0, lt=1)] = Field(0.5, description="share that is left of it")
    importance: Literal["magnitude", "taylor", "bn_scale"] = Field(
        "magnitude", description="which channels of a layer go first"
    )
    steps: Annotated[int, Field(ge=1, le=20)] = Field(
        1, description="rounds of pruning and fine-tuning; the last round that recovered is taken"
    )
    exclude: list[str] = Field(default_factory=list, description="names of the module's layers to leave whole")
    finetune: Finetune = Field(default_factory=lambda: Finetune.model_validate({}))
    then: list[str] | None = Field(
        None, description="quantization stages that finish the candidate; by default the first ptq of the recipe"
    )


class StageBody(dict[str, Any]):
    """A stage's own keys and, beside them, the kind they are written under."""

    def __init__(self, kind: str, body: Mapping[str, Any]) -> None:
        super().__init__(body)
        self.kind = kind


def _kind_of(stage: Any) -> str:
    return str(getattr(stage, "kind", Ptq.kind))


AnyStage = Annotated[
    Annotated[Ptq, Tag(Ptq.kind)] | Annotated[Qat, Tag(Qat.kind)] | Annotated[Prune, Tag(Prune.kind)],
    Discriminator(_kind_of),
]


class Recipe(Spec):
    """A whole recipe, version 1."""

    schema_: Literal[1] = Field(alias="schema", description="version of the recipe format")
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    model: Model
    data: Data
    metric: str | MetricSpec = "top1"
    target: Target = Target()
    gates: list[Gate] = Field(min_length=1)
    budget: Budget = Budget()
    stages: list[AnyStage] = Field(
        min_length=1, description="cheap to expensive; a bare name is a stage with its defaults"
    )
    export: list[Literal["onnx"]] = ["onnx"]

    @property
    def metric_name(self) -> str:
        """The name gates use for the recipe's metric: a built-in one, or the function's name."""
        return self.metric if isinstance(self.metric, str) else self.metric.ref.rpartition(":")[2]


# Known names that this version cannot run yet; `check` says so instead of "unknown".
PLANNED_STAGES = ("distill",)
STAGE_TYPES: dict[str, type[Stage]] = {"ptq": Ptq, "qat": Qat, "prune": Prune}
# `from: model` is the float model itself.
MODEL = "model"
# The form a stage needs and the form it makes.
STAGE_FORMS: dict[str, tuple[str, str]] = {
    "ptq": ("float", "int8"),
    "qat": ("float", "int8"),
    "prune": ("float", "float"),
}
PLANNED_REFS = ("torchvision:", "timm:", "hf:", "onnx:", "imagefolder:", "parquet:", "csv:", "webdataset:")
