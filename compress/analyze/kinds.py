"""Which kind each op name is: literal tables. Names are `aten::` ones without overload and trailing underscore."""

from compress.analyze.table import Kind


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


ELEMENTWISE = _names(
    """
    abs acos add addcdiv addcmul alibi asin atan atan2 atanh batch_norm bitwise_and bitwise_not bitwise_or
    bitwise_xor ceil celu clamp clamp_max clamp_min clip copysign cos cosh div divide dropout elu eq erf erfc
    exp exp2 expm1 fill floor floor_divide fmod frac ge gelu glu greater greater_equal gt hardshrink
    hardsigmoid hardswish hardtanh heaviside isfinite isinf isnan le leaky_relu lerp less less_equal log log10
    log1p log2 log_sigmoid logaddexp logical_and logical_not logical_or logical_xor logit lt masked_fill
    maximum minimum mish mul multiply nan_to_num native_batch_norm _native_batch_norm_legit_no_training
    native_dropout ne neg negative not_equal outer polar pow prelu reciprocal relu relu6 remainder round rrelu
    rsqrt rsub selu sgn sigmoid sign silu sin sinh softplus softshrink softsign sqrt square sub subtract tan
    tanh threshold true_divide trunc where xlogy zero feature_dropout alpha_dropout
    fake_quantize_per_tensor_affine fake_quantize_per_channel_affine quantize_per_tensor quantize_per_channel
    quantize_per_tensor_dynamic dequantize zeros ones full empty rand randn randint arange linspace zeros_like
    ones_like full_like empty_like rand_like randn_like new_zeros new_ones new_full new_empty eye
    scalar_tensor bernoulli normal uniform tril_indices triu_indices randperm one_hot upsample_nearest1d
    upsample_nearest2d upsample_nearest3d upsample_bilinear2d upsample_bicubic2d upsample_linear1d
    upsample_trilinear3d _upsample_nearest_exact2d _upsample_bilinear2d_aa _upsample_bicubic2d_aa tril triu
    add_relu mul_relu isin and or xor lshift rshift diff bucketize searchsorted conj_physical real imag complex
    view_as_complex view_as_real
    """
)
REDUCTION = _names(
    """
    adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d all
    amax amin aminmax any argmax argmin argsort avg_pool1d avg_pool2d avg_pool3d cosine_similarity
    count_nonzero cross_entropy_loss cummax cummin cumprod cumsum frobenius_norm group_norm instance_norm
    layer_norm linalg_norm linalg_vector_norm local_response_norm log_softmax _log_softmax logsumexp max
    max_pool1d max_pool2d max_pool3d max_pool2d_with_indices mean median min mse_loss nansum native_group_norm
    native_layer_norm nll_loss norm nuclear_norm pairwise_distance prod rms_norm _fused_rms_norm softmax
    _softmax _safe_softmax sort std std_mean sum topk unique var var_mean kthvalue histc bincount nonzero
    _adaptive_avg_pool2d _adaptive_avg_pool3d equal allclose weight_norm _weight_norm fft_fft fft_rfft
    fft_irfft fft_ifft fft_fft2 fft_rfft2 fft_irfft2 multinomial max_unpool2d
    """
)
SOFTMAX = _names("softmax _softmax _safe_softmax log_softmax _log_softmax")
# Statistics, scaling and shifting: five steps an element instead of one.
NORMALISING = SOFTMAX | _names(
    "layer_norm native_layer_norm group_norm native_group_norm instance_norm rms_norm _fused_rms_norm"
)
MOVE = _names(
    """
    block_diag cat concat concatenate channel_shuffle col2im clone constant_pad_nd contiguous copy _to_copy
    flip fold hstack im2col index_copy index_fill index_add index_put masked_scatter meshgrid
    native_channel_shuffle pad _pad_circular pixel_shuffle pixel_unshuffle reflection_pad1d reflection_pad2d
    replication_pad1d replication_pad2d repeat repeat_interleave reshape roll rot90 scatter scatter_add
    scatter_reduce select_scatter slice_scatter stack tile to type_as unfold_copy view_copy expand_copy
    permute_copy vstack dstack flatten float half bfloat16 double int long bool unflatten combinations
    cartesian_prod float_power_ tensor_split split chunk
    """
)
GATHER = _names(
    """
    embedding embedding_bag _embedding_bag gather index index_select take take_along_dim masked_select grid_sampler
    grid_sampler_2d _unsafe_index
    """
)
# Metadata only; listed so that a `view` that shares no memory (a fresh constant) is still known.
VIEW = _names(
    """
    alias as_strided broadcast_to chunk detach diagonal expand expand_as flatten lift lift_fresh movedim
    moveaxis mT mH H narrow numpy_T permute select slice split split_with_sizes squeeze swapaxes swapdims t
    transpose T unbind unflatten unfold unsafe_chunk unsafe_split unsqueeze view view_as set resolve_conj
    resolve_neg _conj adjoint ravel reshape_as result_type hsplit vsplit dsplit ravel _reshape_alias positive
    requires_grad _unsafe_view
    """
)
# In place they touch only what they write; as `x = op(x, ...)` they copy the rest too.
SCATTER = _names(
    """
    index_copy index_put index_fill index_add scatter scatter_add scatter_reduce masked_scatter
    """
)
# Ops through which a cache grows: the old part is a cache, not an activation.
APPEND = SCATTER | _names(
    """
    cat concat concatenate copy slice_scatter select_scatter scatternd scatterelements
    """
)


def kind_by_name(op: str) -> Kind | None:
    """The kind of an op such as `aten::add_`, or None where no table knows it."""
    namespace = op.partition("::")[0]
    if namespace not in ("aten", "prims", "quantized"):
        return None
    name = base_name(op)
    tables: tuple[tuple[Kind, frozenset[str]], ...] = (
        ("elementwise", ELEMENTWISE),
        ("reduction", REDUCTION),
        ("move", MOVE),
        ("gather", GATHER),
        ("view", VIEW),
    )
    return next((kind for kind, names in tables if name in names), None)


def base_name(op: str) -> str:
    """`aten::add_` -> `add`."""
    name = op.partition("::")[2]
    return name.removesuffix("_") if not name.endswith("__") else name.strip("_")
