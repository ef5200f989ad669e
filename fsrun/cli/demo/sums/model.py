"""The network that learns to add: a Llama of two layers, with a tokenizer of one token a character."""

from __future__ import annotations

import string
from typing import Any

from fsrun.cli.demo.sums.plan import ANSWER_TOKENS, PROMPT_TOKENS, SEED, Sum, answer, question

END = "<|end|>"
CHARACTERS = " " + string.digits + string.ascii_letters + string.punctuation
"""Printable ASCII: whatever an untrained model says can be shown, and any engine's text is the same."""
HIDDEN, LAYERS, HEADS = 128, 2, 4


def make_tokenizer() -> Any:
    """Return the tokenizer: byte-level BPE without a single merge, so that each character is a token."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    # The byte-level alphabet writes a space as another character.
    tokens = ["Ġ" if character == " " else character for character in CHARACTERS]
    raw = Tokenizer(models.BPE(vocab={token: number for number, token in enumerate([*tokens, END])}, merges=[]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    raw.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=raw, eos_token=END, pad_token=END, clean_up_tokenization_spaces=False
    )


def make_model() -> Any:
    """Return the untrained network, the same at each call: half a million weights in float32."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(SEED)
    end = len(CHARACTERS)
    config = LlamaConfig(
        vocab_size=end + 1,
        hidden_size=HIDDEN,
        intermediate_size=4 * HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        max_position_embeddings=64,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=end,
        pad_token_id=end,
    )
    return LlamaForCausalLM(config).float()


def encode(sums: list[Sum]) -> Any:
    """Return the sums with their answers as token numbers: shape (N, 10), filled up with the end."""
    import torch

    numbers = {character: number for number, character in enumerate(CHARACTERS)}
    end = len(CHARACTERS)
    rows = []
    for terms in sums:
        row = [numbers[character] for character in question(terms) + answer(terms)]
        rows.append(row + [end] * (PROMPT_TOKENS + ANSWER_TOKENS - len(row)))
    return torch.tensor(rows)


def loss_and_share(model: Any, rows: Any) -> tuple[Any, float]:
    """Return the loss over the answers of some sums, and the share of answers with every token right."""
    import torch

    logits = model(input_ids=rows, use_cache=False).logits[:, PROMPT_TOKENS - 1 : -1]
    wanted = rows[:, PROMPT_TOKENS:]
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten())
    right = (logits.argmax(-1) == wanted).all(1).float().mean()
    return loss, float(right)


def generate(folder: str, sums: list[Sum]) -> list[str]:
    """What transformers' own ``generate`` answers with the weights in ``folder``: greedy, in float32."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    prompts = tokenizer([question(terms) for terms in sums], return_tensors="pt", return_token_type_ids=False)
    with torch.no_grad():
        tokens = model.generate(**prompts, do_sample=False, max_new_tokens=ANSWER_TOKENS)
    texts: list[str] = tokenizer.batch_decode(tokens[:, PROMPT_TOKENS:], skip_special_tokens=True)
    return texts
