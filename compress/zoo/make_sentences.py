"""Make the embedded film-review sentences: `python -m compress.zoo.make_sentences SDIST`.

SDIST is the source archive vaderSentiment-3.3.2.tar.gz; the wheel does not carry the ratings. Get it with
`pip download --no-deps --no-binary :all: vaderSentiment==3.3.2`. The tokenizer needs the extra `nlp`. The same archive
gives the same bytes.
"""

import io
import sys
import tarfile
from pathlib import Path

import numpy as np

from compress.errors import EXIT_USAGE, CompressError, InputError
from compress.zoo import minilm
from compress.zoo.make_data import packed
from compress.zoo.sources import DATA
from compress.zoo.splits import first_of_each, stratified_order

OUTER = "vaderSentiment-3.3.2/additional_resources/hutto_ICWSM_2014.tar.gz"
INNER = "hutto_ICWSM_2014/movieReviewSnippets_GroundTruth.txt"
# Means of at least 20 ratings from -4 to 4; nearer to 0 the label would be a matter of chance.
LEAST_RATING = 0.5


def main(arguments: list[str]) -> int:
    """Write the archive into the package and say what went in; returns the exit code."""
    if len(arguments) != 1:
        print("usage: python -m compress.zoo.make_sentences SDIST", file=sys.stderr)
        return EXIT_USAGE
    try:
        rated = read_sentences(Path(arguments[0]))
        tokens, ratings = tokenized(rated)
    except CompressError as problem:
        print(problem, file=sys.stderr)
        return problem.exit_code
    content = packed({"tokens": tokens, "ratings": ratings})
    (DATA / "film_sentences.npz").write_bytes(content)
    print(f"film_sentences.npz: {len(ratings)} of {len(rated)} sentences, {len(content)} bytes")
    return 0


def read_sentences(sdist: Path) -> list[tuple[float, str]]:
    """Mean rating and sentence, in file order. Raises InputError where the archive is not the expected one."""
    try:
        with tarfile.open(sdist) as outer, tarfile.open(fileobj=_member(outer, OUTER)) as inner:
            text = _member(inner, INNER).read().decode("utf-8")
    except (OSError, KeyError, tarfile.TarError, UnicodeDecodeError) as problem:
        remedy = "Give the source archive: pip download --no-deps --no-binary :all: vaderSentiment==3.3.2"
        raise InputError(str(sdist), f"cannot be read: {str(problem).splitlines()[0]}", remedy) from problem
    rows = [line.split("\t") for line in text.splitlines()]
    return [(float(rating), sentence) for _, rating, sentence in rows]


def tokenized(rated: list[tuple[float, str]]) -> tuple[np.ndarray, np.ndarray]:
    """Tokens (n, 48) uint16, padded with 0, and ratings (n,) float32 of the sentences kept, in stratified order.

    Left out: ratings near 0, sentences of more than 48 tokens, and all but the first of equal sentences.
    """
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(minilm.vocabulary_file()))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    told = [(rating, sentence) for rating, sentence in rated if abs(rating) > LEAST_RATING]
    encoded = [encoding.ids for encoding in tokenizer.encode_batch([sentence for _, sentence in told])]
    short = [index for index, ids in enumerate(encoded) if len(ids) <= minilm.LENGTH]
    tokens = np.zeros((len(short), minilm.LENGTH), dtype=np.uint16)
    for row, index in enumerate(short):
        tokens[row, : len(encoded[index])] = encoded[index]
    ratings = np.array([told[index][0] for index in short], dtype=np.float32)
    kept = first_of_each(tokens)
    tokens, ratings = tokens[kept], ratings[kept]
    order = stratified_order(tokens, ratings > 0)
    return tokens[order], ratings[order]


def _member(archive: tarfile.TarFile, name: str) -> io.BytesIO:
    """One file of an archive, in memory. Raises KeyError where it is missing or no file."""
    found = archive.extractfile(name)
    if found is None:
        raise KeyError(f"{name} is not a file")
    return io.BytesIO(found.read())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
