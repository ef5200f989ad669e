"""``fsrun demo --generate``: a small transformer learns to add, a fleet of SGLang measures it while it trains.

``plan``: the sums, the steps. ``model``: tokenizer and network. ``train``: the trainer, a process of its own.
``play``: both processes and the end. ``claims``: what is checked, against transformers' own generation too.
"""
