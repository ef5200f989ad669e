"""A Llama that is small enough for any test: 2 layers, hidden 64, 512 tokens of a byte-level tokenizer.

Built with transformers in the process, saved as a Hugging Face folder; nothing comes from a hub.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
SPECIAL = ["<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "<|pad|>"]
TOKENS = 512


def tokenizer(**changes: Any) -> Any:
    """A byte-level BPE tokenizer of 512 tokens with a chat template; any text can be encoded."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    corpus = [f"{a} + {b} = {a + b}. The answer is {a * b}" for a in range(40) for b in range(40)]
    trainer = trainers.BpeTrainer(
        vocab_size=TOKENS,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    raw.train_from_iterator(corpus, trainer)
    made = PreTrainedTokenizerFast(
        tokenizer_object=raw, eos_token="<|end|>", pad_token="<|pad|>", clean_up_tokenization_spaces=False
    )
    made.chat_template = changes.get("chat_template", TEMPLATE)
    return made


def model(seed: int = 0, **changes: Any) -> Any:
    """Random weights, the same for the same seed; ``changes`` go to the config."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    settings: dict[str, Any] = {
        "vocab_size": TOKENS,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 2048,
        "tie_word_embeddings": False,
        "bos_token_id": None,
        "eos_token_id": SPECIAL.index("<|end|>"),
        "pad_token_id": SPECIAL.index("<|pad|>"),
    }
    state = torch.random.get_rng_state()
    torch.manual_seed(seed)
    try:
        return LlamaForCausalLM(LlamaConfig(**(settings | changes))).float().eval()
    finally:
        torch.random.set_rng_state(state)


def save(folder: Path, seed: int = 0, **changes: Any) -> Path:
    """Model and tokenizer as a Hugging Face folder."""
    model(seed, **changes).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder
