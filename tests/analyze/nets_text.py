"""Compact text and speech networks, written for these tests, with the sizes of the published ones."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn


class Attention(nn.Module):
    """Self-attention on (n, s, d). kv_bias: whether the key projection has a bias, as the others do."""

    def __init__(
        self, width: int, heads: int, *, bias: bool = True, key_bias: bool = True, kv_heads: int | None = None
    ):
        super().__init__()
        self.heads, self.kv_heads, self.size = heads, kv_heads or heads, width // heads
        self.q, self.o = nn.Linear(width, width, bias=bias), nn.Linear(width, width, bias=bias)
        self.k = nn.Linear(width, self.kv_heads * self.size, bias=bias and key_bias)
        self.v = nn.Linear(width, self.kv_heads * self.size, bias=bias)

    def forward(self, x, causal: bool = False, past=None, explicit: bool = False):
        n, s, d = x.shape
        q = self.q(x).view(n, s, self.heads, self.size).transpose(1, 2)
        k = self.k(x).view(n, s, self.kv_heads, self.size).transpose(1, 2)
        v = self.v(x).view(n, s, self.kv_heads, self.size).transpose(1, 2)
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        if explicit:
            y = (q @ k.transpose(-1, -2) / self.size**0.5).softmax(-1) @ v
        else:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=self.heads != self.kv_heads)
        y = self.o(y.transpose(1, 2).reshape(n, s, d))
        return y if past is None else (y, (k, v))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, *, before: bool, causal: bool = False, key_bias: bool = True):
        super().__init__()
        self.attention = Attention(width, heads, key_bias=key_bias)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.before, self.causal = before, causal

    def forward(self, x):
        if self.before:
            x = x + self.attention(self.norm1(x), self.causal)
            return x + self.down(F.gelu(self.up(self.norm2(x))))
        x = self.norm1(x + self.attention(x, self.causal))
        return self.norm2(x + self.down(F.gelu(self.up(x))))


@dataclass(frozen=True, kw_only=True)
class Bert:
    """Sizes of an encoder; `build` makes the module. DistilBERT has neither token types nor a pooler."""

    vocab: int = 30522
    width: int = 768
    depth: int = 12
    heads: int = 12
    types: bool = True
    pooler: bool = True

    def build(self) -> nn.Module:
        return _Encoder(self)


class _Encoder(nn.Module):
    def __init__(self, sizes: Bert):
        super().__init__()
        width = sizes.width
        self.words, self.places = nn.Embedding(sizes.vocab, width), nn.Embedding(512, width)
        self.types = nn.Embedding(2, width) if sizes.types else None
        self.norm = nn.LayerNorm(width)
        self.blocks = nn.Sequential(*(Block(width, sizes.heads, before=False) for _ in range(sizes.depth)))
        self.pooler = nn.Linear(width, width) if sizes.pooler else None

    def forward(self, ids):
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        if self.types is not None:
            x = x + self.types(torch.zeros_like(ids))
        x = self.blocks(self.norm(x))
        return {"last": x, "pooled": self.pooler(x[:, 0]).tanh() if self.pooler is not None else None}


class Gpt2(nn.Module):
    """GPT-2 small with a tied head that predicts at all positions."""

    def __init__(self, vocab: int = 50257, width: int = 768, depth: int = 12, heads: int = 12, context: int = 1024):
        super().__init__()
        self.words, self.places = nn.Embedding(vocab, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads, before=True, causal=True) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocab, bias=False)
        self.head.weight = self.words.weight

    def forward(self, ids):
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        return self.head(self.norm(self.blocks(x)))


class RmsNorm(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width))

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight)


class LlamaBlock(nn.Module):
    def __init__(self, width: int, heads: int, inner: int, kv_heads: int | None = None):
        super().__init__()
        self.attention = Attention(width, heads, bias=False, kv_heads=kv_heads)
        self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)
        self.norm1, self.norm2 = RmsNorm(width), RmsNorm(width)

    def forward(self, x, past=None):
        y = self.attention(self.norm1(x), causal=past is None, past=past)
        y, now = y if past is not None else (y, None)
        x = x + y
        z = self.norm2(x)
        return x + self.down(F.silu(self.gate(z)) * self.up(z)), now


class Llama(nn.Module):
    """Llama-2-7B by default, without the rotation of queries and keys (no contraction in it)."""

    def __init__(self, vocab=32000, width=4096, depth=32, heads=32, inner=11008, kv_heads=None):
        super().__init__()
        self.words = nn.Embedding(vocab, width)
        self.blocks = nn.ModuleList(LlamaBlock(width, heads, inner, kv_heads) for _ in range(depth))
        self.norm, self.head = RmsNorm(width), nn.Linear(width, vocab, bias=False)

    def forward(self, ids, past=None):
        x, caches = self.words(ids), []
        for place, block in enumerate(self.blocks):
            x, now = block(x, None if past is None else past[place])
            caches.append(now)
        logits = self.head(self.norm(x))
        return logits if past is None else (logits, caches)


class WhisperEncoder(nn.Module):
    """mel: (n, 80, 3000). The table of positions is a fixed parameter of 1500 rows."""

    def __init__(self, width: int, depth: int, heads: int):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv1d(80, width, 3, padding=1), nn.Conv1d(width, width, 3, stride=2, padding=1)
        self.places = nn.Parameter(torch.empty(1500, width))
        blocks = (Block(width, heads, before=True, key_bias=False) for _ in range(depth))
        self.blocks, self.norm = nn.Sequential(*blocks), nn.LayerNorm(width)

    def forward(self, mel):
        x = F.gelu(self.conv2(F.gelu(self.conv1(mel)))).transpose(1, 2) + self.places
        return self.norm(self.blocks(x))
